"""Which headers of a caller a gateway may pass on."""

import pytest

from dovetail.config.forward import check_forward, is_safe_value
from dovetail.errors import ConfigError


@pytest.mark.parametrize("name", ["X-Tenant", "x-request-id", "Accept-Language", "traceparent"])
def test_ordinary_headers_may_be_passed_on(name: str) -> None:
    check_forward([name], headers=["X-Other"], secrets=["X-Key"])


REFUSED = [
    "Authorization",
    "Cookie",
    "Set-Cookie",
    "DPoP",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Mcp-Session-Id",
    "Mcp-Param-X",
    "MCP-Protocol-Version",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Real-IP",
    "Accept",
    "Content-Type",
    "Connection",
    "Transfer-Encoding",
    "Content-Length",
    "Host",
    "TE",
    "Trailer",
    "Upgrade",
    "Keep-Alive",
    "X-API-Key",
    "Content-Encoding",
    "Accept-Encoding",
    "Expect",
    "Last-Event-ID",
]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str])
def test_headers_of_credentials_hops_and_messages_are_refused(name: str, spelled: type) -> None:
    with pytest.raises(ConfigError) as caught:
        check_forward(["X-Tenant", spelled(name)])
    assert str(caught.value).startswith(f'"forward" must not contain {spelled(name)!r}: it')


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\n", "X-*", "*", "${H}", "ä", "a\0"])
def test_what_is_not_the_name_of_a_header_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="it is not the name of a header"):
        check_forward([name])


def test_the_headers_of_the_entry_and_the_secrets_of_the_guard_are_refused() -> None:
    with pytest.raises(ConfigError, match='the entry sets it in "headers"'):
        check_forward(["X-Tenant"], headers=["x-tenant"])
    with pytest.raises(ConfigError, match="credentials"):
        check_forward(["x-door-key"], secrets=["X-Door-Key"])


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\0b", "a\x1bb", "a\x7fb"])
def test_a_value_contains_no_control_characters_except_tabs(value: str) -> None:
    assert not is_safe_value(value)
    assert is_safe_value(value.replace(value[1], "\t"))
