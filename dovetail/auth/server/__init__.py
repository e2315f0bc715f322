"""The server side of OAuth: who is let in, and with which tokens."""
