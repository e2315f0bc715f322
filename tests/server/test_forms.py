"""Forms: what may be asked, how it looks on the wire, what comes back."""

import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Meta, Struct

from dovetail.errors import ConfigError, InvalidParams, SchemaError
from dovetail.protocol.client_features import ElicitResult
from dovetail.server.context import Accepted, Cancelled, Declined, read_answer
from dovetail.server.forms import Form
from tests.spec import flaws, needs_spec


class Size(Enum):
    """How large it is."""

    SMALL = "s"
    LARGE = "l"


class Color(Enum):
    RED = "#FF0000"
    GREEN = "#00FF00"

    @property
    def label(self) -> str:
        return self.name.capitalize()


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Inner(Struct):
    street: str


def form_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def only(wanted: Any) -> Any:
    """The one field that a bare type is asked for by."""
    return Form.of(wanted).schema["properties"]["value"]


# --------------------------------------------------------------------------------------------------
# what is asked


class Person(Struct, rename="camel"):
    full_name: Annotated[
        str, Meta(title="Your name", description="As in your passport", min_length=1, max_length=50)
    ]
    age: Annotated[int, Meta(ge=18, le=120)]
    size: Size
    nickname: str | None
    height: float | None = None
    newsletter: bool = False
    colors: Annotated[list[Color], Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: [Color.RED]
    )
    born: date = date(2000, 1, 1)


def test_a_class_becomes_a_flat_form() -> None:
    options = [{"const": "#FF0000", "title": "Red"}, {"const": "#00FF00", "title": "Green"}]
    assert Form.of(Person).schema == {
        "type": "object",
        "properties": {
            "fullName": {
                "type": "string",
                "title": "Your name",
                "description": "As in your passport",
                "minLength": 1,
                "maxLength": 50,
            },
            "age": {"type": "integer", "minimum": 18, "maximum": 120},
            "size": {"description": "How large it is.", "type": "string", "enum": ["s", "l"]},
            "nickname": {"type": "string"},
            "height": {"type": "number"},
            "newsletter": {"type": "boolean", "default": False},
            "colors": {"type": "array", "items": {"anyOf": options}, "minItems": 1, "maxItems": 2},
            "born": {"type": "string", "format": "date", "default": "2000-01-01"},
        },
        "required": ["fullName", "age", "size"],
    }


def test_its_answer_is_of_the_class_with_what_was_left_empty_filled_in() -> None:
    told = {
        "fullName": "Ada",
        "age": 36.0,
        "size": "s",
        "height": None,
        "colors": ["#00FF00"],
        "more": "is ignored",
    }
    data = Form.of(Person).accept(told)
    assert data == Person("Ada", 36, Size.SMALL, None, colors=[Color.GREEN])
    assert type(data.age) is int


@dataclass
class AsDataclass:
    name: str
    size: Size = Size.LARGE


class AsTypedDict(TypedDict):
    name: str
    size: NotRequired[Annotated[Size, Meta(extra_json_schema={"default": "l"})]]


class AsNamedTuple(NamedTuple):
    name: str
    size: Size = Size.LARGE


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AsDataclass, AsDataclass("x")),
        (AsTypedDict, {"name": "x", "size": Size.LARGE}),
        (AsNamedTuple, AsNamedTuple("x")),
    ],
)
def test_every_kind_of_class_gives_the_same_form(wanted: Any, expected: Any) -> None:
    form = Form.of(wanted)
    size = {"description": "How large it is.", "type": "string", "enum": ["s", "l"], "default": "l"}
    assert form.schema == form_of(name={"type": "string"}, size=size) | {"required": ["name"]}
    assert form.accept({"name": "x"}) == expected


def test_a_model_may_list_titled_choices_itself() -> None:
    pydantic = pytest.importorskip("pydantic")
    items = {"anyOf": [{"const": "a", "title": "First"}]}

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        some: list[str] = pydantic.Field(json_schema_extra={"items": items})

    form = Form.of(Model)
    assert form.schema["properties"]["some"]["items"] == items
    assert form.accept({"some": ["a"]}) == Model(some=["a"])
    with pytest.raises(InvalidParams, match="some"):
        form.accept({"some": ["b"]})


