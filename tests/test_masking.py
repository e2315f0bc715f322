"""What is a secret, and what is left of a text, a URL, a header or a message without it."""

import json
import time
from typing import Any

import pytest

from dovetail.masking import (
    KEY_WORDS,
    SECRET_WORDS,
    is_secret_name,
    is_secret_parameter,
    mask_arguments,
    mask_body,
    mask_env,
    mask_headers,
    mask_message,
    mask_text,
    mask_url,
)

JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
SECRETS = ["password", "apiKey", "API_KEY", "x-api-key", "access_token", "refreshToken", "token"]
SECRETS += ["client_secret", "GITHUB_PAT", "Authorization", "privateKey", "token2", "DB_PASSWORD"]
ORDINARY = ["progressToken", "maxTokens", "max_tokens", "token_endpoint", "tokenCount", "key", "id"]
ORDINARY += ["code", "nextPageToken", "author", "keyboard", "secretary", "passing", "", "ключ", "_"]


@pytest.mark.parametrize("name", SECRETS)
def test_these_names_are_secrets_everywhere(name: str) -> None:
    assert is_secret_name(name) and is_secret_parameter(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_these_names_are_not_secrets_in_messages(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["code", "key", "sig", "X-Amz-Signature", "code_verifier", "sid"])
def test_these_names_are_secrets_in_urls(name: str) -> None:
    assert is_secret_parameter(name)


@pytest.mark.parametrize(
    "name",
    [
        "state",
        "code_challenge",
        "client_id",
        "Idempotency-Key",
        "Sec-WebSocket-Key",
        "country_code",
    ],
)
def test_these_names_are_not_secrets_in_urls(name: str) -> None:
    assert not is_secret_parameter(name)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("Authorization", "Bearer abc", "Bearer ***"),
        ("authorization", "abcdefgh", "***"),
        ("authorization", " Basic YWJj ", "Basic ***"),
        ("Proxy-Authorization", "Basic YWJj", "Basic ***"),
        ("Cookie", "a=1; b=2", "a=***; b=***"),
        ("Set-Cookie", "a=1; Path=/", "a=***"),
        ("X-Api-Key", "abc", "***"),
        ("Ocp-Apim-Subscription-Key", "abc", "***"),
        ("DPoP", "abc", "***"),
        ("Mcp-Session-Id", "abc", "***"),
        ("Mcp-Param-Token", "abc", "***"),
        ("Location", "https://a.example/?code=1&state=2", "https://a.example/?code=***&state=2"),
        ("WWW-Authenticate", 'Bearer error="x", scope="a"', 'Bearer error="x", scope="a"'),
        ("Content-Type", "application/json", "application/json"),
        ("Mcp-Name", "get_token", "get_token"),
        ("X-Note", f"uses {JWT}", "uses ***"),
    ],
)
def test_headers(name: str, value: str, shown: str) -> None:
    assert mask_headers({name: value}) == {name: shown}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/mcp?q=1#x", "https://a.example/mcp?q=1#x"),
        ("https://ada:pw@a.example/mcp", "https://***@a.example/mcp"),
        ("https://a@b@a.example/", "https://***@a.example/"),
        ("https://a.example/?api_key=1&q=2", "https://a.example/?api_key=***&q=2"),
        ("https://a.example/?api%5Fkey=1", "https://a.example/?api%5Fkey=***"),
        ("https://a.example/?q=1;token=2", "https://a.example/?q=1;token=***"),
        ("https://a.example/#access_token=1&x=2", "https://a.example/#access_token=***&x=2"),
        ("https://a.example/?token=", "https://a.example/?token="),
        (f"https://a.example/{JWT}/mcp", "https://a.example/***/mcp"),
        ("not a url", "not a url"),
        ("", ""),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["uvx", "weather", "--verbose"], ["uvx", "weather", "--verbose"]),
        (["--token=x"], ["--token=***"]),
        (["--api-key", "x", "y"], ["--api-key", "***", "y"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["docker", "-e", "API_KEY=x"], ["docker", "-e", "API_KEY=***"]),
        (["--env=API_KEY=x"], ["--env=API_KEY=***"]),
        (["--env=HOME=/x"], ["--env=HOME=/x"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "Authorization: Bearer ***"]),
        (["--header", "X-Api-Key: abc"], ["--header", "X-Api-Key: ***"]),
        (["curl", "-u", "ada:pw"], ["curl", "-u", "ada:***"]),
        (["https://a:b@c.example/?key=1"], ["https://***@c.example/?key=***"]),
        (["sk-ant-abcdefghijklmnopqrst"], ["***"]),
        (["x=ghp_abcdefghijklmnopqrst"], ["x=***"]),
        (["0123456789abcdef0123456789abcdef"], ["***"]),
        (["/srv/data-2024-01-02/very-long-name-of-a-folder-1234567"],) * 2,
        (["@modelcontextprotocol/server-filesystem@1.2.3", "C:\\data"],) * 2,
    ],
)
def test_arguments(arguments: list[str], shown: list[str]) -> None:
    assert mask_arguments(arguments) == shown


