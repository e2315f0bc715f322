"""The command line: `main.py` lists the verbs, and `output.py` prints to the terminal."""
