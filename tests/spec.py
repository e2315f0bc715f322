"""The oracle: is this message what the official schema of its revision allows, field by field?

    assert problems("2025-06-18", message, direction="server", method="tools/list") == []

`direction` is who sent the message. `method` is what a *result* answers: a name, or a mapping from
request id to name for whoever records a whole conversation; requests, notifications and errors do
not need it. A batch is checked item by item, in the one revision that has batches. `check_tape`
does this for a conversation that the test kit recorded.

Each message passes two checks. First the schema: the envelope, the definition whose `method` is
this one, for a result the definition that answers that method, for an error the one with its code.
Then the fields: the published schemas leave nearly every object open, so a `title` in a message of
the first revision would pass. The second check walks the value along the schema and reports each
property that the revision does not declare. Objects that are open by design (`_meta`, annotations,
capabilities) may hold what nobody declared, but not what only *another* revision declares: that is
a leak. JSON schemas of tools and forms are not looked into.

Three places where the published schemas say less than the specification are mended on loading or
exempted here: `integer` stands for any number in unions with string and boolean, and JSON values
lack null (artefacts of how the schemas are generated); an error that answers nothing readable has a
null id, as JSON-RPC demands, where the schema requires an id.

The schemas are not part of this repository. They are read from the folder that DOVETAIL_SPEC names,
`../shared/spec` unless told: `<revision>/schema.json` and `2026-07-28/examples/<Type>/*.json`.
Where it is absent, `problems` skips the test that calls it; `PRESENT` tells beforehand, and
`needs_spec` marks a test that is nothing without.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jsonschema_rs
import pytest

if TYPE_CHECKING:
    from dovetail.testing import Tape

ROOT = Path(__file__).parent.parent
SPEC = ROOT / os.environ.get("DOVETAIL_SPEC", "../shared/spec")
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
EXAMPLES = SPEC / REVISIONS[-1] / "examples"
PRESENT = SPEC.is_dir()
ABSENT = f"the official schemas are not at {SPEC}; DOVETAIL_SPEC names their folder"
needs_spec = pytest.mark.skipif(not PRESENT, reason=ABSENT)

Direction = Literal["client", "server"]
Kind = Literal["Request", "Notification"]
Answers = str | Mapping[Any, str] | None
Schema = dict[str, Any]

JSON_SCHEMAS = {"inputSchema", "outputSchema", "requestedSchema"}
"""Values that are schemas themselves: valid by their definition, but with any keyword."""
OPEN = {"Annotations", "ToolAnnotations", "ClientCapabilities", "ServerCapabilities"}
"""Objects that peers may add to, with all objects inside them."""
ANYWHERE = {"extensions", "experimental"}
"""Capabilities made for what is in no schema."""
ANYTHING = {"GetTaskPayloadResult"}
"""Definitions that stand for any result at all."""
FOREIGN = ("greetings/", "notifications/greetings/", "skills/", "resources/directory/")
"""How methods of extensions begin: of the tests' own, and of skills. They are in no schema: their
envelope is all that is held against one."""
FOREIGN_KINDS = {"greeting", "task"}
"""Kinds of result that are such an extension's."""
FOREIGN_TASKS = ("tasks/", "notifications/tasks")
"""Those of an extension in the newest revision, and of the core in the one before."""
FOREIGN_FIELDS = {"SubscriptionFilter.taskIds"}
"""What an extension adds to an object of the core."""


def problems(
    revision: str, message: Any, *, direction: Direction, method: Answers = None
) -> list[str]:
    """All that is wrong with a message (bytes, or their JSON) of this revision, a line each; empty
    if it is right."""
    value = json.loads(message) if isinstance(message, bytes) else message
    if isinstance(value, list):
        if "JSONRPCBatchRequest" not in definitions(revision):
            return [f"{revision} has no batches"]
        return [
            problem
            for item in value
            for problem in problems(revision, item, direction=direction, method=method)
        ]
    if "method" in value:
        return _call(revision, value, direction)
    if "error" in value:
        return _failure(revision, value)
    return _result(revision, value, method)


def check_tape(tape: "Tape", revision: str) -> None:
    """Fail where any message of a recorded conversation is wrong in this revision. Without the
    schemas nothing fails."""
    if not PRESENT:
        return
    asked: dict[str, dict[Any, str]] = {"client": {}, "server": {}}
    found: list[str] = []
    for sender, data in tape.entries:
        side: Direction = "client" if sender == "client" else "server"
        value = json.loads(data)
        calls = [
            one
            for one in (value if isinstance(value, list) else [value])
            if "method" in one and "id" in one
        ]
        asked[side].update({call["id"]: call["method"] for call in calls})
        answers = asked["server" if side == "client" else "client"]
        found += [
            f"{side}: {one}\n  {data!r}"
            for one in problems(revision, value, direction=side, method=answers)
        ]
    assert not found, "\n".join([f"not as {revision} has it:", *found])


