"""URI templates: the RFC's own examples, what matching gives back, and what it must never give
back."""

import string
import time

import pytest
from hypothesis import given, strategies as st

from dovetail.errors import SchemaError
from dovetail.protocol.uri_template import UriTemplate

# --------------------------------------------------------------------------------------------------
# expanding

# The variables and examples of RFC 6570, sections 1.2 and 3.2.
VALUES = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}
EXAMPLES = """
{var}                  value
{hello}                Hello%20World%21
{half}                 50%25
O{empty}X              OX
O{undef}X              OX
{x,y}                  1024,768
{x,hello,y}            1024,Hello%20World%21,768
?{x,empty}             ?1024,
?{x,undef}             ?1024
?{undef,y}             ?768
map?{x,y}              map?1024,768
{var:3}                val
{var:30}               value
{list}                 red,green,blue
{list*}                red,green,blue
{count}                one,two,three
{count*}               one,two,three
{keys}                 semi,%3B,dot,.,comma,%2C
{keys*}                semi=%3B,dot=.,comma=%2C
{base}index            http%3A%2F%2Fexample.com%2Fhome%2Findex

{+var}                 value
{+hello}               Hello%20World!
{+half}                50%25
{+base}index           http://example.com/home/index
O{+empty}X             OX
O{+undef}X             OX
{+path}/here           /foo/bar/here
{+path:6}/here         /foo/b/here
here?ref={+path}       here?ref=/foo/bar
up{+path}{var}/here    up/foo/barvalue/here
{+x,hello,y}           1024,Hello%20World!,768
{+path,x}/here         /foo/bar,1024/here
{+list}                red,green,blue
{+list*}               red,green,blue
{+keys}                semi,;,dot,.,comma,,
{+keys*}               semi=;,dot=.,comma=,

{#var}                 #value
{#hello}               #Hello%20World!
{#half}                #50%25
foo{#empty}            foo#
foo{#undef}            foo
{#x,hello,y}           #1024,Hello%20World!,768
{#path,x}/here         #/foo/bar,1024/here
{#path:6}/here         #/foo/b/here
{#list}                #red,green,blue
{#list*}               #red,green,blue
{#keys}                #semi,;,dot,.,comma,,
{#keys*}               #semi=;,dot=.,comma=,

{.who}                 .fred
{.who,who}             .fred.fred
{.half,who}            .50%25.fred
www{.dom*}             www.example.com
X{.var}                X.value
X{.var:3}              X.val
X{.empty}              X.
X{.undef}              X
X{.x,y}                X.1024.768
X{.list}               X.red,green,blue
X{.list*}              X.red.green.blue
X{.keys}               X.semi,%3B,dot,.,comma,%2C
X{.keys*}              X.semi=%3B.dot=..comma=%2C
X{.empty_keys}         X
X{.empty_keys*}        X

{/who}                 /fred
{/who,who}             /fred/fred
{/half,who}            /50%25/fred
{/who,dub}             /fred/me%2Ftoo
{/var}                 /value
{/var,empty}           /value/
{/var,undef}           /value
{/var,x}/here          /value/1024/here
{/var:1,var}           /v/value
{/list}                /red,green,blue
{/list*}               /red/green/blue
{/list*,path:4}        /red/green/blue/%2Ffoo
{/keys}                /semi,%3B,dot,.,comma,%2C
{/keys*}               /semi=%3B/dot=./comma=%2C

{;who}                 ;who=fred
{;half}                ;half=50%25
{;empty}               ;empty
{;v,empty,who}         ;v=6;empty;who=fred
{;v,bar,who}           ;v=6;who=fred
{;x,y}                 ;x=1024;y=768
{;x,y,empty}           ;x=1024;y=768;empty
{;x,y,undef}           ;x=1024;y=768
{;hello:5}             ;hello=Hello
{;list}                ;list=red,green,blue
{;list*}               ;list=red;list=green;list=blue
{;keys}                ;keys=semi,%3B,dot,.,comma,%2C
{;keys*}               ;semi=%3B;dot=.;comma=%2C

{?who}                 ?who=fred
{?half}                ?half=50%25
{?x,y}                 ?x=1024&y=768
{?x,y,empty}           ?x=1024&y=768&empty=
{?x,y,undef}           ?x=1024&y=768
{?var:3}               ?var=val
{?list}                ?list=red,green,blue
{?list*}               ?list=red&list=green&list=blue
{?keys}                ?keys=semi,%3B,dot,.,comma,%2C
{?keys*}               ?semi=%3B&dot=.&comma=%2C

{&who}                 &who=fred
{&half}                &half=50%25
?fixed=yes{&x}         ?fixed=yes&x=1024
{&x,y,empty}           &x=1024&y=768&empty=
{&x,y,undef}           &x=1024&y=768
{&var:3}               &var=val
{&list}                &list=red,green,blue
{&list*}               &list=red&list=green&list=blue
{&keys}                &keys=semi,%3B,dot,.,comma,%2C
{&keys*}               &semi=%3B&dot=.&comma=%2C
"""


