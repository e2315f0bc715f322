"""Tasks of the servers behind a gateway.

gateway_tasks.py   requests about tasks, and their answers
calls.py           calls that start tasks, and those of callers without tasks
notifications.py   status changes and progress
context.py         what these three need of the gateway
known.py           what is known of tasks besides their handles
forms.py           handles, and the two forms of tasks
"""