def flaws(revision: str, name: str, value: Any) -> list[str]:
    """All that is wrong with a value as this definition: what the schema forbids, then fields that
    it does not know."""
    return [*_invalid(revision, name, value), *_unknown(revision, _ref(name), value, name, name)]


def methods(revision: str, direction: Direction, kind: Kind) -> dict[str, str]:
    """What this side may send: the names of methods, and of their definitions."""
    return _methods(revision, direction.capitalize() + kind)


@cache
def declared(revision: str, place: str) -> frozenset[str]:
    """The fields that a revision has at a place: a definition, and the path from there
    (`CallToolRequest.params`)."""
    name, *path = place.split(".")
    schema = definitions(revision).get(name, {})
    for key in path:
        schema = _properties(revision, schema).get(key, {})
    branches = _branches(_resolve(revision, schema))
    return frozenset().union(*(_properties(revision, branch) for branch in branches))


def _call(revision: str, value: Schema, direction: Direction) -> list[str]:
    kind: Kind = "Request" if "id" in value else "Notification"
    if _foreign(revision, value["method"]):
        return _invalid(revision, f"JSONRPC{kind}", value)
    name = methods(revision, direction, kind).get(value["method"])
    if name is None:
        return [f"{revision} has no {kind.lower()} {value['method']!r} from the {direction}"]
    # The old definitions leave out what the envelope has: both must hold.
    found = [*_invalid(revision, f"JSONRPC{kind}", value), *_invalid(revision, name, value)]
    found += [
        f"{name}.{key} is unknown"
        for key in value
        if key not in ("jsonrpc", "id", "method", "params")
    ]
    # `_meta` belongs to the params of every message, whether their own definition repeats it or
    # not.
    own = declared(revision, f"{name}.params")
    params = {
        key: item for key, item in value.get("params", {}).items() if key != "_meta" or key in own
    }
    return found + _unknown(
        revision, _properties(revision, _ref(name)).get("params", {}), params, f"{name}.params"
    )


def _foreign(revision: str, method: str) -> bool:
    return method.startswith(FOREIGN) or (
        revision == REVISIONS[-1] and method.startswith(FOREIGN_TASKS)
    )


def _result(revision: str, value: Schema, method: Answers) -> list[str]:
    if method is None:
        raise ValueError("A result can only be judged by the method that it answers: pass method=")
    asked = method if isinstance(method, str) else method.get(value.get("id"))
    if asked is None:
        return [f"A result for id {value.get('id')!r}, under which nothing was asked"]
    result = value.get("result")
    envelope = (
        "JSONRPCResultResponse"
        if "JSONRPCResultResponse" in definitions(revision)
        else "JSONRPCResponse"
    )
    if _foreign(revision, asked) or (
        isinstance(result, dict) and result.get("resultType") in FOREIGN_KINDS
    ):
        return _invalid(revision, envelope, value)
    # By the schema alone, any result with a type would pass as a question.
    asking = isinstance(result, dict) and result.get("resultType") == "input_required"
    fitting = [
        name for name in _answers(revision, asked) if (name == "InputRequiredResult") == asking
    ]
    if not fitting:
        return [f"{revision} has no such answer to {asked!r}: {result!r}"]
    found = [
        f"{envelope}.{key} is unknown" for key in value if key not in ("jsonrpc", "id", "result")
    ]
    return [
        *_invalid(revision, envelope, value),
        *found,
        *min((flaws(revision, name, result) for name in fitting), key=len),
    ]


def _failure(revision: str, value: Schema) -> list[str]:
    envelope = (
        "JSONRPCErrorResponse"
        if "JSONRPCErrorResponse" in definitions(revision)
        else "JSONRPCError"
    )
    if value.get("id", "") is None and "id" in definitions(revision)[envelope]["required"]:
        value = value | {"id": 0}
    own = (
        _errors(revision).get(value["error"].get("code"))
        if isinstance(value["error"], dict)
        else None
    )
    return [*flaws(revision, envelope, value), *(_invalid(revision, own, value) if own else [])]


# The schemas, each loaded and compiled once.


@cache
def definitions(revision: str) -> Schema:
    """All definitions of a revision by name."""
    schema = _schema(revision)
    return schema[_home(schema)]  # type: ignore[no-any-return]


def _home(schema: Schema) -> str:
    return "$defs" if "$defs" in schema else "definitions"


@cache
def _schema(revision: str) -> Schema:
    if not PRESENT:
        pytest.skip(ABSENT)
    schema: Schema = _mended(json.loads((SPEC / revision / "schema.json").read_bytes()))
    if value := schema[_home(schema)].get("JSONValue"):
        value["anyOf"].append({"type": "null"})
    return schema


