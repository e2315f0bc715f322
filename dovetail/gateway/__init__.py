"""Many servers as one: hosts, which hold many clients, and gateways, which serve many servers.

    naming.py     the names and URIs that callers see, and the servers that they belong to
    health.py     the state of an upstream server, and when it may be tried again
    policy.py     who may do what: the rules of a policy file
    pins.py       digests of what a model sees of a server, and what changed in it
    reports.py    what operators and callers see of the servers: health, metrics, failures

These modules contain no asynchronous code. The formats for function calling are in
`client/function_calling.py`, because the samplers use them, too.

    gateway.py    the gateway; reloading.py reloads it
    consent.py    ask before a server is started, called or given anything, and remember the answer
    consent_store.py    where consent is remembered: a file that several programs share
    pin_checks.py       what servers list now, and what of it is approved
    known.py      what servers listed in earlier runs
    host.py       the host: all servers of a configuration, for one user and one model
    access.py     what a host and a gateway decide alike
    host_access.py      where a host asks its user, and what it limits (sampling_review.py)
    gateway_access.py   where a gateway asks its callers
"""
