"""The guards of a server: `Server(auth=…)`.

    guards.py      Bearer and ApiKeys: accept or refuse callers
    verifiers.py   what checks an access token: static_tokens, introspection, jwt

Proofs of possession are checked in `auth/dpop.py`, which clients use as well.
"""
