"""The revision of MCP Apps, which counts its own."""

APPS = "2026-01-26"
"""What a host tells its views. https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx"""
