"""The credentials of a client: `Client(url, auth=…)`.

    credentials.py         the settings: OAuth, ClientCredentials, BearerToken, …
    bound_credentials.py   the same for one server: does the I/O, stores and renews tokens
    flow.py                the authorization flow
    discovery.py           from the URL of a server to its authorization server, and to an id there
    grants.py              requests to a token endpoint
    browser.py             how a user is sent to a login page
    store.py               what is stored, and where

The flow, discovery and grants are generators that do no I/O themselves.
"""
