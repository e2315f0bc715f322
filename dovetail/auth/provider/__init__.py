"""The embedded authorization server: `Server(auth=Provider(…))`.

    provider.py                 the `Provider` guard, with its routes and metadata
    authorization_endpoint.py   login and consent in a browser, and the redirect to the client
    sessions.py                 browsers that are logged in, and their cookies
    pages.py                    the HTML of the login, consent and error pages
    token_endpoint.py           the token and revocation endpoints, which clients call
    grants.py                   codes, access tokens, refresh tokens, and revocation
    clients.py                  clients (configured, registered as in RFC 7591, or described by a
                                document at their URL) and their redirect URIs
    login.py                    login with a password, or at an upstream OpenID provider
    storage.py                  persistent storage
    web.py                      forms, responses, errors, limits, and documents from other servers

Only the storage does I/O. The endpoints turn a request into a response, and fetch documents through
`PublicUrl.fetch`.
"""
