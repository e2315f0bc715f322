"""The command line: `main.py` lists the verbs, each has its own file, and `output.py` prints."""
