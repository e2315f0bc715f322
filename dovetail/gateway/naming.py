"""The names and URIs that a caller sees, and the server and the name that each of them stands for.

Every server has a prefix. A tool or prompt becomes `prefix__name`. Names are looked up in a table;
they are never split. These rules keep one server from taking the place of another:

- The order of the servers in the file decides every clash. The order in which they answer does not.
- A name belongs to the server with the longest `prefix__` that the name begins with. So a server
  without a prefix cannot offer a tool under another server's prefix.
- A URI stays unchanged if this server is the first in the file that has ever listed it. A URI that
  nobody lists belongs to the first server in the file with a template that matches. As long as the
  list of an earlier server is unknown, that server may still turn out to be the owner.
- In all other cases, the URI becomes `prefix+uri`. A caller may use this form at any time, so a URI
  that a caller has seen keeps working. `_` in a prefix becomes `-`, because the scheme of a URI
  cannot contain underscores. The URI of a view keeps its scheme, by which hosts know it:
  `ui://prefix+rest`. URIs that already begin with the prefix of any server are always
  written in this form, so that no server can imitate another.

So a server that is added at the end of the file does not rename anything, unless a name already
begins with its prefix.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import quote as quote_url

from msgspec import Struct

from ..aio import BoundedDict
from ..config.settings import MAX_PREFIX_CHARS
from ..errors import ConfigError, SchemaError
from ..protocol.tools import MAX_NAME_CHARS
from ..protocol.uri_template import UriTemplate
from ..text import legal_name, quote, shorten_name

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates", "skills"]
KINDS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources", "templates")
"""The kinds for which the table has names. Skills have the URIs of resources."""
SEPARATOR: Final = "__"
MAX_URIS: Final = 100_000
"""The number of URIs that are remembered for each server."""
MAX_TEMPLATES: Final = 200
"""The number of templates that are remembered for each server. Fewer than URIs, because a URI that
nobody lists is compared with all of them."""
MAX_MATCHED_CHARS: Final = 8192
"""The length of a URI that is compared with templates."""
MAX_MATCHED: Final = 100
"""The number of URIs of one result that are compared with templates. The others get a prefix."""
VIEW: Final = "ui://"
"""How the URI of an app's view begins."""
_WEB: Final = re.compile(r"https?:", re.IGNORECASE)


class UpstreamName(Struct, frozen=True):
    """What a name or URI stands for: a server, and the name or URI that this server uses."""

    server: str
    name: str


class LeftOut(Struct, frozen=True):
    """A name or URI that callers cannot use, and why."""

    server: str
    kind: Kind
    name: str
    reason: str


def default_prefix(server: str) -> str:
    """Return the prefix of a server whose entry sets none, derived from its name in the file."""
    return shorten_name(legal_name(server), server, MAX_PREFIX_CHARS)


def merged_name(prefix: str, name: str, separator: str = SEPARATOR) -> str:
    """Return the name under which callers see a tool or prompt.

    Args:
        prefix: The prefix of its server; empty for none.
        name: The name that the server uses.
        separator: What follows the prefix.
    """
    text = legal_name(f"{prefix}{separator}{name}" if prefix else name)
    return shorten_name(text, f"{prefix}\0{name}", MAX_NAME_CHARS)


def _add_prefix(prefix: str, uri: str, in_path: bool = False) -> str:
    if in_path:
        return uri.replace("://", f"://{prefix}/", 1)
    scheme = VIEW if uri.startswith(VIEW) else ""
    return f"{scheme}{_scheme(prefix)}+{uri[len(scheme) :]}"


def _scheme(prefix: str) -> str:
    """Return a prefix as the first part of a URI scheme, which begins with a letter."""
    text = prefix.lower().replace("_", "-")
    return text if text[:1].isalpha() or not text else f"x{text}"


class _Listed(Struct):
    """What one server lists; None if its list is not known yet. URIs and templates that were listed
    once are kept, so that no other server takes over their names."""

    tools: tuple[str, ...] | None = None
    prompts: tuple[str, ...] | None = None
    resources: dict[str, None] | None = None
    templates: dict[str, None] | None = None


class _Names:
    """The table for one kind of name."""

    def __init__(self) -> None:
        self.to_caller: dict[UpstreamName, str] = {}
        self.from_caller: dict[str, UpstreamName] = {}
        self.left_out: list[LeftOut] = []


