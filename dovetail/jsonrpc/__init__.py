"""JSON-RPC 2.0. Nothing about MCP and nothing asynchronous belongs here."""
