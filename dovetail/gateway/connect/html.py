"""The pages on which users of a gateway connect their accounts. They look like those of the
provider, and have the same strict headers."""

from html import escape

from msgspec import Struct

from ...auth.provider.pages import CHECK, csrf_field, render_page
from ...ports import HttpResponse
from ...text import escape_unsafe

LOCAL_SOURCES = ("http://127.0.0.1:*", "http://localhost:*")


class ConnectDetails(Struct, frozen=True):
    """What a user needs to know before they connect an account."""

    gateway: str
    server: str
    host: str
    """The host of the server."""
    user: str
    """Who is signed in."""
    scopes: tuple[str, ...] = ()
    """Additional scopes that a tool needs."""


def connect_page(details: ConnectDetails, csrf: str, *, is_local: bool) -> HttpResponse:
    """Return the page that asks whether to connect an account.

    Args:
        details: What will be connected.
        csrf: The token of the form.
        is_local: Whether the server is on this machine, and so may be its authorization server.
    """
    server, gateway = _show(details.server), _show(details.gateway)
    rows = [
        ("Server", details.server),
        ("Host", details.host),
        ("Signed in as", details.user),
    ]
    facts = "".join(f"<div><dt>{name}</dt><dd>{_show(value)}</dd></div>" for name, value in rows)
    points = [f"{gateway} will use {server} on your behalf, when you call its tools"]
    points += [f"It will ask for: {_show(scope)}" for scope in details.scopes]
    listed = "".join(f"<li>{CHECK}<span>{point}</span></li>" for point in points)
    body = f"""<h1>Connect your account at {server}?</h1>
<form method="post">{csrf_field(csrf)}
<ul>{listed}</ul><dl>{facts}</dl>
<p class="soft">You will log in at the authorization server of {server}. Nobody else who uses
{gateway} can use your account.</p>
<div class="row"><button name="action" value="deny">Cancel</button>
<button class="main" name="action" value="connect">Connect</button></div>
</form>"""
    # Browsers apply form-action to the redirect that follows the form.
    form = ("'self'", "https:", *(LOCAL_SOURCES if is_local else ()))
    return render_page(f"Connect {escape_unsafe(details.server)}?", details.gateway, body, form)


def result_page(gateway: str, title: str) -> HttpResponse:
    """Return the last page.

    Args:
        gateway: The name of the gateway.
        title: What happened.
    """
    body = (
        f"<h1>{_show(title)}</h1>"
        '<p class="soft">You can close this window and return to your program.</p>'
    )
    return render_page(escape_unsafe(title), gateway, body)


def _show(text: str) -> str:
    return escape(escape_unsafe(text))
