"""A Python function as what it takes."""

import functools
import inspect
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import jsonschema_rs
import msgspec
import pytest
from annotated_types import Ge
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field

from dovetail.errors import InvalidParams, SchemaError
from dovetail.server.signature import Signature, decode_object, read_docstring

T = TypeVar("T")


class Context(Generic[T]):
    pass


@dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, alias="years")


def forecast(city: str, days: int = 3) -> dict[str, float]:
    """Tell the weather."""
    return {city: float(days)}


def of(function: Any, **options: Any) -> Signature:
    return Signature(function, context_type=Context, **options)


def refused(function: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        of(function)
    return str(caught.value)


def problem(function: Any, arguments: bytes) -> str:
    with pytest.raises(InvalidParams) as caught:
        of(function).bind(arguments)
    return str(caught.value)


# --------------------------------------------------------------------------------------------------
# schemas


def test_a_function_has_the_schema_of_its_arguments() -> None:
    assert of(forecast).schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    assert of(lambda: 1).schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert of(lambda: 1).bind(b"{}") == ((), {})


def test_a_parameter_without_annotation_takes_anything() -> None:
    def anything(value, other: Any, third: object): ...

    assert of(anything).schema["properties"] == {"value": {}, "other": {}, "third": {}}
    assert of(anything).bind(b'{"value": 1, "other": [2], "third": null}') == ((1, [2], None), {})


def test_descriptions_come_from_annotations_first_and_then_from_the_docstring() -> None:
    def function(
        a: Annotated[int, "from the annotation"],
        b: int,
        c: Annotated[int, Field(description="from pydantic")],
    ):
        """Summary.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
        """

    signature = of(function)
    assert [one.description for one in signature.parameters] == [
        "from the annotation",
        "from the docstring",
        "from pydantic",
    ]
    described = [one["description"] for one in signature.schema["properties"].values()]
    assert described == [one.description for one in signature.parameters]
    assert signature.description == "Summary."


def test_definitions_of_all_parameters_are_shared_at_the_root() -> None:
    def move(
        start: Point, end: Point, person: Person, pair: tuple[Person, Person] | None = None
    ): ...

    schema = of(move).schema
    assert schema["properties"]["start"] == schema["properties"]["end"] == {"$ref": "#/$defs/Point"}
    assert set(schema["$defs"]) == {"Point", "Person"}
    validator = jsonschema_rs.Draft202012Validator(schema)
    point = {"x": 1}
    assert validator.is_valid({"start": point, "end": point, "person": {"name": "Ann", "years": 3}})
    assert not validator.is_valid(
        {"start": point, "end": {"x": "1"}, "person": {"name": "Ann", "years": 3}}
    )
    assert not validator.is_valid({"start": point, "end": point, "person": {"name": "Ann"}})


def test_defaults_show_in_the_schema_where_they_have_a_json_form() -> None:
    def function(a: Point = Point(1), b: Any = object, c: int | None = None): ...  # noqa: B008

    properties = of(function).schema["properties"]
    assert properties["a"]["default"] == {"x": 1, "y": 0}
    assert "default" not in properties["b"]
    assert properties["c"]["default"] is None
    assert "required" not in of(function).schema


def test_the_return_annotation_is_kept_as_it_was_written() -> None:
    def noted() -> Annotated[int, "how many"]: ...
    def nothing() -> None: ...
    def silent(): ...

    assert of(noted).returns == Annotated[int, "how many"]
    assert of(nothing).returns is type(None)
    assert of(silent).returns is Any


def test_a_parameter_keeps_its_annotation_with_all_notes() -> None:
    note = object()

    def function(region: Annotated[str, note]): ...

    assert of(function).parameters[0].annotation.__metadata__ == (note,)


# --------------------------------------------------------------------------------------------------
# binding


def test_arguments_are_bound_in_order_with_defaults_filled_in() -> None:
    assert of(forecast).bind(b'{"city": "Oslo"}') == (("Oslo", 3), {})
    assert of(forecast).bind(msgspec.Raw(b'{"days": 1, "city": "Oslo"}')) == (("Oslo", 1), {})


def test_a_default_is_the_very_object() -> None:
    items: list[int] = [1]
    point = Point(1)

    def function(a: list[int] = items, b: Point = point, c: list[int] = []): ...  # noqa: B006

    (a, b, c), _ = of(function).bind(b"{}")
    assert a is items
    assert b is point
    assert c is function.__defaults__[2]
    assert of(function).bind_values({})[0][0] is items


def test_a_model_may_be_a_default() -> None:
    ann = Person(name="Ann", years=3)

    def function(person: Person = ann): ...

    assert of(function).bind(b"{}")[0][0] is ann
    assert of(function).schema["properties"]["person"]["default"] == {"name": "Ann", "years": 3}


@pytest.mark.parametrize("raw", [b"", msgspec.Raw(), b"{}", b"null", b" {} "])
def test_no_arguments_at_all_are_an_empty_object(raw: Any) -> None:
    assert of(lambda a=1: a).bind(raw) == ((1,), {})


def test_parameters_may_be_called_anything() -> None:
    def function(
        self, type, id, schema, json, class_, name, function, cls, _private, __struct_fields__
    ): ...

    names = list(inspect.signature(function).parameters)
    arguments = dict(zip(names, range(len(names)), strict=True))
    assert of(function).bind(msgspec.json.encode(arguments)) == (tuple(range(len(names))), {})
    assert list(of(function).schema["properties"]) == names


def test_keyword_only_and_positional_only_parameters_are_passed_as_they_must_be() -> None:
    def function(a: int, /, b: int, *, c: int, d: int = 4):
        return a, b, c, d

    args, kwargs = of(function).bind(b'{"a": 1, "b": 2, "c": 3}')
    assert (args, kwargs) == ((1, 2), {"c": 3, "d": 4})
    assert function(*args, **kwargs) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        "Context",
        Context | None,
        "Context | None",
        Context[int],
        Annotated[Context, "note"],
    ],
    ids=str,
)
def test_the_context_is_given_and_is_no_argument(annotation: Any) -> None:
    def first(ctx, a: int): ...
    def last(a: int, ctx=None): ...
    def named(a: int, *, b: int = 2, ctx): ...

    context = Context[int]()
    for function in (first, last, named):
        function.__annotations__["ctx"] = annotation
        assert of(function).context == "ctx"
        assert list(of(function).schema["properties"])[:1] == ["a"]
        assert "ctx" not in of(function).schema["properties"]
    assert of(first).bind(b'{"a": 1}', context) == ((context, 1), {})
    assert of(last).bind(b'{"a": 1}', context) == ((1, context), {})
    assert of(named).bind(b'{"a": 1}', context) == ((1,), {"b": 2, "ctx": context})
    assert of(forecast).context is None