def test_every_value_of_the_environment_is_masked() -> None:
    assert mask_env({"HOME": "/root", "TOKEN": "x"}) == {"HOME": "***", "TOKEN": "***"}


@pytest.mark.parametrize(
    "text",
    [
        JWT,
        "sk-proj-abcdefghijklmnopqrst",
        "ghp_abcdefghijklmnopqrst",
        "github_pat_abcdefghijklmnopqrst",
        "xoxb-12345678901",
        "AKIAABCDEFGHIJKLMNOP",
        "ASIAABCDEFGHIJKLMNOP",
        "AIza" + "a" * 35,
        *(f"{one}_abcdefghijklmnopqrst" for one in ("sk", "pk", "rk", "gho", "ghu", "ghs", "ghr")),
        *(f"{one}_abcdefghijklmnopqrst" for one in ("npm", "hf", "dop_v1", "shpat")),
        *(f"{one}-abcdefghijklmnopqrst" for one in ("pk", "rk", "glpat", "pypi")),
        "ya29.abcdefghijklmnopqrst",
    ],
)
def test_shapes(text: str) -> None:
    assert mask_text(f"the key {text}, here") == "the key ***, here"
    assert mask_text(f"Bearer {text}") == "Bearer ***"
    assert mask_message(json.dumps({"text": f"a {text} b"}).encode()) == b'{"text": "a *** b"}'


@pytest.mark.parametrize("text", ["task-force-of-many-people-here", "risk_abcdefghijklmnopqrstu"])
def test_words_that_only_contain_a_shape_are_kept(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"password" : "x" ,"a":1}', b'{"password" : "***" ,"a":1}'),
        (b'{"password":1234,"a":1}', b'{"password":"***","a":1}'),
        (b'{"token":12345678901234567890,"a":1.0}', None),
        (b'{"_meta":{"progressToken":"abc"}}', None),
        (
            b'{"_meta":{"progressToken":"abc"},"token":"x"}',
            b'{"_meta":{"progressToken":"abc"},"token":"***"}',
        ),
        (b'{"inProgressToken":"x"}', None),
        (b'{"myProgressionToken":"x"}', b'{"myProgressionToken":"***"}'),
        (b'{"properties":{"token":{"type":"string"}},"required":["token"]}', None),
        (b'{"name":"token","value":"x"}', None),
        (b'{"token":"","b":"c"}', None),
        (b'{"token":null,"b":"c"}', None),
        (b'{"token":["a"],"b":"c"}', None),
        (b'{"pass\\u0077ord":"x"}', b'{"pass\\u0077ord":"***"}'),
        (b'{"token":"a\\"b\\\\","c":"d"}', b'{"token":"***","c":"d"}'),
        (
            b'{"text":"{\\"access_token\\": \\"abc\\", \\"n\\": 1}"}',
            b'{"text":"{\\"access_token\\": \\"***\\", \\"n\\": 1}"}',
        ),
        (
            b'{"text":"{\\n \\"token\\":\\"a\\\\\\"b\\"}"}',
            b'{"text":"{\\n \\"token\\":\\"***\\"}"}',
        ),
        (b'{"token":"cut off', b'{"token":"***"'),
        (b'{"token":"\xff\xfe"}', b'{"token":"***"}'),
        (b'\xff"token":"x"', b'\xff"token":"***"'),
        (b"", None),
        (b'"', None),
        (b'"\\', None),
        (b'[{"token":"x"},{"token":"y"}]', b'[{"token":"***"},{"token":"***"}]'),
        (b'{"headers":{"Authorization":"Bearer x"}}', b'{"headers":{"Authorization":"***"}}'),
    ],
)
def test_messages(data: bytes, shown: bytes | None) -> None:
    assert mask_message(data) == (data if shown is None else shown)


