"""The backend on Redis."""
