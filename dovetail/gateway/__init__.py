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
    pinned_items.py     what servers list now, and what of it a user has approved
    host.py       the host: all servers of a configuration, for one user and one model
    host_consent.py     where a host asks, and what it limits (sampling_review.py)
"""