class NameTable:
    """The names and URIs of all servers.

    Args:
        prefixes: The prefix of each server, in the order of the file. An empty prefix is allowed
            for one server. None leaves all names and URIs unchanged, and is allowed if there is
            only one server.
        reserved: Names that the caller's side uses itself, which no server may offer.
        many_plain: Whether several servers may have an empty prefix (default: False). A name
            belongs to the first of them that lists it.
        in_path: Whether names and URIs are `prefix_name` and always `scheme://prefix/path`, as in
            FastMCP (default: False).

    Raises:
        ConfigError: Two prefixes are equal.
    """

    def __init__(
        self,
        prefixes: Mapping[str, str | None],
        reserved: Iterable[str] = (),
        *,
        many_plain: bool = False,
        in_path: bool = False,
    ) -> None:
        self._many_plain, self._in_path = many_plain, in_path
        self._separator = "_" if in_path else SEPARATOR
        self.reserve(reserved)
        self._templates: BoundedDict[str, UriTemplate | None] = BoundedDict(20 * MAX_TEMPLATES)
        self._listed: dict[str, _Listed] = {}
        self._qualified: set[str] = set()
        self._aliases: dict[str, dict[str, str]] = {}
        self.set_servers(prefixes)

    def reserve(self, names: Iterable[str]) -> None:
        """Replace the names that no server may offer.

        Args:
            names: The names.
        """
        self._reserved = frozenset(names)
        self._tables: dict[Kind, _Names] = {}

    def set_servers(self, prefixes: Mapping[str, str | None]) -> None:
        """Replace the servers, for example after the file changed. The lists of servers that stay
        are kept.

        Args:
            prefixes: The prefix of each server, in the order of the file.
        """
        _check_prefixes(prefixes, self._many_plain)
        self._prefixes = {name: prefix or "" for name, prefix in prefixes.items()}
        self._transparent = next((name for name, one in prefixes.items() if one is None), None)
        to_head = str if self._in_path else _scheme
        self._heads = {to_head(one): name for name, one in self._prefixes.items() if one}
        """The server for the part of a URI that is a prefix."""
        self._owners = sorted(self._prefixes, key=lambda name: -len(self._prefixes[name]))
        self._listed = {name: self._listed.get(name, _Listed()) for name in prefixes}
        self._tables = {}

    def qualify(self, server: str, always: bool) -> None:
        """Set whether all URIs of a server get its prefix, so that its lists change the URIs of no
        other server.

        Args:
            server: The name of the server in the file.
            always: Whether they do.
        """
        (self._qualified.add if always else self._qualified.discard)(server)

    def alias(self, server: str, names: Mapping[str, str]) -> None:
        """Set the tools of a server that callers see under another name.

        Args:
            server: The name of the server in the file.
            names: The new names, to which the prefix is added, by the server's own.
        """
        self._aliases[server] = dict(names)
        self._tables.pop("tools", None)

    def update(self, server: str, kind: Kind, names: Iterable[str]) -> None:
        """Set what a server lists.

        If a server is refused, or lacks the capability, pass an empty list: an unknown list keeps
        the URIs of all later servers in the form `prefix+uri`.

        Args:
            server: The name of the server in the file.
            kind: The kind of list.
            names: The names, URIs or templates. URIs that the server names elsewhere, such as the
                pages of its tools, count as listed.
        """
        listed = self._listed[server]
        if kind == "tools" or kind == "prompts":
            setattr(listed, kind, tuple(names))
        else:
            known = {**(getattr(listed, kind) or {}), **dict.fromkeys(names)}
            while len(known) > (MAX_URIS if kind == "resources" else MAX_TEMPLATES):
                del known[next(iter(known))]
            setattr(listed, kind, known)
        self._tables.pop(kind, None)

    def unknown(self, kind: Kind) -> list[str]:
        """Return the servers whose list of this kind is not known yet."""
        return [name for name, listed in self._listed.items() if getattr(listed, kind) is None]

    def owner(self, name: str) -> str | None:
        """Return the server that a tool or prompt of this name belongs to, whether or not the
        server lists it."""
        if self._transparent is not None:
            return self._transparent
        for server in self._owners:  # the longest prefix first, no prefix last
            prefix = self._prefixes[server]
            if not prefix or name.startswith(prefix + self._separator):
                return server
        return None

    def renamer(self, server: str) -> Callable[[str], str]:
        """Return a function for the URIs in one result of a server, which may contain any number
        of them: it returns a URI as callers see it.

        Args:
            server: The name of the server in the file.
        """
        left = MAX_MATCHED

        def rename(uri: str) -> str:
            nonlocal left
            left -= 1
            return self.to_caller("resources", server, uri, match=left >= 0) or uri

        return rename

    def to_caller(self, kind: Kind, server: str, name: str, *, match: bool = True) -> str | None:
        """Return the name or URI under which callers see a server's own.

        Args:
            kind: The kind of name. "resources" takes any URI, listed or not. "skills" takes the
                URI of a skill or of one of its files, and always adds the prefix: a client derives
                the URIs of other files from it, which nobody has to list.
            server: The name of the server in the file.
            name: The name or URI that the server uses.
            match: Whether to compare a URI that nobody lists with templates. Otherwise, it gets a
                prefix.

        Returns:
            None if callers cannot use it: a tool or prompt that the server does not list or that
            was left out, or the URI of a server without a prefix that belongs to another server.
        """
        if self._transparent is not None:
            return self._alias(kind, UpstreamName(server, name))
        if kind == "tools" or kind == "prompts":
            return self._table(kind).to_caller.get(UpstreamName(server, name))
        prefix = self._prefixes[server]
        if kind == "skills" and prefix:
            return _add_prefix(prefix, name, self._in_path)
        owner = self._plain_owner(kind, name, match)
        if self._strip_prefix(name) is None and owner == server:
            return name
        is_page = kind == "resources" and owner is None and _WEB.match(name)
        is_compared = match or not any(one.templates for one in self._listed.values())
        if is_page and is_compared and not self._offers(server, name, match):
            return name  # a web page that callers fetch themselves, not a resource of a server
        return _add_prefix(prefix, name, self._in_path) if prefix else None

    def from_caller(self, kind: Kind, name: str) -> UpstreamName | None:
        """Return what a name or URI from a caller stands for, or None if nobody owns it.

        Args:
            kind: The kind of name.
            name: The name or URI that the caller sent.
        """
        if self._transparent is not None:
            return self.from_alias(kind, name, self._transparent)
        if kind == "tools" or kind == "prompts":
            return self._table(kind).from_caller.get(name)
        if found := self._strip_prefix(name):
            return found
        server = self._plain_owner(kind, name)
        return UpstreamName(server, name) if server is not None else None

    def elicitation_id(self, server: str, id: str) -> str:
        """Return the id under which callers know a page of a server that their user has to visit.
        It contains the name of the server, so that no other server can announce that a user has
        finished there.

        Args:
            server: The name of the server in the file.
            id: The server's own id of the elicitation.
        """
        return id if self._transparent is not None else f"{quote_url(server, safe='')}/{id}"

    def left_out(self) -> list[LeftOut]:
        """Return all that the servers list and callers cannot use."""
        if self._transparent is not None:
            return []
        found = [*self._table("tools").left_out, *self._table("prompts").left_out]
        for server, prefix in self._prefixes.items():
            for kind in KINDS[2:]:
                for name in () if prefix else getattr(self._listed[server], kind) or ():
                    if self.to_caller(kind, server, name) is None:
                        reason = "another server owns this URI, and this server has no prefix"
                        found.append(LeftOut(server, kind, name, reason))
        return found

    def _table(self, kind: Literal["tools", "prompts"]) -> _Names:
        if (table := self._tables.get(kind)) is None:
            table = self._tables[kind] = _Names()
            for server, listed in self._listed.items():
                names = {
                    name: self._alias(kind, UpstreamName(server, name))
                    for name in getattr(listed, kind) or ()
                }
                for name in _by_change(self._prefixes[server], names, self._separator):
                    self._add(table, kind, UpstreamName(server, name))
        return table

    def _alias(self, kind: Kind, upstream: UpstreamName) -> str:
        aliases = self._aliases.get(upstream.server, {}) if kind == "tools" else {}
        return aliases.get(upstream.name, upstream.name)

    def from_alias(self, kind: Kind, name: str, server: str) -> UpstreamName | None:
        """Return what a name without a prefix stands for. The old name of a tool that has a new one
        stands for nothing.

        Args:
            kind: The kind of name.
            name: The name.
            server: The name of the server in the file.
        """
        aliases = self._aliases.get(server, {}) if kind == "tools" else {}
        for own, shown in aliases.items():
            if shown == name:
                return UpstreamName(server, own)
        return None if name in aliases else UpstreamName(server, name)

    def _add(self, table: _Names, kind: Kind, upstream: UpstreamName) -> None:
        alias = self._alias(kind, upstream)
        name = merged_name(self._prefixes[upstream.server], alias, self._separator)
        owner, holder = self.owner(name), table.from_caller.get(name)
        if name in self._reserved:
            reason = f"the name {name} is reserved"
        elif owner is None or self._prefixes[owner] != self._prefixes[upstream.server]:
            reason = f"the name {name} begins with the prefix of {owner}"
        elif holder is not None:
            reason = f"the name {name} stands for {quote(holder.name)}"
        else:
            table.to_caller[upstream], table.from_caller[name] = name, upstream
            return
        table.left_out.append(LeftOut(upstream.server, kind, upstream.name, reason))

    def _strip_prefix(self, uri: str) -> UpstreamName | None:
        """Split `prefix+uri`, or return None if the text does not begin with a server's prefix."""
        scheme, separator = VIEW if uri.startswith(VIEW) else "", "+"
        if self._in_path:
            scheme, separator = "".join(uri.partition("://")[:2]), "/"
        head, found, rest = uri[len(scheme) :].partition(separator)
        server = self._heads.get(head if self._in_path else head.lower()) if found else None
        return UpstreamName(server, scheme + rest) if server is not None else None

    def _plain_owner(self, kind: Kind, name: str, match: bool = True) -> str | None:
        """Return the server that a URI or template belongs to if it has no prefix, or None if it
        belongs to nobody or this is not known yet."""
        plain = [
            one
            for one in self._listed.items()
            if one[0] not in self._qualified and not (self._in_path and self._prefixes[one[0]])
        ]
        for server, listed in plain:
            known = listed.templates if kind == "templates" else listed.resources
            if known is None:
                return None
            if name in known:
                return server
        for server, listed in plain if kind == "resources" and match else ():
            if listed.templates is None:
                return None
            if self._matches(listed.templates, name):
                return server
        return None

    def _offers(self, server: str, uri: str, match: bool) -> bool:
        listed = self._listed[server]
        templates = listed.templates or () if match else ()
        return uri in (listed.resources or ()) or self._matches(templates, uri)

    def _matches(self, templates: Iterable[str], uri: str) -> bool:
        if len(uri) > MAX_MATCHED_CHARS:
            return False
        compiled = (self._compiled(template) for template in templates)
        return any(one is not None and one.match(uri) is not None for one in compiled)

    def _compiled(self, text: str) -> UriTemplate | None:
        """Return a compiled template, or None if it is malformed, so that it matches nothing."""
        if text not in self._templates:
            try:
                self._templates[text] = UriTemplate(text)
            except SchemaError:
                self._templates[text] = None
        return self._templates[text]


def _by_change(prefix: str, names: Mapping[str, str], separator: str) -> list[str]:
    """Return the names of one server, each once, in an order that does not depend on its list:
    first those that keep their spelling, because they own it. `names` has the new name of each."""
    plain = f"{prefix}{separator}" if prefix else ""

    def order(name: str) -> tuple[bool, bool, str]:
        shown = names[name]
        return merged_name(prefix, shown, separator) != plain + shown, shown != name, name

    return sorted(names, key=order)


def _check_prefixes(prefixes: Mapping[str, str | None], many_plain: bool) -> None:
    if None in prefixes.values() and len(prefixes) > 1:
        raise ConfigError("Names can stay unchanged only if there is one server")
    seen: dict[str, str] = {}
    for server, prefix in prefixes.items():
        other = seen.setdefault(_scheme(prefix or ""), server)
        if other != server and (prefix or not many_plain):
            shared = f"the prefix {quote(prefix)}" if prefix else "no prefix"
            raise ConfigError(
                f"Servers {other!r} and {server!r} both have {shared} (upper and lower case, _ and "
                '- count as the same). Set a different "prefix" for one of them.'
            )
