"""The rules of a policy file, and the order in which they decide."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from dovetail.config import ToolFilter
from dovetail.errors import ConfigError
from dovetail.gateway.consent.policy import (
    CONSENT_KINDS,
    EFFECTS,
    ConsentKind,
    Effect,
    PolicyDecision,
    PolicyFile,
    PolicyRequest,
    Rule,
    decide,
    read_policy,
)

CALL = PolicyRequest(server="github", kind="call", name="issue_get", principal="ada@example.com")


def policy(*rules: dict[str, Any], **top: Any) -> PolicyFile:
    return read_policy({"rule": list(rules), **top})


def effect(request: PolicyRequest, *rules: dict[str, Any], **options: Any) -> Effect:
    return decide(request, policy(*rules), **options).effect


# Reading.

FILE = """
ask = "elicit"

[[rule]]
effect = "deny"
name = "*_delete"

[[rule]]
effect = "allow"
principal = "*@example.com"
server = "git*"
kind = "call"
"""


def test_a_file_is_read_with_its_rules_in_order(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    for source in (path, str(path)):
        assert read_policy(source) == PolicyFile(
            ask="elicit",
            rules=(
                Rule(effect="deny", name="*_delete"),
                Rule(effect="allow", principal="*@example.com", server="git*", kind="call"),
            ),
            where=str(path),
        )


def test_an_empty_file_has_no_rules() -> None:
    assert policy() == PolicyFile()
    assert read_policy(policy()) == policy()


@pytest.mark.parametrize("word", EFFECTS)
def test_a_word_is_a_policy_without_rules(word: Effect) -> None:
    decision = decide(CALL, read_policy(word))
    assert decision == PolicyDecision(word, "the default")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rules": []}, 'the policy has the unknown key "rules". Did you mean "rule"?'),
        ({"ask": "user"}, 'the policy has an unknown "ask". Use one of "elicit".'),
        ({"rule": {}}, "the policy: write [[rule]], with two brackets, before each rule"),
        ({"rule": [3]}, "the policy: rule 1 must be an object"),
        ({"rule": [{}]}, 'the policy: rule 1 has no "effect". Use one of "allow", "ask", "deny".'),
        (
            {"rule": [{"effect": "alow"}]},
            'the policy: rule 1 has an unknown "effect". Did you mean "allow"?',
        ),
        (
            {"rule": [{"effect": "x"}]},
            'the policy: rule 1 has an unknown "effect". Use one of "allow", "ask", "deny".',
        ),
        (
            {"rule": [{"effect": "allow"}, {"effect": "deny", "princpal": "x"}]},
            'the policy: rule 2 has the unknown key "princpal". Did you mean "principal"?',
        ),
        (
            {"rule": [{"effect": "deny", "kind": "cal"}]},
            'the policy: rule 1 has an unknown "kind". Did you mean "call"?',
        ),
        (
            {"rule": [{"effect": "deny", "kind": "tool*"}]},
            'the policy: rule 1 has an unknown "kind". Use one of "start", "reach", "call"',
        ),
        (
            {"rule": [{"effect": "deny", "name": ["a"]}]},
            "the policy: rule 1 is not valid: Expected",
        ),
    ],
)
def test_an_error_says_what_to_write_instead(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("text", "message"), [("x = [", "is not valid TOML"), (None, "cannot be")])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "policy.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_policy(path)
    assert str(caught.value).startswith(f"{path} {message}")


# Matching.


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({}, True),
        ({"server": "github"}, True),
        ({"server": "git*"}, True),
        ({"server": "GitHub"}, False),
        ({"server": "git"}, False),
        ({"kind": "call"}, True),
        ({"kind": "s*"}, False),
        ({"name": "issue_*"}, True),
        ({"name": "gh__issue_get"}, False),
        ({"principal": "*@example.com"}, True),
        ({"principal": "bob*"}, False),
        ({"server": "github", "name": "other"}, False),
        ({"server": "github", "name": "issue_[gs]et", "kind": "call", "principal": "ada*"}, True),
    ],
)
def test_a_rule_matches_if_all_of_its_patterns_do(rule: dict[str, str], matches: bool) -> None:
    assert Rule(effect="deny", **rule).matches(CALL) is matches


def test_a_rule_for_principals_does_not_match_anonymous_callers() -> None:
    anonymous = PolicyRequest(server="github", kind="call", name="x")
    assert not Rule(effect="allow", principal="*").matches(anonymous)
    assert Rule(effect="allow").matches(anonymous)


def test_a_policy_knows_whether_it_looks_at_the_caller() -> None:
    assert not policy({"effect": "deny", "name": "x"}).depends_on_caller
    assert policy({"effect": "deny"}, {"effect": "allow", "principal": "ada"}).depends_on_caller


def test_a_word_that_is_not_a_policy_is_an_error() -> None:
    with pytest.raises(ConfigError, match='neither a file nor one of "allow", "ask", "deny"'):
        read_policy("alow")


def test_rules_for_servers_that_do_not_exist_are_reported() -> None:
    rules = policy(
        {"effect": "deny", "server": "githb"}, {"effect": "deny", "server": "git*"},
        {"effect": "deny", "server": "zzz"}, {"effect": "deny"},
    )  # fmt: skip
    assert rules.find_unused(["github", "weather"], {}) == [
        "rule 1 of the policy matches no server: 'githb'. Did you mean 'github'?",
        "rule 3 of the policy matches no server: 'zzz'",
    ]


def test_rules_with_the_prefixed_name_of_a_tool_are_reported() -> None:
    names = {"gh__issue_delete": "issue_delete", "gh__x__y": "x__y"}
    rules = policy(
        {"effect": "deny", "name": "gh__issue_delete"}, {"effect": "deny", "name": "issue_*"},
        {"effect": "deny", "name": "x__*"}, {"effect": "deny", "name": "*_later"},
    )  # fmt: skip
    assert rules.find_unused(["github"], names) == [
        "rule 1 of the policy matches nothing, because 'gh__issue_delete' contains a prefix. Use "
        "the server's own name, such as 'issue_delete'"
    ]


# Deciding.


def test_a_deny_of_any_rule_comes_before_rules_that_match_first() -> None:
    rules = policy({"effect": "allow"}, {"effect": "ask"}, {"effect": "deny", "name": "issue_*"})
    assert decide(CALL, rules) == PolicyDecision("deny", "rule 3 of the policy")


def test_a_deny_of_the_entry_comes_before_everything() -> None:
    rules = policy({"effect": "allow"})
    for tools, why in (
        (ToolFilter(deny=["issue_*"]), "tools.deny of the entry"),
        (ToolFilter(allow=["other"]), "tools.allow of the entry"),
    ):
        assert decide(CALL, rules, tools=tools) == PolicyDecision("deny", why)


def test_the_filter_of_tools_is_about_tools_only() -> None:
    for kind in CONSENT_KINDS:
        request = PolicyRequest(server="github", kind=kind, name="x")
        denied = decide(request, None, tools=ToolFilter(deny=["*"])).effect == "deny"
        assert denied is (kind == "call")


def test_the_first_rule_that_matches_decides_and_is_named() -> None:
    rules = policy(
        {"effect": "allow", "server": "other"}, {"effect": "ask", "name": "issue_*"},
        {"effect": "allow"},
    )  # fmt: skip
    assert decide(CALL, rules) == PolicyDecision("ask", "rule 2 of the policy")
    other = PolicyRequest(server="github", kind="call", name="x")
    assert decide(other, rules) == PolicyDecision("allow", "rule 3 of the policy")


@pytest.mark.parametrize("kind", CONSENT_KINDS)
def test_the_default_depends_on_who_asks_and_whether_there_is_a_policy(kind: ConsentKind) -> None:
    request = PolicyRequest(server="github", kind=kind, name="x")
    assert decide(request, None).effect == "ask"
    assert decide(request, policy()).effect == "ask"
    assert decide(request, None, is_gateway=True).effect == "allow"
    by_caller = "deny" if kind in ("call", "share") else "allow"
    assert decide(request, policy(), is_gateway=True) == PolicyDecision(by_caller, "the default")


def test_a_trusted_tool_that_only_reads_is_not_asked_about_unless_a_rule_says_so() -> None:
    read = PolicyRequest(server="github", kind="call", name="issue_get", trusted_read=True)
    assert decide(read, None) == PolicyDecision("allow", "a trusted server's tool that only reads")
    assert effect(read, {"effect": "ask"}) == "ask"
    assert effect(read, {"effect": "deny"}) == "deny"
    assert effect(read, is_gateway=True) == "deny"
    assert decide(read, read_policy("ask")).effect == "allow"


def test_every_combination_follows_the_order() -> None:
    """The documented order, written in another way, for all small policies."""
    rules = [
        {"effect": one, **pattern}
        for one in EFFECTS
        for pattern in ({}, {"server": "github"}, {"name": "z"})
    ]
    for chosen in itertools.product(rules, repeat=2):
        for gateway in (False, True):
            matching = [rule["effect"] for rule in chosen if rule.get("name") != "z"]
            expected = (
                "deny" if "deny" in matching
                else matching[0] if matching
                else "deny" if gateway else "ask"
            )  # fmt: skip
            assert effect(CALL, *chosen, is_gateway=gateway) == expected, (chosen, gateway)