def test_models_of_pydantic_and_attrs_are_classes_too() -> None:
    pydantic, attrs = pytest.importorskip("pydantic"), pytest.importorskip("attrs")

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        count: Annotated[int, pydantic.Field(gt=0)]
        color: Color | None = None
        sizes: list[Size] = [Size.SMALL]

        @pydantic.field_validator("count")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    @attrs.define
    class Attrs:
        count: int
        color: Color | None = None

    form = Form.of(Model)
    fields = form.schema["properties"]
    assert form.schema["required"] == ["count"]
    assert fields["count"] == {"title": "Count", "type": "integer", "minimum": 1}
    assert fields["color"]["oneOf"][0] == {"const": "#FF0000", "title": "Red"}
    assert fields["sizes"]["items"] == {"type": "string", "enum": ["s", "l"]}
    assert fields["sizes"]["default"] == ["s"]
    assert form.accept({"count": 2, "color": "#FF0000"}) == Model(count=2, color=Color.RED)
    with pytest.raises(InvalidParams, match="`count` must be an integer"):
        form.accept({"count": "2"})  # which pydantic alone would take
    with pytest.raises(InvalidParams, match="`count` is not valid: must be even"):
        form.accept({"count": 3})
    assert Form.of(Attrs).accept({"count": 2}) == Attrs(2)


@pytest.mark.parametrize(
    ("wanted", "field", "sent", "data"),
    [
        (bool, {"type": "boolean"}, True, True),
        (str, {"type": "string"}, "x", "x"),
        (int, {"type": "integer"}, 3, 3),
        (float, {"type": "number"}, 3, 3.0),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Literal["a"], {"type": "string", "enum": ["a"]}, "a", "a"),
        (
            set[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["b", "b"],
            {"b"},
        ),
        (
            datetime,
            {"type": "string", "format": "date-time"},
            "2026-07-28T12:00:00Z",
            datetime(2026, 7, 28, 12, tzinfo=UTC),
        ),
        (UUID, {"type": "string"}, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (Annotated[int, Meta(gt=0, lt=10)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
        (
            Annotated[str, Meta(pattern="^a", title="A")],
            {"type": "string", "title": "A"},
            "ab",
            "ab",
        ),
    ],
)
def test_a_bare_type_is_asked_for_as_one_value(
    wanted: Any, field: Any, sent: Any, data: Any
) -> None:
    form = Form.of(wanted)
    assert form.schema == form_of(value=field) | {"required": ["value"]}
    assert form.accept({"value": sent}) == data


def test_a_bare_type_that_may_be_none_may_be_left_empty() -> None:
    form = Form.of(int | None)
    assert form.schema == form_of(value={"type": "integer"})
    assert form.accept({}) is None
    assert form.accept({"value": 3}) == 3


def test_members_of_an_enum_are_shown_by_their_labels_if_all_have_one() -> None:
    class Partly(Enum):
        A = "a"
        B = "b"

        @property
        def label(self) -> str | None:
            return "The first" if self is Partly.A else None

    assert only(Color)["oneOf"] == [
        {"const": "#FF0000", "title": "Red"},
        {"const": "#00FF00", "title": "Green"},
    ]
    assert only(Partly) == {"type": "string", "enum": ["a", "b"]}


def test_none_asks_for_nothing_but_consent() -> None:
    form = Form.of(None)
    assert form.schema == form_of()
    assert form.accept(None) == {}


def test_a_default_that_the_form_itself_would_refuse_is_not_shown_but_holds() -> None:
    class Search(Struct):
        query: Annotated[str, Meta(min_length=3)] = ""

    form = Form.of(Search)
    assert form.schema == form_of(query={"type": "string", "minLength": 3})
    assert form.accept({}) == Search("")
    with pytest.raises(InvalidParams, match="`query` must be a string"):
        form.accept({"query": ""})


def test_a_type_is_compiled_once() -> None:
    assert Form.of(Person) is Form.of(Person)


def test_a_type_that_cannot_be_hashed_is_compiled_all_the_same() -> None:
    noted = Annotated[str, Meta(extra_json_schema={"format": "email"}), ["a note"]]
    assert only(noted) == {"type": "string", "format": "email"}


class Nested(Struct):
    name: str
    address: Inner


class FreeList(Struct):
    tags: list[str]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Nested, "address"),
        (FreeList, "tags"),
        (Inner | Nested, "value"),
        (dict[str, int], "value"),
        (int | str, "value"),
        (Level, "value"),
        (Literal[1, 2], "value"),
        (list[Level], "value"),
        (list[Color | Size], "value"),
        (bytes, "value"),
        (Any, "value"),
    ],
)
def test_what_no_form_can_ask_for_is_refused_by_its_name(wanted: Any, name: str) -> None:
    with pytest.raises(
        SchemaError,
        match=f"The field `{name}` cannot be part of a form: .*a field must be text, a number",
    ) as caught:
        Form.of(wanted)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------------------------------
