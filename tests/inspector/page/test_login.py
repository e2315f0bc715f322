"""The Login panel: a login step by step, with a good and a broken authorization server."""

import asyncio
from pathlib import Path
from typing import Any

from tests.browser import Page
from tests.person import Person

from ..guarded_site import ISSUER, PASSWORD, USER, changed, guarded_site
from ..test_login import redirect_of
from .actions import has
from .harness import inspected

STEPS = "[...document.querySelectorAll('.steps > li')]"
STATES = f"{STEPS}.map((one) => one.querySelector('.tag').textContent)"
LINK = "document.querySelector('.login-link a')"


def state_of(folder: Path) -> dict[str, Any]:
    """Return the environment of a command that keeps its logins in a folder."""
    return {
        "folder": folder,
        "XDG_DATA_HOME": str(folder),
        "DOVETAIL_KEYS": "a long key that is only for tests",
    }


async def open_login(page: Page) -> None:
    await page.until("document.querySelector('.tabs button')")
    await page.click(".tabs button", text="Login")
    await page.until(has("Login", ".middle h2"))


async def log_in(page: Page) -> None:
    """Do what a user does on the login page."""
    await page.until(LINK)
    link = await page.says(f"{LINK}.href")
    person = Person(username=USER, password=PASSWORD)
    await asyncio.to_thread(person.visit, link, redirect_of(link))


async def test_a_login_runs_step_by_step_and_is_forgotten(tmp_path: Path) -> None:
    async with guarded_site() as url, inspected(url, **state_of(tmp_path)) as page:
        await page.until(has("Login panel"))
        assert not await page.says(has("offers no", ".left")), "that is not known"
        await open_login(page)
        await page.until(has("No login is saved for this server."))
        assert await page.says(STATES) == ["not run"] * 7
        await page.click("button", text="Run to here: Authorization server metadata")
        await page.until(has("Paused before: Registration."))
        assert await page.says(STATES) == ["done"] * 3 + ["next"] + ["not run"] * 3
        # What will be sent is shown before it is sent.
        await page.until(has("redirect_uris", ".steps"))
        await page.click("button", text="Continue to the end")
        await page.until(LINK)
        assert await page.says(f"{LINK}.rel") == "noopener noreferrer"
        assert await page.says(f"{LINK}.querySelector('strong').textContent") in url
        await log_in(page)
        await page.until(f"{STATES}.every((one) => one === 'done')")
        await page.until(has(f"Saved login of {USER}"))
        await page.until(has("Connected", "header"))
        await page.click(".steps .fold", text="6. Token")
        await page.until(has("code_verifier", ".steps"))
        shown = await page.says("document.querySelector('.steps').innerText")
        assert "***" in shown and "RFC 6749, section 5.1" in shown
        await page.click("button", text="Forget the login")
        await page.until(has("Its tokens were revoked."))
        await page.until(has("No login is saved for this server."))
        assert set(await page.says(STATES)) == {"done"}, "only the steps that ran"


async def test_a_broken_server_shows_what_is_wrong_and_the_login_can_be_cancelled(
    tmp_path: Path,
) -> None:
    fault = changed(issuer="https://evil.example")
    async with (
        guarded_site(ISSUER, fault) as url,
        inspected(url, width=900, **state_of(tmp_path)) as page,
    ):
        await open_login(page)
        await page.click("button", text="Run to here: Challenge")
        await page.until(has("Paused before: Resource metadata."))
        await page.click("button", text="Cancel")
        await page.until(has("The login was cancelled."))
        await page.click("button", text="Log in again")
        await page.until(has("the metadata is for another issuer, https://evil.example", ".steps"))
        assert (await page.says(STATES))[:4] == ["done", "done", "failed", "not run"]


async def test_a_server_that_is_a_process_has_no_login(server: Path) -> None:
    async with inspected(server) as page:
        await open_login(page)
        await page.until(has("Only servers at a URL have a login."))
