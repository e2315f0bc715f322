"""Credentials for clients: `Client(url, auth=…)`.

    credentials.py         the settings: OAuth, ClientCredentials, BearerToken, …
    bound_credentials.py   the credentials for one server, which do I/O and manage the tokens
    flow.py                the authorization flow
    discovery.py           finds a server's authorization server, and gets a client id from it
    grants.py              requests to a token endpoint
    browser.py             sends the user to a login page
    store.py               the stored data, and the places to store it

The flow, discovery and grants are generators that do no I/O themselves.
"""
