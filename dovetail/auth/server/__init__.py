"""The guards of a server: `Server(auth=…)`.

guards.py      Bearer and ApiKeys: who is let in, and what all others are told
verifiers.py   what checks an access token: static_tokens, introspection
jwt.py         the same for tokens that their issuer has signed
"""
