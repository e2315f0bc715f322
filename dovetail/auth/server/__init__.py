"""Guards for servers: `Server(auth=…)`.

    guards.py      Bearer and ApiKeys, which admit or refuse callers
    verifiers.py   the verifiers of access tokens (static_tokens, introspection and jwt)

Proofs of possession are checked in `auth/dpop.py`, which clients also use.
"""
