"""Every public class, function, method, field and parameter has a description.

Public is what the public modules export. Descriptions are docstrings in Google style: `Args:` has
an entry for each parameter. A constructor's parameters are described at the class. A field is
described by a string below it, or under `Attributes:` or `Args:` of the class. If a function takes
`**options: Unpack[SomeOptions]`, it describes either `**options` or each option. What a class
inherits from a class of the package is described there; what belongs to `ports.Service`, in that
protocol.

`python -m tests.architecture.test_documented` lists what has no description.
"""

import importlib
import inspect
import logging
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

MODULES = [
    "dovetail",
    "dovetail.auth",
    "dovetail.backend",
    "dovetail.compat",
    "dovetail.errors",
    "dovetail.extensions",
    "dovetail.ports",
    "dovetail.protocol",
    "dovetail.testing",
]
ROOT = Path(__file__).parents[2]


@cache
def package() -> griffe.Module:
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    loaded = griffe.load("dovetail", search_paths=[ROOT], docstring_parser="google")
    assert isinstance(loaded, griffe.Module)
    return loaded


def exports(name: str) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a module exports."""
    module = importlib.import_module(name)
    own = [each for each, value in vars(module).items() if in_module(value, name)]
    lazy = " ".join(vars(module).get("_NAMES", {}).values()).split()
    names = getattr(module, "__all__", None) or lazy or own
    for each in sorted(names):
        value = getattr(module, each)
        if not each.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield each, value


def in_module(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def undescribed(value: Any) -> Iterator[str]:
    """What has no description in a class or function: its path, or `path(parameter)`."""
    for owner in inspect.getmro(value) if inspect.isclass(value) else [value]:
        path = f"{owner.__module__}.{owner.__qualname__}".removeprefix("dovetail.")
        try:
            found = package()[path]
        except KeyError:
            continue  # made at run time, or not ours
        if isinstance(found, griffe.Class):
            missing = of_class(found, fields_of(owner))
            yield from missing if owner is value else inherited(missing)
        elif isinstance(found, griffe.Function):
            yield from of_function(found, described(found))


def inherited(paths: Iterator[str]) -> Iterator[str]:
    """Those of the paths that are public members: constructors are described where they are
    called."""
    described_in_port = package()["ports.Service"].members
    for path in paths:
        name = path.partition("(")[0].rpartition(".")[2]
        if name not in described_in_port and "._" not in path:
            yield path


def of_class(cls: griffe.Class, fields: set[str]) -> Iterator[str]:
    if cls.docstring is None:
        yield cls.path
    names = described(cls)
    for name, member in cls.members.items():
        if name == "__init__" and isinstance(member, griffe.Function):
            yield from of_function(member, names | described(member), needs_docstring=False)
        elif name.startswith("_") or isinstance(member, griffe.Alias):
            continue
        elif isinstance(member, griffe.Function):
            yield from of_function(member, described(member))
        elif (name in fields or "property" in member.labels) and not (
            member.docstring or name in names
        ):
            yield f"{cls.path}({name})"
    if "__init__" not in cls.members and "__init__" in cls.inherited_members:
        inherited = cls.inherited_members["__init__"].final_target
        if isinstance(inherited, griffe.Function) and isinstance(inherited.parent, griffe.Class):
            yield from of_function(inherited, names | described(inherited.parent), False)


def fields_of(cls: type) -> set[str]:
    """The fields that are declared in the body of a class."""
    annotations = vars(cls).get("__annotations__", {})
    return {name for name, type in annotations.items() if "ClassVar" not in str(type)}


def of_function(
    function: griffe.Function, names: set[str], needs_docstring: bool = True
) -> Iterator[str]:
    if needs_docstring and function.docstring is None:
        yield function.path
        return
    for parameter in function.parameters:
        if parameter.name in ("self", "cls") or parameter.name in names:
            continue
        options = options_of(parameter, function)
        if not options or options - names:
            yield f"{function.path}({parameter.name})"


def options_of(parameter: griffe.Parameter, function: griffe.Function) -> set[str]:
    """The keys of `**options: Unpack[SomeOptions]`."""
    annotation = str(parameter.annotation)
    if parameter.kind is not griffe.ParameterKind.var_keyword or "Unpack[" not in annotation:
        return set()
    name = annotation.partition("[")[2].rstrip("]")
    module = importlib.import_module(function.module.path)
    if not hasattr(module, name):  # imported for type checkers only
        module = importlib.import_module("dovetail.server.options")
    return set(getattr(module, name).__annotations__)


def described(owner: griffe.Class | griffe.Function) -> set[str]:
    """The names that the docstring describes."""
    names = set[str]()
    for section in owner.docstring.parsed if owner.docstring else ():
        if isinstance(
            section, griffe.DocstringSectionParameters | griffe.DocstringSectionAttributes
        ):
            names |= {item.name.lstrip("*") for item in section.value}
    return names


@cache
def missing() -> dict[str, list[str]]:
    """What has no description, by the first module that exports it."""
    found: dict[str, list[str]] = {}
    seen = set[int]()
    for module in MODULES:
        found[module] = []
        for _, value in exports(module):
            if id(value) not in seen and value.__module__.startswith("dovetail"):
                seen.add(id(value))
                found[module] += undescribed(value)
    return found


def test_all_that_is_public_is_described() -> None:
    assert {module: names for module, names in missing().items() if names} == {}


if __name__ == "__main__":
    for module, names in missing().items():
        print(f"{module}: {len(names)}", *names, sep="\n    ")
    sys.exit(any(missing().values()))
