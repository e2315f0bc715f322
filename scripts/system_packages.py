"""Install what the tests need and pip cannot install: a browser, npm, Redis, and Debian's `venv`.

    python3 scripts/system_packages.py               install what is missing, with sudo if need be
    python3 scripts/system_packages.py --root        the same, but only if this user is root
    python3 scripts/system_packages.py --root venv   only this one

`make setup` runs the first, `make test` the second: in a container or on a CI machine it sets up
everything, on a person's machine it never asks for a password. It knows Debian and Ubuntu
(`apt-get`); on other systems it names what is missing.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PACKAGES = {
    "browser": "chromium",
    "npm": "npm",
    "redis": "redis-server",
    "sentinel": "redis-sentinel",
    "venv": "python3-venv",
}


def find_browser() -> str | None:
    """Return the path of a browser based on Chromium; $CHROMIUM has priority."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def find_missing(wanted: Sequence[str]) -> list[str]:
    """Return the names of the system packages that have to be installed."""
    present = {
        "browser": find_browser() is not None,
        "npm": shutil.which("npm") is not None,
        "redis": shutil.which("redis-server") is not None,
        "sentinel": shutil.which("redis-sentinel") is not None,
        # Debian splits it off, and without it `python3 -m venv` cannot install pip.
        "venv": importlib.util.find_spec("ensurepip") is not None,
    }
    return [PACKAGES[name] for name in wanted or PACKAGES if not present[name]]


def install(packages: Sequence[str], sudo: Sequence[str]) -> int:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        [*sudo, "apt-get", "update", "-qq"],
        [*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        code = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode
        if code:
            print(f"{' '.join(command)} failed with exit code {code}", file=sys.stderr)
            return code
    return 0


def main(arguments: Sequence[str]) -> int:
    only_as_root = "--root" in arguments
    missing = find_missing([name for name in arguments if name != "--root"])
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not missing or (only_as_root and not is_root):
        return 0
    if shutil.which("apt-get") is None:
        print(f"Please install: {', '.join(missing)} (there is no apt-get on this system)")
        return 0 if only_as_root else 1
    print(f"Installing {', '.join(missing)}", flush=True)
    return install(missing, [] if is_root else ["sudo"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