def test_a_context_imported_for_type_checkers_only_is_recognised() -> None:
    space: dict[str, Any] = {}
    exec("def function(ctx: 'Context', a: int): ...", space)
    assert of(space["function"]).context == "ctx"


def test_another_class_called_context_is_an_argument() -> None:
    space: dict[str, Any] = {"Context": int, "of": of}
    exec(
        "def make():\n    Local = str\n    def function(a: 'Context', b: 'Local'): ...\n    "
        "return of(function)",
        space,
    )
    signature = space["make"]()
    assert signature.context is None
    assert signature.schema["properties"]["a"] == {"type": "integer"}


def test_the_context_cannot_be_taken_twice() -> None:
    def function(one: Context, two: Context): ...

    assert refused(function) == "function has two context parameters, one and two; remove one"


def test_parameters_of_pydantic_are_decoded_by_pydantic() -> None:
    def function(
        person: Person, days: int = Field(3, ge=1, description="how many"), must: int = Field(gt=0)
    ): ...

    signature = of(function)
    assert signature.bind(b'{"person": {"name": "Ann", "years": 3}, "must": 1}') == (
        (Person(name="Ann", years=3), 3, 1),
        {},
    )
    assert signature.schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": "how many",
    }
    assert signature.schema["required"] == ["person", "must"]
    with pytest.raises(InvalidParams) as caught:
        signature.bind(b'{"person": {"years": -1}, "days": 0, "must": 1}')
    assert str(caught.value) == (
        "`person.name` is missing; `person.years` must be greater than or equal to 0, got -1; "
        "`days` must be greater than or equal to 1, got 0"
    )


