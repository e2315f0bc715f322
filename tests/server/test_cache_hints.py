"""What a server says of caches: the nearest word counts, and what may depend on the caller is
private."""

from collections.abc import Callable
from typing import Any

import pytest

from dovetail import Cache, Context, Server
from dovetail.errors import ConfigError
from dovetail.ports import Call, CallHandler
from dovetail.protocol.base import CLIENT_CAPABILITIES, PROTOCOL_VERSION, Params
from dovetail.protocol.client_features import ElicitParams
from dovetail.protocol.lifecycle import InputRequired
from dovetail.server import registry
from dovetail.testing import Bare, bare, pair

META = {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}
ASKABLE = META | {CLIENT_CAPABILITIES: {"elicitation": {}}}
LISTS = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
NONE = (0, "private")


async def passing(call: Call, following: CallHandler) -> Any:
    return await following(call)


def build(**options: Any) -> Server:
    server = Server("cached", **options)

    @server.tool
    def one() -> None: ...

    @server.tool
    def two() -> None: ...

    @server.resource("plain://a")
    def plain() -> str:
        return "the same for all"

    @server.resource("personal://a")
    def personal(ctx: Context) -> str:
        return "yours"

    @server.resource("own://a", cache=Cache(ttl=0.25, scope="public"))
    def own(ctx: Context) -> str:
        return "said by itself"

    @server.resource("own://{name}", cache=Cache(5))
    def templated(name: str) -> str:
        return name

    @server.prompt
    def ask() -> str:
        return "Why?"

    return server


async def hints(peer: Bare, method: str, params: Any = {}, meta: Any = META) -> tuple[int, str]:  # noqa: B006  (read only)
    result = (await peer.ask(method, params | {"_meta": meta}))["result"]
    return result["ttlMs"], result["cacheScope"]


@pytest.mark.requirement("cache-hints", "cache-ttl")
async def test_one_cache_is_said_of_all_that_can_be_kept() -> None:
    async with bare(build(cache=Cache(ttl=60, scope="public"))) as peer:
        for method in ["server/discover", *LISTS]:
            assert await hints(peer, method) == (60_000, "public")
        assert await hints(peer, "resources/read", {"uri": "plain://a"}) == (60_000, "public")


async def test_what_is_not_said_is_private_and_not_kept() -> None:
    async with bare(build()) as peer:
        for method in ["server/discover", *LISTS]:
            assert await hints(peer, method) == NONE
        assert await hints(peer, "resources/read", {"uri": "plain://a"}) == NONE
    async with bare(build(cache=Cache(1))) as peer:
        assert await hints(peer, "tools/list") == (1000, "private")


async def test_a_method_is_named_and_a_resource_speaks_for_itself() -> None:
    said = {
        "tools/list": Cache(30, "public"),
        "resources/read": Cache(2),
        "server/discover": Cache(3600, "public"),
    }
    async with bare(build(cache=said)) as peer:
        assert await hints(peer, "tools/list") == (30_000, "public")
        assert await hints(peer, "prompts/list") == NONE
        assert await hints(peer, "server/discover") == (3_600_000, "public")
        assert await hints(peer, "resources/read", {"uri": "plain://a"}) == (2000, "private")
        assert await hints(peer, "resources/read", {"uri": "own://a"}) == (250, "public")
        assert await hints(peer, "resources/read", {"uri": "own://b"}) == (5000, "private")


async def test_what_may_depend_on_the_caller_is_private_unless_it_is_said_of_it() -> None:
    async with bare(build(cache=Cache(60, "public"))) as peer:
        assert await hints(peer, "resources/read", {"uri": "personal://a"}) == (60_000, "private")
        assert await hints(peer, "resources/read", {"uri": "own://a"}) == (250, "public")
    async with bare(build(cache=Cache(60, "public"), middleware=[passing])) as peer:
        for method in ["server/discover", *LISTS]:
            assert await hints(peer, method) == (60_000, "private")
        assert await hints(peer, "resources/read", {"uri": "plain://a"}) == (60_000, "private")
        assert await hints(peer, "resources/read", {"uri": "own://a"}) == (250, "public")
    async with bare(build(cache={"tools/list": Cache(60, "public")}, middleware=[passing])) as peer:
        assert await hints(peer, "tools/list") == (60_000, "public")


async def test_middleware_has_the_last_word() -> None:
    async def shorter(call: Call, following: CallHandler) -> Any:
        result = await following(call)
        result.ttl_ms = 7
        return result

    async with bare(build(cache=Cache(60), middleware=[shorter])) as peer:
        assert await hints(peer, "tools/list") == (7, "private")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("middleware", [[], [passing]], ids=["plain", "middleware"])
async def test_older_revisions_never_see_a_hint(revision: str, middleware: Any) -> None:
    async with bare(build(cache=Cache(60, "public"), middleware=middleware)) as peer:
        await peer.greet(revision)
        for method in LISTS:
            assert not {"ttlMs", "cacheScope"} & (await peer.ask(method))["result"].keys()
        assert (await peer.ask("resources/read", {"uri": "own://a"}))["result"].keys() == {
            "contents"
        }


