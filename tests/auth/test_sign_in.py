"""Pages of a server for users whose browser is signed in at its provider."""

from urllib.parse import urlencode

from dovetail.auth import KnownClient, Provider
from dovetail.ports import HttpRequest, HttpResponse

from .provider_kit import BASE, Agent, csrf, provider, text
from .test_upstream import Idp, ready

PAGE = f"{BASE}/connect/x?y=1"


async def sign_in(
    agent: Agent, fields: dict[str, str] | None = None, url: str = PAGE
) -> str | HttpResponse:
    """What the provider says to a browser that opens a page, or posts a form there."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    if agent.cookies:
        headers["cookie"] = "; ".join(f"{name}={value}" for name, value in agent.cookies.items())
    request = HttpRequest(
        method="GET" if fields is None else "POST",
        path="/connect/x",
        url=url,
        headers=headers,
        body=urlencode(fields or {}).encode(),
        address=agent.address,
    )
    found = await agent.provider.sign_in(request, agent.site, "to see <this>")
    if isinstance(found, HttpResponse) and (cookie := found.headers.get("set-cookie")):
        name, _, value = cookie.partition(";")[0].partition("=")
        agent.cookies[name] = value
    return found


async def page(agent: Agent, fields: dict[str, str] | None = None, url: str = PAGE) -> HttpResponse:
    found = await sign_in(agent, fields, url)
    assert isinstance(found, HttpResponse)
    return found


def login(shown: HttpResponse, user: str, password: str) -> dict[str, str]:
    return {"csrf": csrf(shown), "action": "login", "username": user, "password": password}


async def test_a_user_signs_in_with_a_password_and_returns_to_the_page() -> None:
    agent = Agent(provider())
    shown = await page(agent)
    assert shown.status == 200
    assert b"to see &lt;this&gt;" in shown.body
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    before = dict(agent.cookies)
    wrong = await page(agent, login(shown, "ada", "wrong"))
    assert (wrong.status, "is incorrect" in text(wrong)) == (403, True)
    back = await page(agent, login(shown, "ada", "lovelace"))
    assert (back.status, back.headers["location"]) == (303, PAGE)
    assert agent.cookies != before  # somebody else may know the old one
    assert await sign_in(agent) == "ada"


async def test_a_login_form_of_another_browser_or_page_is_refused() -> None:
    agent = Agent(provider())
    shown = await page(agent)
    other = Agent(agent.provider)
    await page(other)
    assert (await page(other, login(shown, "ada", "lovelace"))).status == 403
    elsewhere = await page(agent, login(shown, "ada", "lovelace"), f"{BASE}/connect/z")
    assert elsewhere.status == 403
    assert not isinstance(await sign_in(agent), str)


async def test_a_user_who_is_removed_is_signed_out() -> None:
    agent = Agent(provider())
    await page(agent, login(await page(agent), "ada", "lovelace"))
    assert await sign_in(agent) == "ada"
    users = agent.provider._pages.sessions.users
    assert users is not None
    users._hashes = {}
    assert isinstance(await sign_in(agent), HttpResponse)


async def signed_in_upstream(agent: Agent, idp: Idp) -> HttpResponse:
    there = await page(agent)
    assert there.status == 303
    return await agent.get(idp.visit(there.headers["location"]))


async def test_a_user_signs_in_at_the_upstream_provider_and_returns_to_the_page() -> None:
    agent, idp, _ = await ready()
    back = await signed_in_upstream(agent, idp)
    assert (back.status, back.headers["location"]) == (303, PAGE)
    assert await sign_in(agent) == "u-17"


async def test_a_sign_in_that_was_begun_in_another_browser_is_refused() -> None:
    agent, idp, _ = await ready()
    there = await page(agent)
    other = Agent(agent.provider, agent.site)
    answer = await other.get(idp.visit(there.headers["location"]))
    assert (answer.status, "another browser" in text(answer)) == (400, True)
    assert not isinstance(await sign_in(other), str)


async def test_a_user_whom_the_upstream_provider_refuses_is_not_signed_in() -> None:
    agent, idp, _ = await ready()
    idp.claims = {"nonce": "of another login"}
    answer = await signed_in_upstream(agent, idp)
    assert (answer.status, "refused" in text(answer)) == (403, True)
    assert not isinstance(await sign_in(agent), str)


def test_a_provider_for_programs_only_cannot_sign_in_a_browser() -> None:
    robot = KnownClient(id="robot", secret="a long secret of a robot")
    assert not Provider(clients=[robot], storage=":memory:").can_sign_in
    assert provider().can_sign_in
