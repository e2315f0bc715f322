"""Find, read and write `mcp.json`, the file in which applications list their servers.

    {"mcpServers": {"weather": {"command": "uvx", "args": ["weather"],
                                "env": {"KEY": "${WEATHER_KEY}"}},
                    "remote": {"url": "https://example.com/mcp", "auth": "oauth"},
                    "other": {"url": "https://example.org/mcp",
                              "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

`auth` accepts `"oauth"` to log in, a token, or an object with the parameters of `OAuth`, as
`Client(auth=…)` does. An example of an object is `{"clientId": "…", "clientSecret": "${SECRET}",
"issuer": "…", "scopes": ["…"]}`. With `"grantType": "client_credentials"`, the program
authenticates itself, and nobody has to log in.

Each application, called a host here, has its own dialect: different names, units and variables, and
in some cases TOML or YAML instead of JSON. A file is read according to the rules of its host:

    files.py       finds, reads and writes files: JSON with comments, TOML or YAML
    hosts.py       lists the hosts, and converts their entries to Dovetail's fields
    servers.py     lists the servers in a file, and chooses one of them
    variables.py   fills in variables such as `${VAR}` when a server is used
    settings.py    reads the `dovetail` objects, which contain Dovetail's own settings
    forward.py     refuses headers that a gateway must not pass on
    known_keys.py  converts an object that must not have unknown keys
    gateway_loop.py   refuses a file that would serve itself through a gateway
    entry_digest.py   identifies an entry, so that consent is asked again if it changes

An entry that is not understood does not affect the others: it is an error only if it is chosen.
Messages never contain the value of a variable or a value from the file.
"""

from .entry_digest import entry_digest
from .files import SUFFIXES, find, read, read_toml, to_entry, write
from .gateway_loop import refuse_loop, served_file
from .servers import AuthConfig, ChosenServer, ServerConfig, Servers, choose, parse, resolve
from .settings import FileSettings, ServerSettings, ToolFilter, merge_settings
from .variables import expand

__all__ = [
    "SUFFIXES",
    "AuthConfig",
    "ChosenServer",
    "FileSettings",
    "ServerConfig",
    "ServerSettings",
    "Servers",
    "ToolFilter",
    "choose",
    "entry_digest",
    "expand",
    "find",
    "merge_settings",
    "parse",
    "read",
    "read_toml",
    "refuse_loop",
    "resolve",
    "served_file",
    "to_entry",
    "write",
]