def _mended(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_mended(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == ["string", "integer", "boolean"]:
        return {"type": ["string", "number", "boolean"]}
    return {key: _mended(item) for key, item in schema.items()}


@cache
def _validator(revision: str, name: str) -> Any:
    schema = _schema(revision)
    home = _home(schema)
    whole = {
        "$schema": schema["$schema"],
        "allOf": [{"$ref": f"#/{home}/{name}"}],
        home: schema[home],
    }
    return jsonschema_rs.validator_for(whole, validate_formats=True)


def _invalid(revision: str, name: str, value: Any) -> list[str]:
    validator = _validator(revision, name)
    if validator.is_valid(value):
        return []
    return [
        f"{name}{''.join(f'[{part!r}]' for part in error.instance_path)}: {error.message}"
        for error in validator.iter_errors(value)
    ]


@cache
def _methods(revision: str, union: str) -> dict[str, str]:
    names = {
        _method_of(schema): name for name, schema in definitions(revision).items() if name != union
    }
    branches = _branches(definitions(revision).get(union, {"anyOf": []}))
    found = [_method_of(_resolve(revision, branch)) for branch in branches]
    return {method: names[method] for method in found if method}


def _method_of(schema: Schema) -> str | None:
    return schema.get("properties", {}).get("method", {}).get("const")  # type: ignore[no-any-return]


@cache
def _answers(revision: str, method: str) -> tuple[str, ...]:
    """The definitions that may answer a method."""
    names = definitions(revision)
    asked = next(
        (name for name in names if name.endswith("Request") and _method_of(names[name]) == method),
        None,
    )
    if asked is None:
        return ()
    base = asked.removesuffix("Request")
    if response := names.get(f"{base}ResultResponse"):
        return tuple(_name(branch) for branch in _branches(response["properties"]["result"]))
    plain = f"{base}Result" if f"{base}Result" in names else "EmptyResult"
    return (
        (plain, "CreateTaskResult") if "task" in declared(revision, f"{asked}.params") else (plain,)
    )


@cache
def _errors(revision: str) -> dict[Any, str]:
    """The codes of errors that have a definition of their own."""
    return {
        part["properties"]["code"]["const"]: name
        for name, schema in definitions(revision).items()
        for part in schema.get("properties", {}).get("error", {}).get("allOf", ())
        if "const" in part.get("properties", {}).get("code", {})
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _resolve(revision: str, schema: Schema) -> Schema:
    while name := _name(schema):
        schema = definitions(revision)[name]
    return schema


def _branches(schema: Schema) -> list[Schema]:
    return schema.get("anyOf", [schema])  # type: ignore[no-any-return]


def _properties(revision: str, schema: Schema) -> Schema:
    schema = _resolve(revision, schema)
    inherited = [_properties(revision, part) for part in schema.get("allOf", ())]
    return {
        key: item
        for part in (*inherited, schema.get("properties", {}))
        for key, item in part.items()
    }


# The walk that finds unknown fields. `place` names where the schema stands: a definition, and the
# path from there.


def _unknown(revision: str, schema: Schema, value: Any, where: str, place: str = "") -> list[str]:
    place = _name(schema) or place
    schema = _resolve(revision, schema)
    if place in ANYTHING:
        return []
    if "anyOf" in schema:
        fitting = [branch for branch in schema["anyOf"] if _fits(_resolve(revision, branch), value)]
        return min(
            (_unknown(revision, branch, value, where) for branch in fitting), key=len, default=[]
        )
    if isinstance(value, list):
        items = schema.get("items", {})
        return [
            found
            for n, item in enumerate(value)
            for found in _unknown(revision, items, item, f"{where}[{n}]")
        ]
    if not isinstance(value, dict):
        return []
    declared = _properties(revision, schema)
    others = schema.get("additionalProperties")
    found: list[str] = []
    for key, item in value.items():
        path = f"{where}.{key}"
        if key in declared:
            # The first revision writes its annotations out wherever they occur.
            inside = "Annotations" if key == "annotations" else f"{place}.{key}"
            found += (
                [] if key in JSON_SCHEMAS else _unknown(revision, declared[key], item, path, inside)
            )
        elif place.endswith(("._meta", "MetaObject")) or f"{place}.{key}" in FOREIGN_FIELDS:
            continue
        elif place.partition(".")[0] in OPEN:
            found += (
                [f"{path} is a field of another revision"]
                if key in _declared_by_any(place) - ANYWHERE
                else []
            )
        elif declared:
            found.append(f"{path} is unknown")
        elif isinstance(others, dict):
            found += _unknown(revision, others, item, path)
    return found


@cache
def _declared_by_any(place: str) -> frozenset[str]:
    return frozenset().union(*(declared(revision, place) for revision in REVISIONS))


def _fits(schema: Schema, value: Any) -> bool:
    """Whether a branch of a union is the one meant: by the kind of value, its required fields and
    its constants."""
    if isinstance(value, list) or schema.get("type") == "array":
        return isinstance(value, list) and schema.get("type") == "array"
    if not isinstance(value, dict):
        return schema.get("type") != "object"
    constants = {
        key: part["const"] for key, part in schema.get("properties", {}).items() if "const" in part
    }
    return value.keys() >= set(schema.get("required", ())) and all(
        value[key] == constant for key, constant in constants.items() if key in value
    )
