"""Consent: what is asked, what an answer is bound to, and what it is not."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.config import Servers, entry_digest, read
from dovetail.errors import ConfigError, ConsentDenied
from dovetail.gateway.consent.consent import Consent, Decision
from dovetail.gateway.consent.pins import digest, pinned_text
from dovetail.gateway.consent.request import (
    ConsentRequest,
    describe_server,
    name_shared,
    share_scope,
)
from dovetail.gateway.consent.store import ConsentGrant, ConsentStore
from dovetail.protocol.tools import Tool
from tests.gateway.approving import approve

ENTRY, OTHER = "sha256:entry", "sha256:other"
KINDS = ("start", "reach", "call", "pin", "share", "sampling", "elicitation")
FORECAST = Tool(name="forecast", description="The weather", input_schema={"type": "object"})


class Person:
    """Somebody who gives these answers, one after the other, and remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[ConsentRequest]()

    async def __call__(self, request: ConsentRequest) -> Any:
        await asyncio.sleep(0)
        self.asked.append(request)
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


def make_request(kind: Any = "call", **fields: Any) -> ConsentRequest:
    usual: dict[str, Any] = {
        "call": {
            "name": "forecast",
            "pin": "pin1",
            "tool": FORECAST,
            "arguments": {"city": "Oslo"},
        },
        "pin": {"name": "tool:forecast", "pin": "pin1", "text": '{"name":"forecast"}'},
        "share": {"name": "weather://Oslo", "scope": "weather:"},
        "sampling": {"text": "Say hello"},
        "elicitation": {"text": "Who are you?"},
    }.get(kind, {"entry": {"command": "uvx", "args": ["weather"]}})
    return ConsentRequest(kind=kind, **{"server": "weather", "digest": ENTRY, **usual, **fields})


def open_store(folder: Path, *answers: Any, **options: Any) -> tuple[Consent, Person]:
    person = Person(*answers)
    return Consent(str(folder / "consent.db"), on_consent=person, **options), person


async def test_each_kind_is_asked_and_can_be_refused(tmp_path: Path) -> None:
    for kind in KINDS:
        consent, person = open_store(tmp_path, "deny", None, "once")
        for _ in range(2):
            with pytest.raises(ConsentDenied, match=r"The user refused .* 'weather'"):
                (await consent.decide(make_request(kind))).require()
        assert (await consent.decide(make_request(kind))).require() == make_request(kind)
        assert [request.kind for request in person.asked] == [kind] * 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "elicitation"])
async def test_a_grant_holds_for_the_session_or_always(kind: str, tmp_path: Path) -> None:
    request = make_request(kind)
    consent, person = open_store(tmp_path, "once", "session")
    for expected in ("once", "session", "session"):
        assert (await consent.decide(request)).answer == expected
    assert len(person.asked) == 2
    later, person = open_store(tmp_path, "always")
    for _ in range(3):
        assert (await later.decide(request)).answer == "always"
    assert len(person.asked) == 1, "the session of another program is not ours"
    latest, person = open_store(tmp_path)
    assert (await latest.decide(request)).answer == "always"


async def test_an_elicitation_is_never_remembered(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "always", "session", "once")
    for _ in range(3):
        assert (await consent.decide(make_request("elicitation"))).allowed
    assert len(person.asked) == 3
    assert consent.grants() == []


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((kind, {"digest": OTHER}) for kind in KINDS),
        *((kind, {"server": "news"}) for kind in KINDS),
        *((kind, {"principal": "bo"}) for kind in KINDS if kind != "pin"),
        ("call", {"name": "delete"}),
        ("call", {"pin": "pin2"}),
        ("pin", {"name": "prompt:forecast"}),
        ("pin", {"pin": "pin2"}),
        ("share", {"name": "file:///etc/passwd", "scope": "file:///etc/"}),
    ],
    ids=str,
)
async def test_a_grant_is_for_nothing_else(
    kind: str, changed: dict[str, str], tmp_path: Path
) -> None:
    consent, person = open_store(tmp_path, "always", "deny")
    assert (await consent.decide(make_request(kind))).allowed
    assert not (await consent.decide(make_request(kind, **changed))).allowed
    assert len(person.asked) == 2


