"""What a call, a description or an API must not be able to do."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dovetail import Limits, Server
from dovetail.errors import ConfigError, SchemaError
from dovetail.testing import pair

from .stage import minimal, petstore, stage
from .stub import serving

ONE = {"/a": {"get": {"operationId": "a"}}}


@contextmanager
def publishing(files: dict[str, Any]) -> Iterator[str]:
    """Serve documents from a thread; the value is the origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(200 if isinstance(body, dict) else 302 if body else 404)
            if isinstance(body, str):
                self.send_header("Location", body)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode() if isinstance(body, dict) else b"")

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


# what a call sends


@pytest.mark.parametrize(
    "value, sent",
    [
        ("../secrets", "..%2Fsecrets"),
        ("a/b", "a%2Fb"),
        ("a?admin=1", "a%3Fadmin%3D1"),
        ("a#b", "a%23b"),
        ("a%2Fb", "a%252Fb"),
        ("a\r\nb", "a%0D%0Ab"),
        ("…", "%E2%80%A6"),
    ],
)
async def test_a_value_in_a_path_is_one_segment(value: str, sent: str) -> None:
    async with stage() as one:
        result = await one.call("readFile", path=value)
        assert not result.is_error, result.text
        assert one.stub.received[0].raw_path == f"/files/{sent}"


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_a_value_that_would_lead_to_another_path_is_refused(value: str) -> None:
    async with stage() as one:
        assert (await one.call("readFile", path=value)).is_error
        assert one.stub.count == 0


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b"])
@pytest.mark.parametrize("argument", ["X-Trace", "region"])
async def test_control_characters_in_headers_and_cookies_are_refused(
    argument: str, value: str
) -> None:
    async with stage() as one:
        result = await one.call("listPets", **{argument: value})
        assert result.is_error and argument in result.text
        assert one.stub.count == 0


async def test_control_characters_in_nested_values_and_filenames_are_refused() -> None:
    parameters = [
        {"name": "h", "in": "header", "schema": {"type": "array"}},
        {"name": "l", "in": "cookie", "schema": {"type": "array"}},
        {"name": "c", "in": "cookie", "content": {"application/json": {}}},
    ]
    document = minimal({"/a": {"get": {"operationId": "a", "parameters": parameters}}})
    async with stage(document) as one:
        assert (await one.call("a", h=["x\r\ny"])).is_error
        assert (await one.call("a", l=["x\r\ny"])).is_error
        assert not (await one.call("a", c="x\r\ny")).is_error  # as JSON, in which they are escaped
    async with stage() as one:
        photo = {"content": "", "filename": 'a"\r\nX: 1'}
        assert (await one.call("uploadPhotos", id="1", body={"photo": photo})).is_error


async def test_a_header_that_frames_the_request_is_not_an_argument() -> None:
    names = ["Host", "Content-Length", "Authorization", "cookie", "X-Fine"]
    parameters = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
    document = minimal({"/a": {"get": {"operationId": "a", "parameters": parameters}}})
    async with stage(document) as one:
        assert set((await one.schema("a"))["properties"]) == {"X-Fine"}


# where requests and credentials go


async def test_credentials_are_added_and_are_not_inputs() -> None:
    credentials = {"key": "s3cret"}
    async with stage(credentials=credentials) as one:
        await one.call("getPet", id="7")
        assert one.stub.received[0].headers["X-Api-Key"] == "s3cret"
        assert "s3cret" not in repr(await one.client.list_tools())


@pytest.mark.parametrize(
    "scheme, value, header",
    [
        ("token", "t0ken", "Bearer t0ken"),
        ("password", "ada:pass", "Basic YWRhOnBhc3M="),
    ],
)
async def test_http_schemes_use_the_authorization_header(
    scheme: str, value: str, header: str
) -> None:
    document = petstore(security=[{"other": []}, {scheme: []}])
    async with stage(document, credentials={scheme: value}) as one:
        await one.call("getPet", id="7")
        assert one.stub.received[0].headers["Authorization"] == header


async def test_a_key_in_the_query_replaces_the_parameter_and_shows_in_no_error() -> None:
    document = petstore(security=[{"query": []}])
    document["paths"]["/pets"]["get"]["parameters"].append(
        {"name": "api_key", "in": "query", "required": True, "schema": {"type": "string"}}
    )
    async with stage(document, credentials={"query": "s3cret"}) as one:
        assert "api_key" not in (await one.schema("listPets"))["properties"]
        await one.call("listPets")
        assert one.stub.received[0].values == {"query api_key": "s3cret"}
        one.stub.replies["listPets"] = web.Response(body=b"\0", content_type="application/zip")
        blob = await one.call("listPets")
        assert "s3cret" not in repr(blob)
    server = Server.from_openapi(
        document, base_url="http://127.0.0.1:1", credentials={"query": "s3cret"}
    )
    async with pair(server) as client:
        result = await client.call_tool("listPets", raise_on_error=False)
        assert result.is_error and "s3cret" not in result.text