def test_a_default_in_a_field_makes_its_parameter_optional() -> None:
    def function(
        must: Annotated[str, Field(description="what")],
        note: Annotated[str, Field(description="why", default="")],
        days: Annotated[int, Field(default=3, ge=1)],
        tags: Annotated[list[str], Field(default_factory=list)],
        last: Annotated[int, Field(default=1), Field(default=2)],
        own: Annotated[int, Field(default=1)] = 5,
        none: Annotated[str | None, Field(default=None)] = None,
    ): ...

    signature = of(function)
    assert signature.bind(b'{"must": "x"}') == (("x", "", 3, [], 2, 5, None), {})
    assert signature.bind_values({"must": "x", "days": "4"})[0][2] == 4
    schema = signature.schema
    assert schema["required"] == ["must"]
    assert schema["properties"]["note"] == {"type": "string", "description": "why", "default": ""}
    assert schema["properties"]["days"] == {"type": "integer", "minimum": 1, "default": 3}
    with pytest.raises(InvalidParams, match="`days` must be greater than or equal to 1"):
        signature.bind(b'{"must": "x", "days": 0}')


def test_values_that_are_strings_are_read_as_the_parameter_asks() -> None:
    def function(a: int, b: str, c: bool, d: list[int], e: Point, f: float | None = None): ...

    values = {"a": "3", "b": "3", "c": "true", "d": "[1]", "e": '{"x": 1}'}
    assert of(function).bind_values(values) == ((3, "3", True, [1], Point(1), None), {})
    with pytest.raises(InvalidParams, match="`a` must be an integer, got the string"):
        of(function).bind_values({**values, "a": "many"})


def test_a_number_in_a_text_is_preferred_to_the_text() -> None:
    def function(a: int | Literal["x"]): ...

    assert of(function).bind_values({"a": "3"}) == ((3,), {})


def test_values_are_bound_with_the_context() -> None:
    def function(a: int, ctx: Context): ...

    assert of(function).bind_values({"a": "1"}, "the context") == ((1, "the context"), {})


def test_a_free_function_is_passed_what_was_checked_elsewhere() -> None:
    def function(a: complex, /, ctx: Context, *args: int, **rest: Any): ...

    signature = of(function, free=True)
    assert signature.pass_on({"a": 1, "b": 2}, "the context") == (
        (1,),
        {"b": 2, "ctx": "the context"},
    )
    assert of(forecast, free=True).pass_on({"city": 3}) == ((), {"city": 3})


# -------------------------------------------------------------------------------------------------
# problems and repairs


def test_all_problems_are_told_at_once() -> None:
    assert problem(forecast, b'{"days": "three", "town": "Oslo"}') == (
        '`city` is missing; `days` must be an integer, got the string "three"; '
        "`town` is not an argument of forecast: it accepts city, days"
    )


def test_a_function_without_parameters_says_so() -> None:
    assert problem(lambda: 1, b'{"a": 1}') == "`a` is not an argument of <lambda>: it accepts none"


