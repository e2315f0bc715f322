"""`dovetail run --compat TARGET -- ARGUMENTS`: the arguments. `run_compat.py` runs the program."""

from argparse import ArgumentParser
from collections.abc import Sequence


def add_compat_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--compat",
        metavar="TARGET",
        help="run a program that was written for the official SDK (mcp) or FastMCP, unedited: "
        "FILE.py, MODULE, MODULE:FUNCTION, or a console script such as mcp-server-git; its own "
        "arguments follow after --",
    )


def split_program_arguments(arguments: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Return the arguments of this command, and those of the program that `--compat` names."""
    words = list(arguments)
    if words[:1] != ["run"] or "--" not in words:
        return arguments, []
    end = words.index("--")
    is_compat = any(word.partition("=")[0] == "--compat" for word in words[:end])
    return (words[:end], words[end + 1 :]) if is_compat else (arguments, [])
