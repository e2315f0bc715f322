"""The lists of all servers as one, under the names that callers see.

A merged list is a snapshot in the order of the configuration file. Each item is written once, from
the bytes that its server sent, with the name or URI replaced.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..ports import Call, Principal
from ..protocol.methods import METHODS
from ..protocol.raw import RawObject, encode_raw, split_object
from ..server.registry import Snapshot, select_page
from .catalog import LISTS, Item, ItemList, ListHints
from .naming import KINDS, Kind
from .search import ToolSearch
from .upstream import UpstreamServer
from .upstreams import UpstreamSet
from .uris import Rename


class MergedItem(Struct, frozen=True, eq=False):
    """An item of a merged list."""

    name: str
    """The name or URI that callers use."""
    server: UpstreamServer
    item: Item
    """The item as its server sent it."""
    raw: Raw
    """The item as callers see it."""


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
        self._views: dict[tuple[Kind, str | None, tuple[str, ...]], Snapshot[MergedItem]] = {}
        """The lists as callers see them, by their id and scopes."""

    def clear(self) -> None:
        """Forget the lists, because a server's list or the policy has changed."""
        self._merged.clear()
        self._views.clear()

    def update(self) -> list[Kind]:
        """Build the lists again after a change, and return the kinds that callers see changed."""
        before, self._merged = self._merged, {}
        self._views.clear()
        changed: list[Kind] = []
        for kind in KINDS:
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
            rename = self._upstreams.names.renamer(server.name)
            for item in server.catalog.items(kind).values():
                name = self._upstreams.names.to_caller(kind, server.name, item.name)
                if name is None or name in items:
                    continue
                before = old.get(name)
                if before is None or before.item is not item or "_meta" in item.fields:
                    before = self._merge(kind, server, item, name, rename)
                items[name] = before
        return items

    def _merge(
        self, kind: Kind, server: UpstreamServer, item: Item, name: str, rename: Rename
    ) -> MergedItem:
        fields = {**item.fields, LISTS[kind].key: encode_raw(name)}
        if kind == "tools" and not self.has_tasks:
            fields.pop("execution", None)
        elif kind == "tools" and server.catalog.tasks == "extension":
            # With the extension, every call may become a task. Only the core form has this field.
            fields.setdefault("execution", Raw(b'{"taskSupport":"optional"}'))
        meta = fields.get("_meta")
        if meta is not None and b"resourceUri" in bytes(meta):
            fields["_meta"] = _merge_meta(meta, rename)
        return MergedItem(name, server, item, encode_raw(fields))

    def visible(self, kind: Kind, principal: Principal | None) -> Snapshot[MergedItem]:
        """Return the items that a caller may see."""
        key = (kind, None, ()) if principal is None else (kind, principal.id, principal.scopes)
        view = self._views.get(key)
        if view is None:
            user = key[1] if self._upstreams.has_users else None
            merged = self._snapshot(kind, user or "")
            items = {
                name: one
                for name, one in merged.items.items()
                if self._is_visible(principal, kind, one)
            }
            view = merged if len(items) == len(merged.items) else Snapshot(items)
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
        visible: Snapshot[Any] = self.visible(kind, call.principal)
        if kind == "tools" and self.search is not None:
            visible = self.search.listed(visible)

        chosen, cursor = select_page(call, visible, self._page_size)
        items = Raw(b"[" + b",".join(bytes(one.raw) for one in chosen) + b"]")
        fields: dict[str, Any] = {LISTS[kind].field: items}
        if cursor is not None:
            fields["nextCursor"] = cursor
        fields |= hint_fields(self.hints(kind))
        return RawObject(METHODS[call.name].result, fields)  # type: ignore[arg-type]


def hint_fields(hints: ListHints | None) -> dict[str, Any]:
    """Return the fields of a result with these hints; none if it may not be kept."""
    if hints is None or not hints.ttl_ms:
        return {}
    return {"ttlMs": hints.ttl_ms, "cacheScope": "public" if hints.is_public else "private"}


def _merge_meta(meta: Raw, rename: Rename) -> Raw:
    """Return the `_meta` of a tool with the URI of its view as callers see it."""
    try:
        fields = split_object(meta)
        ui = split_object(fields["ui"])
        uri = msgspec.json.decode(ui["resourceUri"], type=str)
    except (KeyError, msgspec.MsgspecError):
        return meta
    return encode_raw({**fields, "ui": {**ui, "resourceUri": rename(uri)}})


def _shown(items: Mapping[str, MergedItem]) -> list[bytes]:
    return [bytes(one.raw) for one in items.values()]


MAX_VIEWS = 1000
"""The number of callers for whom a list is kept."""
KIND_BY_METHOD: Mapping[str, Kind] = {LISTS[kind].method: kind for kind in KINDS}
