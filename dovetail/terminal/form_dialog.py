"""The logic of the dialogs that show a server's questions to the user. This module does no I/O.

`elicit_dialog` is a generator: it yields the text to show, receives the line that was typed (None
at the end of input), and returns the answer. For a `KeyPrompt`, one key is enough. A form is filled
in field by field. Each question is repeated until its answer is valid, and the whole form is shown
again before it is sent. If a form is a single yes-or-no question, one key answers it.

Text from a server may be hostile, so it is shown as `prompts.py` describes. A page is shown with
its complete URL, its host on a separate line, and warnings if it is suspicious. The user confirms
when they are done with the page (`return_dialog`). A URL that a browser could interpret differently
is never offered. A valid schema may not make sense as a form. Even then, the user can type an
answer.
"""

import math
import re
from collections.abc import Callable, Generator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import SchemaError
from ..net import why_not_openable
from ..protocol.client_features import ElicitResult
from ..schema.validation import compile
from ..text import escape_unsafe
from .prompts import (
    YES_OR_NO,
    UserDeclined,
    confirm,
    describe_url,
    prompt,
    quote_lines,
    require_yes,
)

if TYPE_CHECKING:
    from ..client.callbacks import ElicitRequest

Dialog = Generator[str, str | None, ElicitResult]


CHOOSE_NONE = "-"
"""The input that selects none of the choices."""
_NO_VALUE = object()


def elicit_dialog(request: "ElicitRequest") -> Dialog:
    """Ask one question. The user declines it with `!` or by ending the input."""
    dialog = _visit_dialog if request.mode == "url" else _form_dialog
    try:
        return (yield from dialog(request))
    except UserDeclined:
        return ElicitResult(action="decline")


def return_dialog() -> Dialog:
    """Wait until the user is done with a page that was opened. `!` cancels the wait."""
    try:
        yield from prompt("Press Enter when you are done with the page, or type ! to cancel. ")
    except UserDeclined:
        return ElicitResult(action="cancel")
    return ElicitResult(action="accept")


def answer_unattended(request: "ElicitRequest", defaults: bool, yes: bool = False) -> ElicitResult:
    """Answer without asking the user: decline, or accept the defaults if `defaults` is true and all
    required fields have a default. With `yes`, the answer to a yes-or-no question is yes."""
    content, required = {}, set()
    fields = form_fields(request.schema)
    if yes and request.mode != "url" and is_yes_or_no(fields):
        return ElicitResult(action="accept", content={fields[0].name: True})
    for field in fields:
        if field.required:
            required.add(field.name)
        if field.schema.get("default") is not None:
            content[field.name] = field.schema["default"]
    if request.mode == "url" or not defaults or not required <= content.keys():
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content=content)


# forms


class FormField(Struct, frozen=True):
    """One field of a form."""

    name: str
    schema: dict[str, Any]
    required: bool
    choices: tuple[tuple[Any, str], ...] = ()
    """Values and their titles, if the field is a choice."""
    multiple: bool = False
    """Whether the user may choose several values."""

    @property
    def label(self) -> str:
        return escape_unsafe(str(self.schema.get("title") or self.name))

    def parse(self, line: str) -> Any:
        """Convert a line to a value; raise ValueError with the reason if the line is not valid."""
        if self.multiple and line.strip() == CHOOSE_NONE:
            return []
        if self.multiple:
            parse = self._parse_choice if self.choices else str
            return [parse(word) for word in _split_words(line)]
        if self.choices:
            return self._parse_choice(line)
        return PARSERS.get(_type(self.schema), str)(line)

    def check(self, value: Any) -> str | None:
        """Return the reason why a value is not valid, or None if it is valid."""
        bounds = {
            key: value
            for key, value in self.schema.items()
            if key not in ("title", "description", "default")
        }
        try:
            problems = compile(bounds).problems(value, at_most=1)
        except SchemaError:  # valid only within its form, which is checked later
            problems = []
        if problems:
            return problems[0].partition(": ")[2]
        label, is_valid = FORMATS.get(str(self.schema.get("format")), ("", None))
        if is_valid is None or not isinstance(value, str) or is_valid(value):
            return None
        return f"this is not {label}"

    def display(self, value: Any) -> str:
        """Return a value as text for display."""
        if isinstance(value, list):
            return ", ".join(map(self.display, value)) or "nothing"
        for choice, title in self.choices:
            if choice == value:
                return escape_unsafe(title)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return escape_unsafe(str(value))

    def _parse_choice(self, word: str) -> Any:
        word = word.strip()
        if word.isdecimal() and 1 <= int(word) <= len(self.choices):
            return self.choices[int(word) - 1][0]
        for value, title in self.choices:
            if word.lower() in (str(value).lower(), title.lower()):
                return value
        raise ValueError(f"choose a number from 1 to {len(self.choices)}, or type the value")