async def test_a_grant_to_one_kind_is_not_one_to_another(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, "always")
    await consent.decide(make_request("start", name="x"))
    for kind in KINDS[1:]:
        other = make_request(kind, name="x", scope="", pin="")
        assert consent.find_answer(other) is None, kind


async def test_a_call_may_be_changed_and_is_then_allowed_once(tmp_path: Path) -> None:
    def warmer(request: ConsentRequest) -> ConsentRequest:
        return replace(request, arguments={"city": "Rome"})

    consent, person = open_store(tmp_path, warmer, "deny")
    decision = await consent.decide(make_request())
    assert (decision.allowed, decision.answer) == (True, "once")
    assert decision.require().arguments == {"city": "Rome"}
    assert not (await consent.decide(make_request())).allowed
    assert len(person.asked) == 2


async def test_a_prompt_for_the_model_and_its_answer_may_be_changed(tmp_path: Path) -> None:
    consent, person = open_store(
        tmp_path, lambda request: replace(request, text="Be brief"), "once"
    )
    assert (await consent.decide(make_request("sampling"))).require().text == "Be brief"
    answer = make_request("sampling", text="Hello!", previous="Be brief")
    assert (await consent.decide(answer)).require().text == "Hello!"
    assert person.asked[1].previous == "Be brief"


@pytest.mark.parametrize("field", ["kind", "server", "digest", "name", "scope", "pin", "principal"])
async def test_what_an_answer_is_bound_to_cannot_be_changed(field: str, tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, lambda request: replace(request, **{field: "share"}))
    with pytest.raises(ConfigError, match=f"not its {field}"):
        await consent.decide(make_request())


@pytest.mark.parametrize("given", [True, False, "yes", 1, {}])
async def test_an_answer_that_is_none_is_an_error(given: Any, tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, given)
    with pytest.raises(ConfigError, match="on_consent must return one of once, session"):
        await consent.decide(make_request())


# rules


async def test_what_the_policy_decides_is_not_asked(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "always")
    await consent.decide(make_request())
    denied = await consent.decide(make_request(), effect="deny", rule="rule 2 of policy.toml")
    assert denied.reason == (
        "The policy does not allow calling the tool 'forecast' of 'weather' "
        "(rule 2 of policy.toml)."
    )
    with pytest.raises(ConsentDenied, match="rule 2"):
        denied.require()
    allowed = await consent.decide(make_request("start"), effect="allow", rule="rule 1")
    assert (allowed.allowed, allowed.rule, allowed.answer) == (True, "rule 1", None)
    assert len(person.asked) == 1


