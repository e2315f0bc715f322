"""The embedded authorization server: `Server(auth=Provider(…))`.

    provider.py                 Provider: the guard, its routes, its metadata
    authorization_endpoint.py   what a browser sees: login, consent, the way back to the client
    pages.py                    the HTML of these pages
    token_endpoint.py           what a client calls: token and revocation endpoints
    grants.py                   codes, access tokens, refresh tokens, and how they end
    clients.py                  who may ask: known, registered (RFC 7591) or described by a document
                                at their URL; and their redirect URIs
    login.py                    login with a password, or at another OpenID provider
    storage.py                  what has to outlive the process
    web.py                      forms, responses, errors, limits, and documents of others

Nothing here does I/O except the storage: a request comes in, a response goes out, and what has to
be fetched goes through `PublicUrl.fetch`.
"""
