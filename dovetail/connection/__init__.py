"""One live conversation. asyncio starts here; nothing in this folder knows how bytes travel or what
a tool is."""