def test_the_name_told_is_the_name_given() -> None:
    with pytest.raises(InvalidParams, match="`a` is not an argument of weather"):
        of(forecast, name="weather").bind(b'{"city": "Oslo", "a": 1}')


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[1]", "The arguments of forecast must be an object, got an array of 1 items"),
        (b"3", "The arguments of forecast must be an object, got 3"),
        (b'"city"', 'The arguments of forecast must be an object, got the string "city"'),
        (b'"{}"', 'The arguments of forecast must be an object, got the string "{}"'),
        (b"{", "The arguments of forecast are not valid JSON: "),
        (b'{"city": "\xff"}', "The arguments of forecast are not valid JSON: "),
        (b'{"city": ' + b"[" * 100_000, "The arguments of forecast are not valid JSON: "),
    ],
)
def test_arguments_that_are_no_object_are_refused(raw: bytes, words: str) -> None:
    assert problem(forecast, raw).startswith(words)
    with pytest.raises(InvalidParams):
        decode_object(raw, "forecast")


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (int, "3", 3),
        (int, 3.0, 3),
        (float, "1.5", 1.5),
        (bool, "true", True),
        (bool, "False", False),
        (Point, '{"x": 1}', Point(1)),
        (Point, {"x": 1.0}, Point(1)),
        (int | None, "null", None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Person, '{"name": "Ann", "years": 3}', Person(name="Ann", years=3)),
        (Annotated[int, Ge(1)], "3", 3),
    ],
    ids=str,
)
def test_json_in_a_string_is_repaired_where_the_type_cannot_be_a_string(
    annotation: Any, sent: Any, value: Any
) -> None:
    def function(a): ...

    function.__annotations__["a"] = annotation
    assert of(function).bind(msgspec.json.encode({"a": sent})) == ((value,), {})


class Line(msgspec.Struct):
    item: str
    count: int
    gift: bool = False


class Order(msgspec.Struct):
    lines: list[Line]
    notes: dict[str, int] = {}
    first: Line | None = None


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        (list[int], ["1", 2], [1, 2]),
        (list[int], '[1, "2"]', [1, 2]),
        (dict[str, list[float]], {"a": ["1.5"]}, {"a": [1.5]}),
        (dict[str, list[float]], {"a": "[1.5]"}, {"a": [1.5]}),
        (tuple[str, int], ["1", "2"], ("1", 2)),
        (Point, {"x": "1"}, Point(1)),
        (list[Point], [{"x": "1"}, '{"x": 2}'], [Point(1), Point(2)]),
        (
            Order,
            {"lines": [{"item": "3", "count": "3", "gift": "True"}], "notes": {"a": "1"}},
            Order([Line("3", 3, True)], {"a": 1}),
        ),
        (
            Order,
            {"lines": '[{"item": "3", "count": "3.0"}]', "first": {"item": "1", "count": "1"}},
            Order([Line("3", 3)], {}, Line("1", 1)),
        ),
        (int | list[int], ["3"], [3]),
        (str | list[int], ["3"], [3]),
    ],
    ids=str,
)
def test_a_string_is_repaired_at_every_depth(annotation: Any, sent: Any, value: Any) -> None:
    def function(a): ...

    function.__annotations__["a"] = annotation
    assert of(function).bind(msgspec.json.encode({"a": sent})) == ((value,), {})


@pytest.mark.parametrize(
    ("annotation", "sent", "words"),
    [
        (list[int], ["1", "x"], "`a[0]` must be an integer"),
        (list[int | Literal["all"]], ["3", 4.5], "`a[0]` must be an integer"),
        (Order, {"lines": [{"item": "x", "count": "many"}]}, "`a.lines[0].count` must be an int"),
    ],
    ids=str,
)
def test_what_cannot_be_repaired_is_reported_as_it_was_sent(
    annotation: Any, sent: Any, words: str
) -> None:
    def function(a): ...

    function.__annotations__["a"] = annotation
    assert words in problem(function, msgspec.json.encode({"a": sent}))


@pytest.mark.parametrize("annotation", [str, Any, str | int, str | list[int], str | None], ids=str)
@pytest.mark.parametrize("sent", ["3", "[1, 2]", "null", "true"])
def test_a_string_stays_a_string_where_the_type_can_be_one(annotation: Any, sent: str) -> None:
    def function(a, b: int): ...

    function.__annotations__["a"] = annotation
    arguments = msgspec.json.encode({"a": sent, "b": "1"})  # the other one has to be repaired
    assert of(function).bind(arguments) == ((sent, 1), {})


def test_a_string_is_no_number_where_the_type_can_be_another_string() -> None:
    def function(a: int | Literal["all"]): ...

    assert problem(function, b'{"a": "3"}') == '`a` must be an integer or "all", got the string "3"'