@pytest.mark.parametrize("effect", ["allow", "deny"])
async def test_what_the_policy_decides_needs_no_store(effect: Any, tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    decision = await consent.decide(make_request(), effect=effect)
    assert decision.allowed == (effect == "allow")
    assert list(tmp_path.iterdir()) == []


async def test_a_grant_answers_what_the_policy_asks_and_not_what_it_denies(
    tmp_path: Path,
) -> None:
    from dovetail.gateway.consent.policy import PolicyRequest, decide, read_policy

    consent, person = open_store(tmp_path, "always")
    policy = read_policy({"rule": [{"effect": "deny", "name": "*_delete"}]})

    async def call(name: str) -> Decision:
        found = decide(PolicyRequest(server="weather", kind="call", name=name), policy)
        request = make_request(name=name)
        return await consent.decide(request, effect=found.effect, rule=found.rule)

    assert (await call("forecast")).answer == "always"
    assert (await call("forecast")).rule == "a grant"
    consent.store.add_grant(
        ConsentGrant(kind="call", server="weather", digest=ENTRY, name="all_delete", pin="pin1")
    )
    assert not (await call("all_delete")).allowed, "a deny comes before grants"
    assert len(person.asked) == 1


async def test_every_decision_is_reported(tmp_path: Path) -> None:
    made = list[Decision]()
    consent, _ = open_store(tmp_path, "always", on_decision=made.append)
    await consent.decide(make_request(), rule="the default")
    await consent.decide(make_request())
    await consent.decide(make_request(), effect="deny", rule="r")
    assert [(one.allowed, one.answer, one.rule) for one in made] == [
        (True, "always", "the default"), (True, "always", "a grant"), (False, None, "r"),
    ]  # fmt: skip


NOBODY = """
import asyncio, sys
from dovetail.gateway.consent.consent import Consent
from dovetail.gateway.consent.request import ConsentRequest

async def main():
    consent = Consent(sys.argv[1])
    for kind in ("start", "call"):
        request = ConsentRequest(kind=kind, server="weather", digest="d", name="forecast")
        print((await consent.decide(request)).reason)

asyncio.run(main())
"""


async def test_without_a_terminal_the_answer_is_deny_and_says_what_to_do(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NOBODY, str(tmp_path / "consent.db"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert out.decode().splitlines() == [
        f"Nobody can be asked about {doing}. Pass on_consent= to ask the user, or allow it with "
        "policy=."
        for doing in ("starting the server 'weather'", "calling the tool 'forecast' of 'weather'")
    ]


async def test_a_gateway_does_not_ask_at_its_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dovetail.terminal.consent_dialog.has_terminal", lambda: pytest.fail("looked")
    )
    consent = Consent(str(tmp_path / "consent.db"), terminal=False)
    assert not (await consent.decide(make_request())).allowed
    person = Person("once")
    assert (await consent.decide(make_request(), on_consent=person)).allowed


# sessions and callers


async def test_each_caller_of_a_gateway_decides_for_itself(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "always", "always", "deny", "deny")
    await consent.decide(make_request(principal="ann"))
    anonymous = make_request(principal="session 1")
    assert (await consent.decide(anonymous, durable=False)).answer == "always"
    assert (await consent.decide(anonymous, durable=False)).answer == "session"
    consent.end_session("session 1")
    assert not (await consent.decide(anonymous, durable=False)).allowed
    assert (await consent.decide(make_request(principal="ann"))).allowed
    assert not (await consent.decide(make_request())).allowed
    assert len(person.asked) == 4


async def test_a_closed_session_leaves_no_grants_behind(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, "session", "always")
    await consent.decide(make_request())
    await consent.decide(make_request("start"))
    assert {grant.kind for grant in consent.grants()} == {"call", "start"}
    consent.close()
    later, _ = open_store(tmp_path)
    assert [grant.kind for grant in later.store.find_grants()] == ["start"]


async def test_the_same_question_is_asked_once_at_a_time(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "session", "deny")
    same = [consent.decide(make_request()) for _ in range(5)]
    *calls, other = await asyncio.gather(*same, consent.decide(make_request(name="delete")))
    assert [call.allowed for call in calls] == [True] * 5
    assert not other.allowed
    assert len(person.asked) == 2
    assert consent._asking == {}


# revoking


async def test_revoking_holds_from_the_next_call_on_in_every_program(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "session", "always", "always", "deny", "deny")
    other, _ = open_store(tmp_path)
    delete = make_request(name="delete")
    await consent.decide(make_request())
    await consent.decide(delete)
    await consent.decide(make_request("start"))
    removed = other.revoke("weather", "forecast")
    assert [(grant.kind, grant.name) for grant in removed] == [("call", "forecast")]
    assert (await consent.decide(delete)).allowed
    assert not (await consent.decide(make_request())).allowed
    assert {grant.kind for grant in other.revoke("weather")} == {"start", "call"}
    assert not (await consent.decide(make_request("start"))).allowed
    assert other.revoke() == []
    assert len(person.asked) == 5


async def test_revoking_is_for_one_server(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, *["always"] * 3)
    for fields in ({}, {"server": "news"}, {"principal": "ann"}):
        await consent.decide(make_request(**fields))
    assert [grant.server for grant in consent.revoke("news")] == ["news"]
    assert [grant.principal for grant in consent.grants()] == ["", "ann"]


# attacks


async def test_a_changed_entry_is_asked_again_and_says_that_it_changed(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "always", "deny")
    start = make_request("start", entry={"command": "uvx", "env": {"A": "1"}})
    await consent.decide(start)
    preloaded = {"command": "uvx", "env": {"A": "1", "LD_PRELOAD": "/tmp/evil.so"}}
    assert not (await consent.decide(replace(start, digest=OTHER, entry=preloaded))).allowed
    first, second = person.asked
    assert (first.previous, second.previous) == (None, ENTRY)


async def test_a_replaced_command_with_copied_descriptions_gets_no_old_grant(
    tmp_path: Path,
) -> None:
    consent, person = open_store(tmp_path, "always", "always", "deny", "deny", "deny")
    consent.record_seen("weather", ENTRY, {"tool:forecast": '{"name":"forecast"}'})
    approve(consent, "weather")
    await consent.decide(make_request("start"))
    await consent.decide(make_request("call"))
    for kind in ("start", "call", "pin"):  # the same name, tool and pin
        assert not (await consent.decide(make_request(kind, digest=OTHER))).allowed
    assert [request.kind for request in person.asked] == ["start", "call", "start", "call", "pin"]


async def test_an_equal_tool_of_another_server_gets_no_grant(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, "always", "deny")
    await consent.decide(make_request())
    assert not (await consent.decide(make_request(server="evil", digest=OTHER))).allowed


async def test_a_tool_that_changes_while_the_person_decides_is_asked_about_again(
    tmp_path: Path,
) -> None:
    pins = iter(["pin1", "pin1", "pin2", "pin2", "pin2"])
    consent, person = open_store(tmp_path, "always", "always")
    decision = await consent.decide(lambda: make_request(pin=next(pins)))
    assert decision.require().pin == "pin2"
    assert [request.pin for request in person.asked] == ["pin1", "pin2"]
    assert [grant.pin for grant in consent.grants()] == ["pin2"]


async def test_a_tool_that_keeps_changing_is_refused(tmp_path: Path) -> None:
    numbers = iter(range(100))
    consent, person = open_store(tmp_path, *["always"] * 9)
    decision = await consent.decide(lambda: make_request(pin=f"pin{next(numbers)}"))
    assert not decision.allowed
    assert "changed 3 times while the user was asked" in decision.reason
    assert len(person.asked) == 3
    assert consent.grants() == []


async def test_who_fails_to_ask_allows_nothing(tmp_path: Path) -> None:
    def fail(request: ConsentRequest) -> str:
        raise RuntimeError("the window is gone")

    consent = Consent(str(tmp_path / "consent.db"), on_consent=fail)
    with pytest.raises(RuntimeError, match="the window is gone"):
        await consent.decide(make_request())
    assert consent.grants() == []


# real entries


def read_entry(folder: Path, entry: dict[str, Any], **file: Any) -> Servers:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"weather": entry}, **file}))
    return read(path)


