"""Names and URIs of many servers: unique, back to where they came from, and never another's."""

import re
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from dovetail.config.settings import MAX_PREFIX_CHARS
from dovetail.errors import ConfigError
from dovetail.gateway import naming
from dovetail.gateway.naming import (
    KINDS,
    MAX_MATCHED,
    Kind,
    NameTable,
    UpstreamName,
    default_prefix,
    merged_name,
)
from dovetail.protocol.tools import MAX_NAME_CHARS

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")


def table(*servers: Any, reserved: tuple[str, ...] = ()) -> NameTable:
    """A table of servers, each a name and what it lists; a list that is left out is empty."""
    names = NameTable({name: options.get("prefix", name) for name, options in servers}, reserved)
    for name, options in servers:
        for kind in KINDS:
            listed = options.get(kind, ())
            if listed is not None:
                names.update(name, kind, listed)
    return names


def reasons(names: NameTable) -> dict[tuple[str, str], str]:
    return {(one.server, one.name): one.reason for one in names.left_out()}


# Names.


@pytest.mark.parametrize(
    ("prefix", "name", "expected"),
    [
        ("gh", "issue_get", "gh__issue_get"),
        ("gh", "issue.get", "gh__issue_get"),
        ("gh", "größe/x", "gh__gr__e_x"),
        ("gh", "", "gh__"),
        ("", "issue_get", "issue_get"),
        ("", "3d-view", "_3d-view"),
        ("", "-x", "_-x"),
    ],
)
def test_a_name_has_the_prefix_and_only_legal_characters(
    prefix: str, name: str, expected: str
) -> None:
    assert merged_name(prefix, name) == expected


def test_the_tail_of_a_long_name_becomes_a_digest() -> None:
    long = "x" * 60
    assert merged_name("", "x" * 63) == "x" * 63
    first, second = merged_name("gh", long + "1"), merged_name("gh", long + "2")
    assert first != second and len(first) == len(second) == MAX_NAME_CHARS
    assert re.fullmatch("gh__x{50}_[0-9a-f]{8}", first)
    assert merged_name("gh", long + "1") == first


@pytest.mark.parametrize(
    ("name", "expected"),
    [("github", "github"), ("my server", "my_server"), ("1mcp", "_1mcp"), ("", "_")],
)
def test_the_default_prefix_is_the_name_in_the_file(name: str, expected: str) -> None:
    assert default_prefix(name) == expected


def test_a_long_name_in_the_file_leaves_room_for_the_names_of_tools() -> None:
    prefixes = {default_prefix("server" * 20 + end) for end in "ab"}
    assert len(prefixes) == 2 and {len(prefix) for prefix in prefixes} == {MAX_PREFIX_CHARS}
    for prefix in prefixes:
        assert merged_name(prefix, "x" * 99).startswith(f"{prefix}__")


def test_tools_and_prompts_are_found_by_table_and_apart() -> None:
    names = table(("gh", {"tools": ["a.b"], "prompts": ["a_b"]}))
    assert names.to_caller("tools", "gh", "a.b") == "gh__a_b"
    assert names.from_caller("tools", "gh__a_b") == UpstreamName("gh", "a.b")
    assert names.from_caller("prompts", "gh__a_b") == UpstreamName("gh", "a_b")
    assert names.from_caller("tools", "gh__other") is None
    assert names.to_caller("tools", "gh", "other") is None


def test_a_name_says_which_server_to_ask_before_its_list_is_known() -> None:
    names = NameTable({"a": "a", "ab": "a__b", "none": ""})
    assert names.unknown("tools") == ["a", "ab", "none"]
    assert names.owner("a__x") == "a"
    assert names.owner("a__b__x") == "ab"
    assert names.owner("x") == "none"
    assert NameTable({"a": "a"}).owner("x") is None


def test_a_new_list_replaces_the_names_of_tools() -> None:
    names = table(("gh", {"tools": ["old"]}))
    names.update("gh", "tools", ["new"])
    assert names.from_caller("tools", "gh__old") is None
    assert names.from_caller("tools", "gh__new") == UpstreamName("gh", "new")