@pytest.mark.parametrize("row", [row for row in EXAMPLES.splitlines() if row])
def test_expands_the_examples_of_the_rfc(row: str) -> None:
    template, uri = row.split()
    assert UriTemplate(template).expand(VALUES) == uri


def test_expands_keywords_numbers_and_booleans() -> None:
    assert (
        UriTemplate("/{id}{?deep,rate,none}").expand({"id": 1}, deep=True, rate=0.5, none=None)
        == "/1?deep=true&rate=0.5"
    )


def test_encodes_what_is_not_ascii_in_values_and_literals() -> None:
    assert UriTemplate("/größe/{ort}").expand(ort="Zürich") == "/gr%C3%B6%C3%9Fe/Z%C3%BCrich"


def test_reserved_expansion_keeps_triplets_and_never_cuts_one() -> None:
    assert UriTemplate("{+a}").expand(a="x%2Fy%") == "x%2Fy%25"
    assert UriTemplate("{+a:2}").expand(a="%2Fy%20") == "%2Fy"


def test_members_that_are_none_are_left_out() -> None:
    assert UriTemplate("{list}").expand(list=["a", None, "b"]) == "a,b"
    assert UriTemplate("{?keys*}").expand(keys={"a": None, "b": "1"}) == "?b=1"


def test_a_prefix_of_a_list_is_refused() -> None:
    with pytest.raises(SchemaError, match="list:3"):
        UriTemplate("{list:3}").expand(list=["a"])


def test_a_template_has_so_many_ways_to_be_read_and_no_more() -> None:
    began = time.process_time()
    assert UriTemplate("x" + "{#a}#" * 8).match("x" + "#" * 17) is None
    assert time.process_time() - began < 1
    with pytest.raises(SchemaError, match="more than 8 expressions with a dot, a slash or a hash"):
        UriTemplate("x" + "{#a}#" * 9)


def test_a_named_value_begins_behind_its_equals_sign_whatever_follows() -> None:
    template = UriTemplate("x://h{;a}{+b}")
    assert template.match("x://h;a=1/2") == {"a": "1", "b": "/2"}
    assert template.match("x://h;ab") == {"a": "", "b": "b"}


def test_half_a_character_stands_in_no_uri() -> None:
    template = UriTemplate("x://{a}")
    with pytest.raises(SchemaError, match="half of a surrogate pair"):
        template.expand(a="\ud800")
    with pytest.raises(SchemaError, match="half of a surrogate pair"):
        UriTemplate("x://\udfff/{a}")
    assert template.match("x://\ud800") is None


def test_a_value_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"'when'.*object"):
        UriTemplate("{when}").expand(when=object())


# --------------------------------------------------------------------------------------------------
# parsing


