"""MCP over HTTP: a server endpoint and a client, both for every era."""
