"""The rules of `dovetail check`, one row each, and the findings that they lead to.

A rule of level `error` describes a server that some hosts cannot use, or that hides something. A
`warning` is likely to cause trouble. An `info` is worth knowing, and is often fine.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

CheckLevel: TypeAlias = Literal["error", "warning", "info"]
LEVELS: Final[tuple[CheckLevel, ...]] = ("error", "warning", "info")
"""The levels, worst first."""
ItemKind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
PlaceKind: TypeAlias = Literal["server", "tool", "resource", "template", "prompt"]
PLACE_KINDS: Final[tuple[PlaceKind, ...]] = ("server", "tool", "resource", "template", "prompt")


class CheckRule(Struct, frozen=True):
    """One rule."""

    id: str
    level: CheckLevel
    what: str
    """What the rule finds, as a noun phrase."""
    why: str
    """Why that is a problem."""
    fix: str
    """What to do."""


class FindingPlace(Struct, frozen=True):
    """Where a problem is.

    Attributes:
        kind: What it is in: the server as a whole, or an item of one of its lists.
        name: The name of the tool or prompt, or the URI of the resource or template.
        path: The path inside the item, such as `inputSchema/properties/city`.
    """

    kind: PlaceKind
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.name)))


class Finding(Struct, frozen=True):
    """One problem of a server. Texts may quote the server: escape them before you show them.

    Attributes:
        rule: The id of the rule.
        level: How bad it is.
        where: The place.
        message: What is wrong here.
        why: Why that is a problem.
        fix: What to do.
    """

    rule: str
    level: CheckLevel
    where: FindingPlace
    message: str
    why: str
    fix: str


_ROWS: Final = (
    # schemas and names
    CheckRule(
        "no-description", "warning", "A tool or prompt without a description",
        "A model chooses a tool by its description.",
        "Describe in one or two sentences what it does and when to use it.",
    ),
    CheckRule(
        "resource-no-description", "info", "A resource or template without a description",
        "A person or model sees only its name.",
        "Describe in one sentence what it contains.",
    ),
    CheckRule(
        "argument-no-description", "info", "Arguments without a description",
        "A model, or the user of a prompt, has to guess what to pass from the name alone.",
        "Describe each argument: its meaning, its unit, an example.",
    ),
    CheckRule(
        "argument-no-type", "warning", "An argument without a type",
        "A model can pass anything, and some APIs refuse a schema without a type.",
        "Add a `type`, an `enum` or a `$ref`.",
    ),
    CheckRule(
        "description-too-long", "warning", "A tool description over 1,024 characters",
        "OpenAI refuses longer descriptions, so hosts cut them off.",
        "Shorten it. Put details into a resource or a prompt.",
    ),
    CheckRule(
        "ref-nowhere", "error", "A `$ref` that leads nowhere",
        "The schema cannot be compiled, so hosts drop the tool or the whole list.",
        "Define the target under `$defs`, or remove the reference.",
    ),
    CheckRule(
        "ref-outside", "error", "A `$ref` to another document",
        "Hosts do not fetch other documents, because the address could be hostile.",
        "Copy the definition to `$defs` and refer to it there.",
    ),
    CheckRule(
        "schema-invalid", "error", "A schema that is not valid JSON Schema",
        "Hosts that compile schemas drop the tool or the whole list.",
        "Correct the schema. MCP uses JSON Schema 2020-12 if `$schema` is absent.",
    ),
    CheckRule(
        "pattern-unsupported", "info", "A pattern that needs look-around or back-references",
        "Some validators, Dovetail's too, match in linear time and do not support it.",
        "Use a simpler pattern, and check the rest in the tool.",
    ),
    CheckRule(
        "required-undefined", "warning", "A required property that is not defined",
        "A model has to pass a value that nothing describes.",
        "Define it under `properties`, or remove it from `required`.",
    ),
    CheckRule(
        "closed-combination", "warning", "`additionalProperties: false` beside `allOf` or `$ref`",
        "It refuses every property that only the other schemas define.",
        "Use `unevaluatedProperties: false`, or repeat the properties.",
    ),
    CheckRule(
        "open-arguments", "info", "A tool that explicitly accepts any further argument",
        "A misspelled argument is accepted and has no effect.",
        "Set `additionalProperties` to false, unless the tool uses further arguments.",
    ),
    CheckRule(
        "default-mismatch", "warning", "A default that does not match its own schema",
        "A host that fills in the default sends arguments that are refused.",
        "Correct the default or the type.",
    ),
    CheckRule(
        "name-characters", "error", "A name with characters that hosts refuse",
        "The APIs of models accept only letters, digits, `_` and `-`.",
        "Rename it. Put the readable name into `title`.",
    ),
    CheckRule(
        "name-dot", "warning", "A tool name with a dot",
        "MCP allows it, but OpenAI, Anthropic and Bedrock refuse it, so hosts rename the tool.",
        "Use `_` or `-`.",
    ),
    CheckRule(
        "name-too-long", "error", "A tool or prompt name over 63 characters",
        "The APIs of models accept 64 characters, and hosts refuse or shorten longer names.",
        "Shorten it. Put the readable name into `title`.",
    ),
    CheckRule(
        "name-long", "warning", "A tool or prompt name over 48 characters",
        "Hosts put the name of the server in front, and the result can be too long.",
        "Shorten the name to 48 characters.",
    ),
    CheckRule(
        "name-duplicate", "error", "Two items with the same name or URI",
        "A host can call only one of them.",
        "Rename one of them.",
    ),
    CheckRule(
        "name-similar", "warning", "Two tools whose names differ only in case, `_` or `-`",
        "Models and people confuse them.",
        "Rename one of them.",
    ),
    CheckRule(
        "input-not-object", "error", "An input schema that is not an object",
        "MCP requires `type: object`. Some hosts then refuse the whole list.",
        "Set `type` to `object` and put the arguments under `properties`.",
    ),
    CheckRule(
        "output-not-object", "error", "An output schema that is not an object",
        "This revision requires `type: object`. Some hosts then refuse the whole list.",
        "Wrap the value in an object with one property.",
    ),
    CheckRule(
        "output-newest-only", "info", "An output schema that older revisions cannot express",
        "Hosts of older revisions get the text only, because their output is always an object.",
        "Wrap the value in an object if older hosts should get structured output.",
    ),
    CheckRule(
        "root-alternatives", "error", "An input schema with alternatives at its root",
        "OpenAI, Anthropic and Bedrock refuse it, and with it all other tools of the request.",
        "Move the alternatives into a property, or make two tools.",
    ),
    CheckRule(
        "array-without-items", "warning", "An array without `items`",
        "OpenAI and Gemini refuse it, and a model has to guess what goes in.",
        "Add `items`.",
    ),
    CheckRule(
        "refused-keywords", "warning", "Keywords that OpenAI or Gemini refuse",
        "A host that does not remove them cannot use any tool of the request.",
        "Use simpler keywords, such as `minimum` and `enum`. Check the rest in the tool.",
    ),
    CheckRule(
        "root-keywords", "info", "Keywords at the root of input schemas that Bedrock refuses",
        "Amazon Nova accepts only `type`, `properties` and `required` there.",
        "No action is needed if your hosts remove them. Otherwise leave them out.",
    ),
    CheckRule(
        "argument-name", "warning", "An argument whose name APIs refuse",
        "Anthropic and Bedrock accept letters, digits, `_`, `.` and `-`, up to 64 of them.",
        "Rename the argument.",
    ),
    CheckRule(
        "list-too-long", "warning", "A list over 25,000 characters",
        "It fills the context of a model before the first question.",
        "Offer fewer tools, shorten descriptions, or split the server.",
    ),
    CheckRule(
        "uri-invalid", "error", "A URI or URI template that is not valid",
        "Clients cannot read the resource.",
        "Begin with a scheme, such as `notes://`. Templates follow RFC 6570.",
    ),
    # safety
    CheckRule(
        "invisible-characters", "error", "Invisible characters, or characters that control text",
        "They hide instructions from people, or make one name look like another.",
        "Remove them.",
    ),
    CheckRule(
        "mentions-other-tools", "info", "Text that tells a model how to use other tools",
        "A description can change what a model does with the tools of other servers.",
        "Describe only this tool. If you do not trust the server, read the whole text.",
    ),
    CheckRule(
        "asks-for-secrecy", "info", "Text that asks a model to keep something secret",
        "Hostile servers hide what they do from the user.",
        "Remove the request. If you do not trust the server, read the whole text.",
    ),
    CheckRule(
        "commands-model", "info", "Text that overrides the instructions of a model",
        "This is a common form of prompt injection.",
        "Describe the tool in plain words. If you do not trust the server, do not use it.",
    ),
    CheckRule(
        "description-changed", "warning", "A description that changed since the last check",
        "A server can change what a model reads after you have reviewed it.",
        "Read the new description. The next check compares with it.",
    ),
    CheckRule(
        "annotations-contradict", "warning", "Annotations that contradict each other",
        "A host can skip a confirmation because of the wrong annotation.",
        "A tool that only reads is not destructive: correct `readOnlyHint` or `destructiveHint`.",
    ),
    CheckRule(
        "annotation-unknown", "warning", "A misspelled annotation",
        "Hosts ignore it, and treat the tool as destructive.",
        "Correct the spelling.",
    ),
    CheckRule(
        "default-url", "warning", "A URL in a default",
        "Data can be sent there although neither the model nor the user chose the address.",
        "Remove the default, or set the address when the server is started.",
    ),
    CheckRule(
        "asks-for-secret", "warning", "An argument that asks for a secret",
        "The model, the host and its logs see every argument.",
        "Read the secret from the environment, or use a login or URL elicitation.",
    ),
    CheckRule(
        "icon-url", "warning", "An icon that is neither `https:` nor `data:`",
        "Hosts must not show it.",
        "Use an `https:` URL or a `data:` URI.",
    ),
    # protocol
    CheckRule(
        "list-failed", "error", "A list that the server declares and does not return",
        "Hosts show an error, or nothing.",
        "Correct the handler, or do not declare the capability.",
    ),
    CheckRule(
        "invalid-message", "error", "A message that does not match the protocol",
        "Many hosts check messages strictly and then drop the whole list.",
        "Send the field as the specification defines it.",
    ),
    CheckRule(
        "null-field", "error", "A field that is null",
        "The specification has no null here, and strict hosts drop the whole list.",
        "Leave the field out.",
    ),
    CheckRule(
        "missing-field", "error", "A field that this revision requires is missing",
        "Strict hosts drop the whole list.",
        "Send the field.",
    ),
    CheckRule(
        "repeated-key", "error", "A JSON object in which a key is repeated",
        "Programs disagree on which of the two values counts, so checks can be bypassed.",
        "Send each key once.",
    ),
    CheckRule(
        "unknown-field", "info", "A field that no revision of the protocol has",
        "Hosts ignore it.",
        "Put your own data into `_meta`, under a key with a prefix.",
    ),
    CheckRule(
        "other-revision-field", "info", "A field of another revision",
        "A host that uses this revision does not know the field.",
        "No action is needed if hosts can ignore it. Otherwise, leave it out in this revision.",
    ),
    CheckRule(
        "older-revisions-lose", "info", "What hosts of older revisions do not see",
        "Hosts of these revisions use the tools without these fields.",
        "No action is needed if the tools work without them. Otherwise repeat in the description "
        "what is essential.",
    ),
)  # fmt: skip
RULES: Final[dict[str, CheckRule]] = {rule.id: rule for rule in _ROWS}
"""The rules by id, in the order of the guide."""


def found(rule: str, where: FindingPlace, message: str) -> Finding:
    """Return a finding of a rule.

    Args:
        rule: The id of the rule.
        where: The place.
        message: What is wrong there.
    """
    row = RULES[rule]
    return Finding(row.id, row.level, where, message, row.why, row.fix)


def worst_first(findings: list[Finding]) -> list[list[Finding]]:
    """Return the findings in groups, one for each item: the group with the worst finding first, and
    in each group the worst finding first.

    Args:
        findings: The findings, in any order.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in sorted(findings, key=_rank):
        groups.setdefault((one.where.kind, one.where.name), []).append(one)
    return list(groups.values())


def _rank(finding: Finding) -> tuple[int, int, str]:
    where = finding.where
    return LEVELS.index(finding.level), PLACE_KINDS.index(where.kind), where.name
