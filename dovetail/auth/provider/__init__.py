"""The embedded authorization server: `Server(auth=Provider(…))`.

    provider.py                 Provider: the guard, its routes and its metadata
    authorization_endpoint.py   for browsers: login, consent, and the redirect to the client
    pages.py                    the HTML for these pages
    token_endpoint.py           for clients: the token and revocation endpoints
    grants.py                   codes, access tokens, refresh tokens, and revocation
    clients.py                  clients (configured, registered as in RFC 7591, or described by a
                                document at their URL) and their redirect URIs
    login.py                    login with a password, or at an upstream OpenID provider
    storage.py                  persistent storage
    web.py                      forms, responses, errors, limits, and documents from other servers

Only the storage does I/O. The endpoints turn a request into a response, and fetch documents through
`PublicUrl.fetch`.
"""
