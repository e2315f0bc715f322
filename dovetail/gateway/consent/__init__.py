"""What a person allowed. Nothing here knows about connections.

consent.py        ask before a server is started, called or given anything, and remember the answer
request.py        what is asked, and what an answer covers
store.py          what is remembered, and the interface of a store
sqlite_store.py   a store in a file that several programs share
shared_store.py   a store in the backend that replicas of a gateway share
policy.py         who may do what: the rules of a policy file
pins.py           digests of what a model sees of a server, and what changed in it
"""
