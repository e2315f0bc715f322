"""Many servers as one: hosts, which hold many clients, and gateways, which serve many servers.

    host.py, gateway.py   the two; mounts.py mounts servers in a `Server`, and reloading.py reloads
    upstreams.py          all servers of a file; upstream.py is one of them
    relay.py              one call to a server and back
    consent/              what a person allowed, the rules of a policy, digests of what was approved
    access/               who may use what, and who is asked: by a host, and by a gateway
    tasks/                tasks of servers
    connect/              users who log in to servers themselves

The page docs/design/gateway.md lists all files. The folders, and the files beside them, import each
other in one direction. `naming.py`, `health.py`, `consent/policy.py` and `consent/pins.py` contain
no asynchronous code. The formats for function calling are in `client/function_calling.py`, because
the samplers use them, too.
"""
