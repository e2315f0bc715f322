"""MCP over HTTP: a server endpoint and a client, which support every era."""