def test_null_is_taken_only_where_the_type_allows_it() -> None:
    def function(a: int = None, b: int | None = 3): ...  # type: ignore[assignment]  # noqa: RUF013

    assert of(function).bind(b'{"b": null}') == ((None, None), {})
    assert problem(function, b'{"a": null}') == "`a` must be an integer, got null"


def test_whatever_a_class_raises_is_a_problem_of_its_argument() -> None:
    @dataclass
    class Fussy:
        number: int

        def __post_init__(self) -> None:
            raise (KeyError if self.number else AssertionError)("no such number")

    def function(good: int, bad: Fussy): ...

    assert (
        problem(function, b'{"good": "1", "bad": {"number": 0}}')
        == "`bad` is not valid: no such number"
    )
    assert (
        problem(function, b'{"good": 1, "bad": {"number": 1}}')
        == "`bad` is not valid: 'no such number'"
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["a", "b", "c", "x"]) | st.text(), inner)
        ),
    )
)
def test_whatever_is_sent_either_binds_or_is_an_argument_error(value: Any) -> None:
    def function(a: int, b: list[Point | str] = [], c: Person | None = None): ...  # noqa: B006

    signature = SIGNATURES.setdefault("function", of(function))
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return
    try:
        args, _ = signature.bind(raw)
    except InvalidParams as error:
        assert str(error)
    else:
        assert type(args[0]) is int


SIGNATURES: dict[str, Signature] = {}


# --------------------------------------------------------------------------------------------------
# kinds of functions


class Service:
    """A service."""

    def method(self, a: int) -> int:
        """A method."""
        return a

    @classmethod
    def of_class(cls, a: int) -> int:
        return a

    @staticmethod
    async def static(a: int) -> int:
        return a

    async def __call__(self, a: int) -> int:
        return a


async def asynchronous(a: int) -> int:
    return a


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "name", "is_async", "description"),
    [
        (Service().method, "method", False, "A method."),
        (Service.of_class, "of_class", False, None),
        (Service.static, "static", True, None),
        (Service.__dict__["static"], "static", True, None),
        (Service(), "Service", True, "A service."),
        (asynchronous, "asynchronous", True, None),
        (functools.partial(asynchronous), "asynchronous", True, None),
        (functools.partial(functools.partial(Service())), "Service", True, "A service."),
        (functools.lru_cache(Service().method), "method", False, "A method."),
        (logged(asynchronous), "asynchronous", False, None),
    ],
)
def test_anything_that_can_be_called_can_be_compiled(
    function: Any, name: str, is_async: bool, description: str | None
) -> None:
    signature = of(function)
    assert signature.function is function
    assert (signature.name, signature.is_async, signature.description) == (
        name,
        is_async,
        description,
    )
    assert signature.bind(b'{"a": 1}') == ((1,), {})
    assert signature.returns is int


def test_what_a_partial_has_bound_is_settled() -> None:
    def function(key: str, a: int, b: int = 2, *, c: int = 3):
        return key, a, b, c

    bound = functools.partial(function, "secret", b=5)
    signature = of(bound)
    assert list(signature.schema["properties"]) == ["a", "c"]
    args, kwargs = signature.bind(b'{"a": 1}')
    assert bound(*args, **kwargs) == ("secret", 1, 5, 3)
    assert of(functools.partial(function, key="secret")).bind(b'{"a": 1}') == (
        (),
        {"a": 1, "b": 2, "c": 3},
    )


def test_starred_parameters_are_refused_with_advice() -> None:
    def args(*numbers: int): ...
    def kwargs(a: int, **options: Any): ...

    assert "cannot have *numbers" in refused(args)
    assert "write `numbers: list[Any]`" in refused(args)
    assert "write `options: dict[str, Any]`" in refused(kwargs)


def test_a_type_that_cannot_be_used_is_refused_with_its_parameter() -> None:
    def function(a: int, b: list[complex]): ...

    assert refused(function).startswith(
        "function cannot have the parameter b: complex cannot be converted to JSON"
    )


@pytest.mark.parametrize("function", [3, int])
def test_what_cannot_be_called_or_read_is_refused(function: Any) -> None:
    assert "parameters cannot be read" in refused(function)


