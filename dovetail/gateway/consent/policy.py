"""Who may do what: the rules of a policy file.

    ask = "elicit"                    # a gateway asks its caller by elicitation

    [[rule]]
    effect = "deny"                   # "allow", "ask" or "deny"
    name = "*_delete"                 # the server's own name for the tool

    [[rule]]
    effect = "allow"
    principal = "*@example.com"
    server = "github"                 # the name in the configuration file
    kind = "call"

All keys except `effect` are optional, case-sensitive `fnmatch` patterns. A rule matches if all of
its patterns match; `principal` matches only authenticated callers. These steps decide, in this
order:

1. A deny by the server's entry (`tools.allow`, `tools.deny`) or by any rule.
2. The first rule that matches.
3. For a tool that only reads, at a server with `"trust": true`: allow instead of ask.
4. The default: ask for a host, allow for a gateway without a policy file, deny for a gateway with
   one. What the operator decides by listing a server is always allowed by default at a gateway:
   to start or reach it, and to pass on its questions.

If the result is ask, a grant that a person gave earlier counts (`consent.py`). Without a grant and
without anybody who can be asked, ask means deny.
"""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from ...config import ToolFilter, read_toml
from ...config.known_keys import InvalidObject, advise, convert_known
from ...errors import ConfigError
from ...text import closest_name, quote

Effect: TypeAlias = Literal["allow", "ask", "deny"]
EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
ConsentKind: TypeAlias = Literal[
    "start", "reach", "call", "share", "pin", "sampling", "elicitation"
]
"""What consent is about: to start or reach a server, to call a tool, to read a resource or prompt
for the model, to accept a changed tool, to use the model, or to ask the user."""
CONSENT_KINDS: Final[tuple[ConsentKind, ...]] = get_args(ConsentKind)
BY_CALLERS: Final = ("call", "share")
"""What the callers of a gateway do. Everything else is decided by its operator."""


class PolicyRequest(Struct, frozen=True, kw_only=True):
    """What somebody wants to do."""

    server: str
    """The name of the server in the configuration file."""
    kind: ConsentKind
    name: str = ""
    """The server's own name of the tool or prompt, or the URI of the resource."""
    principal: str | None = None
    """The id of the authenticated caller; None if there is none."""
    trusted_read: bool = False
    """Whether the tool only reads, according to a server with `"trust": true`."""


class Rule(Struct, frozen=True, kw_only=True):
    """One rule of a policy file. A pattern that is None matches everything."""

    effect: Effect
    principal: str | None = None
    server: str | None = None
    kind: str | None = None
    name: str | None = None

    def matches(self, request: PolicyRequest) -> bool:
        """Return whether all patterns match."""
        pairs = (
            (self.principal, request.principal),
            (self.server, request.server),
            (self.kind, request.kind),
            (self.name, request.name),
        )
        return all(
            pattern is None or (value is not None and fnmatchcase(value, pattern))
            for pattern, value in pairs
        )


class PolicyDecision(Struct, frozen=True):
    """What may happen, and what decided it."""

    effect: Effect
    rule: str
    """What decided, for people and for the audit log, such as `rule 3 of policy.toml`."""


class PolicyFile(Struct, frozen=True, kw_only=True):
    """The contents of a policy file."""

    rules: tuple[Rule, ...] = ()
    ask: Literal["elicit"] | None = None
    """How a gateway asks; None if it cannot."""
    default: Effect | None = None
    """The default that replaces all others; None for the usual ones."""
    where: str = "the policy"
    """The name of the file."""

    @property
    def depends_on_caller(self) -> bool:
        """Whether two callers may get different answers, so that these must not be shared."""
        return any(rule.principal is not None for rule in self.rules)

    def describe(self, rule: Rule) -> str:
        """Return what messages call a rule."""
        return f"rule {self.rules.index(rule) + 1} of {self.where}"

    def find_unused(self, servers: Collection[str], names: Mapping[str, str]) -> list[str]:
        """Return a sentence for each rule that names a server which does not exist, or that uses a
        name with a prefix, so that it matches nothing.

        Args:
            servers: The names of all servers.
            names: The servers' own names by the names that callers see.
        """
        found = []
        for rule in self.rules:
            pattern = "*" if rule.server is None else rule.server
            if not any(fnmatchcase(server, pattern) for server in servers):
                close = closest_name(pattern, servers)
                advice = f". Did you mean {quote(close)}?" if close is not None else ""
                found.append(f"{self.describe(rule)} matches no server: {quote(pattern)}{advice}")
            wanted = rule.name
            if wanted is None or any(fnmatchcase(own, wanted) for own in names.values()):
                continue
            meant = next((own for name, own in names.items() if fnmatchcase(name, wanted)), None)
            if meant is not None:
                found.append(
                    f"{self.describe(rule)} matches nothing, because {quote(wanted)} contains a "
                    f"prefix. Use the server's own name, such as {quote(meant)}"
                )
        return found