def test_variables_are_named_once_and_in_order() -> None:
    assert UriTemplate("{b}{/a*}{?b:3,c.d,%20x}").variables == ("b", "a", "c.d", "%20x")
    assert UriTemplate("plain://text").variables == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a/{id", 3),
        ("a/id}", 5),
        ("{a{b}}", 1),
        ("{}", 2),
        ("{+}", 3),
        ("{a,}", 4),
        ("{a,,b}", 4),
        ("{x, y}", 4),
        ("{user-id}", 2),
        ("{=path}", 2),
        ("{|x}", 2),
        ("{a:0}", 2),
        ("{a:10000}", 2),
        ("{a:x}", 2),
        ("{a:3*}", 2),
        ("{a*:3}", 2),
        ("{.a..b}", 3),
        ("{a.}", 2),
        ("{%4}", 2),
        ("a b{c}", 2),
        ("x%zz", 2),
        ("x\0", 2),
        ("x\\y", 2),
    ],
)
def test_a_malformed_template_is_refused_with_its_place(text: str, place: int) -> None:
    with pytest.raises(SchemaError, match=f"character {place}:"):
        UriTemplate(text)


def test_a_template_of_endless_variables_is_refused() -> None:
    UriTemplate("{a}" * 100)
    with pytest.raises(SchemaError, match="more than 100"):
        UriTemplate("{a}" * 100_000)


def test_an_expression_between_two_parts_of_the_query_is_refused() -> None:
    with pytest.raises(SchemaError, match="only literals"):
        UriTemplate("{?a}{b}{&c}")


