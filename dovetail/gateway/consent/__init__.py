"""What a person allowed. Nothing here knows about connections.

consent.py   ask before a server is started, called or given anything, and remember the answer
store.py     where answers are remembered: a file that several programs share
policy.py    who may do what: the rules of a policy file
pins.py      digests of what a model sees of a server, and what changed in it
"""