def test_a_single_target_keeps_its_names_and_uris() -> None:
    names = NameTable({"only": None})
    odd = "ein Name, länger als " + "63" * 40
    for kind in KINDS:
        assert names.to_caller(kind, "only", odd) == odd
        assert names.from_caller(kind, odd) == UpstreamName("only", odd)
    assert names.owner(odd) == "only"
    assert names.left_out() == []
    with pytest.raises(ConfigError, match="only if there is one server"):
        NameTable({"a": None, "b": "b"})


# Clashes.


@pytest.mark.parametrize("other", ["gh", "GH", "g_h", "G-h"])
def test_equal_prefixes_are_an_error_that_names_both_servers(other: str) -> None:
    first = "g-h" if len(other) == 3 else "gh"
    with pytest.raises(ConfigError) as caught:
        NameTable({"one": first, "two": other})
    assert str(caught.value).startswith(f"Servers 'one' and 'two' both have the prefix '{other}'")


def test_only_one_server_may_have_no_prefix() -> None:
    with pytest.raises(ConfigError, match="'one' and 'two' both have no prefix"):
        NameTable({"one": "", "two": ""})


def test_a_server_without_a_prefix_cannot_offer_a_tool_under_the_prefix_of_another() -> None:
    for order in ("squatter first", "squatter last"):
        servers = [
            ("squatter", {"prefix": "", "tools": ["gh__merge", "own"]}),
            ("gh", {"tools": []}),
        ]
        names = table(*(servers if order == "squatter first" else servers[::-1]))
        assert names.from_caller("tools", "gh__merge") is None
        assert names.from_caller("tools", "own") == UpstreamName("squatter", "own")
        assert reasons(names) == {
            ("squatter", "gh__merge"): "the name gh__merge begins with the prefix of gh"
        }


def test_the_longest_prefix_owns_a_name() -> None:
    names = table(("a", {"tools": ["b__x"]}), ("ab", {"prefix": "a__b", "tools": ["x"]}))
    assert names.from_caller("tools", "a__b__x") == UpstreamName("ab", "x")
    assert ("a", "b__x") in reasons(names)


def test_names_that_are_equal_after_replacement_go_to_the_one_that_needs_none() -> None:
    for order in (["a.b", "a b", "a_b"], ["a_b", "a b", "a.b"]):
        names = table(("gh", {"tools": order}))
        assert names.from_caller("tools", "gh__a_b") == UpstreamName("gh", "a_b")
        assert reasons(names) == {
            ("gh", "a b"): "the name gh__a_b stands for 'a_b'",
            ("gh", "a.b"): "the name gh__a_b stands for 'a_b'",
        }


def test_the_order_of_a_servers_own_list_decides_nothing() -> None:
    one, two = table(("gh", {"tools": ["a.b", "a b"]})), table(("gh", {"tools": ["a b", "a.b"]}))
    assert one.from_caller("tools", "gh__a_b") == two.from_caller("tools", "gh__a_b")


def test_the_gateways_own_names_cannot_be_taken() -> None:
    names = table(("open", {"prefix": "", "tools": ["find_tools"]}), reserved=("find_tools",))
    assert names.from_caller("tools", "find_tools") is None
    assert reasons(names) == {("open", "find_tools"): "the name find_tools is reserved"}


# URIs.


def test_the_first_server_in_the_file_keeps_a_uri_and_later_ones_get_their_prefix() -> None:
    names = table(("one", {"resources": ["x://1"]}), ("my_two", {"resources": ["x://1", "x://2"]}))
    assert names.to_caller("resources", "one", "x://1") == "x://1"
    assert names.to_caller("resources", "my_two", "x://1") == "my-two+x://1"
    assert names.to_caller("resources", "my_two", "x://2") == "x://2"
    assert names.from_caller("resources", "x://1") == UpstreamName("one", "x://1")
    assert names.from_caller("resources", "my-two+x://1") == UpstreamName("my_two", "x://1")
    assert names.from_caller("resources", "MY-TWO+x://1") == UpstreamName("my_two", "x://1")


def test_a_scheme_begins_with_a_letter() -> None:
    names = table(("a", {}), ("b", {"prefix": "_1mcp"}))
    assert names.to_caller("resources", "b", "x://1") == "x-1mcp+x://1"
    assert names.from_caller("resources", "x-1mcp+x://1") == UpstreamName("b", "x://1")


