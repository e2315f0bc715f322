"""The lists of all servers as one, under the names that callers see.

A merged list is a snapshot in the order of the configuration file. Each item is written once, from
the bytes that its server sent, with the name or URI replaced.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..extensions.apps.settings import SCHEME, is_app_only, shows_apps
from ..ports import Call, Principal
from ..protocol.raw import RawObject, encode_raw, split_object
from ..server.registry import Snapshot, select_page
from .catalog import LIST_KINDS, LISTS, Item, ItemList, ListHints
from .naming import KINDS, Kind
from .search import ToolSearch
from .upstream import UpstreamServer
from .upstreams import UpstreamSet
from .uris import Rename, rename_skill


class MergedItem(Struct, frozen=True, eq=False):
    """An item of a merged list."""

    name: str
    """The name or URI that callers use."""
    server: UpstreamServer
    item: Item
    """The item as its server sent it."""
    raw: Raw
    """The item as callers see it."""

    @property
    def shown(self) -> Item:
        """The item as callers see it, with the name that its server uses."""
        changed = self.server.changes.find(self.item)
        return self.item if changed is None else changed.item


IsVisible = Callable[[Principal | None, Kind, MergedItem], bool]


class MergedLists:
    """The merged lists of all servers.

    Args:
        upstreams: The servers.
        is_visible: Returns whether a caller may see an item.
        page_size: The number of items on a page (default: None, one page).
        search: The search that replaces the list of tools (default: None).
    """

    def __init__(
        self,
        upstreams: UpstreamSet,
        is_visible: IsVisible,
        page_size: int | None = None,
        search: ToolSearch | None = None,
    ) -> None:
        self.search = search
        self.has_tasks = True
        """Whether callers get tasks."""
        self._upstreams, self._is_visible, self._page_size = upstreams, is_visible, page_size
        self._merged: dict[tuple[Kind, str], Snapshot[MergedItem]] = {}
        self._views: dict[tuple[Any, ...], Snapshot[MergedItem]] = {}
        """The lists as callers see them, by their id and scopes, and whether they show apps."""

    def clear(self) -> None:
        """Forget the lists, because a server's list or the policy has changed."""
        self._merged.clear()
        self._views.clear()

    def update(self) -> list[Kind]:
        """Build the lists again after a change, and return the kinds that callers see changed."""
        before, self._merged = self._merged, {}
        self._views.clear()
        changed: list[Kind] = []
        for kind in LIST_KINDS:
            shared = before.get((kind, ""))
            old = {} if shared is None else shared.items
            new = self._merged[kind, ""] = Snapshot(self._merge_all(kind, "", old))
            if _shown(old) != _shown(new.items):
                changed.append(kind)
        return changed

    def merged(self, kind: Kind) -> Mapping[str, MergedItem]:
        """Return all items of a kind by the names that callers use."""
        return self._snapshot(kind, "").items

    def _snapshot(self, kind: Kind, user: str) -> Snapshot[MergedItem]:
        found = self._merged.get((kind, user))
        if found is None:
            if len(self._merged) >= MAX_VIEWS:
                self._merged.clear()
            found = self._merged[kind, user] = Snapshot(self._merge_all(kind, user, {}))
        return found

    def _merge_all(
        self, kind: Kind, user: str, old: Mapping[str, MergedItem]
    ) -> dict[str, MergedItem]:
        """Return the items of all servers as a user sees them. Those that did not change are taken
        from an old list."""
        items: dict[str, MergedItem] = {}
        for server in self._upstreams.seen_by(user):
            rename = self._renamer(kind, server)
            for item in server.catalog.items(kind).values():
                name = self._upstreams.names.to_caller(kind, server.name, item.name)
                if name is None or name in items or server.changes.problem(item) is not None:
                    continue
                before = old.get(name)
                if before is None or before.item is not item or "_meta" in item.fields:
                    before = self._merge(kind, server, item, name, rename)
                items[name] = before
        return items

    def _renamer(self, kind: Kind, server: UpstreamServer) -> Rename:
        """Return a function that returns the URIs in the items of a list as callers see them."""
        names = self._upstreams.names
        if kind == "skills":
            return lambda uri: names.to_caller("skills", server.name, uri) or uri
        return names.renamer(server.name)

    def _merge(
        self, kind: Kind, server: UpstreamServer, item: Item, name: str, rename: Rename
    ) -> MergedItem:
        changed = server.changes.find(item)
        item_fields = item.fields if changed is None else changed.item.fields
        fields = {**item_fields, LISTS[kind].key: encode_raw(name)}
        if kind == "tools" and not self.has_tasks:
            fields.pop("execution", None)
        elif kind == "tools" and server.catalog.tasks == "extension":
            # With the extension, every call may become a task. Only the core form has this field.
            fields.setdefault("execution", Raw(b'{"taskSupport":"optional"}'))
        elif kind == "skills":
            fields = rename_skill(item.fields, rename)
        meta = fields.get("_meta")
        if meta is not None and b"resourceUri" in bytes(meta):
            fields["_meta"] = _merge_meta(meta, rename)
        return MergedItem(name, server, item, encode_raw(fields))

    def visible(
        self, kind: Kind, principal: Principal | None, *, apps: bool
    ) -> Snapshot[MergedItem]:
        """Return the items that a caller may see.

        Args:
            kind: The kind of list.
            principal: The caller.
            apps: Whether the client of the caller shows apps. If not, tools have no view, and what
                is only for views is left out.
        """
        id, scopes = (None, ()) if principal is None else (principal.id, principal.scopes)
        key = (kind, id, scopes, apps or kind not in ("tools", "resources"))
        view = self._views.get(key)
        if view is None:
            merged = self._snapshot(kind, (id if self._upstreams.has_users else None) or "")
            shown = [one for one in merged.items.values() if self._is_visible(principal, kind, one)]
            if not key[-1]:
                shown = [one for item in shown if (one := without_app(item)) is not None]
            is_same = shown == list(merged.items.values())
            view = merged if is_same else Snapshot({one.name: one for one in shown})
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            self._views[key] = view
        return view

    def hints(self, kind: Kind) -> ListHints | None:
        """Return how long callers may keep a list: the shortest time and the narrowest scope of its
        parts; None if it has no parts. A list that is not complete yet may not be kept.

        Args:
            kind: The kind of list.
        """
        found: ListHints | None = None
        for server in self._upstreams.servers.values():
            items = server.catalog.items(kind)
            if server.state != "started" or not isinstance(items, ItemList):
                return ListHints()
            if items.hints is not None:
                found = items.hints.combined(found)
        return found

    async def answer(self, call: Call) -> RawObject:
        """Answer a request for a list."""
        await self._upstreams.wait_for_catalogs(call.principal)
        kind = KIND_BY_METHOD[call.name]
        apps = shows_apps(call.caller.capabilities)
        visible: Snapshot[Any] = self.visible(kind, call.principal, apps=apps)
        if kind == "tools" and self.search is not None:
            visible = self.search.listed(visible)

        chosen, cursor = select_page(call, visible, self._page_size)
        items = Raw(b"[" + b",".join(bytes(one.raw) for one in chosen) + b"]")
        fields: dict[str, Any] = {LISTS[kind].field: items}
        if cursor is not None:
            fields["nextCursor"] = cursor
        fields |= hint_fields(self.hints(kind))
        return RawObject(call.method.result, fields)  # type: ignore[arg-type]