@pytest.mark.requirement("cache-scope-of-pages")
async def test_all_pages_have_one_scope_and_each_is_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[Any] = []
    encode: Callable[[Any], bytes] = registry.encode  # type: ignore[attr-defined]
    monkeypatch.setattr(registry, "encode", lambda value: encoded.append(value) or encode(value))
    async with bare(build(cache=Cache(60, "public"), page_size=1)) as peer:
        for _ in range(3):
            first = (await peer.ask("tools/list", {"_meta": META}))["result"]
            second = (await peer.ask("tools/list", {"_meta": META, "cursor": first["nextCursor"]}))[
                "result"
            ]
            assert (
                (first["ttlMs"], first["cacheScope"])
                == (second["ttlMs"], second["cacheScope"])
                == (60_000, "public")
            )
    assert len(encoded) == 2


@pytest.mark.requirement("cache-input-required")
@pytest.mark.parametrize("resume", ["live", "replay"])
@pytest.mark.parametrize("way", ["asked", "returned"])
async def test_a_question_has_no_hints_and_what_comes_of_it_is_nobody_elses(
    resume: str, way: str
) -> None:
    server = Server("asks", cache=Cache(60, "public"), resume=resume)
    question = ElicitParams(
        message="Who?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}},
    )

    @server.resource("asked://who", cache=Cache(60, "public"))
    async def asked(ctx: Context) -> str:
        return f"hello {(await ctx.elicit('Who?', str)).data}"

    @server.resource("returned://who", cache=Cache(60, "public"))
    def returned(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            requests: dict[str, Params | None] = {"who": question}
            return InputRequired(requests=requests)
        return "hello"

    async with bare(server) as peer:
        ask = {"uri": f"{way}://who", "_meta": ASKABLE}
        asking = (await peer.ask("resources/read", ask))["result"]
        assert asking["resultType"] == "input_required"
        assert not {"ttlMs", "cacheScope"} & asking.keys()
        (key, said), *_ = asking["inputRequests"].items()
        (field,) = said["params"]["requestedSchema"]["properties"]
        answer = {key: {"action": "accept", "content": {field: "Ada"}}}
        again = ask | {"inputResponses": answer, "requestState": asking.get("requestState")}
        assert await hints(peer, "resources/read", again, ASKABLE) == NONE


async def test_what_took_a_round_without_a_question_is_nobody_elses_either() -> None:
    server = Server("later", cache=Cache(60, "public"))

    @server.resource("later://x", cache=Cache(60, "public"))
    def later(ctx: Context) -> str | InputRequired:
        return "now" if ctx.request_state else InputRequired(state="wait")

    async with bare(server) as peer:
        asking = (await peer.ask("resources/read", {"uri": "later://x", "_meta": META}))["result"]
        again = {"uri": "later://x", "requestState": asking["requestState"]}
        assert await hints(peer, "resources/read", again) == NONE


async def test_a_resource_that_could_ask_and_did_not_is_kept() -> None:
    async with bare(build(cache=Cache(60, "public"))) as peer:
        assert await hints(peer, "resources/read", {"uri": "plain://a"}, ASKABLE) == (
            60_000,
            "public",
        )


async def test_files_take_a_cache_too(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("a")
    server = Server("files")
    server.add_file(tmp_path / "a.txt", uri="file://a", cache=Cache(9))
    async with bare(server) as peer:
        assert await hints(peer, "resources/read", {"uri": "file://a"}) == (9000, "private")


@pytest.mark.requirement("cache-ttl")
@pytest.mark.parametrize("ttl", [-1, -0.001, float("inf"), float("nan"), 2**31])
def test_a_time_that_is_none_is_refused(ttl: float) -> None:
    with pytest.raises(ConfigError, match=r"ttl must be a number of seconds, 0 or more"):
        Cache(ttl)


def test_what_is_no_cache_is_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"scope='shared'\): scope must be one of private, public"
    ):
        Cache(1, "shared")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError,
        match=r"'tools/call' cannot be cached; the cacheable methods are server/discover, ",
    ):
        Server("x", cache={"tools/call": Cache(1)})
    with pytest.raises(ConfigError, match=r"cache=60: cache must be a Cache, or a dict that maps"):
        Server("x", cache=60)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"cache\['tools/list'\]: 60 is not a Cache; use Cache\(ttl=60\)"
    ):
        Server("x", cache={"tools/list": 60})  # type: ignore[dict-item]
    with pytest.raises(
        ConfigError, match=r"The cache setting of resource 'a://b': 60 is not a Cache"
    ):
        Server("x").resource("a://b", cache=60)(lambda: "")  # type: ignore[arg-type]


async def test_hints_reach_a_client_of_the_newest_revision_only() -> None:
    server = build(cache=Cache(60, "public"))
    async with pair(server) as client:
        result = await client.request("tools/list")
        assert (result.ttl_ms, result.cache_scope) == (60_000, "public")
    async with pair(server, revision="2025-11-25") as client:
        result = await client.request("tools/list")
        assert (result.ttl_ms, result.cache_scope) == (None, None)