def test_the_view_of_a_later_server_is_still_known_as_a_view() -> None:
    view = {"resources": ["ui://app/view"]}
    names = table(("first", view), ("second", view))
    assert names.to_caller("resources", "first", "ui://app/view") == "ui://app/view"
    assert names.to_caller("resources", "second", "ui://app/view") == "ui://second+app/view"
    for uri in ("ui://second+app/view", "second+ui://app/view"):
        found = names.from_caller("resources", uri)
        assert found == UpstreamName("second", "ui://app/view")


def test_a_fast_server_cannot_take_the_uri_of_a_slow_one_that_is_first_in_the_file() -> None:
    names = NameTable({"slow": "slow", "fast": "fast"})
    names.update("fast", "resources", ["x://1"])
    names.update("fast", "templates", ["y://{id}"])
    assert names.to_caller("resources", "fast", "x://1") == "fast+x://1"
    assert names.to_caller("templates", "fast", "y://{id}") == "fast+y://{id}"
    assert names.from_caller("resources", "x://1") is None
    assert names.from_caller("resources", "y://1") is None
    names.update("slow", "resources", ["x://1"])
    names.update("slow", "templates", [])
    assert names.from_caller("resources", "x://1") == UpstreamName("slow", "x://1")
    assert names.from_caller("resources", "y://1") == UpstreamName("fast", "y://1")
    assert names.from_caller("resources", "fast+x://1") == UpstreamName("fast", "x://1")


def test_a_uri_that_nobody_lists_waits_until_the_templates_of_earlier_servers_are_known() -> None:
    names = table(("slow", {"templates": None}), ("fast", {"templates": ["y://{id}"]}))
    assert names.unknown("templates") == ["slow"]
    assert names.from_caller("resources", "y://1") is None
    assert names.to_caller("resources", "fast", "y://1") == "fast+y://1"
    names.update("slow", "templates", ["y://{name}"])
    assert names.from_caller("resources", "y://1") == UpstreamName("slow", "y://1")


def test_a_uri_that_its_owner_no_longer_lists_does_not_pass_to_another_server() -> None:
    names = table(("one", {"resources": ["x://1"]}), ("two", {"resources": ["x://1"]}))
    names.update("one", "resources", [])
    assert names.from_caller("resources", "x://1") == UpstreamName("one", "x://1")
    names.set_servers({"one": "one", "two": "two", "three": "three"})
    assert names.from_caller("resources", "x://1") == UpstreamName("one", "x://1")


def test_what_is_remembered_of_a_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_URIS", 2)
    names = table(("one", {"resources": ["x://1"]}), ("two", {"resources": ["x://1"]}))
    names.update("one", "resources", ["x://2", "x://3"])
    assert names.from_caller("resources", "x://1") == UpstreamName("two", "x://1")
    assert names.from_caller("resources", "x://3") == UpstreamName("one", "x://3")


def test_many_templates_do_not_slow_down_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_TEMPLATES", 2)
    names = table(("one", {"templates": ["a://{x}", "b://{x}", "c://{x}"]}))
    assert names.from_caller("resources", "a://1") is None
    assert names.from_caller("resources", "c://1") == UpstreamName("one", "c://1")
    first = names.to_caller("templates", "one", "a://{x}")
    assert first == "one+a://{x}"
    assert names.from_caller("resources", "one+a://1") == UpstreamName("one", "a://1")


@pytest.mark.parametrize("lister", ["gh", "squatter"])
def test_nobody_can_list_a_uri_under_the_prefix_of_a_server(lister: str) -> None:
    names = table(
        ("squatter", {"resources": ["gh+x://1"] if lister == "squatter" else ["x://1"]}),
        ("gh", {"resources": ["x://1", "gh+x://1"] if lister == "gh" else ["x://1"]}),
    )
    assert names.to_caller("resources", lister, "gh+x://1") == f"{lister}+gh+x://1"
    assert names.from_caller("resources", "gh+x://1") == UpstreamName("gh", "x://1")


