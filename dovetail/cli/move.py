"""`dovetail move FILE ...`: rewrite the imports of programs that were written for the official SDK
or FastMCP to `dovetail.compat`.

All files are read before any is written, and each is replaced whole or not at all.
`import_rewriter.py` changes the text; the mode, the encoding and the line ends of a file stay.
"""

import os
import stat
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError
from .output import AlreadyPrinted, bold, print_json, print_line, print_text

if TYPE_CHECKING:
    from .import_rewriter import Place


class MoveIncomplete(AlreadyPrinted):
    """Some places have to be changed by hand; they were printed."""


class MovedFile(NamedTuple):
    """A file, and what becomes of it."""

    name: str
    path: Path
    """The file itself, not a link to it."""
    status: os.stat_result
    encoding: str
    before: str
    after: str
    places: "list[Place]"


def add_move_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="a Python file to rewrite")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would change, and change nothing"
    )


def move(options: Namespace) -> None:
    """Rewrite the files, and list what has to be changed by hand."""
    files = [_read(name, options) for name in dict.fromkeys(options.files)]
    if not options.dry_run:
        _write_all([file for file in files if file.after != file.before])
    if options.json:
        print_json([_to_document(file, options) for file in files])
    else:
        for file in files:
            _print_file(file, options)
    if count := sum(len(file.places) for file in files):
        places = "1 place needs" if count == 1 else f"{count} places need"
        raise MoveIncomplete(f"{places} a change by hand")


# files


def _read(name: str, options: Namespace) -> MovedFile:
    import io
    import tokenize

    from .import_rewriter import rewrite

    path = Path(name).resolve()
    try:
        if path.is_dir():
            raise ConfigError(f"{name} is a directory; name its files, such as {name}/*.py")
        status, data = path.stat(), path.read_bytes()
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        before = data.decode(encoding)
        after, places = rewrite(before)
        if not options.dry_run:
            _, places = rewrite(after)  # their lines in the new text
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    except SyntaxError as error:  # also an unknown encoding
        where = f" in line {error.lineno}" if error.lineno else ""
        raise ConfigError(f"{name} is not valid Python{where}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not {error.encoding} text: save it as UTF-8, or name its encoding in the "
            "first line"
        ) from None
    except ValueError as error:  # a null character
        raise ConfigError(f"{name} is not valid Python: {error}") from None
    return MovedFile(name, path, status, encoding, before, after, places)


def _write_all(files: list[MovedFile]) -> None:
    from ..host_configs.files import write_file

    for file in files:
        if not file.status.st_mode & stat.S_IWUSR or not os.access(file.path, os.W_OK):
            raise ConfigError(f"{file.name} is read-only, so no file was changed")
    for index, file in enumerate(files):
        try:
            write_file(file.path, file.after.encode(file.encoding), file.status)
        except OSError as error:
            done = ", ".join(each.name for each in files[:index]) or "none"
            raise ConfigError(
                f"{file.name} cannot be written: {error.strerror} (files that were changed: {done})"
            ) from None


def _to_document(file: MovedFile, options: Namespace) -> dict[str, Any]:
    return {
        "file": file.name,
        "changed": file.after != file.before and not options.dry_run,
        "would_change": file.after != file.before,
        "places": [place._asdict() for place in file.places],
    }


def _print_file(file: MovedFile, options: Namespace) -> None:
    lines, name = file.after.splitlines(), file.name
    if options.dry_run:
        from difflib import unified_diff

        diff = unified_diff(file.before.splitlines(), lines, name, name, lineterm="")
        if text := "\n".join(diff):
            print_text(text)
    elif file.after == file.before:
        print_line(bold(name), ": nothing to rewrite")
    else:
        print_line(bold(name), ": imports rewritten")
    for place in file.places:
        print_line(f"{name}:{place.line}: {place.name}: {place.instead}")
