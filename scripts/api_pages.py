"""Prepare the package for the API pages of the site, as an extension of Griffe.

- A msgspec struct has no `__init__` that Griffe could see, so its fields become the signature.
- A class shows the public members of its bases, but only of bases that have no page of their own:
  `Server` shows `run`, and `FastMCP` does not show `tool` again.
- What the transports call in a server is described once, in `ports.Service`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
DIRECTIVE = re.compile(r"^#+ ::: dovetail\.([\w.]+)$", re.MULTILINE)
KEPT = {"health", "instructions", "limits", "name"}
"""What `ports.Service` describes and users of a server need too."""


class ApiPages(griffe.Extension):
    """Completes the classes of the package after it was loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete all classes of a package.

        Args:
            pkg: The package.
            _: The loader, which is not needed.
        """
        if pkg.name == "dovetail":
            shown = set(shown_paths(pkg))
            hidden = set(pkg["ports.Service"].members) - KEPT
            for cls in list(classes_of(pkg)):
                if cls.path in shown:
                    add_members(cls, shown, hidden)
                if is_struct(cls) and "__init__" not in cls.members:
                    cls.set_member("__init__", make_init(cls))


def shown_paths(package: griffe.Module) -> Iterator[str]:
    """Yield where the objects are defined that the API pages show."""
    for page in REFERENCE.glob("*.md"):
        for name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            yield package[name].canonical_path


def classes_of(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Module):
            yield from classes_of(member)
        elif isinstance(member, griffe.Class):
            yield member


def add_members(cls: griffe.Class, shown: set[str], hidden: set[str]) -> None:
    """Show the members of the bases that have no page, and hide those that a server only has for
    its transports."""
    bases = cls.mro()
    elsewhere = {cls.path for base in bases if base.path in shown for cls in (base, *base.mro())}
    for base in bases:
        for name, member in base.members.items() if base.path not in elsewhere else ():
            if name not in cls.members and not name.startswith("_"):
                cls.set_member(name, griffe.Alias(name, member, parent=cls))
    if "admit" in cls.members and cls.path != "dovetail.ports.Service":  # it is a service
        for name in hidden & cls.members.keys():
            cls.del_member(name)


def is_struct(cls: griffe.Class) -> bool:
    return any(str(base) == "Struct" for one in (cls, *cls.mro()) for base in one.bases)


def make_init(cls: griffe.Class) -> griffe.Function:
    """Return the `__init__` that msgspec gives to a struct."""
    parameters: dict[str, griffe.Parameter] = {}
    for one in (*reversed(cls.mro()), cls):
        keyword_only = str(one.keywords.get("kw_only")) == "True"
        kind = griffe.ParameterKind
        for name, field in one.members.items():
            if isinstance(field, griffe.Attribute) and is_field(field):
                parameters[name] = griffe.Parameter(
                    name,
                    annotation=field.annotation,
                    kind=kind.keyword_only if keyword_only else kind.positional_or_keyword,
                    default=default_of(field),
                )
    ordered = sorted(parameters.values(), key=lambda one: one.kind is kind.keyword_only)
    itself = griffe.Parameter("self", kind=kind.positional_or_keyword)
    return griffe.Function("__init__", parameters=griffe.Parameters(itself, *ordered), parent=cls)


def is_field(field: griffe.Attribute) -> bool:
    return (
        field.annotation is not None
        and not field.name.startswith("_")
        and "property" not in field.labels
        and "ClassVar" not in str(field.annotation)
    )


def default_of(field: griffe.Attribute) -> Any:
    """Return the default of a field, also of `field(name="_meta", default=None)`."""
    value = field.value
    if isinstance(value, griffe.ExprCall) and str(value.function) == "field":
        given = {
            argument.name: argument.value
            for argument in value.arguments
            if isinstance(argument, griffe.ExprKeyword)
        }
        return given.get("default", "..." if "default_factory" in given else None)
    return value