def test_a_builtin_without_annotations_takes_anything() -> None:
    assert of(len).schema["properties"] == {"obj": {}}


def test_a_name_that_is_not_defined_is_told() -> None:
    def function(a: "Nowhere"): ...  # noqa: F821

    assert "Nowhere" in refused(function)
    function.__annotations__["a"] = "not a type"
    assert "has an annotation that is not a type" in refused(function)


def test_annotations_in_strings_may_name_local_classes() -> None:
    @dataclass
    class Local:
        x: int

    def function(a: "Annotated[Local, 'described']", b: "list[Local]") -> "Local": ...

    assert of(function).bind(b'{"a": {"x": 1}, "b": []}') == ((Local(1), []), {})
    assert of(function).parameters[0].description == "described"
    assert of(function).returns is Local


def test_annotations_in_strings_may_name_what_the_function_closes_over() -> None:
    def make() -> Any:
        @dataclass
        class Local:
            x: int

        def function(a: "Local"):
            return Local, later

        early = of(function)
        later = early
        return function, early

    function, early = make()
    assert early.bind(b'{"a": {"x": 1}}')[0][0].x == 1
    assert (
        of(function).bind(b'{"a": {"x": 1}}')[0][0].x == 1
    )  # make() has returned: only the closure knows


def test_a_class_can_be_compiled_by_its_constructor() -> None:
    signature = of(Point)
    assert signature.bind(b'{"x": 1}') == ((1, 0), {})


# --------------------------------------------------------------------------------------------------
# docstrings


@pytest.mark.parametrize(
    "docstring",
    [
        """Tell the weather.

        For any city.

        Args:
            city (str): The city, or
                the nearest one:
                anywhere.
            days (int, optional): How many days.
            *others: More.

        Returns:
            The forecast.
        """,
        """Tell the weather.

        For any city.

        Parameters
        ----------
        city : str
            The city, or
            the nearest one: anywhere.
        days : int, optional
            How many days.
        *others
            More.

        Returns:
            The forecast.
        """,
        """Tell the weather.

        For any city.

        :param city: The city, or
            the nearest one: anywhere.
        :type city: str
        :param int days: How many days.
        :param others: More.

        Returns:
            The forecast.
        """,
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstrings_of_three_styles_are_read(docstring: str) -> None:
    description, about = read_docstring(docstring)
    expected = {
        "city": "The city, or the nearest one: anywhere.",
        "days": "How many days.",
        "others": "More.",
    }
    if "---" in docstring:  # its sections end at the next ruled heading
        docstring = docstring.replace("Returns:\n", "Returns\n        -------\n")
        description, about = read_docstring(docstring)
        assert (
            description
            == "Tell the weather.\n\nFor any city.\n\nReturns\n-------\n    The forecast."
        )
    else:
        assert description == "Tell the weather.\n\nFor any city.\n\nReturns:\n    The forecast."
    assert about == expected


def test_several_names_may_share_a_description() -> None:
    _, about = read_docstring("Add.\n\nParameters\n----------\na, b : int\n    A number.\n")
    assert about == {"a": "A number.", "b": "A number."}


def test_a_docstring_without_sections_is_all_description() -> None:
    assert read_docstring("Args are fun.\n\nSee Args: below.") == (
        "Args are fun.\n\nSee Args: below.",
        {},
    )
    assert read_docstring("Some\n\nParameters") == ("Some\n\nParameters", {})
    assert read_docstring(None) == (None, {})
    assert read_docstring("\nArgs:\n    a: only this") == (None, {"a": "only this"})
    assert read_docstring("\nArgs:\n\n    none of them is like this") == (None, {})


# --------------------------------------------------------------------------------------------------
# weight


def test_nothing_is_looked_up_while_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = of(forecast)
    for module, name in ((inspect, "signature"), (typing, "get_type_hints")):
        monkeypatch.delattr(module, name)
    monkeypatch.setattr(Signature, "_convert", None)
    assert signature.bind(b'{"city": "Oslo"}') == (("Oslo", 3), {})
