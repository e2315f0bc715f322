"""Serve an HTTP API as tools, from its description in OpenAPI 3 (`Server.from_openapi`).

documents.py     reads a description, and follows its references
parser.py        finds the operations in it; media.py chooses how a body is sent
names.py         names the tools
selection.py     chooses operations by tag, path, method or name
schemas.py       makes the input schema of an operation; schema_bundle.py converts schemas
requests.py      makes the HTTP request of a call; styles.py writes its parameters
security.py      adds credentials
replies.py       makes a result of the reply
api.py           sends requests
search_tools.py  `search`, `describe` and `call` instead of many tools
server_parts.py  everything that a server needs
"""

from .server_parts import ApiServerParts, load_api

__all__ = ["ApiServerParts", "load_api"]