# given schemas

EVERY_ENUM = form_of(
    untitledSingle={"type": "string", "enum": ["a", "b"], "default": "a"},
    titledSingle={
        "type": "string",
        "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
    },
    legacyEnum={"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    untitledMulti={
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b"]},
        "minItems": 1,
        "maxItems": 1,
    },
    titledMulti={
        "type": "array",
        "items": {"anyOf": [{"const": "a", "title": "A"}]},
        "default": ["a"],
    },
)


def test_a_schema_in_the_subset_is_sent_as_it_is() -> None:
    form = Form.of(EVERY_ENUM)
    assert form.schema == EVERY_ENUM
    assert form.accept({"legacyEnum": "b", "untitledMulti": ["b"]}) == {
        "untitledSingle": "a",
        "legacyEnum": "b",
        "untitledMulti": ["b"],
        "titledMulti": ["a"],
    }


def test_what_generators_write_around_the_fields_is_not_sent() -> None:
    form = Form.of(
        form_of() | {"title": "T", "additionalProperties": False, "$schema": "s", "required": []}
    )
    assert form.schema == {"type": "object", "properties": {}, "$schema": "s", "required": []}


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({}, "a field must be text"),
        (True, "its schema must be an object"),
        ({"type": "null"}, "a field must be text"),
        ({"type": ["string", "null"]}, "a field must be text"),
        ({"type": "object", "properties": {}}, "a field must be text"),
        ({"type": "array", "items": {"type": "string"}}, "a field must be text"),
        ({"type": "array", "items": True}, "a field must be text"),
        ({"type": "array", "items": {"enum": ["a"]}}, "items must be strings"),
        ({"type": "array", "items": {"type": "integer", "enum": ["a"]}}, "items must be strings"),
        ({"type": "string", "pattern": "a"}, "it cannot have pattern"),
        ({"type": "string", "enum": ["a"], "minLength": 1}, "it cannot have minLength"),
        ({"type": "string", "format": "uuid"}, '`format` must be one of "email"'),
        ({"type": "string", "minLength": -1}, "`minLength` must be an integer"),
        (
            {"type": "string", "minLength": 3, "maxLength": 2},
            "the minimum 3 is greater than the maximum 2",
        ),
        ({"type": "string", "title": 3}, "`title` must be a string"),
        ({"type": "string", "enum": []}, "`enum` must be an array"),
        ({"type": "string", "enum": [1]}, r"`enum\[0\]` must be a string"),
        (
            {"type": "string", "enum": ["a"], "enumNames": ["A", "B"]},
            "as many enumNames as enum values",
        ),
        ({"type": "string", "oneOf": [{"const": "a"}]}, "title` is missing"),
        ({"type": "integer", "minimum": "1"}, "`minimum` must be"),
        ({"type": "integer", "minimum": 2**70}, "cannot be used"),
    ],
)
def test_a_schema_outside_of_the_subset_is_refused_by_the_name_of_the_field(
    field: Any, why: str
) -> None:
    with pytest.raises(SchemaError, match=f"The field `it` cannot be part of a form: .*{why}"):
        Form.of(form_of(it=field))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": {}},
        {"type": "object"},
        {"type": "object", "properties": []},
        form_of() | {"required": ["a"]},
        form_of(a={"type": "string"}) | {"required": "a"},
        form_of(a={"type": "string"}) | {"required": [["a"]]},
        form_of() | {"anyOf": []},
    ],
)
def test_a_schema_that_is_no_form_at_all_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="form schema"):
        Form.of(schema)


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "default": 3},
        {"type": "string", "default": None},
        {"type": "string", "format": "email", "default": "nobody"},
        {"type": "string", "enum": ["a"], "default": "b"},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": "a"},
        {"type": "integer", "maximum": 3, "default": 4},
        {"type": "boolean", "default": 1},
    ],
)
def test_a_default_must_fit_its_field(field: Any) -> None:
    with pytest.raises(SchemaError, match="The default value of the field `it` is not valid"):
        Form.of(form_of(it=field))