WEATHER: dict[str, Any] = {"command": "uvx", "args": ["weather"], "env": {"KEY": "${WEATHER_KEY}"}}


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        ({**WEATHER, "env": {**WEATHER["env"], "LD_PRELOAD": "/tmp/evil.so"}}, {}),
        ({**WEATHER, "env": {"KEY": "${AWS_SECRET}"}}, {}),
        ({**WEATHER, "command": "/tmp/evil"}, {}),
        ({**WEATHER, "args": ["weather", "--evil"]}, {}),
        ({**WEATHER, "cwd": "/tmp"}, {}),
        ({**WEATHER, "dovetail": {"trust": True}}, {}),
        ({**WEATHER, "dovetail": {"pin": "off"}}, {}),
        (WEATHER, {"dovetail": {"defaults": {"trust": True}}}),
        ({"url": "https://evil.example/mcp"}, {}),
    ],
    ids=str,
)
async def test_a_project_that_changes_its_entry_loses_all_that_was_allowed(
    entry: dict[str, Any], file: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    consent, person = open_store(tmp_path, "always", "always", "deny", "deny", "deny")
    environment = {"WEATHER_KEY": "1", "AWS_SECRET": "2"}
    before = entry_digest(read_entry(tmp_path, WEATHER), "weather", environment)
    definition = pinned_text("tool", b'{"name": "forecast", "inputSchema": {}}')
    consent.record_seen("weather", before, {"tool:forecast": definition})
    approve(consent, "weather")
    pin = digest(definition)
    for kind in ("start", "call"):
        assert (await consent.decide(make_request(kind, digest=before, pin=pin))).allowed
    rotated = {**environment, "WEATHER_KEY": "another"}
    assert entry_digest(read_entry(tmp_path, WEATHER), "weather", rotated) == before
    after = entry_digest(read_entry(tmp_path, entry, **file), "weather", environment)
    for kind in ("start", "call", "pin"):  # with the same tool, word for word
        assert not (await consent.decide(make_request(kind, digest=after, pin=pin))).allowed
    assert len(person.asked) == 5


@pytest.mark.parametrize(
    ("file", "content", "kind", "shown"),
    [
        (
            "mcp.json",
            {"mcpServers": {"s": {"command": "uvx", "args": ["x"], "cwd": "sub", "note": "hi"}}},
            "start",
            {"command": "uvx", "args": ["x"], "cwd": "sub", "note": "hi"},
        ),
        (  # OpenCode
            "opencode.json",
            {"mcp": {"s": {"command": ["uvx", "x"], "environment": {"A": "{env:KEY}"}}}},
            "start",
            {"command": "uvx", "args": ["x"], "env": {"A": "{env:KEY}"}},
        ),
        (  # Gemini CLI
            ".gemini/settings.json",
            {"mcpServers": {"s": {"httpUrl": "https://a.example/$KEY", "headers": {"X": "$KEY"}}}},
            "reach",
            {"url": "https://a.example/$KEY", "headers": {"X": "$KEY"}},
        ),
    ],
    ids=["mcp.json", "OpenCode", "Gemini CLI"],
)
def test_the_question_about_a_server_shows_its_entry_in_every_dialect(
    file: str, content: Any, kind: str, shown: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    monkeypatch.setenv("KEY", "secret")
    servers = read(path)
    request = describe_server(servers, "s")
    assert (request.kind, request.server) == (kind, "s")
    assert request.digest == entry_digest(servers, "s")
    assert request.entry is not None
    assert {**request.entry, **shown} == request.entry
    assert {**request.entry, **servers.written["s"]}.keys() == request.entry.keys()
    assert "secret" not in str(request.entry)
    if kind == "start":
        assert request.folder == str(tmp_path / shown.get("cwd", ""))
    if "KEY" in str(shown):
        assert len(request.variables) == 1
        assert "KEY" in request.variables[0]


async def test_what_a_withheld_tool_needs_is_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Consent().approve_command("weather", "fore cast") == (
        "dovetail consent approve weather 'fore cast'"
    )
    for tool in ("--yes", "instructions", "prompt:x", "tool:x"):  # as a server may name a tool
        command = Consent().approve_command("w", f"tool:{tool}")
        assert command == f"dovetail consent approve w tool:{tool}"
    consent, _ = open_store(tmp_path)
    assert consent.approve_command("w", "t") == (
        f"dovetail consent approve w t --store {tmp_path / 'consent.db'}"
    )


async def test_a_decision_is_a_record_for_the_audit_log(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path, "always", "deny")
    made = [
        await consent.decide(make_request(principal="ann"), rule="rule 2 of policy.toml"),
        await consent.decide(make_request(principal="ann")),
        await consent.decide(make_request("start")),
        await consent.decide(make_request("start"), effect="deny", rule="rule 1"),
    ]
    records = [decision.audit_record() for decision in made]
    assert [(one.method, one.outcome, one.rule) for one in records] == [
        ("call", "allowed", "rule 2 of policy.toml, answered always"),
        ("call", "allowed", "a grant"),
        ("start", "denied", "the default, answered deny"),
        ("start", "denied", "rule 1"),
    ]
    assert (records[0].user, records[0].server, records[0].target) == ("ann", "weather", "forecast")
    assert (records[0].digest, records[2].digest) == ("pin1", ENTRY)
    assert (records[2].user, records[2].target) == (None, None)


# what is shared


@pytest.mark.parametrize(
    ("uri", "scope"),
    [
        ("weather://Oslo/today", "weather:"),
        ("Weather:oslo", "weather:"),
        ("file:///home/me/project/a.txt", "file:///home/me/project/"),
        ("file:///home/me/", "file:///home/me/"),
        ("file:///secret", "file:///secret"),
        ("file:///etc/passwd", "file:///etc/"),
        ("file:///home/me/../you/a", "file:///home/me/../you/a"),
        ("file:///home/me/%2e%2e/a", "file:///home/me/%2e%2e/a"),
        ("https://Example.com/a/b?c=/d", "https://example.com/"),
        ("https://example.com:8443/a", "https://example.com:8443/"),
        ("https://example.com", "https://example.com"),
        ("https:opaque", "https:opaque"),
        ("no scheme", "no scheme"),
    ],
)
def test_the_scope_of_a_uri(uri: str, scope: str) -> None:
    assert share_scope(uri) == scope


@pytest.mark.parametrize(
    ("granted", "uri", "covered"),
    [
        ("file:///home/me/a.txt", "file:///home/me/b.txt", True),
        ("file:///home/me/a.txt", "file:///home/me/sub/c.txt", True),
        ("file:///home/me/a.txt", "file:///home/meg/c.txt", False),
        ("file:///home/me/a.txt", "file:///home/me/../you/c.txt", False),
        ("file:///home/me/a.txt", "file:///home/me/%2E%2E/you/c.txt", False),
        ("file:///home/me/a.txt", "file:///home/me/..%2fyou/c.txt", False),
        ("file:///home/me/a.txt", "file:///home/me/..\\you", False),
        ("weather://Oslo", "weather://Rome", True),
        ("weather://Oslo", "WEATHER://Rome", True),
        ("weather://Oslo", "weatherx://Rome", False),
        ("https://a.example/x", "https://a.example/y", True),
        ("https://a.example/x", "https://a.example.evil/y", False),
        ("https://a.example/x", "https://a.example@evil/y", False),
        ("https://a.example/x", "http://a.example/y", False),
        ("file:///secret", "file:///secrets", False),
    ],
)
async def test_a_shared_uri_covers_what_is_below_it(
    granted: str, uri: str, covered: bool, tmp_path: Path
) -> None:
    consent, _ = open_store(tmp_path, "always")
    await consent.decide(make_request("share", name=granted, scope=share_scope(granted)))
    asked = make_request("share", name=uri, scope=share_scope(uri))
    assert (consent.find_answer(asked) is not None) == covered


def shared(kind: Any, name: str) -> ConsentRequest:
    shown, scope = name_shared(kind, name)
    return make_request("share", name=shown, scope=scope)


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        (("root", "file:///home/me/project/"), ("root", "file:///home/me/project/sub")),
        (("resource", "file:///home/me/a/b.txt"), ("root", "file:///home/me/a/")),
        (("root", "file:///home/me/a/"), ("resource", "file:///home/me/a/b.txt")),
        (("resource", "file:///"), ("resource", "file:///etc/passwd")),
        (("resource", "prompt:x"), ("prompt", "x")),
        (("resource", "PROMPT:x"), ("prompt", "y")),
        (("resource", "root:x"), ("root", "file:///home/me/")),
        (("resource", "hello:x"), ("prompt", "hello:y")),
        (("prompt", "a/"), ("prompt", "a/b")),
    ],
)
async def test_an_answer_covers_nothing_of_another_kind(
    granted: tuple[str, str], asked: tuple[str, str], tmp_path: Path
) -> None:
    consent, _ = open_store(tmp_path, "always")
    await consent.decide(shared(*granted))
    assert consent.find_answer(shared(*granted)) is not None
    assert consent.find_answer(shared(*asked)) is None


