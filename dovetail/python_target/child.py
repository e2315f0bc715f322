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
    from dovetail.python_target.report import start_report

    report = start_report()
    from dovetail.python_target.load import serve_target
    from dovetail.python_target.parse import parse_python_target

    del sys.path[0]
    target = parse_python_target(sys.argv[1])
    assert target is not None
    if report and target.is_file:
        report.add_file(target.source)
    try:
        serve_target(target)
    except SystemExit as exit:
        if report and exit.__context__:
            report.add_failure(exit.__context__)
        raise
