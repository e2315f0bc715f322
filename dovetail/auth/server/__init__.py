"""Guards for servers: `Server(auth=…)`.

    guards.py      Bearer and ApiKeys: admit or refuse callers
    verifiers.py   checks of access tokens: static_tokens, introspection, jwt

Proofs of possession are checked in `auth/dpop.py`, which clients also use.
"""