def form_fields(schema: Mapping[str, Any] | None) -> list[FormField]:
    """Return the fields of a form, in the server's order."""
    schema = schema or {}
    required = schema.get("required") or ()
    fields = []
    for name, property in (schema.get("properties") or {}).items():
        own = property if isinstance(property, dict) else {}
        multiple = _type(own) == "array"
        choices = _choices(own.get("items") if multiple else own)
        fields.append(FormField(name, own, name in required, choices, multiple))
    return fields


def _choices(schema: Any) -> tuple[tuple[Any, str], ...]:
    """Return the choices for a field, with or without titles, in either the old (`enumNames`) or
    the current format."""
    if not isinstance(schema, dict):
        return ()
    titled = schema.get("oneOf") or schema.get("anyOf")
    if titled:
        return tuple(
            (choice["const"], str(choice.get("title", choice["const"])))
            for choice in titled
            if isinstance(choice, dict) and "const" in choice
        )
    values, names = schema.get("enum") or (), schema.get("enumNames")
    if not isinstance(names, list) or len(names) != len(values):
        names = values
    return tuple((value, str(name)) for value, name in zip(values, names, strict=True))


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a field; if it has several types, return the first that is not null."""
    types = schema.get("type")
    if not isinstance(types, list):
        types = [types]
    return next((str(name) for name in types if name != "null"), "")


def _form_dialog(request: "ElicitRequest") -> Dialog:
    lead = f"\n{escape_unsafe(request.asked_by)} asks:\n{quote_lines(request.message)}"
    fields = form_fields(request.schema)
    values: dict[str, Any] = {}
    if not fields:
        yield from require_yes(f"{lead}Do you agree? [y/N] ")
        return ElicitResult(action="accept", content={})
    if is_yes_or_no(fields):
        return (yield from _yes_or_no_dialog(fields[0], lead))
    lead += (
        "Press Enter for the default in [brackets], type ! to decline, or press Ctrl-C to cancel.\n"
    )
    while True:
        for field in fields:
            current = values.get(field.name, field.schema.get("default", _NO_VALUE))
            value = yield from _fill_field(field, current, lead)
            if value is not _NO_VALUE:
                values[field.name] = value
            lead = ""
        review = "".join(
            f"  {field.label}: {field.display(values[field.name])}\n"
            for field in fields
            if field.name in values
        )
        question = "Send it? [Y/n; n to change it, ! to decline] "
        if (yield from confirm(f"\nYour answer:\n{review or '  nothing'}\n{question}", True)):
            return ElicitResult(action="accept", content=values)


def is_yes_or_no(fields: list[FormField]) -> bool:
    """Return whether a form is a single yes-or-no question."""
    return len(fields) == 1 and _type(fields[0].schema) == "boolean" and not fields[0].choices


def _yes_or_no_dialog(field: FormField, lead: str) -> Dialog:
    description = field.schema.get("description")
    default = field.schema.get("default")
    default = default if isinstance(default, bool) else None
    keys = {None: "y/n", True: "Y/n", False: "y/N"}[default]
    lead += quote_lines(str(description)) if description else ""
    answer = yield from confirm(f"{lead}{field.label} [{keys}; ! to decline] ", default)
    return ElicitResult(action="accept", content={field.name: answer})


def _fill_field(field: FormField, current: Any, lead: str) -> Generator[str, str | None, Any]:
    """Return the value of one field, asking until it is valid."""
    default = "" if current is _NO_VALUE else f"[{field.display(current)}] "
    text = f"{lead}{_describe(field)}{default}> "
    while True:
        line = yield from prompt(text)
        try:
            value = field.parse(line) if line.strip() else current
            if value is _NO_VALUE and not field.required:
                return value
            problem = "an answer is required" if value is _NO_VALUE else field.check(value)
        except ValueError as error:
            problem = str(error)
        if problem is None:
            return value
        text = f"  {escape_unsafe(problem)}\n{default}> "


def _describe(field: FormField) -> str:
    schema = field.schema
    if field.multiple:
        kind = f"any of these, separated by commas, or {CHOOSE_NONE} for none"
    elif field.choices:
        kind = "one of these"
    elif (name := str(schema.get("format"))) in FORMATS:
        kind = FORMATS[name][0]
    else:
        kind = _describe_type(schema)
    required = ", required" if field.required else ""
    description = quote_lines(str(schema["description"])) if schema.get("description") else ""
    choices = "".join(
        f"  {number}. {escape_unsafe(title)}\n"
        for number, (_, title) in enumerate(field.choices, 1)
    )
    return f"\n{field.label} ({kind}{required})\n{description}{choices}"


def _describe_type(schema: Mapping[str, Any]) -> str:
    """Describe the expected input and its bounds."""
    type_ = _type(schema)
    label = TYPE_LABELS.get(type_, "text")
    is_text = type_ == "string"
    low = schema.get("minLength" if is_text else "minimum")
    high = schema.get("maxLength" if is_text else "maximum")
    bounds = [
        f"{word} {bound}"
        for word, bound in (("at least", low), ("at most", high))
        if bound is not None
    ]
    if not bounds:
        return label
    unit = ""
    if is_text:
        unit = " character" if (low if high is None else high) == 1 else " characters"
    return f"{label}, {' and '.join(bounds)}{unit}"


def _split_words(line: str) -> list[str]:
    numbers = re.fullmatch(r"[\d\s,]+", line)
    return [word for word in re.split(r"[\s,]+" if numbers else ",", line) if word.strip()]


def _integer(line: str) -> int:
    try:
        return int(line)
    except ValueError:
        raise ValueError("this is not a whole number") from None


def _number(line: str) -> float | int:
    try:
        number = float(line)
        if not math.isfinite(number):
            raise ValueError
    except ValueError:
        raise ValueError("this is not a number") from None
    return int(line) if re.fullmatch(r"\s*[+-]?\d+\s*", line) else number


def _boolean(line: str) -> bool:
    try:
        return YES_OR_NO[line.strip().lower()]
    except KeyError:
        raise ValueError("answer y or n") from None


def _is_valid(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            return bool(read(text))
        except ValueError:
            return False

    return fits


TYPE_LABELS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "y or n",
}
PARSERS: dict[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
FORMATS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "email": ("an e-mail address", _is_valid(lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text))),
    "uri": ("a URI", _is_valid(lambda text: urlsplit(text).scheme and not re.search(r"\s", text))),
    "date": (
        "a date like 1999-12-31",
        _is_valid(lambda text: len(text) == 10 and date.fromisoformat(text)),
    ),
    "date-time": (
        "a time like 1999-12-31T23:59:00Z",
        _is_valid(lambda text: datetime.fromisoformat(text).tzinfo),
    ),
}
"""The description of each format, and a function that checks whether a text has this format."""


# pages


def _visit_dialog(request: "ElicitRequest") -> Dialog:
    url = request.url or ""
    asked_by, message = escape_unsafe(request.asked_by), quote_lines(request.message)
    lead = f"\n{asked_by} asks you to visit a page:\n{message}"
    flaw = why_not_openable(url)
    if flaw is not None:
        yield from prompt(
            f"{lead}This page cannot be opened, because {flaw}:\n{quote_lines(url)}Press "
            "Enter to continue. "
        )
        raise UserDeclined
    yield from require_yes(f"{lead}{describe_url(url)}Open it in your browser? [y/N] ")
    return ElicitResult(action="accept")
