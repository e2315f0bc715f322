"""The login, consent and error pages. The pages are plain HTML, without scripts or external
resources.

All external text is escaped, and each page has a strict content security policy as a second
defence. Browsers also apply `form-action` to the redirects that follow a form, so the policy
includes the origin of the client's redirect URI.
"""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape

from msgspec import Struct

from ...ports import HttpResponse
from .web import NO_STORE

STYLE = """
:root{color-scheme:light dark;--back:#f3f4f7;--card:#fff;--ink:#16181d;--soft:#5c6370;
--line:#e3e5ea;--accent:#3d4fd1;--on:#fff;--accent-soft:#eceefc;--warn:#7a4a00;--warn-back:#fff6e3;
--warn-line:#f2d9a4;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--back:#0f1115;--card:#191c22;--ink:#eceef2;--soft:#a0a7b4;
--line:#2c313a;--accent:#98a5ff;--on:#10121a;--accent-soft:#232846;--warn:#ffd894;
--warn-back:#2c2313;--warn-line:#574521;--bad:#ff9b94}}
*{box-sizing:border-box}
svg{fill:none;stroke:currentColor;stroke-width:2.2;stroke-linecap:round;stroke-linejoin:round}
body{margin:0;min-height:100vh;display:flex;align-items:center;justify-content:center;
padding:1.5rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{width:100%;max-width:27rem;background:var(--card);border:1px solid var(--line);
border-radius:18px;padding:2rem;box-shadow:0 1px 2px rgb(0 0 0/.04),0 12px 32px rgb(0 0 0/.07)}
.who{display:flex;align-items:center;gap:.6rem;margin:0 0 1.5rem;color:var(--soft);
font-size:.875rem;overflow-wrap:anywhere}
.who svg{flex:none;padding:.4rem;width:2.1rem;height:2.1rem;border-radius:10px;
background:var(--accent-soft);color:var(--accent)}
h1{margin:0 0 .5rem;font-size:1.4rem;line-height:1.3;font-weight:650;letter-spacing:-.012em;
overflow-wrap:anywhere}
p{margin:.5rem 0}.soft{color:var(--soft);font-size:.9rem}
h2{margin:1.5rem 0 .5rem;font-size:.8125rem;font-weight:600;color:var(--soft)}
ul{list-style:none;margin:0;padding:0}
li{display:flex;gap:.65rem;align-items:flex-start;padding:.3rem 0;overflow-wrap:anywhere}
li svg{flex:none;width:1.15rem;height:1.15rem;margin-top:.2rem;color:var(--accent)}
dl{margin:1.5rem 0 0;border:1px solid var(--line);border-radius:12px;font-size:.9rem}
dl div{display:flex;gap:1rem;justify-content:space-between;padding:.6rem .9rem}
dl div+div{border-top:1px solid var(--line)}
dt{color:var(--soft);flex:none}
dd{margin:0;text-align:right;overflow-wrap:anywhere;font-weight:500}
.warn{margin:1.25rem 0 0;padding:.75rem .9rem;border:1px solid var(--warn-line);border-radius:12px;
background:var(--warn-back);color:var(--warn);font-size:.875rem}
.bad{color:var(--bad);font-size:.9rem;font-weight:500}
label{display:block;margin:1rem 0 .35rem;font-size:.875rem;font-weight:550}
input{width:100%;padding:.65rem .8rem;border:1px solid var(--line);border-radius:10px;
background:var(--back);color:inherit;font:inherit}
.row{display:flex;gap:.75rem;margin-top:1.75rem}.row>*{flex:1}
button,.button{display:block;width:100%;padding:.7rem 1rem;border:1px solid var(--line);
border-radius:10px;background:transparent;color:inherit;font:inherit;font-weight:600;
text-align:center;text-decoration:none;cursor:pointer}
.main{border-color:var(--accent);background:var(--accent);color:var(--on)}
button:hover,.button:hover{filter:brightness(1.06)}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.link{display:inline;width:auto;padding:0;border:0;color:var(--accent);font-weight:500;
font-size:inherit;text-decoration:underline}
@media(max-width:26rem){body{padding:0;align-items:stretch}
main{border:0;border-radius:0;padding:1.5rem}.row{flex-direction:column-reverse}}
"""
POLICY = (
    "default-src 'none'; style-src "
    f"'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action "
)
HEADERS = {
    **NO_STORE,
    "content-type": "text/html; charset=utf-8",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_SVG = '<svg viewBox="0 0 24 24" aria-hidden="true">'
LOCK = (
    f'{_SVG}<rect x="5" y="11" width="14" height="9" rx="2"/><path d="M8 11V8a4 4 0 0 1 8 '
    '0v3"/></svg>'
)
CHECK = f'{_SVG}<path d="M5 12.5l4.5 4.5L19 7.5"/></svg>'


class ConsentDetails(Struct, frozen=True):
    """The details about a client that a user needs in order to allow or deny it."""

    server: str
    client: str
    known_by: str
    back_to: str
    """The host that the user returns to."""
    uri: str
    """The exact redirect URI."""
    scopes: tuple[str, ...]
    """The description of each scope."""
    warning: str = ""
    form: tuple[str, ...] = ()
    """The sources for `form-action`."""
    upstream: tuple[str, str] | None = None
    """The host where the user logs in, and the scopes that are requested from it."""


def login_page(
    details: ConsentDetails, csrf: str, problem: str = "", name: str = "", status: int = 200
) -> HttpResponse:
    """Return the page with the login form."""
    client, server = escape(details.client), escape(details.server)
    about = f"to continue to <strong>{client}</strong>, which wants to use {server}"
    body = _login_form(about, csrf, problem, name)
    return render_page("Log in", details.server, body, details.form, status)


class PageDetails(Struct, frozen=True):
    """A page of this server that only a user who is signed in may see."""

    server: str
    purpose: str
    """What the user signs in for, to complete "Log in"."""
    csrf: str


def sign_in_page(
    details: PageDetails, problem: str = "", name: str = "", status: int = 200
) -> HttpResponse:
    """Return the page with the login form for another page of this server."""
    body = _login_form(escape(details.purpose), details.csrf, problem, name)
    return render_page("Log in", details.server, body, ("'self'",), status)


def _login_form(about: str, csrf: str, problem: str, name: str) -> str:
    alert = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    focus_name, focus_password = ("", " autofocus") if name else (" autofocus", "")
    return f"""<h1>Log in</h1>
<p class="soft">{about}</p>{alert}
<form method="post">{csrf_field(csrf)}
<label for="username">User name</label>
<input id="username" name="username" value="{escape(name)}" autocomplete="username"
 autocapitalize="none" spellcheck="false" maxlength="200" required{focus_name}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password"
 maxlength="1000" required{focus_password}>
<div class="row"><button class="main" name="action" value="login">Log in</button></div>
</form>"""


def consent_page(details: ConsentDetails, csrf: str, user: str | None) -> HttpResponse:
    """Return the page on which a user allows or denies a client."""
    client, server = escape(details.client), escape(details.server)
    scopes = details.scopes or (f"Use {details.server} on your behalf",)
    listed = "".join(f"<li>{CHECK}<span>{escape(text)}</span></li>" for text in scopes)
    rows = [
        ("Client", details.client),
        ("Identified by", details.known_by),
        ("Returns to", details.back_to),
        ("URL", details.uri),
    ]
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows
    )
    if user is not None:
        switch = (
            '<button class="link" name="action" value="switch" formnovalidate>Not you?</button>'
        )
        facts += f"<div><dt>Logged in as</dt><dd>{escape(user)} · {switch}</dd></div>"
    warning = (
        f'<p class="warn" role="note">{escape(details.warning)}</p>' if details.warning else ""
    )
    after = ""
    if details.upstream is not None:
        host, requested = map(escape, details.upstream)
        after = (
            f'<p class="soft">You will then log in at <strong>{host}</strong>, with these scopes: '
            f"{requested}.</p>"
        )
    body = f"""<h1>Allow {client} to use {server}?</h1>
<form method="post">{csrf_field(csrf)}
<h2>It will be able to</h2><ul>{listed}</ul>
<dl>{facts}</dl>{warning}{after}
<div class="row"><button name="action" value="deny">Deny</button>
<button class="main" name="action" value="approve">Allow</button></div>
</form>"""
    return render_page(f"Allow {details.client}?", details.server, body, details.form)