def test_a_uri_that_nobody_lists_goes_to_the_first_server_with_a_template_and_to_no_other() -> None:
    names = table(
        ("one", {"templates": ["y://{id}", "{broken"]}),
        ("two", {"templates": ["x://{id}"], "resources": ["x://listed"]}),
        ("three", {"templates": ["x://{name}"]}),
    )
    assert names.from_caller("resources", "x://1") == UpstreamName("two", "x://1")
    assert names.to_caller("resources", "two", "x://1") == "x://1"
    assert names.to_caller("resources", "three", "x://1") == "three+x://1"
    assert names.from_caller("resources", "z://1") is None
    assert names.from_caller("resources", "{broken") is None


def test_a_template_for_everything_takes_no_uri_that_another_server_lists() -> None:
    names = NameTable({"greedy": "greedy", "bank": "bank"})
    for server in ("greedy", "bank"):
        for kind in KINDS:
            names.update(server, kind, ())
    names.update("greedy", "templates", ["{+anything}", "bank://{path}"])
    names.update("bank", "resources", ["bank://account"])
    names.update("bank", "templates", ["bank://accounts/{id}"])
    assert names.from_caller("resources", "bank://account") == UpstreamName(
        "bank", "bank://account"
    )
    unlisted = "bank://accounts/7"  # the first template that matches decides
    assert names.from_caller("resources", unlisted) == UpstreamName("greedy", unlisted)
    assert names.to_caller("resources", "bank", unlisted) == f"bank+{unlisted}"
    assert names.from_caller("resources", f"bank+{unlisted}") == UpstreamName("bank", unlisted)


def test_a_template_is_listed_unchanged_by_the_first_server_only() -> None:
    names = table(("one", {"templates": ["x://{id}"]}), ("two", {"templates": ["x://{id}"]}))
    assert names.to_caller("templates", "one", "x://{id}") == "x://{id}"
    assert names.to_caller("templates", "two", "x://{id}") == "two+x://{id}"
    assert names.from_caller("templates", "two+x://{id}") == UpstreamName("two", "x://{id}")
    assert names.from_caller("templates", "x://{id}") == UpstreamName("one", "x://{id}")
    assert names.from_caller("resources", "two+x://7") == UpstreamName("two", "x://7")


def test_a_link_to_something_unlisted_leads_back_to_its_server() -> None:
    names = table(("one", {}), ("two", {}))
    link = names.to_caller("resources", "two", "note://42")
    assert link == "two+note://42"
    assert names.from_caller("resources", link) == UpstreamName("two", "note://42")


def test_a_link_to_a_web_page_stays_as_it_is_unless_the_server_serves_it() -> None:
    page = "HTTPS://example.com/"
    names = table(("one", {}), ("two", {"resources": ["https://two/"]}))
    assert names.to_caller("resources", "one", page) == page
    assert names.to_caller("resources", "two", "https://two/") == "https://two/"
    names.update("one", "resources", ["https://two/"])
    assert names.to_caller("resources", "two", "https://two/") == "two+https://two/"


def test_a_server_that_claims_all_web_pages_does_not_get_those_of_another() -> None:
    """Callers read a page that a server links to from that server, not from the one that claims
    it, however many links there are."""
    names = table(("evil", {"templates": ["https://{+page}"]}), ("two", {}))
    rename = names.renamer("two")
    for number in range(MAX_MATCHED + 10):
        page = f"https://two/{number}"
        assert names.from_caller("resources", rename(page)) == UpstreamName("two", page)


def test_prefixes_may_be_written_as_in_fastmcp() -> None:
    names = NameTable({"my_shop": "my_shop", "plain": ""}, in_path=True)
    for server in ("my_shop", "plain"):
        names.update(server, "tools", ["find"])
        names.update(server, "resources", ["books://all", "urn:x"])
        names.update(server, "templates", ["books://{+path}"])
    assert names.from_caller("tools", "my_shop_find") == UpstreamName("my_shop", "find")
    assert names.from_caller("tools", "find") == UpstreamName("plain", "find")
    for kind, own, shown in (
        ("resources", "books://all", "books://my_shop/all"),
        ("templates", "books://{+path}", "books://my_shop/{+path}"),
    ):
        assert names.to_caller(kind, "my_shop", own) == shown  # type: ignore[arg-type]
        assert names.from_caller(kind, shown) == UpstreamName("my_shop", own)  # type: ignore[arg-type]
    assert names.to_caller("resources", "plain", "books://all") == "books://all"
    assert names.from_caller("resources", "books://all") == UpstreamName("plain", "books://all")
    assert names.from_caller("resources", "books://MY_SHOP/all") == UpstreamName(
        "plain", "books://MY_SHOP/all"
    )


