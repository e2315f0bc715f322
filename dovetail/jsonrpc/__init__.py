"""JSON-RPC 2.0: no word of MCP and nothing asynchronous may enter here."""
