"""Find, read and write `mcp.json`, the file in which applications list their servers.

    {"mcpServers": {"weather": {"command": "uvx", "args": ["weather"],
                                "env": {"KEY": "${WEATHER_KEY}"}},
                    "remote": {"url": "https://example.com/mcp", "auth": "oauth"},
                    "other": {"url": "https://example.org/mcp",
                              "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

`auth` accepts `"oauth"` to log in, a token, or an object with the parameters of `OAuth`, as
`Client(auth=…)` does. An example of an object is `{"clientId": "…", "clientSecret": "${SECRET}",
"issuer": "…", "scopes": ["…"]}`.

Each application, called a host here, has its own dialect: different names, units and variables, and
in some cases TOML or YAML instead of JSON. A file is read according to the rules of its host:

    files.py       finds, reads and writes files: JSON with comments, TOML or YAML
    hosts.py       lists the hosts, and converts their entries to Dovetail's fields
    servers.py     lists the servers in a file, and chooses one of them
    variables.py   fills in variables such as `${VAR}` when a server is used

An entry that is not understood does not affect the others: it is an error only if it is chosen.
Messages never contain the value of a variable or a value from the file.
"""

from .files import SUFFIXES, find, read, write
from .servers import AuthConfig, ChosenServer, ServerConfig, Servers, choose, parse, resolve
from .variables import expand

__all__ = [
    "SUFFIXES",
    "AuthConfig",
    "ChosenServer",
    "ServerConfig",
    "Servers",
    "choose",
    "expand",
    "find",
    "parse",
    "read",
    "resolve",
    "write",
]
