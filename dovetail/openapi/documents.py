"""Read the description of an API, and follow the references in it.

A description is a dict, a file or a URL. A `$ref` may lead to another file in the folder of the
description, or to another document with the same origin. Everything else is refused, because a
description from a stranger must not read other files or reach other servers. The number of
documents, their total size and the length of a chain of references are limited.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from ..aio import run_in_daemon_thread
from ..errors import ConfigError, DovetailError
from ..limits import Limits
from ..net import shown_url, split_origin
from ..text import quote

Source: TypeAlias = Mapping[str, Any] | str | PathLike[str]
"""A description: the parsed document, or where to read it."""

MAX_DOCUMENTS: Final = 200
MAX_CHAIN: Final = 32
"""How many references in a row may lead to other references."""
WEB: Final = ("http://", "https://")


class ApiDocument(NamedTuple):
    """A parsed document, and where it was read: a URL, a path, or an empty text."""

    root: Mapping[str, Any]
    location: str

    @property
    def is_web(self) -> bool:
        """Whether the document was read from a URL."""
        return self.location.startswith(WEB)


class ApiNode(NamedTuple):
    """A part of a document. References in it are relative to its document."""

    value: Any
    document: ApiDocument

    def get(self, key: str) -> "ApiNode":
        """Return an entry of an object; its value is None if there is none."""
        found = self.value.get(key) if isinstance(self.value, Mapping) else None
        return ApiNode(found, self.document)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The value if it is an object, otherwise an empty one."""
        return self.value if isinstance(self.value, Mapping) else {}


class ApiDocuments:
    """The description of an API, with the documents to which it refers.

    Args:
        source: The description.
        limits: `incoming` limits the total size of the documents.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._bytes_left = limits.incoming
        self._opened: dict[str, ApiDocument] = {}
        self._folder: Path | None = None
        if isinstance(source, Mapping):
            self.main = ApiDocument(source, "")
            return
        location = str(source)
        if not location.startswith(WEB):
            path = Path(source).resolve()
            self._folder, location = path.parent, str(path)
        self.main = self._open(location)

    @property
    def root(self) -> ApiNode:
        """The whole description."""
        return ApiNode(self.main.root, self.main)

    def follow(self, node: ApiNode) -> ApiNode:
        """Return a node, or the node to which it refers, directly or through others."""
        for _ in range(MAX_CHAIN):
            reference = node.fields.get("$ref")
            if not isinstance(reference, str):
                return node
            node = self.resolve(reference, node.document)[0]
        raise ConfigError(
            f"The API description has more than {MAX_CHAIN} references in a row: "
            f"{quote(str(node.fields.get('$ref')))}"
        )

    def resolve(self, reference: str, document: ApiDocument) -> tuple[ApiNode, str]:
        """Return the node to which a reference leads, and a text that identifies the node."""
        address, _, fragment = reference.partition("#")
        target = self._open(self._locate(address, document)) if address else document
        pointer = unquote(fragment)
        found: Any = target.root
        if pointer and not pointer.startswith("/"):
            raise _unresolved(reference, document, "references to anchors are not supported")
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _unresolved(reference, document, "it leads to nothing") from None
        return ApiNode(found, target), f"{target.location}#{pointer}"

    def _locate(self, address: str, document: ApiDocument) -> str:
        """Return where a reference leads. Refuse other folders and other origins."""
        if document.is_web:
            try:
                target = urljoin(document.location, address)
                is_same = split_origin(target) == split_origin(self.main.location)
            except ValueError:
                is_same = False
            if not is_same or not target.startswith(WEB):
                raise _unresolved(
                    address, document, "it leads to another origin than that of the description"
                )
            return target
        if self._folder is None:
            raise _unresolved(
                address,
                document,
                "a description that is passed as a dict has no other documents; pass its path "
                "or URL",
            )
        if urlsplit(address).scheme or address.startswith("//"):
            raise _unresolved(address, document, "a file may refer only to files in its folder")
        path = (Path(document.location).parent / unquote(address)).resolve()
        if not path.is_relative_to(self._folder):
            raise _unresolved(address, document, "it leads outside the folder of the description")
        return str(path)

    def _open(self, location: str) -> ApiDocument:
        if location in self._opened:
            return self._opened[location]
        shown = shown_url(location)
        if len(self._opened) >= MAX_DOCUMENTS:
            raise ConfigError(f"The API description refers to more than {MAX_DOCUMENTS} documents")
        is_web = location.startswith(WEB)
        data = (_fetch if is_web else _read)(location, self._bytes_left)
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise ConfigError(f"{shown}: the API description is too large (limits.incoming)")
        root = _parse(data, shown)
        if not isinstance(root, dict):
            raise ConfigError(f"{shown} is not an API description: it is not an object")
        self._opened[location] = ApiDocument(root, location)
        return self._opened[location]


def _unresolved(reference: str, document: ApiDocument, why: str) -> ConfigError:
    place = f"{shown_url(document.location)}: " if document.location else ""
    return ConfigError(f"{place}the reference {quote(reference)} cannot be used: {why}")


def _read(location: str, limit: int) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{location} cannot be read: {error.strerror or error}") from None


def _fetch(location: str, limit: int) -> bytes:
    """Fetch a document. The caller waits, even if it runs on an event loop."""
    import asyncio

    from ..ports import HttpRequest
    from ..transports.http.client.fetch import fetch

    request = HttpRequest(
        method="GET",
        url=location,
        headers={"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"},
    )
    work = run_in_daemon_thread(
        lambda: asyncio.run(fetch(request, private=True, limit=limit)), "dovetail-openapi"
    )
    try:
        response = work.result()
    except DovetailError as error:
        raise ConfigError(f"The API description cannot be read: {error}") from None
    if response.status != 200:
        target = response.headers.get("location")
        hint = f", which redirects to {quote(shown_url(target))}" if target else ""
        raise ConfigError(f"{shown_url(location)} answered {response.status}{hint}")
    return response.body


def _parse(data: bytes, shown: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
        if text.lstrip()[:1] == "{":
            return msgspec.json.decode(text)
        from ..yaml_loader import load_long_yaml

        return load_long_yaml(text)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{shown} is not valid JSON or YAML: {error}") from None