# --------------------------------------------------------------------------------------------------
# answers


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ({"type": "string"}, 3),
        ({"type": "string", "minLength": 2}, "a"),
        ({"type": "string", "maxLength": 2}, "abc"),
        ({"type": "string", "format": "email"}, "nobody"),
        ({"type": "string", "format": "uri"}, "no uri"),
        ({"type": "string", "format": "date"}, "28.7.2026"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00"),
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True),
        ({"type": "integer", "minimum": 0.5}, 0),
        ({"type": "number"}, "1"),
        ({"type": "number", "maximum": 1}, 1.5),
        ({"type": "boolean"}, "true"),
        ({"type": "string", "enum": ["a"]}, "b"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "A"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, ["a", "b"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "minItems": 1}, []),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 1}, ["a", "a"]),
        ({"type": "string"}, {"nested": 1}),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_the_name_of_the_field(
    field: Any, wrong: Any
) -> None:
    with pytest.raises(
        InvalidParams, match=r"The answer does not match the form: `it(\[1\])?` must be"
    ) as caught:
        Form.of(form_of(it=field)).accept({"it": wrong})
    assert ", got " in str(caught.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidParams) as caught:
        Form.of(Person).accept({"age": 3, "size": "x"})
    assert [part.split()[0] for part in str(caught.value).partition(": ")[2].split("; ")] == [
        "`fullName`",
        "`age`",
        "`size`",
    ]


@pytest.mark.parametrize("content", ["yes", 3, ["a"], True])
def test_an_answer_must_be_an_object(content: Any) -> None:
    with pytest.raises(InvalidParams, match="answer to a form must be an object"):
        Form.of(None).accept(content)


def test_what_only_the_type_demands_is_checked_too() -> None:
    with pytest.raises(InvalidParams, match="matching \\^a"):
        Form.of(Annotated[str, Meta(pattern="^a")]).accept({"value": "b"})


def test_a_class_that_refuses_the_values_has_its_reason_told() -> None:
    @dataclass
    class Range:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise RuntimeError("low is above high")

    with pytest.raises(InvalidParams, match="low is above high"):
        Form.of(Range).accept({"low": 2, "high": 1})


def test_numbers_of_a_schema_stay_as_they_came() -> None:
    data = Form.of(form_of(age={"type": "number"})).accept({"age": 30})
    assert type(data["age"]) is int


def test_choices_may_be_typed_in_where_there_are_no_lists_of_choices() -> None:
    form = Form.of(list[Size])
    assert form.accept({"value": "s, l"}) == [Size.SMALL, Size.LARGE]
    assert form.accept({"value": " "}) == []
    with pytest.raises(InvalidParams, match="must be one of"):
        form.accept({"value": "s, m"})


