"""The process that a client starts for a Python target: `python child.py TARGET`.

The client starts it by path, so that it works in any environment and directory and uses the same
version of this package as the client.
"""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    from dovetail.python_target.load import serve_target
    from dovetail.python_target.parse import parse_python_target

    del sys.path[0]
    target = parse_python_target(sys.argv[1])
    assert target is not None
    serve_target(target)
