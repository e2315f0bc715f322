"""What was measured, and the kind of machine, but never its name."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from .implementations import PEERS

OURS = ["msgspec", "uvicorn", "uvloop", "httptools", "aiohttp"]
THEIRS = ["mcp", "fastmcp", "pydantic", "uvicorn"]
_TELL = (
    "import sys; from importlib.metadata import version; print(*(f'{one} {version(one)}' "
    "for one in sys.argv[1:]), sep=', ')"
)


def described() -> dict[str, str]:
    """Lines for the page."""
    command = [str(PEERS / "bin" / "python"), "-c", _TELL, *THEIRS]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {**here(OURS), "peers": theirs}


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
        "Dovetail": f"dovetail {__version__}, "
        + ", ".join(f"{one} {version(one)}" for one in ours),
    }


def processor() -> str:
    """The model, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