class _PolicyKeys(Struct, frozen=True, kw_only=True):
    ask: Literal["elicit"] | None = None
    rule: list[Any] = []


def read_policy(source: "str | Path | Mapping[str, Any] | PolicyFile") -> PolicyFile:
    """Return a policy.

    Args:
        source: The path of a TOML file, its decoded contents, or one of the words "allow", "ask"
            and "deny", which become the default without any rules.

    Raises:
        ConfigError: The file cannot be read, or is not valid.
    """
    if isinstance(source, PolicyFile):
        return source
    for effect in EFFECTS:
        if source == effect:
            return PolicyFile(default=effect, where=f'policy="{effect}"')
    if isinstance(source, Mapping):
        return _parse(source, "the policy")
    if not Path(source).suffix and not Path(source).exists():
        words = ", ".join(f'"{effect}"' for effect in EFFECTS)
        raise ConfigError(f"The policy {str(source)!r} is neither a file nor one of {words}")
    return _parse(read_toml(source), str(source))


def _parse(value: Mapping[str, Any], where: str) -> PolicyFile:
    if isinstance(value.get("rule"), Mapping):
        raise ConfigError(f"{where}: write [[rule]], with two brackets, before each rule")
    try:
        keys = convert_known(value, _PolicyKeys, where)
        rules = tuple(
            _parse_rule(rule, f"{where}: rule {number}") for number, rule in enumerate(keys.rule, 1)
        )
    except InvalidObject as error:
        raise ConfigError(str(error)) from None
    return PolicyFile(rules=rules, ask=keys.ask, where=where)


def _parse_rule(value: Any, what: str) -> Rule:
    rule = convert_known(value, Rule, what)
    kind = rule.kind
    if kind is not None and not any(fnmatchcase(one, kind) for one in CONSENT_KINDS):
        raise InvalidObject(f'{what} has an unknown "kind". {advise(kind, CONSENT_KINDS)}')
    return rule


def decide(
    request: PolicyRequest,
    policy: PolicyFile | None,
    *,
    tools: ToolFilter | None = None,
    is_gateway: bool = False,
) -> PolicyDecision:
    """Decide whether something may happen.

    Args:
        request: What somebody wants to do.
        policy: The rules; None if there is no policy file.
        tools: Which tools the server's entry offers (default: all).
        is_gateway: Whether the defaults are those of a gateway, not of a host.
    """
    refused = tools.why_refused(request.name) if tools and request.kind == "call" else None
    if refused is not None:
        return PolicyDecision("deny", f"{refused} of the entry")
    matching = [rule for rule in policy.rules if rule.matches(request)] if policy else []
    denying = next((rule for rule in matching if rule.effect == "deny"), None)
    if policy and denying is not None:
        return PolicyDecision("deny", policy.describe(denying))
    if policy and matching:
        return PolicyDecision(matching[0].effect, policy.describe(matching[0]))
    return _default(request, policy, is_gateway)


def _default(request: PolicyRequest, policy: PolicyFile | None, is_gateway: bool) -> PolicyDecision:
    if policy is not None and policy.default is not None:
        effect = policy.default
    elif not is_gateway:
        effect = "ask"
    else:
        effect = "deny" if policy is not None and request.kind in BY_CALLERS else "allow"
    if effect == "ask" and request.trusted_read and request.kind == "call":
        return PolicyDecision("allow", "a trusted server's tool that only reads")
    return PolicyDecision(effect, "the default")
