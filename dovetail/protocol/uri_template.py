"""RFC 6570 URI templates (all four levels): expand a template into a URI, or match a URI against a
template.

Expansion follows the RFC exactly. Each operator is one row in a table.
https://www.rfc-editor.org/rfc/rfc6570

The RFC does not define matching, so this module applies these rules:

- One expression is the pivot: the last one that may match several segments (`{+path}`,
  `{/segments*}`), or else the first one. The part before the pivot is matched from the left, and
  the part after it from the right. Each variable matches as little as possible, and the pivot
  matches the rest. So `{name}.{ext}` splits at the last dot, and `{id}/files/{+path}` at the first
  `/files/`.
- Matching uses two regular expressions, one of them on the reversed text. A variable ends where its
  neighbour begins, and its match never backtracks (possessive matching). The number of optional
  expressions is limited (`_OPTIONAL`). Matching therefore takes linear time, even for a hostile
  URI.
- Query parameters are optional and may come in any order. Parameters that the template does not
  name are ignored.
- Values are percent-decoded after matching, so an encoded delimiter cannot move a boundary. A value
  that could traverse a file tree, immediately or after further decoding, does not match
  (`_harmless`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import SchemaError

Value: TypeAlias = str | list[str]

_RESERVED = ":/?#[]@!$&'()*+,;="
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_TRIPLET = re.compile("%..", re.DOTALL)
_ILLEGAL = re.compile(r'[\x00-\x20\x7f"<>\\^`|]|%(?![0-9A-Fa-f]{2})')
_BRACES = re.compile(r"\{([^{}]*)\}|[{}]")
_CHARACTER = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
_VARIABLE = re.compile(rf"({_CHARACTER}+(?:\.{_CHARACTER}+)*)(?:(\*)|:([1-9][0-9]{{0,3}}))?")

_VARIABLES = 100
"""The maximum number of variables in one template."""
_OPTIONAL = 8
"""The maximum number of optional expressions (after a dot, slash or hash). Each of them doubles the
number of ways to parse a URI."""
_DECODINGS = 4
"""How many times a value is decoded to find harmful content. A value that still changes after the
last round is refused."""


class _Operator(Struct, frozen=True):
    """The rules for writing the variables of an expression (appendix A of the RFC)."""

    sign: str
    first: str
    separator: str
    named: bool = False
    empty: str = ""
    reserved: bool = False

    @property
    def query(self) -> bool:
        return self.sign in ("?", "&")


_OPERATORS = {
    row.sign: row
    for row in (
        _Operator("", "", ","),
        _Operator("+", "", ",", reserved=True),
        _Operator("#", "#", ",", reserved=True),
        _Operator(".", ".", "."),
        _Operator("/", "/", "/"),
        _Operator(";", ";", ";", named=True),
        _Operator("?", "?", "&", named=True, empty="="),
        _Operator("&", "&", "&", named=True, empty="="),
    )
}


class _Variable(Struct, frozen=True):
    name: str
    explode: bool = False
    prefix: int | None = None


class _Expression(Struct, frozen=True):
    operator: _Operator
    variables: tuple[_Variable, ...]

    @property
    def spreads(self) -> bool:
        """Whether the expression may match several segments where its neighbours match only one."""
        return self.operator.reserved or any(variable.explode for variable in self.variables)


_Part: TypeAlias = str | _Expression


class UriTemplate:
    """A compiled URI template.

    Args:
        text: The template, such as `users://{id}`. Raises SchemaError if the template is malformed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = parts = _parse(text)
        expressions = [part for part in parts if isinstance(part, _Expression)]
        self.variables = tuple(
            dict.fromkeys(variable.name for part in expressions for variable in part.variables)
        )
        """The names of the template's variables in order, without duplicates."""
        self.list_separators = {
            variable.name: part.operator.separator
            for part in expressions
            for variable in part.variables
            if variable.explode
        }
        """What separates the values in a URI, for each variable that takes a list (`{/path*}`)."""

        queries = [
            i
            for i, part in enumerate(parts)
            if isinstance(part, _Expression) and part.operator.query
        ]
        first, last = (queries[0], queries[-1] + 1) if queries else (len(parts), len(parts))
        self._query = [part for part in parts[first:last] if isinstance(part, _Expression)]
        # Literals between two query expressions are parameters that must match exactly.
        fixed = "&".join(part for part in parts[first:last] if isinstance(part, str))
        self._fixed = {pair for pair in _normal(fixed).split("&") if pair}
        if any(not part.operator.query for part in self._query):
            raise SchemaError(
                f"URI template {text!r}: only literals may appear between {{?…}} and {{&…}}"
            )

        before, pivot = parts[:first], _pivot(parts[:first])
        head, rest, after = (
            _tokens(before[:pivot]),
            _mirror(_tokens(before[pivot:])),
            _mirror(_tokens(parts[last:])),
        )
        self._head = _Matcher(_tokens(before), len(head))
        self._rest = _Matcher(rest, len(rest), mirrored=True, whole=True)
        self._after = _Matcher(after, len(after), mirrored=True) if after else None
        literal = "".join(part for part in before if isinstance(part, str))
        self._spelled = literal.partition("?")[2].count("&") + 1 if "?" in literal else 0
        """The number of parameters that the template itself spells out, as in
        `?format=json{&page}`."""

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def expand(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Return the URI for these values.

        Args:
            values: The value of each variable, which is a string, a number, or a list or mapping of
                these. None counts as missing.
            more: Additional values, as keyword arguments.
        """
        by_name = {**(values or {}), **more}
        return "".join(
            part if isinstance(part, str) else _expand(part, by_name) for part in self._parts
        )

    def match(self, uri: str) -> dict[str, Value] | None:
        """Return the values that expand to this URI, or None if the URI does not match.

        The value of an exploded variable is a list. An optional variable that is absent is omitted.

        Args:
            uri: The URI to match.
        """
        try:
            text = _normal(uri)
        except SchemaError:
            return None
        found: list[_Found] = []
        if self._after is not None:
            after = self._after.match(text[::-1])
            if after is None:
                return None
            text = text[: len(text) - after.end()]
            found += self._after.values(after)
        if self._query:
            text, pairs = self._parameters(text)
            if not self._fixed.issubset(pairs):
                return None
            found += _query_values(self._query, pairs)
        head = self._head.match(text)
        rest = head and self._rest.match(text[head.end() :][::-1])
        if head is None or rest is None:
            return None
        values = _agreed(found + self._head.values(head) + self._rest.values(rest))
        return values and {name: values[name] for name in self.variables if name in values}

    def _parameters(self, text: str) -> tuple[str, list[str]]:
        """Split off the query parameters. The parameters that the template spells out stay in the
        text."""
        path, _, query = text.partition("?")
        pairs = query.split("&") if query else []
        spelled = "?" + "&".join(pairs[: self._spelled]) if self._spelled else ""
        return path + spelled, pairs[self._spelled :]


# --------------------------------------------------------------------------------------------------
# parsing


def _parse(text: str) -> list[_Part]:
    parts: list[_Part] = []
    end = 0
    for brace in _BRACES.finditer(text):
        _literal(text, end, brace.start(), parts)
        end = brace.end()
        if brace[1] is None:
            raise _malformed(text, brace.start(), f"unmatched {brace[0]!r}")
        parts.append(_expression(text, brace.start() + 1, brace[1]))
    _literal(text, end, len(text), parts)
    if sum(len(part.variables) for part in parts if isinstance(part, _Expression)) > _VARIABLES:
        raise SchemaError(f"URI template {text[:80]!r}… has more than {_VARIABLES} variables")
    if (
        sum(
            isinstance(part, _Expression) and part.operator.sign in ("/", ".", "#")
            for part in parts
        )
        > _OPTIONAL
    ):
        raise SchemaError(
            f"URI template {text[:80]!r}… has more than {_OPTIONAL} expressions with a dot, a "
            "slash or a hash"
        )
    return parts


def _literal(text: str, start: int, end: int, parts: list[_Part]) -> None:
    illegal = _ILLEGAL.search(text, start, end)
    if illegal is not None:
        raise _malformed(text, illegal.start(), f"{illegal[0]!r} must be percent-encoded in a URI")
    if start < end:
        parts.append(_encode(text[start:end], reserved=True))


def _expression(text: str, start: int, inside: str) -> _Expression:
    sign = inside[:1] if inside[:1] in _OPERATORS else ""
    variables = []
    at = start + len(sign)
    for spec in inside[len(sign) :].split(","):
        parsed = _VARIABLE.fullmatch(spec)
        if parsed is None:
            raise _malformed(
                text,
                at,
                f"{spec!r} is not a variable: use letters, digits, _ and ., optionally "
                "followed by * or a prefix length such as :3",
            )
        variables.append(
            _Variable(parsed[1], bool(parsed[2]), int(parsed[3]) if parsed[3] else None)
        )
        at += len(spec) + 1
    return _Expression(_OPERATORS[sign], tuple(variables))


def _malformed(text: str, at: int, why: str) -> SchemaError:
    return SchemaError(f"URI template {text!r}, character {at + 1}: {why}")


# --------------------------------------------------------------------------------------------------
# expanding


def _expand(expression: _Expression, values: Mapping[str, Any]) -> str:
    operator = expression.operator
    pieces = [
        piece for variable in expression.variables for piece in _pieces(operator, variable, values)
    ]
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _pieces(operator: _Operator, variable: _Variable, values: Mapping[str, Any]) -> list[str]:
    """Return the pieces that a variable adds to its expression: none, one, or one for each member
    if it is exploded."""
    value = values.get(variable.name)
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [
            _named(
                operator, variable.name, _encode(_cut(operator, variable, value), operator.reserved)
            )
        ]
    if variable.prefix is not None:
        raise SchemaError(
            f"{{{variable.name}:{variable.prefix}}} expands to the first characters of a "
            "string, so its value cannot be a list"
        )

    def encoded(item: Any) -> str:
        return _encode(_text(variable, item), operator.reserved)

    if isinstance(value, Mapping):
        pairs = [(encoded(key), encoded(item)) for key, item in value.items() if item is not None]
        if variable.explode and operator.named:
            return [_named(operator, key, item) for key, item in pairs]
        members = [f"{key}={item}" if variable.explode else f"{key},{item}" for key, item in pairs]
    else:
        members = [encoded(item) for item in value if item is not None]
    if not variable.explode:
        members = [",".join(members)] if members else []
    return [_named(operator, variable.name, member) for member in members]


def _named(operator: _Operator, name: str, value: str) -> str:
    if not operator.named:
        return value
    return f"{name}={value}" if value else name + operator.empty


def _text(variable: _Variable, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise SchemaError(
        f"The variable {variable.name!r} cannot have a value of type {type(value).__name__}; "
        "use a string or a number"
    )


def _cut(operator: _Operator, variable: _Variable, value: Any) -> str:
    text = _text(variable, value)
    if variable.prefix is None:
        return text
    # If triplets are kept, each counts as the character it encodes.
    characters = re.findall("%[0-9A-Fa-f]{2}|.", text, re.DOTALL) if operator.reserved else text
    return "".join(characters[: variable.prefix])


def _encode(text: str, reserved: bool) -> str:
    """Percent-encode all characters except unreserved ones. If `reserved` is true, reserved
    characters and triplets are also kept."""
    from urllib.parse import quote

    try:
        if reserved:
            return quote(_LONE_PERCENT.sub("%25", text), safe=_RESERVED + "%")
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise SchemaError(
            f"{text[:80]!r} contains half of a surrogate pair, which is not allowed in a URI"
        ) from None


# --------------------------------------------------------------------------------------------------
# matching


class _Slot(Struct, frozen=True):
    """The place of a variable's value."""

    variable: _Variable
    operator: _Operator

    @property
    def characters(self) -> str:
        """A regular expression for one character that this slot allows."""
        if self.operator.reserved:
            return "[^%]"
        if self.operator.sign == ";" and not self.variable.explode:
            return "[^/?#;%]"
        return "[^?#%]" if self.operator.sign == "/" and self.variable.explode else "[^/?#%]"


_OPEN, _CLOSE = 1, -1
"""The brackets around optional parts. In reversed text, the two brackets are swapped."""
_Token: TypeAlias = str | int | _Slot
_Found: TypeAlias = tuple[_Variable, Value | None]


def _pivot(parts: list[_Part]) -> int:
    expressions = [(i, part) for i, part in enumerate(parts) if isinstance(part, _Expression)]
    spreading = [i for i, part in expressions if part.spreads]
    return spreading[-1] if spreading else expressions[0][0] if expressions else len(parts)


def _tokens(parts: list[_Part]) -> list[_Token]:
    """Return literals, slots and brackets: `{/a,b}` becomes `[ / a [ / b ] ]`, because b can appear
    only after a."""
    tokens: list[_Token] = []
    for part in parts:
        if isinstance(part, str):
            tokens.append(_normal(part))
            continue
        operator, closing = part.operator, 0
        for i, variable in enumerate(part.variables):
            slot = _Slot(variable, operator)
            lead = operator.separator if i else operator.first
            if operator.named:
                tokens += [_OPEN, lead + variable.name, slot, _CLOSE]
            elif operator.first:
                tokens += [_OPEN, lead, slot]
                closing += 1
            else:
                tokens += [lead, slot] if lead else [slot]
        tokens += [_CLOSE] * closing
    return tokens


def _mirror(tokens: list[_Token]) -> list[_Token]:
    def flip(token: _Token) -> _Token:
        return (
            token[::-1] if isinstance(token, str) else -token if isinstance(token, int) else token
        )

    return [flip(token) for token in reversed(tokens)]


class _Matcher:
    """A regular expression over tokens, in reading order."""

    __slots__ = ("_mirrored", "_slots", "match")

    def __init__(
        self, tokens: list[_Token], size: int, *, mirrored: bool = False, whole: bool = False
    ) -> None:
        # Only the first `size` tokens are matched; the ones after them tell where the last slot
        # ends.
        self._mirrored = mirrored
        self._slots = [token for token in tokens[:size] if isinstance(token, _Slot)]
        pattern = ""
        for i, token in enumerate(tokens[:size]):
            if isinstance(token, str):
                pattern += re.escape(token)
            elif isinstance(token, int):
                pattern += "(?:" if token == _OPEN else ")?"
            else:
                # The last slot takes all that is left; it ends only at its own lead at the very
                # end.
                last = whole and not any(isinstance(later, _Slot) for later in tokens[i + 1 :])
                pattern += _group(token, _ahead(tokens, i + 1), mirrored, r"\Z" if last else "")
        compiled = re.compile(pattern, re.DOTALL)
        self.match = compiled.fullmatch if whole else compiled.match

    def values(self, match: re.Match[str]) -> list[_Found]:
        """Return the variable and the value of each slot. A value of None means that the URI must
        not match."""
        return [
            (slot.variable, _value(slot, text[::-1] if self._mirrored else text))
            for slot, text in zip(self._slots, match.groups(), strict=True)
            if text is not None
        ]


def _ahead(tokens: list[_Token], at: int) -> list[str] | None:
    """Return the literals that may come next, [] at the end of the text, or None if a slot
    follows."""
    for i in range(at, len(tokens)):
        token = tokens[i]
        if isinstance(token, str):
            return [token]
        if isinstance(token, _Slot):
            return None
        if token == _OPEN:
            depth, end = 1, i + 1
            while depth:
                depth += token if isinstance(token := tokens[end], int) else 0
                end += 1
            inside, beyond = _ahead(tokens, i + 1), _ahead(tokens, end)
            return None if inside is None or beyond is None else inside + beyond
    return []


def _group(slot: _Slot, ahead: list[str] | None, mirrored: bool, end: str) -> str:
    """Return an atomic group that matches characters and triplets until one of the next literals
    begins. (Possessive quantifiers would have the same effect, but are broken in Python 3.11.0 to
    3.11.2.)"""
    one = f"(?:..%|{slot.characters})" if mirrored else f"(?:%..|{slot.characters})"
    named = slot.operator.named
    if ahead is None and not named:
        return f"({one})"
    if mirrored and named:
        ahead = ahead and [f"={literal}" for literal in ahead]
    stop = "|".join(re.escape(literal) + end for literal in ahead or ())
    more = one if ahead is None else f"(?>(?:(?!{stop}){one})*)" if stop else f"(?>{one}*)"
    if named:
        # `;name` alone means an empty value.
        return f"((?:{more}=)?)" if mirrored else f"((?:={more})?)"
    return f"({more})" if slot.operator.sign == "#" else f"({one}{more})"


def _normal(uri: str) -> str:
    """Percent-encode every character in a URI that must be encoded, with capital hex digits, so
    that each % begins a triplet."""
    text = _encode(uri, reserved=True)
    return _TRIPLET.sub(lambda triplet: triplet[0].upper(), text) if "%" in text else text


def _value(slot: _Slot, raw: str) -> Value | None:
    variable, operator = slot.variable, slot.operator
    separator = operator.separator
    if operator.named:
        raw, separator = raw.removeprefix("="), f";{variable.name}="
    if not variable.explode:
        value = _decoded(raw)
        return value if value is not None and _harmless(value, operator.reserved) else None
    pieces = [_decoded(piece) for piece in raw.split(separator)]
    values = [piece for piece in pieces if piece and _harmless(piece, operator.reserved)]
    return values if len(values) == len(pieces) else None


def _query_values(expressions: list[_Expression], pairs: list[str]) -> list[_Found]:
    raw_values: dict[str, list[str]] = {}
    for pair in pairs:
        name, _, raw = pair.partition("=")
        raw_values.setdefault(name, []).append(raw)
    found: list[_Found] = []
    for variable in (variable for expression in expressions for variable in expression.variables):
        if variable.name in raw_values:
            decoded = [_decoded(raw) for raw in raw_values[variable.name]]
            values = [value for value in decoded if value is not None and "\0" not in value]
            complete = len(values) == len(decoded)
            # A repeated parameter has two values; trust neither.
            value: Value | None = (
                values if variable.explode else values[0] if len(values) == 1 else None
            )
            found.append((variable, value if complete else None))
    return found


def _agreed(found: list[_Found]) -> dict[str, Value] | None:
    """Return the value of each variable, or None if a value is refused or longer than its prefix,
    or if a variable occurs twice with different values."""
    agreed: dict[str, Value] = {}
    for variable, value in sorted(found, key=lambda item: item[0].prefix is not None):
        known = agreed.get(variable.name, value)[: variable.prefix] if value is not None else None
        if value is None or known != value:
            return None
        agreed.setdefault(variable.name, value)
    return agreed


def _decoded(raw: str) -> str | None:
    if "%" not in raw:
        return raw
    from urllib.parse import unquote_to_bytes

    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None


def _harmless(value: str, segments: bool) -> bool:
    """Return whether a value cannot traverse a file tree, even if it is decoded again. `segments`
    allows slashes."""
    if "%" in value:
        from urllib.parse import unquote

        for _ in range(_DECODINGS):
            value, before = unquote(value), value
            if value == before:
                break
        else:
            return False
    if "\0" in value:
        return False
    if segments:
        return ".." not in value.replace("\\", "/").split("/")
    return value not in (".", "..") and "/" not in value and "\\" not in value