async def test_an_operation_without_credentials_says_which_it_needs() -> None:
    async with stage() as one:
        one.stub.replies["getPet"] = web.Response(status=401)
        result = await one.call("getPet", id="7")
        assert "needs credentials (key)" in result.text


async def test_own_headers_are_sent_with_each_request_and_are_not_inputs() -> None:
    async with stage(headers={"Authorization": "Bearer x", "x-trace": "1"}) as one:
        assert "X-Trace" not in (await one.schema("listPets"))["properties"]
        await one.call("listPets")
        assert one.stub.received[0].headers["Authorization"] == "Bearer x"
        assert one.stub.received[0].headers["X-Trace"] == "1"


@pytest.mark.parametrize(
    "credentials, problem",
    [
        ({"kee": "x"}, "did you mean 'key'"),
        ({"key": "a\nb"}, "line breaks"),
        ({"password": "no colon"}, "user:password"),
    ],
)
def test_wrong_credentials_are_refused_at_once(credentials: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Server.from_openapi(petstore(), base_url="https://a.example", credentials=credentials)


@pytest.mark.parametrize("servers", [[{"url": "https://evil.example/v1"}], [{"url": "/v1"}], []])
def test_a_server_in_a_dict_or_a_file_is_not_trusted(servers: Any, tmp_path: Path) -> None:
    document = minimal(ONE) | {"servers": servers}
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document))
    for source in (document, file, str(file)):
        with pytest.raises(ConfigError, match=r"not read from a URL.*base_url"):
            Server.from_openapi(source)


def test_the_server_in_a_document_with_the_same_origin_is_used() -> None:
    variables = {"url": "/{version}", "variables": {"version": {"default": "v2"}}}
    files = {"/api.json": minimal(ONE) | {"servers": [variables]}, "/bare.json": minimal(ONE)}
    with publishing(files) as origin:
        server = Server.from_openapi(f"{origin}/api.json")
        assert server._http_apis[0].base_url == f"{origin}/v2"
        assert Server.from_openapi(f"{origin}/bare.json")._http_apis[0].base_url == origin
        files["/api.json"]["servers"] = [{"url": "https://evil.example/v1"}]
        with pytest.raises(ConfigError, match="another server"):
            Server.from_openapi(f"{origin}/api.json")


async def test_a_url_is_read_even_on_a_running_event_loop() -> None:
    with publishing({"/api.json": minimal(ONE)}) as origin:
        server = Server.from_openapi(f"{origin}/api.json")
        assert server.name == "t"


async def test_a_redirect_to_another_origin_is_not_followed() -> None:
    visits: list[str] = []

    async def other(request: web.Request) -> web.Response:
        visits.append(request.path)
        return web.json_response({})

    async with serving(other) as evil, stage(credentials={"key": "s3cret"}) as one:
        for status in (301, 302, 303, 307, 308):
            location = f"{evil}/x?token=1"
            one.stub.replies["getPet"] = web.Response(status=status, headers={"Location": location})
            result = await one.call("getPet", id="7")
            assert result.is_error and "another origin" in result.text
        assert visits == []


async def test_a_redirect_to_the_same_origin_is_followed_if_nothing_is_lost() -> None:
    async with stage() as one:
        moved = web.Response(status=301, headers={"Location": "/pets/8"})
        one.stub.replies["getPet"] = moved
        assert not (await one.call("getPet", id="7")).is_error
        assert [request.raw_path for request in one.stub.received] == ["/pets/7", "/pets/8"]
        one.stub.replies["createPet"] = web.Response(status=303, headers={"Location": "/pets/9"})
        assert not (await one.call("createPet", body={"kind": "cat"})).is_error
        assert one.stub.received[-1].operation == "getPet"
        one.stub.replies["createPet"] = web.Response(status=302, headers={"Location": "/pets/9"})
        result = await one.call("createPet", body={"kind": "cat"})
        assert result.is_error and "drop the body" in result.text