# --------------------------------------------------------------------------------------------------
# matching


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("config://app", "config://app", {}),
        ("config://app", "config://apps", None),
        ("users://{id}/profile", "users://7/profile", {"id": "7"}),
        ("users://{id}/profile", "users:///profile", None),
        ("users://{id}/profile", "users://7/profile/", None),
        ("users://{id}/profile", "xusers://7/profile", None),
        ("users://{id}", "users://a/b", None),
        ("users://{id}", "users://a?b", None),
        ("users://{id}", "users://a#b", None),
        ("users://{mail}", "users://ann@example.com", {"mail": "ann@example.com"}),
        ("x://{a}", "x://Gr%C3%BC%C3%9Fe%20%26", {"a": "Grüße &"}),
        ("x://{a}", "x://Grüße &", {"a": "Grüße &"}),
        ("x://{a}", "x://50%25", {"a": "50%"}),
        ("x://{a}", "x://%2541", {"a": "%41"}),
        ("x://ä/{a}", "x://%c3%a4/1", {"a": "1"}),
        ("x://%c3%a4/{a}", "x://ä/1", {"a": "1"}),
        # each variable takes as little as it can, the pivot the rest
        ("{name}.{ext}", "archive.tar.gz", {"name": "archive.tar", "ext": "gz"}),
        ("{a}-{b}", "--b", {"a": "-", "b": "b"}),
        ("{a}{b}", "xyz", {"a": "xy", "b": "z"}),
        ("{a}2{b}", "%20x2%32", {"a": " x", "b": "2"}),
        ("{a,b}", "1,2", {"a": "1", "b": "2"}),
        ("{a,b}", "1", None),
        (
            "repo://{id}/files/{+path}",
            "repo://7/files/src/files/a.py",
            {"id": "7", "path": "src/files/a.py"},
        ),
        (
            "{+repo}/blob/{branch}/{file}",
            "a/blob/b/blob/c/d",
            {"repo": "a/blob/b", "branch": "c", "file": "d"},
        ),
        ("{+path}.{ext}", "a.d/b.txt", {"path": "a.d/b", "ext": "txt"}),
        ("{+url}", "https://x.y/z?q=1#f", {"url": "https://x.y/z?q=1#f"}),
        ("f:///{+path}", "f:///", None),
        ("f:///{+path}", "f:///a/..b/c..", {"path": "a/..b/c.."}),
        # optional parts
        ("x/{id}{/sub}", "x/5", {"id": "5"}),
        ("x/{id}{/sub}", "x/5/6", {"id": "5", "sub": "6"}),
        ("x{/a,b}", "x/1", {"a": "1"}),
        ("x{/a,b}", "x/1/2", {"a": "1", "b": "2"}),
        ("x{/a,b}", "x/1/2/3", None),
        ("{/lang}/docs/{+path}", "/docs/x/y", {"path": "x/y"}),
        ("{/lang}/docs/{+path}", "/en/docs/x/y", {"lang": "en", "path": "x/y"}),
        ("x{/segments*}", "x/a/b%20c", {"segments": ["a", "b c"]}),
        ("x{/segments*}", "x", {}),
        ("x{/segments*}", "x/a//b", None),
        ("x{/segments*}/end", "x/a/b/end", {"segments": ["a", "b"]}),
        ("{name}{.ext}", "a.tar.gz", {"name": "a.tar", "ext": "gz"}),
        ("{name}{.ext}", "README", {"name": "README"}),
        (
            "www{.dom*}{/path*}",
            "www.example.com/a/b",
            {"dom": ["example", "com"], "path": ["a", "b"]},
        ),
        ("{a}{.b}{c}", "x.yz", {"a": "x", "b": "y", "c": "z"}),
        ("{a}{.b}-{+c}", "x-y/z", {"a": "x", "c": "y/z"}),
        ("{list*}", "red,green", {"list": ["red", "green"]}),
        # path parameters
        ("a{;x,y}/b", "a;x=1;y=2/b", {"x": "1", "y": "2"}),
        ("a{;x,y}/b", "a;y/b", {"y": ""}),
        ("a{;x,y}/b", "a/b", {}),
        ("a{;x}", "a;xy=1", None),
        ("a{;x}", "a;x=1;z=2", None),
        ("a{;x*}", "a;x=1;x=2", {"x": ["1", "2"]}),
        ("{+path}{;v}", "a/b.json;v=2", {"path": "a/b.json", "v": "2"}),
        # the query
        ("s{?q,lang}", "s?lang=en&other=1&q=a%26b", {"q": "a&b", "lang": "en"}),
        ("s{?q,lang}", "s", {}),
        ("s{?q}", "s?q=", {"q": ""}),
        ("s{?q}", "s?q=1&q=2", None),
        ("s{?q*}", "s?q=1&q=2", {"q": ["1", "2"]}),
        ("s{?q}", "s?q=%00", None),
        ("s{?q}", "s?q=%FF", None),
        ("s{?q}", "t?q=1", None),
        ("s?f=1{&x}", "s?f=1&x=2", {"x": "2"}),
        ("s?f=1{&x}", "s?f=2&x=2", None),
        ("s?f={f}&g=1{&x}", "s?f=0&g=1", {"f": "0"}),
        ("s{?a}&k=1{&b}", "s?b=3&k=1&a=2", {"a": "2", "b": "3"}),
        ("s{?a}&k=1{&b}", "s?b=3&a=2", None),
        ("s{?q}&end=1", "s?q=2&end=1", {"q": "2"}),
        ("s{?q}&end=1", "s?q=2", None),
        # the fragment
        ("s{#part}", "s#a/b", {"part": "a/b"}),
        ("s{#part}", "s#", {"part": ""}),
        ("s{#part}", "s", {}),
        ("s{?q}{#part}", "s?q=1#x?y", {"q": "1", "part": "x?y"}),
        # prefixes, and one variable in two places
        ("{x:3}", "äöü", {"x": "äöü"}),
        ("{x:3}", "abcd", None),
        ("s{?x:3}", "s?x=abcd", None),
        ("{x:1}/{x}", "v/value", {"x": "value"}),
        ("{x:1}/{x}", "w/value", None),
        ("{x}/{x}", "a/a", {"x": "a"}),
        ("{x}/{x}", "a/b", None),
    ],
)
def test_matches(template: str, uri: str, values: dict[str, object] | None) -> None:
    found = UriTemplate(template).match(uri)
    assert found == values
    assert found is None or list(found) == [
        name for name in UriTemplate(template).variables if name in found
    ]


OF_A_SEGMENT = st.text(min_size=1, max_size=20).filter(
    lambda text: not any(bad in text for bad in ("/", "\\", "\0", "%")) and text not in (".", "..")
)