# pins


def seen(consent: Consent, pin: str, *names: str, digest: str = ENTRY) -> None:
    items = {f"tool:{name}": f'{{"name":"{name}","v":"{pin}"}}' for name in names}
    consent.record_seen("weather", digest, items)


def versions(consent: Consent, digest: str = ENTRY) -> dict[str, set[str]]:
    """What is approved, by the version that `seen` was given."""
    known = {one.pin: json.loads(one.content)["v"] for one in consent.store.find_items()}
    found = consent.approved("weather", digest)
    return {name: {known[pin] for pin in pins} for name, pins in found.items()}


async def test_what_a_server_lists_is_approved_as_a_whole_or_by_tool(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    seen(consent, "1", "a", "b")
    assert [change.current.item for change in consent.changes("weather")] == ["tool:a", "tool:b"]
    assert len(approve(consent, "weather")) == 2
    assert versions(consent) == {"tool:a": {"1"}, "tool:b": {"1"}}
    assert consent.changes("weather") == []
    seen(consent, "2", "a", "b", "c")
    changes = {change.current.item: change.previous for change in consent.changes("weather")}
    previous = [one and json.loads(one.content)["v"] for one in changes.values()]
    assert previous == ["1", "1", None]
    assert approve(consent, "weather", "a") == ["tool:a"]
    assert versions(consent) == {"tool:a": {"1", "2"}, "tool:b": {"1"}}


async def test_a_changed_item_is_approved_by_an_answer(tmp_path: Path) -> None:
    consent, person = open_store(tmp_path, "always", "session", "once", "deny")
    for pin in ("1", "1", "2", "2", "3", "3"):
        await consent.decide(make_request("pin", pin=pin))
    assert [request.pin for request in person.asked] == ["1", "2", "3", "3"]
    assert consent.approved("weather", ENTRY) == {"tool:forecast": {"1"}}


async def test_at_most_eight_versions_are_approved(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    for number in range(9):
        seen(consent, str(number), "a")
        approve(consent, "weather")
    assert versions(consent) == {"tool:a": {str(number) for number in range(1, 9)}}
    seen(consent, "1", "a")
    assert consent.changes("weather") == []
    approve(consent, "weather", "a", only=True)
    assert versions(consent) == {"tool:a": {"1"}}


async def test_a_server_that_changes_all_the_time_does_not_fill_the_store(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    seen(consent, "first", "a")
    approve(consent, "weather")
    for number in range(50):
        seen(consent, str(number), "a")
    kept = [json.loads(one.content)["v"] for one in consent.store.find_items()]
    assert kept == ["first", "49"]


async def test_approving_is_for_the_entry_that_was_listed_last(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    seen(consent, "1", "a")
    seen(consent, "2", "a", digest=OTHER)
    approve(consent, "weather")
    assert versions(consent) == {}
    assert versions(consent, OTHER) == {"tool:a": {"2"}}


async def test_revoking_forgets_what_was_approved(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    seen(consent, "1", "a", "b")
    approve(consent, "weather")
    consent.revoke("weather", "a")
    assert versions(consent) == {"tool:b": {"1"}}
    consent.revoke("weather")
    assert versions(consent) == {}


def test_a_store_of_your_own_has_these_methods(tmp_path: Path) -> None:
    consent, _ = open_store(tmp_path)
    store: ConsentStore = consent.store
    grant = ConsentGrant(kind="start", server="s", digest="d", created=5.0)
    store.add_grant(grant)
    assert store.find_grants(server="s", digest="d", kind="start", name="", principal="") == [grant]
    assert Consent(store).store is store
