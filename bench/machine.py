"""The kind of machine, but never its name; what was measured; and how measured processes start."""

import ctypes
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

from .implementations import PEERS

OURS = ["msgspec", "uvicorn", "uvloop", "httptools", "aiohttp"]
THEIRS = ["mcp", "fastmcp", "pydantic", "uvicorn"]
_TELL = (
    "import sys; from importlib.metadata import version; print(*(f'{one} {version(one)}' "
    "for one in sys.argv[1:]), sep=', ')"
)
ADDR_NO_RANDOMIZE = 0x0040000  # from <sys/personality.h>


def fix_addresses() -> None:
    """Start all further processes without address space layout randomization, if the system allows
    it. With randomization, about one process in six takes a third more CPU time for the same work
    until it ends (11 of 63 starts on a Neoverse-N1; without it, none of 28)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "personality"):  # Linux
        persona = libc.personality(0xFFFFFFFF)  # only returns the current value
        if libc.personality(persona | ADDR_NO_RANDOMIZE) == -1:
            print("Cannot turn off ASLR on this system: the figures vary more", file=sys.stderr)


def described() -> dict[str, str]:
    """Lines for the page."""
    command = [str(PEERS / "bin" / "python"), "-c", _TELL, *THEIRS]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {**here(OURS), "the others": theirs}


def described_gateways() -> dict[str, str]:
    """Lines for the page about gateways, which names the versions of the others itself."""
    load = f"{os.getloadavg()[2]:.1f} (load average of the last 15 minutes)"
    return {**here(["msgspec", "uvicorn", "uvloop", "httptools"]), "load": load}


def described_backend() -> dict[str, str]:
    """Lines for the page about the backend."""
    command = ["redis-server", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"v=(\S+)", done)
    load = f"{os.getloadavg()[2]:.1f} (load average of the last 15 minutes)"
    ours = here(["msgspec", "uvicorn", "uvloop", "httptools", "redis", "hiredis"])
    return {**ours, "Redis": found[1] if found else "unknown", "load": load}


def here(ours: list[str]) -> dict[str, str]:
    """The machine, and what Dovetail uses."""
    from dovetail import __version__

    return {
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()}, {platform.python_implementation()} "
        f"{platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
        "Dovetail": f"dovetail {__version__}, "
        + ", ".join(f"{one} {version(one)}" for one in ours),
    }


def processor() -> str:
    """The architecture, and the model if it is known. Only `lscpu` knows the names of ARM
    processors."""
    try:
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            ["lscpu"], check=True, capture_output=True, text=True, env=environment
        )
        found = re.search(r"^\s*Model name:\s*(.+)$", done.stdout, re.MULTILINE)
    except (OSError, subprocess.CalledProcessError):
        found = None
    return f"{platform.machine()}, {found[1]}" if found else platform.machine()
