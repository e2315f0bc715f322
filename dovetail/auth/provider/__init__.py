"""The embedded authorization server: `Server(auth=Provider(…))`.

    server.py      Provider: the guard, its routes, its metadata
    authorize.py   what a browser sees: login, consent, the way back to the client
    pages.py       how that looks
    tokens.py      what a client sees: token and revocation endpoints
    grants.py      codes, access tokens, refresh tokens, and how they end
    clients.py     who may ask: known, registered (RFC 7591) or described by a document at their URL
    redirects.py   which URLs a client may have its user sent back to
    fetching.py    documents of others, kept for a while
    upstream.py    login at another OpenID provider
    passwords.py   login here
    storage.py     what has to outlive the process
    web.py         forms, replies, refusals

Nothing here does I/O of its own but the storage: a request comes in, a response goes out, and what
has to be fetched goes through `PublicUrl.fetch`.
"""
