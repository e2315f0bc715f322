"""A stub of an API that checks each request against the API's description.

It reads requests with its own code, so that a mistake in how we write them shows. It answers 400
with the reason if a request does not fit, and otherwise what `replies` say for the operation, or
200 with the values that it has read.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.parser import BytesParser
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_plus

from aiohttp import web

from dovetail.limits import Limits
from dovetail.openapi.documents import ApiDocuments, ApiNode
from dovetail.openapi.schema_bundle import SchemaBundle
from dovetail.schema.validation import compile

LARGE = Limits(schema_nodes=1_000_000)


class Received(NamedTuple):
    """A request as the stub has read it."""

    operation: str
    raw_path: str
    headers: Mapping[str, str]
    values: dict[str, Any]
    """The parameters by place and name, and the body."""
    body: bytes


class Mismatch(Exception):
    """The request does not fit the description."""


class ApiStub:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.documents = ApiDocuments(document, LARGE)
        self.received: list[Received] = []
        """The requests that fit."""
        self.count = 0
        """The number of all requests."""
        self.replies: dict[str, web.Response] = {}
        self.routes: list[tuple[str, re.Pattern[str], str, ApiNode, ApiNode]] = []
        paths = self.documents.root.get("paths")
        for path in paths.fields:
            item = self.documents.follow(paths.get(path))
            pattern = re.compile(
                "".join(
                    f"(?P<p{i // 2}>[^/]+)" if i % 2 else re.escape(part)
                    for i, part in enumerate(re.split(r"\{([^{}]+)\}", path.partition("#")[0]))
                )
            )
            for method in item.fields:
                if method in ("get", "put", "post", "delete", "patch", "head", "options", "trace"):
                    self.routes.append((method.upper(), pattern, path, item, item.get(method)))
        self.routes.sort(key=lambda route: -len(re.sub(r"\{[^{}]+\}", "", route[2])))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.count += 1
        body = await request.read()
        path, _, query = request.raw_path.partition("?")
        try:
            name, values = self.read(request.method, path, query, request.headers, body)
        except Mismatch as problem:
            return web.json_response({"message": str(problem)}, status=400)
        self.received.append(Received(name, request.raw_path, request.headers, values, body))
        found = self.replies.pop(name, None)
        return found or web.json_response({"operation": name})

    def read(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[str, dict[str, Any]]:
        """Return the operation of a request and its values; raise Mismatch. Of several paths, the
        one with the most literal text is meant."""
        for verb, pattern, template, item, operation in self.routes:
            if verb == method and (match := pattern.fullmatch(path)):
                names = re.findall(r"\{([^{}]+)\}", template)
                segments = dict(zip(names, match.groups(), strict=True))
                name = operation.fields.get("operationId", f"{method} {template}")
                values = self.read_parameters(item, operation, segments, query, headers)
                return name, values | self.read_body(operation, headers, body)
        raise Mismatch(f"there is no {method} {path}")

    def read_parameters(
        self,
        item: ApiNode,
        operation: ApiNode,
        segments: Mapping[str, str],
        query: str,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        pairs = [tuple(part.partition("=")[::2]) for part in query.split("&") if part]
        cookies = [
            tuple(part.strip().partition("=")[::2])
            for part in headers.get("Cookie", "").split(";")
            if part.strip()
        ]
        parameters: dict[Any, ApiNode] = {}
        for owner in (item, operation):
            for value in owner.fields.get("parameters", []):
                node = self.documents.follow(ApiNode(value, owner.document))
                parameters[node.fields["in"], node.fields["name"]] = node
        values = {}
        for (place, name), node in parameters.items():
            if place == "header" and name.lower() in ("accept", "content-type", "authorization"):
                continue
            sources = {"query": pairs, "cookie": cookies}
            if place in sources:
                found = self.read_pairs(node, name, sources[place])
            elif place == "path":
                found = self.read_simple(node, segments[name]) if name in segments else None
            else:
                found = self.read_simple(node, headers[name], str) if name in headers else None
            if found is not None:
                values[f"{place} {name}"] = self.check(node, found, f"{place} {name}")
            elif node.fields.get("required") is True and (place != "path" or name in segments):
                raise Mismatch(f"{place} {name} is missing")
        return values

    def read_simple(self, node: ApiNode, raw: str, decode: Any = unquote) -> Any:
        if "content" in node.fields:
            return json.loads(decode(raw))
        schema = self.schema_of(node)
        explode = node.fields.get("explode", False)
        raw = raw.removeprefix({"label": ".", "matrix": ";"}.get(node.fields.get("style", ""), ""))
        if schema.fields.get("type") == "array":
            return [decode(part) for part in raw.split(",")]
        if schema.fields.get("type") == "object":
            parts = raw.split(",")
            both = (
                [p.split("=", 1) for p in parts]
                if explode
                else zip(parts[::2], parts[1::2], strict=True)
            )
            return {decode(key): decode(value) for key, value in both}
        return decode(raw)

    def read_pairs(self, node: ApiNode, name: str, pairs: list[Any]) -> Any:
        if "content" in node.fields:
            return next((json.loads(unquote(v)) for k, v in pairs if unquote(k) == name), None)
        schema = self.schema_of(node)
        style = node.fields.get("style", "form")
        return read_field(
            schema.fields,
            name,
            pairs,
            style,
            node.fields.get("explode", style in ("form", "deepObject")),
        )

    def schema_of(self, node: ApiNode) -> ApiNode:
        return self.documents.follow(node.get("schema"))

    def read_body(
        self, operation: ApiNode, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        described = self.documents.follow(operation.get("requestBody"))
        content = described.get("content")
        if not content.fields or not (body or headers.get("Content-Type")):
            if described.fields.get("required") is True:
                raise Mismatch("the body is missing")
            return {}
        sent = headers.get("Content-Type", "")
        bare = sent.partition(";")[0]
        media = next((one for one in content.fields if one in (sent, bare)), None)
        if media is None:
            media = next((one for one in content.fields if "*" in one or "/" not in one), None)
        if media is None:
            raise Mismatch(f"the Content-Type is {sent}, not one of {list(content.fields)}")
        node = self.documents.follow(content.get(media))
        schema = self.schema_of(node)
        value: Any
        if bare == "application/x-www-form-urlencoded":
            value = read_form(
                schema.fields,
                node.fields.get("encoding", {}),
                body.decode(),
                self.documents,
                schema,
            )
        elif bare.startswith("multipart/"):
            return {"body": read_multipart(sent, body)}
        elif bare.endswith("json"):
            value = json.loads(body)
        else:
            return {"body": body}
        return {"body": self.check(node, value, "body")}

    def check(self, node: ApiNode, value: Any, place: str) -> Any:
        """Validate a value; texts become what the schema says they are."""
        content = node.get("content")
        if content.fields:
            node = self.documents.follow(content.get(next(iter(content.fields))))
        if "schema" not in node.fields:
            return value
        bundle = SchemaBundle(self.documents, LARGE)
        schema = bundle.convert(node.get("schema"))
        definitions = bundle.definitions()
        whole = {**schema, "$defs": definitions} if isinstance(schema, dict) else schema
        value = (
            value
            if place == "body" and not isinstance(value, Text)
            else typed(value, whole, definitions)
        )
        problems = compile(whole, LARGE).problems(value)
        if problems:
            raise Mismatch(f"{place}: {'; '.join(problems)}")
        return value


class Text(dict[str, Any]):
    """The fields of a form, which are texts."""


def read_field(
    schema: Mapping[str, Any], name: str, pairs: list[Any], style: str, explode: bool
) -> Any:
    """Read one parameter from pairs that are still encoded."""
    mine = [value for key, value in pairs if unquote(key) == name]
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if style == "deepObject":
        found = read_deep(name, pairs)
        return found if found is not None else (unquote(mine[0]) if mine else None)
    if "array" in kinds or "items" in schema:
        if explode:
            return [unquote(value) for value in mine] or None
        separator = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(style, ",")
        return [unquote(part) for part in mine[0].split(separator)] if mine else None
    if "object" in kinds:
        if not explode:
            parts = mine[0].split(",") if mine else []
            return {
                unquote(k): unquote(v) for k, v in zip(parts[::2], parts[1::2], strict=True)
            } or None
        known = schema.get("properties", {})
        return {unquote(k): unquote(v) for k, v in pairs if unquote(k) in known} or None
    return unquote(mine[0]) if mine else None


def read_deep(name: str, pairs: list[Any]) -> Any:
    """Read `name[a][b]=c`, `name[]=c` and `name[0][a]=c`."""
    found: Any = None
    for key, value in pairs:
        key = unquote(key)
        if not key.startswith(f"{name}["):
            continue
        steps = re.findall(r"\[([^\]]*)\]", key[len(name) :])
        found = put(found, steps, unquote_plus(value))
    return lists_of(found)


def put(found: Any, steps: list[str], value: str) -> Any:
    if not steps:
        return value
    found = {} if found is None else found
    step = str(len(found)) if steps[0] == "" else steps[0]
    found[step] = put(found.get(step), steps[1:], value)
    return found


def lists_of(found: Any) -> Any:
    """Turn objects whose keys are 0, 1, 2… into lists."""
    if not isinstance(found, dict):
        return found
    inner = {key: lists_of(value) for key, value in found.items()}
    return list(inner.values()) if list(inner) == [str(i) for i in range(len(inner))] else inner


def read_form(
    schema: Any, encoding: Any, text: str, documents: ApiDocuments, node: ApiNode
) -> Text:
    pairs = [tuple(part.partition("=")[::2]) for part in text.split("&") if part]
    fields = Text()
    for name in schema.get("properties", {}):
        inner = documents.follow(node.get("properties").get(name))
        how = encoding.get(name, {})
        value = read_field(
            inner.fields, name, pairs, how.get("style", "form"), how.get("explode", True)
        )
        if not how and isinstance(value, dict | None) and "object" in str(inner.fields.get("type")):
            raw = next((unquote(v) for k, v in pairs if unquote(k) == name), None)
            value = None if raw is None else json.loads(raw)
        if value is not None:
            fields[name] = value
    return fields


def read_multipart(kind: str, body: bytes) -> dict[str, Any]:
    """Read the parts: a file as (filename, media type, bytes), and other parts as text."""
    message = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    parts: dict[str, Any] = {}
    for part in message.get_payload():
        assert not isinstance(part, str)
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        filename = part.get_filename()
        value: Any = (
            data.decode() if filename is None else (filename, part.get_content_type(), data)
        )
        parts[name] = (
            [*parts[name], value]
            if isinstance(parts.get(name), list)
            else (value if name not in parts else [parts[name], value])
        )
    return parts


def typed(value: Any, schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Read texts as the types of a schema."""
    if not isinstance(schema, dict):
        return value
    if (reference := schema.get("$ref")) is not None:
        return typed(
            value,
            {
                **definitions[reference.rpartition("/")[2]],
                **{k: v for k, v in schema.items() if k != "$ref"},
            },
            definitions,
        )
    for keyword in ("anyOf", "oneOf"):
        for one in schema.get(keyword, ()):
            tried = typed(value, one, definitions)
            whole = {**one, "$defs": dict(definitions)} if isinstance(one, dict) else one
            if not compile(whole, LARGE).problems(tried):
                return tried
    for one in schema.get("allOf", ()):
        value = typed(value, one, definitions)
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, dict):
        return {
            k: typed(
                v,
                schema.get("properties", {}).get(k, schema.get("additionalProperties")),
                definitions,
            )
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [typed(one, schema.get("items"), definitions) for one in value]
    if not isinstance(value, str) or "string" in kinds:
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return None if value == "" and "null" in kinds else value
    return read if not kinds or any(fits(read, kind) for kind in kinds) else value


def fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    names = {"integer": int, "number": (int, float), "array": list, "object": dict}
    return kind in names and isinstance(value, names[kind])


@asynccontextmanager
async def serving(handler: Any) -> AsyncIterator[str]:
    """Serve a handler of aiohttp on a free port; the value is its origin."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
