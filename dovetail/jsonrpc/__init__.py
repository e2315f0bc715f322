"""JSON-RPC 2.0. Nothing in this package is asynchronous or specific to MCP."""
