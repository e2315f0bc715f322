"""What an API receives for a call, and what the caller gets back."""

import asyncio
import base64
from typing import Any

import pytest
from aiohttp import web

from dovetail import Limits, Server
from dovetail.errors import ToolError
from dovetail.testing import pair

from .generate import argument_sets
from .stage import minimal, stage
from .stub import serving

PNG = b"\x89PNG\r\n\x1a\n\x00\x01"


async def test_nothing_is_sent_if_the_arguments_are_not_valid() -> None:
    async with stage() as one:
        for arguments, reason in [
            ({"id": "7"}, "body"),
            ({"id": "7", "body": {}, "unknown": 1}, "unknown"),
            ({"id": "7", "body": {"name": 3}}, "name"),
        ]:
            result = await one.call("put_pets_id", **arguments)
            assert result.is_error and reason in result.text
        assert one.stub.count == 0


async def test_read_only_properties_are_not_inputs_and_are_not_sent() -> None:
    async with stage() as one:
        schema = await one.schema("put_pets_id")
        assert set(schema["properties"]["body"]["properties"]) == {"name", "friends"}
        assert schema["properties"]["body"]["required"] == ["name"]
        body = {"id": "7", "created": "now", "name": "Tom", "friends": [{"id": "8", "name": "Jo"}]}
        result = await one.call("put_pets_id", id="7", body=body)
        assert not result.is_error
        assert one.stub.received[0].values["body"] == {"name": "Tom", "friends": [{"name": "Jo"}]}


async def test_read_only_properties_of_combined_schemas_are_not_sent() -> None:
    base = {"type": "object", "properties": {"id": {"type": "string", "readOnly": True}}}
    own = {"type": "object", "properties": {"id": {"type": "string"}}}
    bodies = {
        "all": ({"allOf": [base, {"type": "object"}]}, {}),
        "null": ({"anyOf": [base, {"type": "null"}]}, {}),
        "either": ({"anyOf": [base, own]}, {"id": "7"}),  # it may be the one that can be written
    }
    paths = {
        f"/{name}": {
            "put": {
                "operationId": name,
                "requestBody": {"content": {"application/json": {"schema": schema}}},
            }
        }
        for name, (schema, _) in bodies.items()
    }
    async with stage(minimal(paths)) as one:
        for name, (_, sent) in bodies.items():
            assert not (await one.call(name, body={"id": "7"})).is_error
            assert one.stub.received[-1].values["body"] == sent


async def test_every_operation_can_be_called_with_arguments_from_its_schema() -> None:
    async with stage() as one:
        tools = await one.client.list_tools()
        for tool in tools:
            for arguments in argument_sets(tool.input_schema):
                result = await one.call(tool.name, **arguments)
                assert not result.is_error, result.text
        assert len({request.operation for request in one.stub.received}) == len(tools) == 11


async def test_a_file_of_a_form_is_sent_as_a_file() -> None:
    async with stage() as one:
        content = base64.b64encode(PNG).decode()
        result = await one.call(
            "uploadPhotos",
            id="7",
            body={
                "photo": {"content": content, "filename": 'a"b.png'},
                "more": [{"content": content}, {"content": content, "filename": "c.png"}],
                "caption": "Tom, asleep",
                "place": {"city": "Oslo"},
            },
        )
        assert not result.is_error, result.text
        assert one.stub.received[0].values["body"] == {
            "photo": ("a%22b.png", "image/png", PNG),
            "more": [
                ("more", "application/octet-stream", PNG),
                ("c.png", "application/octet-stream", PNG),
            ],
            "caption": "Tom, asleep",
            "place": '{"city":"Oslo"}',
        }


async def test_a_binary_body_is_decoded() -> None:
    async with stage() as one:
        result = await one.call("replacePhoto", id="7", body=base64.b64encode(PNG).decode())
        assert not result.is_error
        assert one.stub.received[0].body == PNG
        assert one.stub.received[0].headers["Content-Type"] == "image/png"
        result = await one.call("replacePhoto", id="7", body="!")
        assert result.is_error and "base64" in result.text
        assert one.stub.count == 1


async def test_a_form_has_the_style_of_each_field() -> None:
    async with stage() as one:
        body = {"pet": "a&b=c", "notes": ["x", "y"], "address": {"city": "Oslo", "zip": "0150"}}
        result = await one.call("placeOrder", body=body)
        assert not result.is_error, result.text
        assert one.stub.received[0].values["body"] == body
        assert one.stub.received[0].body == (
            b"pet=a%26b%3Dc&notes=x&notes=y&address[city]=Oslo&address[zip]=0150"
        )


async def test_parameters_reach_their_places() -> None:
    async with stage() as one:
        given = {"age": {"min": 1, "max": 3}, "colors": ["red", "a b"]}
        result = await one.call(
            "listPets", limit=5, tags=["x,y", "z"], filter=given, region="nord & süd",
            **{"X-Trace": "a, b"},
        )  # fmt: skip
        assert not result.is_error, result.text
        assert one.stub.received[0].values == {
            "query limit": 5,
            "query tags": ["x,y", "z"],
            "query filter": given,
            "header X-Trace": "a, b",
            "cookie region": "nord & süd",
        }


