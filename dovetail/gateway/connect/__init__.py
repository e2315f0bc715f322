"""Users who log in to servers themselves (`"auth": "oauth"` behind a gateway).

connections.py   what a call does that needs a login
pages.py         the pages on which users connect, and the login; html.py renders the pages
servers.py       a server with users: one `UpstreamServer` for each of them
tokens.py        the tokens of users
"""