def test_an_accepted_answer_is_true_and_has_data() -> None:
    accepted = read_answer(
        ElicitResult(action="accept", content={"value": False}), Form.of(bool).accept
    )
    assert accepted == Accepted(False)
    assert accepted


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refused_answer_is_false_whatever_it_carries(action: Any) -> None:
    refused = read_answer(
        ElicitResult(action=action, content={"value": "nonsense"}), Form.of(bool).accept
    )
    assert refused == (Declined() if action == "decline" else Cancelled())
    assert not refused


def test_an_answer_to_a_url_has_no_data() -> None:
    assert read_answer(ElicitResult(action="accept", content={"a": 1})) == Accepted(None)


# --------------------------------------------------------------------------------------------------
# secrets


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "db_password",
        "newPassword",
        "password2",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "client-secret",
        "credentials",
        "api_key",
        "apikey",
        "apiKey",
        "APIKey",
        "x.api.key",
        "token",
        "access_token",
        "authToken",
        "accesstoken",
        "github_token",
        "private_key",
        "ssh_key",
        "pin",
        "pin_code",
        "otp",
        "credit_card",
        "creditCardNumber",
        "card_number",
        "cvv",
        "ssn",
        "Your password, please",
        "API key for GitHub",
        "access_tokens",
        "recovery_code",
        "seed_phrase",
        "mfaCode",
        "security-code",
        "one_time_code",
    ],
)
def test_secrets_are_not_asked_for_by_form(name: str) -> None:
    with pytest.raises(ConfigError, match=r"looks like a secret .* Use ctx\.elicit_url") as caught:
        Form.of(form_of(**{name: {"type": "string"}}))
    assert f"`{name}`" in str(caught.value)
    with pytest.raises(ConfigError, match="`it`"):
        Form.of(form_of(it={"type": "string", "title": name}))


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "email",
        "username",
        "token_count",
        "max_tokens",
        "tokens",
        "token_limit",
        "secretary",
        "passenger",
        "shipping",
        "opinion",
        "spin",
        "key",
        "keyboard",
        "public_key",
        "card",
        "business_card",
        "passport",
        "compass",
        "password_length",
        "passwordHint",
        "credit_card_type",
        "api_key_name",
        "zip_code",
        "country_code",
        "access_token_count",
    ],
)
def test_what_only_sounds_like_a_secret_is_asked_for(name: str) -> None:
    assert name in Form.of(form_of(**{name: {"type": "string"}})).schema["properties"]


def test_yes_or_no_and_choices_are_no_secrets() -> None:
    form_fields = {"pin": {"type": "boolean"}, "token": {"type": "string", "enum": ["BTC", "ETH"]}}
    assert Form.of(form_of(**form_fields)).schema["properties"] == form_fields


def test_the_format_of_passwords_is_refused_whatever_the_field_is_called() -> None:
    with pytest.raises(ConfigError, match="The form field `it` looks like a password"):
        Form.of(form_of(it={"type": "string", "format": "password"}))
    with pytest.raises(ConfigError, match="looks like a password"):
        Form.of(Annotated[str, Meta(extra_json_schema={"format": "password"})])


def test_a_class_with_a_secret_is_refused_too() -> None:
    class Login(Struct):
        user: str
        password: str

    with pytest.raises(ConfigError, match="`password`"):
        Form.of(Login)


# --------------------------------------------------------------------------------------------------
# properties

WORDS = st.text("abcxyz ", min_size=1, max_size=8)
NAMES = st.from_regex(r"[a-f]{1,6}", fullmatch=True).map(lambda name: f"f_{name}")


