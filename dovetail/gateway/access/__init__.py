"""Who may use what of the servers, and who is asked.

access.py            what a host and a gateway decide alike
host_access.py       where a host asks its user, and what it limits
sampling_review.py   what a person reviews of a request for a completion, and of its answer
gateway_access.py    where a gateway asks its callers
pin_checks.py        what servers list now, compared with what was approved
"""