@pytest.mark.parametrize(
    "content, content_type, expected",
    [
        (b'{"a": 1,\n "b": 12345678901234567890123}', "application/json", "object"),
        (b"[1, 2]", "application/hal+json; charset=utf-8", "list"),
        (PNG, "image/png", "image"),
        (b"\x00\x01", "audio/wav", "audio"),
        (b"\x00\x01", "application/zip", "blob"),
        ("süß".encode("latin-1"), "text/plain; charset=latin-1", "text"),
        (b"<a/>", "application/xml", "text"),
        (b"{", "application/json", "text"),
        (b"", "application/json", "nothing"),
    ],
)
async def test_a_reply_becomes_content_of_its_kind(
    content: bytes, content_type: str, expected: str
) -> None:
    async with stage() as one:
        one.stub.replies["getPhoto"] = web.Response(
            body=content, headers={"Content-Type": content_type}
        )
        result = await one.call("getPhoto", id="7")
    assert not result.is_error
    block: Any = result.content[0]
    if expected == "object":
        assert result.structured_content == {"a": 1, "b": 12345678901234567890123}
    elif expected == "list":
        assert result.data == [1, 2]
    elif expected in ("image", "audio"):
        assert (block.type, block.mime_type) == (expected, content_type)
        assert base64.b64decode(block.data) == content
    elif expected == "blob":
        assert base64.b64decode(block.resource.blob) == content
        assert block.resource.mime_type == "application/zip"
        assert block.resource.uri == f"{one.origin}/pets/7/photo"
    elif expected == "text":
        assert result.text in ("süß", "<a/>", "{")
    else:
        assert "200 OK" in result.text


async def test_head_returns_the_headers() -> None:
    async with stage() as one:
        one.stub.replies["hasPet"] = web.Response(body=b"12345", headers={"ETag": '"7"'})
        result = await one.call("hasPet", id="7")
        assert result.data["status"] == 200
        assert result.data["headers"]["etag"] == '"7"'
        assert not (await one.call("getPet", id="7")).is_error  # on another connection


@pytest.mark.parametrize(
    "body, said",
    [
        ({"detail": [{"loc": ["body", "name"], "msg": "Field required"}]},
         "body.name: Field required"),
        ({"message": "Validation Failed", "errors": [{"field": "title", "message": "is missing"}]},
         "title: is missing"),
        ({"title": "Out of credit", "detail": "Your balance is 30"}, "Your balance is 30"),
        ({"error": {"message": "No such customer", "param": "customer"}},
         "customer: No such customer"),
        ({"error": "invalid_grant", "error_description": "The token expired"}, "The token expired"),
    ],
)  # fmt: skip
async def test_an_error_is_explained_in_words(body: Any, said: str) -> None:
    async with stage() as one:
        one.stub.replies["createPet"] = web.json_response(body, status=422)
        result = await one.call("createPet", body={"kind": "cat"})
    assert result.is_error
    assert "422 Unprocessable" in result.text and "does not accept its values" in result.text
    assert "The pet is not valid" in result.text, "what the description says"
    assert said in result.text


async def test_other_errors_are_explained_in_short() -> None:
    async with stage() as one:
        one.stub.replies["getPet"] = web.Response(status=404, text="x" * 10_000)
        result = await one.call("getPet", id="7")
        assert "404 Not Found" in result.text and "No pet has this id" in result.text
        assert len(result.text) < 3000
        one.stub.replies["getPet"] = web.Response(status=429, headers={"Retry-After": "30"})
        assert "after 30 seconds" in (await one.call("getPet", id="7")).text
        one.stub.replies["getPet"] = web.Response(status=500, body=PNG, content_type="image/png")
        assert "not a mistake in the arguments" in (await one.call("getPet", id="7")).text


async def test_an_unreachable_api_is_an_error_in_one_sentence() -> None:
    server = Server.from_openapi(
        minimal({"/a": {"post": {"operationId": "a"}}}), base_url="http://127.0.0.1:1"
    )
    async with pair(server) as client:
        with pytest.raises(ToolError, match="cannot be reached"):
            await client.call_tool("a")


async def test_a_slow_api_times_out_and_says_that_the_request_may_have_taken_effect() -> None:
    arrived, done = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        arrived.set()
        await done.wait()
        return web.Response()

    async with serving(wait) as origin:
        server = Server.from_openapi(
            minimal({"/a": {"post": {"operationId": "a"}}}),
            base_url=origin,
            limits=Limits(timeout=0.2),
        )
        async with pair(server) as client:
            with pytest.raises(ToolError, match=r"within 0.2 s.*may have taken effect"):
                await client.call_tool("a")
        assert arrived.is_set()
        done.set()


async def test_the_size_of_a_reply_is_limited() -> None:
    async with stage(limits=Limits(incoming=50_000)) as one:
        one.stub.replies["getPet"] = web.Response(body=b"x" * 60_000)
        result = await one.call("getPet", id="7")
        assert result.is_error and "larger than 50,000 bytes" in result.text


async def test_connections_are_kept_between_calls() -> None:
    ports = []

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.json_response({})

    async with serving(note) as origin:
        server = Server.from_openapi(
            minimal({"/a": {"get": {"operationId": "a"}}}), base_url=origin
        )
        async with pair(server) as client:
            await client.call_tool("a")
            await client.call_tool("a")
    assert len(set(ports)) == 1
