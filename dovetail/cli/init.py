"""`dovetail init NAME`: create a project with a server, a test, a README and a CI file."""

import keyword
import os
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from .. import __version__
from ..errors import ConfigError
from .output import bold, dim, print_json, print_line

_RESERVED = ("dovetail", "dovetail_mcp", "pytest", "pluggy", "iniconfig", "packaging", "conftest")
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")


def add_init_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="NAME", help="the name of the project, which is also its new folder"
    )


def init(options: Namespace) -> None:
    """Create the project."""
    folder = Path(options.folder)
    name = folder.resolve().name.lower().replace("_", "-").replace(" ", "-")
    module = name.replace("-", "_")
    _check_name(name, module)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty. Choose another name.")
    files = _make_files(name, module)
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None
    if options.json:
        print_json({"folder": str(folder), "files": list(files)})
        return
    print_line("Created ", bold(str(folder)), f" with {', '.join(files)}")
    print_line(dim("Next:"))
    print_line(f"  cd {_quote(str(folder))}")
    print_line(f"  dovetail dev {module}.py       ", dim("# try it in the browser"))
    print_line(f"  dovetail install HOST {module}.py   ", dim("# `dovetail hosts` lists the hosts"))


def _check_name(name: str, module: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a package. Use letters, digits and hyphens, and start "
            "with a letter."
        )
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _own_modules():
        raise ConfigError(
            f"{name!r} is the name of a part of Python, of Dovetail, or of a package that the "
            "project uses. Choose another."
        )


def _own_modules() -> set[str]:
    """Return the modules that a module of the project must not hide."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("dovetail-mcp") or []
    except PackageNotFoundError:
        lines = []
    used = (re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in lines)
    return {*_RESERVED, *used}


def _quote(folder: str) -> str:
    """Return a folder as one can paste it into a shell."""
    if os.name == "nt":
        return f'"{folder}"' if " " in folder else folder
    return shlex.quote(folder)


def _make_files(name: str, module: str) -> dict[str, str]:
    from ..host_configs.hosts import find_host
    from ..host_configs.links import make_link
    from .project_template import FILES

    words = {
        "NAME": name,
        "MODULE": module,
        "VERSION": __version__,
        "FRIENDLY": name.replace("-", " ").capitalize(),
        "CURSOR": make_link(find_host("cursor"), name, command=["uvx", name]).button,
        "VSCODE": make_link(find_host("vscode"), name, command=["uvx", name]).button,
    }
    pattern = re.compile("|".join(words))

    def fill(text: str) -> str:
        return pattern.sub(lambda match: words[match[0]], text)

    return {fill(path): fill(text) for path, text in FILES.items()}