def without_app(one: MergedItem) -> MergedItem | None:
    """Return a tool without its view, for a caller that shows none. None if the item is only for
    views.

    Args:
        one: The tool or resource.
    """
    item = one.item
    if item.kind == "resources":
        return None if item.name.startswith(SCHEME) else one
    if VIEW_KEYS.isdisjoint(item.definition.meta or ()):
        return one
    if is_app_only(item.definition.meta):
        return None
    fields = split_object(one.raw)
    meta = split_object(fields.pop("_meta"))
    meta = {key: value for key, value in meta.items() if key not in VIEW_KEYS}
    fields |= {"_meta": encode_raw(meta)} if meta else {}
    return replace(one, raw=encode_raw(fields))


def hint_fields(hints: ListHints | None) -> dict[str, Any]:
    """Return the fields of a result with these hints; none if it may not be kept."""
    if hints is None or not hints.ttl_ms:
        return {}
    return {"ttlMs": hints.ttl_ms, "cacheScope": "public" if hints.is_public else "private"}


def _merge_meta(meta: Raw, rename: Rename) -> Raw:
    """Return the `_meta` of a tool with the URI of its view as callers see it. It is in `ui`, or in
    a key that is deprecated."""
    try:
        fields = split_object(meta)
    except msgspec.MsgspecError:
        return meta
    _rename_field(fields, "ui/resourceUri", rename)
    try:
        ui = split_object(fields["ui"])
    except (KeyError, msgspec.MsgspecError):
        return encode_raw(fields)
    _rename_field(ui, "resourceUri", rename)
    return encode_raw({**fields, "ui": ui})


def _rename_field(fields: dict[str, Raw], key: str, rename: Rename) -> None:
    """Rename the URI in a field, if there is one."""
    try:
        fields[key] = encode_raw(rename(msgspec.json.decode(fields[key], type=str)))
    except (KeyError, msgspec.MsgspecError):
        pass


def _shown(items: Mapping[str, MergedItem]) -> list[bytes]:
    return [bytes(one.raw) for one in items.values()]


VIEW_KEYS = frozenset({"ui", "ui/resourceUri"})
"""The keys in the `_meta` of a tool that are about its view."""
MAX_VIEWS = 1000
"""The number of callers for whom a list is kept."""
KIND_BY_METHOD: Mapping[str, Kind] = {LISTS[kind].method: kind for kind in LIST_KINDS}
CORE_LISTS = tuple(LISTS[kind].method for kind in KINDS)
"""The methods of lists that are not part of an extension."""