def test_a_server_without_a_prefix_loses_a_uri_that_is_not_its_own() -> None:
    names = table(
        ("one", {"resources": ["x://1"]}),
        ("none", {"prefix": "", "resources": ["x://1", "x://2", "one+x://3"]}),
    )
    assert names.to_caller("resources", "none", "x://2") == "x://2"
    assert names.to_caller("resources", "none", "x://1") is None
    why = "another server owns this URI, and this server has no prefix"
    assert reasons(names) == {("none", "x://1"): why, ("none", "one+x://3"): why}


# For all names.

SERVERS = st.lists(
    st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,7}", fullmatch=True),
    min_size=1,
    max_size=4,
    unique_by=str.lower,
)
NAMES = st.lists(st.text(max_size=80) | st.from_regex(r"[a-c._]{1,3}", fullmatch=True), max_size=6)
URIS = st.lists(
    st.from_regex(r"([a-c]\+)?[xy]://[a-c]{0,2}", fullmatch=True) | st.text(max_size=20), max_size=6
)
TEMPLATES = st.lists(st.from_regex(r"[xy]://(a/)?\{[ab]\}", fullmatch=True), max_size=3)


@st.composite
def catalogs(draw: st.DrawFn) -> list[tuple[str, dict[Kind, list[str] | None]]]:
    kinds = {"tools": NAMES, "prompts": NAMES, "resources": URIS, "templates": TEMPLATES}
    return [
        (server, {kind: draw(st.none() | kinds[kind]) for kind in KINDS})
        for server in draw(SERVERS)
    ]


def test_all_kinds_are_tested() -> None:
    assert get_args(Kind) == (*KINDS, "skills")  # which have the URIs of resources


@given(catalogs())
def test_every_name_is_legal_unique_and_leads_back_or_is_reported(servers: Any) -> None:
    names = table(*servers)
    for kind in KINDS:
        seen: set[str] = set()
        for server, listed in servers:
            for name in set(listed[kind] or ()):
                merged = names.to_caller(kind, server, name)
                if merged is None:
                    assert (server, name) in reasons(names)
                    continue
                assert merged not in seen
                seen.add(merged)
                assert names.from_caller(kind, merged) == UpstreamName(server, name)
                assert kind in ("resources", "templates") or LEGAL.fullmatch(merged)


@given(catalogs(), URIS)
def test_every_uri_of_a_prefixed_server_leads_back_even_if_nobody_lists_it(
    servers: Any, uris: list[str]
) -> None:
    names = table(*servers)
    for server, _ in servers:
        for uri in uris:
            merged = names.to_caller("resources", server, uri)
            assert merged is not None
            assert names.from_caller("resources", merged) == UpstreamName(server, uri)


@given(catalogs(), NAMES, URIS)
def test_a_server_that_is_added_at_the_end_renames_nothing(
    servers: Any, tools: list[str], uris: list[str]
) -> None:
    def seen(names: NameTable) -> list[str | None]:
        return [
            names.to_caller(kind, server, name)
            for server, listed in servers
            for kind in KINDS
            for name in listed[kind] or ()
        ]

    more = ("added-last", {"tools": tools, "resources": uris, "templates": None})
    assert seen(table(*servers)) == seen(table(*servers, more))


@given(catalogs(), st.randoms())
def test_the_order_in_which_lists_arrive_decides_nothing(servers: Any, random: Any) -> None:
    arrivals = [
        (server, kind, listed[kind])
        for server, listed in servers
        for kind in KINDS
        if listed[kind] is not None
    ]
    random.shuffle(arrivals)
    names = NameTable({server: server for server, _ in servers})
    for server, kind, listed in arrivals:
        names.update(server, kind, listed)
        names.left_out()
    expected = table(*servers)
    for server, kind, listed in arrivals:
        for name in listed:
            assert names.to_caller(kind, server, name) == expected.to_caller(kind, server, name)
