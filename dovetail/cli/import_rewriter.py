"""Rewrite the imports of the official SDK and FastMCP in a Python program to `dovetail.compat`.

The syntax tree says where an import is, and only those characters of the text are replaced. So
comments and layout stay as they are. What cannot be rewritten is left alone and listed as a
`Place`: names that `dovetail.compat` does not have, and options and methods that it refuses.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from ..compat.imports import MODULES, PLACES, SDK_NAMES, VERSIONS
from ..compat.instead import ELSEWHERE, INSTEAD, REFUSED
from ..errors import ConfigError

COMPAT, TYPES = "dovetail.compat", "dovetail.compat.types"
SEE = "see docs/guides/moving.md for what Dovetail has"
SERVERS = ("FastMCP", "MCPServer", "SDKFastMCP")
AS_MODULE = "module"
LINE_END = re.compile(r"\r\n|\r|\n")
FROM = re.compile(r"from(?:\s|\\(?=[\r\n]))+")
COMMA = re.compile(r"\s*,[ \t]*")
BLANK = re.compile(r"[ \t]*(?:\r\n|\r|\n)")


class Place(NamedTuple):
    """A place in a program that has to be changed by hand."""

    line: int
    name: str
    instead: str


class TextEdit(NamedTuple):
    """Characters of a program to replace."""

    start: int
    end: int
    text: str


def rewrite(text: str) -> tuple[str, list[Place]]:
    """Return a program with its imports rewritten, and the places to change by hand.

    Args:
        text: The program.

    Raises:
        SyntaxError: The text is not a Python program.
    """
    program = Program(text)
    for node in ast.walk(program.tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_known(node.module):
            program.move_names(node)
        elif isinstance(node, ast.Import):
            program.move_modules(node)
    program.shorten_paths()
    program.find_refused()
    for edit in sorted(program.edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text, sorted(set(program.places))


class Program:
    """A program, and what is to be changed in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an invalid escape in a string
            self.tree = ast.parse(text)
        self.line_starts = [0, *(end.end() for end in LINE_END.finditer(text))]
        self.newline = next((end[0] for end in LINE_END.finditer(text)), "\n")
        self.edits: list[TextEdit] = []
        self.places: list[Place] = []
        self.names: dict[str, str] = {}
        """What the names in the program were imported as."""
        self.modules: dict[str, tuple[str, str]] = {}
        """The names of modules in the program: which module it was, and which it is now."""
        self.variables = {
            node.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def offset(self, line: int, column: int) -> int:
        """Return the index of a position of the syntax tree, whose columns are in bytes."""
        start = self.line_starts[line - 1]
        return start + len(self.text[start : start + column].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends."""
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def add_place(self, line: int, name: str, instead: str = "") -> None:
        """Remember a place to change by hand."""
        self.places.append(Place(line, name, instead or ELSEWHERE.get(name) or SEE))

    # imports

    def move_names(self, node: ast.ImportFrom) -> None:
        """Rewrite `from mcp.types import Tool`. Names that cannot be imported from the same module
        as the others get a statement of their own."""
        module, (start, end) = node.module or "", self.span(node)
        found = {alias: self.find_name(module, alias) for alias in node.names}
        moved = next((place for place in found.values() if place and place != AS_MODULE), None)
        apart = [alias for alias, place in found.items() if place is None or place != moved]
        if not any(found.values()) or _is_ours(module):
            return
        prefix = self.text[self.line_starts[node.lineno - 1] : start]
        separator = "; " if prefix.strip() else self.newline + prefix
        before = _statements(module, {alias: found[alias] or module for alias in apart})
        if moved is None:
            self.edits.append(TextEdit(start, end, separator.join(before)))
            return
        begin = FROM.match(self.text, start)
        assert begin is not None
        if not self.text.startswith(module, begin.end()):  # `from mcp . types import`
            self.add_place(node.lineno, module, f"import from {moved}")
            return
        self.edits.append(TextEdit(begin.end(), begin.end() + len(module), moved))
        if before:
            self.edits.append(TextEdit(start, start, separator.join([*before, ""])))
        self.edits += self.edit_names(node, apart)

    def find_name(self, module: str, alias: ast.alias) -> str | None:
        """Return the module of Dovetail to import a name from, and remember what it is."""
        place, name = _find(module, alias.name), alias.asname or alias.name
        if place is None:
            self.add_place(alias.lineno, alias.name)
        elif alias.name in MODULES:
            own = COMPAT if place == AS_MODULE else f"{place}.{alias.name}"
            self.modules[name] = (f"{module}.{alias.name}", own)
        else:
            self.names[name] = alias.name
        return place

    def edit_names(self, node: ast.ImportFrom, apart: list[ast.alias]) -> Iterator[TextEdit]:
        """Spell the names of an import, and remove those that are imported apart. In a list with
        one name per line, only those lines go."""
        (start, _), (_, end) = self.span(node.names[0]), self.span(node.names[-1])
        kept = [alias for alias in node.names if alias not in apart]
        if apart and (node.lineno == node.end_lineno or end == self.span(node)[1]):
            names = [_spell(node.module or "", alias) for alias in kept]
            yield TextEdit(start, end, ", ".join(names))
            return
        for alias in kept:
            if _new_name(node.module or "", alias.name) != alias.name:
                yield TextEdit(*self.span(alias), _spell(node.module or "", alias))
        for alias in apart:
            start, end = self.span(alias)
            comma = COMMA.match(self.text, end)
            end = comma.end() if comma else end
            line, rest = self.line_starts[alias.lineno - 1], BLANK.match(self.text, end)
            if rest is not None and not self.text[line:start].strip():
                start, end = line, rest.end()
            yield TextEdit(start, end, "")

    def move_modules(self, node: ast.Import) -> None:
        """Rewrite `import mcp.types as types`, and `import mcp`, which keeps its name."""
        for alias in node.names:
            root, (start, end) = alias.name.partition(".")[0], self.span(alias)
            if alias.asname is not None and _is_ours(alias.name):
                self.modules[alias.asname] = (alias.name, alias.name)
            elif alias.asname is not None and root in VERSIONS:
                place = _place(alias.name)
                self.modules[alias.asname] = (alias.name, place)
                self.edits.append(TextEdit(start, start + len(alias.name), place))
            elif root in VERSIONS and root in self.variables:
                self.add_place(node.lineno, root, f"{root} is also a variable; rename one of them")
            elif root in VERSIONS:
                self.modules[root] = (root, COMPAT)
                self.edits.append(TextEdit(start, end, f"{COMPAT} as {root}"))

    def shorten_paths(self) -> None:
        """Rewrite the uses of a module: `mcp.server.fastmcp.FastMCP` becomes `mcp.FastMCP`."""
        inner = {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                root, *parts = _path(node)
                if root in self.modules:
                    self.shorten_path(node, root, parts)

    def shorten_path(self, node: ast.Attribute, root: str, parts: list[str]) -> None:
        """Rewrite one use of a module."""
        module, own = self.modules[root]
        depth = next((at for at, part in enumerate(parts) if part not in MODULES), len(parts))
        if depth == len(parts):  # only a module
            depth -= 1
        written, name = ".".join([root, *parts[:depth]]), parts[depth]
        used = ".".join([module, *parts[:depth]])
        places = [place for place in _find_all(used, name) if place in (own, COMPAT, TYPES)]
        places = [place for place in places if f"{place}.".startswith(f"{own}.")]
        start = self.span(node)[0]
        if not places:
            self.add_place(node.lineno, f"{written}.{name}", ELSEWHERE.get(name, ""))
        elif not _is_ours(module) and self.text.startswith(f"{written}.{name}", start):
            short = f"{root}{places[-1].removeprefix(own)}.{_new_name(used, name)}"
            self.edits.append(TextEdit(start, start + len(f"{written}.{name}"), short))

    # calls

    def find_refused(self) -> None:
        """Find options and methods that `dovetail.compat` refuses."""
        from .. import compat

        servers, contexts = set[str](), set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and self.imported(node.value) in SERVERS:
                servers |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.arg) and self.imported(node.annotation) == "Context":
                contexts.add(node.arg)
        owners: dict[str, Any] = dict.fromkeys(servers, compat.FastMCP)
        owners |= dict.fromkeys(contexts, compat.Context)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = owners.get(node.value.id)
                if owner is not None and node.attr in INSTEAD and not hasattr(owner, node.attr):
                    self.add_place(node.lineno, ast.unparse(node), INSTEAD[node.attr])
            if isinstance(node, ast.Call):
                self.find_refused_options(node, servers)

    def find_refused_options(self, call: ast.Call, servers: set[str]) -> None:
        """Find the refused options of one call."""
        method = _path(call.func)
        if self.imported(call.func) in SERVERS:
            probe = PROBES["FastMCP"]
        elif len(method) == 2 and method[0] in servers and method[1] in PROBES:
            probe = PROBES[method[1]]
        else:
            return
        for option in call.keywords:
            name = option.arg
            if name in REFUSED and _is_refused(probe, name, option.value):
                self.add_place(option.value.lineno, f"{method[-1]}({name}=)", REFUSED[name])

    def imported(self, node: ast.expr | None) -> str | None:
        """Return what an expression refers to, if it is an imported name; for a call, what is
        called; for `Context[…]`, the name in front."""
        if isinstance(node, ast.Call):
            return self.imported(node.func)
        if isinstance(node, ast.Subscript):
            return self.imported(node.value)
        path = _path(node)
        if len(path) > 1:
            return path[-1] if path[0] in self.modules else None
        return self.names.get(path[0])


def _path(node: Any) -> list[str]:
    """Return the parts of a dotted name. What is not a name is an empty part, as in `f().run`."""
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _is_ours(module: str) -> bool:
    return module == COMPAT or module.startswith(f"{COMPAT}.")


def _is_known(module: str | None) -> bool:
    """Whether a module belongs to the other libraries, or was rewritten before."""
    return (module or "").partition(".")[0] in VERSIONS or _is_ours(module or "")


def _place(module: str) -> str:
    """Return the module of Dovetail that takes the place of a whole module."""
    places = PLACES.get(module, ())
    return f"{COMPAT}.{places[0]}" if len(places) == 1 else COMPAT


def _find(module: str, name: str) -> str | None:
    """Return the module of Dovetail to import a name from; AS_MODULE if it is a module itself."""
    if name == "*":
        return _place(module)
    places = _find_all(module, name)
    return places[-1] if places else AS_MODULE if name in MODULES else None


def _find_all(module: str, name: str) -> list[str]:
    """Return the modules of Dovetail in which a name means the same as in `module`, the shortest
    last."""
    name, first = _new_name(module, name), [f"{COMPAT}.{one}" for one in PLACES.get(module, ())]
    places = [module, COMPAT] if _is_ours(module) else [*first, COMPAT]
    places = [place for place in places if _has(place, name)]
    values = [getattr(import_module(place), name) for place in places]
    if not values or (isinstance(values[0], ModuleType) and name != "types"):
        return []
    return [place for place, value in zip(places, values, strict=True) if value is values[0]]


def _new_name(module: str, name: str) -> str:
    """Return the name in Dovetail. A few mean something else in the official SDK."""
    return SDK_NAMES.get(name, name) if module.startswith("mcp.") else name


def _spell(module: str, alias: ast.alias) -> str:
    """Return a name as an import spells it."""
    name = _new_name(module, alias.name)
    bound = alias.asname or alias.name
    return f"{name} as {bound}" if alias.asname or bound != name else name


def _has(place: str, name: str) -> bool:
    try:
        return hasattr(import_module(place), name)
    except ImportError:  # a name in ELSEWHERE
        return False


def _statements(module: str, places: dict[ast.alias, str]) -> list[str]:
    """Return statements that import names of a module from these places, one for each place."""
    lines: dict[str, list[str]] = {}
    for alias, place in places.items():
        if place == AS_MODULE:
            lines[f"import {COMPAT} as {alias.asname or alias.name}"] = []
        else:
            name = _spell("" if place == module else module, alias)
            lines.setdefault(f"from {place} import ", []).append(name)
    return [line + ", ".join(names) for line, names in lines.items()]


def _is_refused(probe: Callable[..., Any], name: str, value: ast.expr) -> bool:
    try:
        literal = ast.literal_eval(value)
    except ValueError:
        literal = "?"
    try:
        probe(**{name: literal})
    except ConfigError as error:
        return f"has no option {name}=" in str(error)
    except Exception:
        return False
    return False


def _probe_component(kind: str, **options: Any) -> None:
    from .. import compat

    uri = ("probe://it",) if kind == "resource" else ()
    getattr(compat.FastMCP("probe"), kind)(*uri, **options)(lambda: "")


def _probe_server(**options: Any) -> None:
    from .. import compat

    compat.FastMCP("probe", **options)


def _probe_app(**options: Any) -> None:
    from .. import compat

    compat.FastMCP("probe").http_app(**options)


PROBES: dict[str, Callable[..., Any]] = {
    "FastMCP": _probe_server,
    **{kind: partial(_probe_component, kind) for kind in ("tool", "resource", "prompt")},
    **dict.fromkeys(("run", "run_async", "http_app", "streamable_http_app", "sse_app"), _probe_app),
}
"""Functions that raise ConfigError if an option is refused."""