def error_page(
    server: str, text: str, status: int, back: tuple[str, str] | None = None
) -> HttpResponse:
    """Return a page that describes an error. `back` holds the host and URL for a link to
    continue."""
    title = "This request cannot be completed"
    link = ""
    if back is not None:
        host, url = escape(back[0]), escape(back[1])
        link = (
            f'<div class="row"><a class="button" rel="noreferrer" href="{url}">Return to '
            f"{host}</a></div>"
        )
    body = f"<h1>{title}</h1><p>{escape(text)}</p>{link}"
    return render_page(title, server, body, (), status)


def render_page(
    title: str, server: str, body: str, form: Iterable[str] = (), status: int = 200
) -> HttpResponse:
    """Return a complete page with its security headers."""
    html = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>{escape(title)}</title><style>{STYLE}</style></head>
<body><main><p class="who">{LOCK}<span>{escape(server)}</span></p>{body}</main></body></html>
"""
    headers = {**HEADERS, "content-security-policy": POLICY + (" ".join(form) or "'none'")}
    return HttpResponse(status=status, headers=headers, body=html.encode("utf-8", "replace"))


def csrf_field(csrf: str) -> str:
    """Return the hidden field of a form that proves that it was shown in this browser."""
    return f'<input type="hidden" name="csrf" value="{escape(csrf)}">'
