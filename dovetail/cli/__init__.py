"""The command line: `main.py` knows the verbs, each verb is a file, `terminal.py` is the only way
to the screen."""
