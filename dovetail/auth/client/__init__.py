"""Credentials for clients: `Client(url, auth=…)`.

    credentials.py         the classes that hold settings (OAuth, ClientCredentials, BearerToken, …)
    bound_credentials.py   token management and I/O for one server
    flow.py                the authorization flow
    discovery.py           how to find a server's authorization server and get a client id from it
    grants.py              requests to a token endpoint
    browser.py             the user's visit to a login page
    store.py               the stored data and the stores that hold it

The flow, discovery and grants are generators that do no I/O themselves.
"""