@st.composite
def fields(draw: Any) -> tuple[dict[str, Any], Any]:
    """A field of any kind with any of its keywords, and an answer to it."""
    values = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    titled = [{"const": value, "title": value.upper()} for value in values]
    low, size = draw(st.integers(-9, 9)), draw(st.integers(0, 9))
    one = draw(st.sampled_from(values))
    some = draw(st.lists(st.sampled_from(values), max_size=3))
    count = {"minItems": len(some), "maxItems": len(some) + size}
    field, answer = draw(
        st.sampled_from(
            [
                ({"type": "string", "minLength": size, "maxLength": size + 3}, "x" * size),
                ({"type": "string", "format": "email"}, "ada@example.com"),
                ({"type": "string", "format": "uri"}, "https://example.com/a?b#c"),
                ({"type": "string", "format": "date"}, "2026-07-28"),
                ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00+02:00"),
                ({"type": "integer", "minimum": low, "maximum": low + size}, low),
                ({"type": "number", "minimum": low - 0.5, "maximum": low + size}, low - 0.25),
                ({"type": "boolean"}, bool(size % 2)),
                ({"type": "string", "enum": values}, one),
                ({"type": "string", "enum": values, "enumNames": [v.upper() for v in values]}, one),
                ({"type": "string", "oneOf": titled}, one),
                ({"type": "array", "items": {"type": "string", "enum": values}} | count, some),
                ({"type": "array", "items": {"anyOf": titled}} | count, some),
            ]
        )
    )
    optional = ["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"]
    dropped = draw(st.sets(st.sampled_from(optional)))
    extra = draw(
        st.fixed_dictionaries(
            {}, optional={"title": WORDS, "description": WORDS, "default": st.just(answer)}
        )
    )
    return {key: value for key, value in field.items() if key not in dropped} | extra, answer


FORMS = st.dictionaries(NAMES, fields(), max_size=5)


@needs_spec
@given(FORMS)
def test_every_form_is_one_by_the_official_schema_and_sent_as_given(drawn: dict[str, Any]) -> None:
    schema = form_of(**{name: field for name, (field, _) in drawn.items()}) | {
        "required": list(drawn)
    }
    assert Form.of(schema).schema == schema
    for revision in ("2025-11-25", "2026-07-28"):
        for field in schema["properties"].values():
            assert flaws(revision, "PrimitiveSchemaDefinition", field) == []


@given(FORMS, st.data())
def test_what_fits_comes_back_and_what_is_missing_is_its_default(
    drawn: dict[str, Any], data: Any
) -> None:
    form = Form.of(form_of(**{name: field for name, (field, _) in drawn.items()}))
    answers = {name: answer for name, (_, answer) in drawn.items()}
    assert form.accept(answers) == answers
    left_out = data.draw(st.sets(st.sampled_from(sorted(answers)))) if answers else set()
    expected = {
        name: answer
        for name, answer in answers.items()
        if name not in left_out or "default" in drawn[name][0]
    }
    assert (
        form.accept({name: answer for name, answer in answers.items() if name not in left_out})
        == expected
    )


def test_a_field_that_was_cleared_has_no_default() -> None:
    form = Form.of(
        form_of(phone={"type": "string", "default": "555"}, name={"type": "string"})
        | {"required": ["name"]}
    )
    assert form.accept({"name": "Ada"}) == {"name": "Ada", "phone": "555"}
    assert form.accept({"name": "Ada", "phone": None}) == {"name": "Ada"}
    with pytest.raises(InvalidParams, match="`name` is missing"):
        form.accept({"name": None})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(FORMS, JSON)
def test_no_answer_at_all_raises_anything_but_invalid_params(
    drawn: dict[str, Any], answer: Any
) -> None:
    form = Form.of(form_of(**{name: field for name, (field, _) in drawn.items()}))
    for content in (answer, dict.fromkeys(drawn, answer)):
        try:
            form.accept(content)
        except InvalidParams:
            pass


@needs_spec
@pytest.mark.parametrize(
    "wanted",
    [
        Person,
        AsDataclass,
        AsTypedDict,
        AsNamedTuple,
        bool,
        Size,
        Color,
        list[Color],
        set[Size],
        datetime,
        float | None,
    ],
)
def test_every_form_of_a_type_is_one_by_the_official_schema(wanted: Any) -> None:
    for field in Form.of(wanted).schema["properties"].values():
        assert flaws("2026-07-28", "PrimitiveSchemaDefinition", field) == []


def test_a_form_loads_no_library_of_models() -> None:
    import subprocess

    heavy = {"pydantic", "attrs", "jsonschema_rs", "asyncio"}
    code = f"import sys, dovetail.server.forms; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
