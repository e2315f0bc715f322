import shutil
import sys

from . import Trouble, install

if shutil.which("npm") is None:
    sys.exit()  # the tests that need it say so
try:
    install()
except Trouble as problem:
    sys.exit(f"{problem}")
