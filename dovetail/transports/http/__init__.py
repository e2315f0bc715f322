"""MCP over HTTP: one endpoint for every era, and its client."""
