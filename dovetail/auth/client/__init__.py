"""Credentials for clients: `Client(url, auth=…)`.

    credentials.py         the settings: OAuth, ClientCredentials, BearerToken, …
    bound_credentials.py   credentials for one server: do the I/O, store and renew tokens
    flow.py                the authorization flow
    discovery.py           finds the authorization server of a server, and gets a client id there
    grants.py              requests to a token endpoint
    browser.py             sends the user to a login page
    store.py               the stored data, and the places to store it

The flow, discovery and grants are generators that do no I/O themselves.
"""
