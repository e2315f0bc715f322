"""Parse a string that names a server in Python code, and load that server."""