async def test_redirects_end() -> None:
    async def again(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": str(request.url)})

    async with serving(again) as origin:
        server = Server.from_openapi(minimal(ONE), base_url=origin)
        async with pair(server) as client:
            result = await client.call_tool("a", raise_on_error=False)
            assert result.is_error and "more than 5 times" in result.text


# what a description can refer to


def test_a_file_may_refer_to_files_in_its_folder_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "api"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "outside.json").write_text('{"type": "string"}')
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    (folder / "parts" / "pet.json").write_text(
        '{"Pet": {"type": "object", "properties": {"id": {"$ref": "../ids.yaml#/Id"}}}}'
    )
    (folder / "ids.yaml").write_text("Id:\n  type: integer\n")

    def load(reference: str) -> Any:
        body = {"content": {"application/json": {"schema": {"$ref": reference}}}}
        document = minimal({"/a": {"post": {"operationId": "a", "requestBody": body}}})
        (folder / "api.json").write_text(json.dumps(document))
        server = Server.from_openapi(folder / "api.json", base_url="https://a.example")
        return server._http_apis[0].input_schema("a")

    schema = load("parts/pet.json#/Pet")
    assert schema["properties"]["body"]["properties"]["id"] == {"$ref": "#/$defs/Id"}
    assert schema["$defs"] == {"Id": {"type": "integer"}}
    outside = [
        "../outside.json",
        "link.json",
        str(tmp_path / "outside.json"),
        "%2e%2e/outside.json",
    ]
    for reference in outside:
        with pytest.raises(ConfigError, match="outside the folder"):
            load(reference)
    for reference in (f"file://{tmp_path}/outside.json", "https://a.example/x.json", "//a/x.json"):
        with pytest.raises(ConfigError, match="only to files in its folder"):
            load(reference)
    with pytest.raises(ConfigError, match="leads to nothing"):
        load("parts/pet.json#/Cat")


def test_a_document_may_refer_to_its_own_origin_and_nothing_else(tmp_path: Path) -> None:
    def with_reference(reference: str) -> dict[str, Any]:
        body = {"content": {"application/json": {"schema": {"$ref": reference}}}}
        return minimal({"/a": {"post": {"operationId": "a", "requestBody": body}}})

    files: dict[str, Any] = {"/parts/pet.json": {"Pet": {"type": "integer"}}}
    with publishing({}) as other, publishing(files) as origin:
        files["/api/one.json"] = with_reference("../parts/pet.json#/Pet")
        server = Server.from_openapi(f"{origin}/api/one.json")
        assert server._http_apis[0].input_schema("a")["properties"]["body"] == {"type": "integer"}
        for reference in (f"{other}/x.json", f"file://{tmp_path}/x.json", "//a.example/x.json"):
            files["/api/one.json"] = with_reference(reference)
            with pytest.raises(ConfigError, match="another origin"):
                Server.from_openapi(f"{origin}/api/one.json")
        files["/moved.json"] = f"{other}/x.json"
        files["/api/one.json"] = with_reference("/moved.json")
        with pytest.raises(ConfigError, match="answered 302"):
            Server.from_openapi(f"{origin}/api/one.json")


def test_a_dict_has_no_other_documents() -> None:
    document = minimal({"/a": {"$ref": "other.json#/a"}})
    with pytest.raises(ConfigError, match="pass its path or URL"):
        Server.from_openapi(document, base_url="https://a.example")


# sizes and depths


def test_the_size_of_a_description_is_limited(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(minimal(ONE)) + " " * 1000)
    with pytest.raises(ConfigError, match="too large"):
        Server.from_openapi(file, base_url="https://a.example", limits=Limits(incoming=500))


def test_circular_references_end() -> None:
    document = minimal({"/a": {"$ref": "#/components/pathItems/x"}})
    document["components"] = {"pathItems": {"x": {"$ref": "#/components/pathItems/x"}}}
    with pytest.raises(ConfigError, match="references in a row"):
        Server.from_openapi(document, base_url="https://a.example")


@pytest.mark.parametrize("depth, nodes", [(20, 10_000), (64, 50)])
def test_the_depth_and_size_of_schemas_are_limited(depth: int, nodes: int) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    body = {"content": {"application/json": {"schema": schema}}}
    document = minimal({"/a": {"post": {"operationId": "a", "requestBody": body}}})
    limits = Limits(schema_depth=depth, schema_nodes=nodes)
    with pytest.raises(SchemaError, match=r"POST /a.*limits\.schema"):
        Server.from_openapi(document, base_url="https://a.example", limits=limits)


def test_a_deeply_nested_document_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(ConfigError, match="not valid"):
        Server.from_openapi(file, base_url="https://a.example")


def test_swagger_2_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"Swagger 2\.0.*Convert it to OpenAPI 3"):
        Server.from_openapi({"swagger": "2.0", "paths": {}}, base_url="https://a.example")
    for document in ({"openapi": "4.0.0"}, {}, {"openapi": 3}):
        with pytest.raises(ConfigError, match="not a description in OpenAPI"):
            Server.from_openapi(document, base_url="https://a.example")


async def test_two_connections_share_the_api_and_the_last_one_closes_it() -> None:
    async with stage() as one:
        async with pair(one.server) as second:
            await asyncio.gather(
                one.call("getPet", id="1"), second.call_tool("getPet", {"id": "2"})
            )
        assert not (await one.call("getPet", id="3")).is_error
        assert len(one.server._http_apis[0]._clients) == 1
    assert len(one.server._http_apis[0]._clients) == 0