@given(OF_A_SEGMENT, OF_A_SEGMENT)
def test_what_was_expanded_matches_with_the_same_values(one: str, two: str) -> None:
    template = UriTemplate("users://{one}/posts/{two}/end")
    assert template.match(template.expand(one=one, two=two)) == {"one": one, "two": two}


OF_A_QUERY = st.dictionaries(
    st.sampled_from("xyz"), st.text().filter(lambda text: "\0" not in text)
)


@given(
    OF_A_SEGMENT,
    st.lists(OF_A_SEGMENT, min_size=1),
    OF_A_QUERY,
    OF_A_SEGMENT.filter(lambda text: "#" not in text),
)
def test_what_was_expanded_with_every_operator_matches_again(
    one: str, many: list[str], query: dict[str, str], part: str
) -> None:
    template = UriTemplate("s://{one}{/many*}{?x,y,z}{#part}")
    values = {"one": one, "many": many, **query, "part": part}
    assert template.match(template.expand(values)) == values


@given(
    st.text(alphabet=string.printable),
    st.sampled_from(["{a}/{b}", "{a}{.b}{/c*}{;d}{?e}{#f}", "{+a}x{b}", "{a:2}{b}"]),
)
def test_no_text_breaks_the_matcher(uri: str, template: str) -> None:
    found = UriTemplate(template).match(uri)
    assert found is None or isinstance(found, dict)


# --------------------------------------------------------------------------------------------------
# hostile

TRAVERSAL = [
    "..",
    "%2e%2e",
    ".%2E",
    "%252e%252e",
    "%25252e%25252e",
    "..%2fetc",
    "..%252fetc",
    "..%5cetc",
    "..\\etc",
    "..%255Cetc",
    "a%2f..%2fb",
    "a%00b",
    "a%2500b",
    "a\0b",
    "%c0%ae%c0%ae",
    "%25252525252e",
    "\ud800",
]


@pytest.mark.parametrize(
    "value", [*TRAVERSAL, ".", "%2e", "a%2fb", "a%252Fb", "a%5Cb", "%2fetc%2fpasswd"]
)
@pytest.mark.parametrize(
    "template", ["f://{name}", "f://{name}/x", "f://x{/name}", "f://x{/name*}", "f://x{;name}"]
)
def test_a_simple_variable_never_leaves_its_segment(template: str, value: str) -> None:
    uri = (
        template.replace("{name}", value)
        .replace("{/name}", f"/{value}")
        .replace("{/name*}", f"/a/{value}")
    )
    assert UriTemplate(template).match(uri.replace("{;name}", f";name={value}")) is None


@pytest.mark.parametrize("value", TRAVERSAL)
@pytest.mark.parametrize(
    "place", ["{}", "a/{}", "{}/b", "a/{}/b", "a%2f{}%2Fb", "a\\{}", "a%5c{}", "a%252f{}"]
)
def test_a_reserved_variable_never_walks_up(place: str, value: str) -> None:
    assert UriTemplate("f:///{+path}").match("f:///" + place.replace("{}", value)) is None
    assert UriTemplate("f:///x{#path}").match("f:///x#" + place.replace("{}", value)) is None


@pytest.mark.parametrize(
    "unit", ["-", "/", "a", ".", "%25", "%", "é", "/x/", "&a=", ";d=", "/-", "..%2f", "%2", "\0"]
)
@pytest.mark.parametrize(
    "template",
    [
        "{a}-{b}-{c}-{d}",
        "{+a}-{b}",
        "{+a}/x/{+b}/{c}",
        "{a}{.b}{/c*}{;d}{?e}{#f}",
        "x{/a*}/y/{b}",
        "{a}{b}{c}{d}",
    ],
)
def test_time_is_linear_in_the_uri(template: str, unit: str) -> None:
    compiled = UriTemplate(template)
    began = time.process_time()
    compiled.match((unit * 100_000)[:100_000] + "!/")
    # Some 0.1 s on a slow machine; a quadratic matcher needs minutes.
    assert time.process_time() - began < 5