NAMES = [*SECRET_WORDS, *(f"{word}Key" for word in KEY_WORDS)]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_of_a_secret_is_masked_in_messages_and_in_text_of_messages(name: str) -> None:
    inner = json.dumps({name: "hunter2"})
    assert mask_message(inner.encode()) == inner.replace("hunter2", "***").encode()
    outer = json.dumps({"text": inner})
    assert mask_message(outer.encode()) == outer.replace("hunter2", "***").encode()


CHALLENGES = [
    'Bearer resource_metadata="https://a.example/x"',
    'Bearer error_description="no", scope="a"',
    "Bearer resource_metadata=https://a.example/x",
]


@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "DPoP"])
@pytest.mark.parametrize(
    "token", ["abcdef123456", "abcdef", "dXNlcjpwYXNz", "YWJjZGU=", "YWJjZA==", "a.b~c+d/e-f"]
)
@pytest.mark.parametrize("after", ["", " ", ", then", "\n", '"', ")", "; x"])
def test_a_token_after_its_scheme_is_masked_wherever_the_text_ends(
    scheme: str, token: str, after: str
) -> None:
    text, shown = f"Authorization: {scheme} {token}{after}", f"Authorization: {scheme} ***{after}"
    assert mask_text(text) == shown
    for wrap in (
        lambda text: {"text": text},
        lambda text: [text, "next"],
        lambda text: {"text": json.dumps({"a": text})},
        lambda text: {"text": json.dumps([text, 1])},
    ):
        for separators in ((",", ":"), (", ", ": ")):
            data = json.dumps(wrap(text), separators=separators).encode()
            assert mask_message(data) == json.dumps(wrap(shown), separators=separators).encode()


@pytest.mark.parametrize("text", CHALLENGES)
def test_the_parameters_of_a_challenge_stay_readable(text: str) -> None:
    assert mask_text(text) == text
    for value in ({"text": text}, {"text": json.dumps({"text": text})}):
        assert mask_message(json.dumps(value).encode()) == json.dumps(value).encode()


def test_a_masked_message_keeps_everything_else() -> None:
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2**70,
        "params": {"name": "log in", "arguments": {"user": "żółw\u2028", "password": "hunter2"}},
    }
    masked = mask_message(json.dumps(message, ensure_ascii=False).encode())
    message["params"]["arguments"]["password"] = "***"
    assert masked == json.dumps(message, ensure_ascii=False).encode()


def test_a_message_without_secrets_is_the_same_object() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"result":{"text":"sunny"}}'
    assert mask_message(data) is data


HOSTILE = [b'"\\"' + b'\\"' * 200_000, b'{"token":' * 50_000, b'\\"token\\":' * 50_000]
HOSTILE += [b'"' + b"\\" * 400_001, b'{"token":"' + b"a" * 400_000, b'"eyJ' + b"a" * 400_000]
HOSTILE += [b'"' + b"Bearer " * 60_000, b'"Bearer ' + b"a_" * 200_000 + b'="']
HOSTILE += [b'"Bearer abc=' + b"\\" * 400_000, b'"' + b"Bearer a=\\" * 40_000]
HOSTILE += [b'"token"' + b" " * 400_000, b'{"password":' + b"1" * 400_000 + b"x"]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_messages_take_linear_time(data: bytes) -> None:
    began = time.process_time()
    mask_message(data)
    mask_url(data.decode())
    mask_arguments([data.decode(), "x" * 400_000, "1" * 400_000, "=" * 400, "?" * 400_000])
    mask_headers({"x": data.decode(), "cookie": ";" * 100_000, "location": "://" * 100_000})
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (b"code=1&state=2", "application/x-www-form-urlencoded", b"code=***&state=2"),
        (b"client_secret=1&a=b", "application/x-www-form-urlencoded; x", b"client_secret=***&a=b"),
        (b'{"access_token":"x"}', "application/json", b'{"access_token":"***"}'),
        (b"<p>" + JWT.encode(), "text/html", b"<p>***"),
    ],
)
def test_bodies(body: bytes, kind: str, shown: bytes) -> None:
    assert mask_body(body, kind) == shown
