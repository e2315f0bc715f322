"""Write the pages of docs/reference that repeat what the code says: commands, limits, compat.

    make reference    after a change of a command's options, of `Limits` or of `dovetail.compat`

The pages are committed, so that they can be read without building the site. A test compares them
with what this script would write.
"""

import inspect
import re
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import griffe

from dovetail import compat
from dovetail.cli import main as cli
from dovetail.limits import KIB, MIB, Limits

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
GENERATED = "<!-- Written by scripts/reference.py: run `make reference` instead of editing it. -->"


def render_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = ([cell.replace("|", r"\|") for cell in line] for line in (head, *rows))
    first, *others = (f"| {' | '.join(line)} |" for line in cells)
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


def render_page(title: str, parts: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", GENERATED, *parts]) + "\n"


# The command line.

COMMANDS = """\
`dovetail COMMAND --help` prints the same. The [guide](../guides/cli.md) shows the commands at work.
In the tables, brackets mark an optional value."""


def render_commands() -> str:
    groups = dict.fromkeys(verb.group for verb in cli.VERBS.values())
    overview = render_table(
        ("command", "what it does"),
        (
            (f"[`dovetail {name}`](#dovetail-{name})", f"{verb.help}.")
            for group in groups
            for name, verb in cli.VERBS.items()
            if verb.group == group
        ),
    )
    return render_page("Commands", [COMMANDS, overview, *map(render_command, cli.VERBS)])


def render_command(name: str) -> str:
    verb = cli.VERBS[name]
    parser = ArgumentParser(prog=f"dovetail {name}", add_help=False)
    verb.add_arguments(parser)
    cli._add_common_options(parser)
    usage = " ".join(filter(None, ("dovetail", name, verb.usage, "[OPTIONS]")))
    actions = [action for action in parser._actions if action.help != SUPPRESS]
    rows = ((f"`{show_option(action)}`", help_of(parser, action)) for action in actions)
    parts = [
        f"## dovetail {name}",
        f"{verb.help}.",
        f"```text\n{usage}\n```",
        render_table(("argument or option", "meaning"), rows),
        "Examples:",
        "\n".join(["```text", *verb.examples, "```"]),
    ]
    return "\n\n".join(parts)


def show_option(action: Action) -> str:
    """Return the names of an option with its value: `-o, --output FILE`."""
    value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    if isinstance(value, tuple):
        value = " ".join(value)
    if action.nargs == 0:
        value = ""
    elif action.nargs in ("*", "?"):
        value = f"[{value}{' ...' if action.nargs == '*' else ''}]"
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def help_of(parser: ArgumentParser, action: Action) -> str:
    """Return the help text. Outside inline code, what Markdown would interpret is escaped."""
    parts = " ".join(parser._get_formatter()._expand_help(action).split()).split("`")
    parts[::2] = [re.sub(r"[*<\[]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


# The limits.

LIMITS = """\
`Limits` holds every limit of a server or a client: `Server("notes", limits=Limits(threads=8))`
changes one and keeps the others. The [guide](../guides/configuration.md#limits) says where to pass
it. Sizes are in bytes and times in seconds. An invalid value raises `ConfigError`."""
PLAIN_DEFAULT = re.compile(r" \(default: (?:[\d.,]+(?: [KMG]iB)?|None)\)")


def render_limits() -> str:
    file = ROOT / "dovetail" / "limits.py"
    module = griffe.visit("limits", filepath=file, code=file.read_text(encoding="utf-8"))
    fields: dict[str, Any] = module["Limits"].members
    parts: list[str] = [LIMITS]
    for group, names in limit_groups():
        rows = (
            (f"`{name}`", f"`{show_default(name, text)}`", PLAIN_DEFAULT.sub("", text))
            for name in names
            for text in [" ".join(fields[name].docstring.value.split())]
        )
        title = group[0].upper() + group[1:]
        parts += [f"## {title}", render_table(("limit", "default", "what it limits"), rows)]
    return render_page("Limits", parts)


def limit_groups() -> Iterator[tuple[str, list[str]]]:
    """Yield the comments that group the fields, with their fields."""
    source = inspect.getsource(Limits).partition("def __post_init__")[0]
    for section in source.split("\n    # ")[1:]:
        yield section.partition("\n")[0], re.findall(r"^    (\w+): ", section, re.MULTILINE)


def show_default(name: str, description: str) -> str:
    value = getattr(Limits(), name)
    for unit, symbol in ((MIB, "MiB"), (KIB, "KiB")):
        if re.search(r"\bbytes\b", description) and value % unit == 0:
            return f"{value // unit} {symbol}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if value else str(value)


# What `dovetail.compat` exports.

COMPAT = """\
`dovetail.compat` runs servers that were written for FastMCP or the official SDK, with only their
imports changed. [Moving a server to Dovetail](../guides/moving.md) lists the differences."""


def render_compat() -> str:
    rows = ((f"`{name}`", summary_of(getattr(compat, name))) for name in compat.__all__)
    names = render_table(("name", "what it is"), rows)
    classes = [f"## ::: dovetail.compat.{name}" for name in ("FastMCP", "MCPServer", "Context")]
    return render_page("Servers of other libraries", [COMPAT, "## Names", names, *classes])


def summary_of(value: Any) -> str:
    """Return the first sentence of a docstring, unless it is that of `functools.partial`."""
    text = inspect.getdoc(value) or ""
    if text == inspect.getdoc(partial):
        return "The same as in the library that the server was written for."
    return re.split(r"(?<=\.) ", " ".join(text.partition("\n\n")[0].split()))[0]


PAGES = {"commands.md": render_commands, "limits.md": render_limits, "compat.md": render_compat}


def main() -> None:
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
