"""The way in: the pages that sign a browser in and out, and the style of all pages."""

from html import escape
from http import HTTPStatus
from importlib.resources import files
from math import ceil
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from interlane.live.auth import Caller
from interlane.live.http.browsers import SignIns

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
STYLE: Final = "/style.css"
OPEN_PATHS: Final = frozenset((LOGIN, LOGOUT, STYLE))
"""What is shown without a session."""

FORM_BYTES_MAX: Final = 4096
NO_STORE: Final = {"Cache-Control": "no-store"}
USED: Final = "This link has been used, or is too old."


class Entrance:
    """The pages that need no session."""

    def __init__(self, sign_ins: SignIns) -> None:
        self._sign_ins = sign_ins
        self.app = Starlette(
            routes=[
                Route(LOGIN, self._show_login, methods=["GET"]),
                Route(LOGIN, self._log_in, methods=["POST"]),
                Route(LOGOUT, self._log_out, methods=["POST"]),
                Route(STYLE, _style),
            ]
        )

    def _show_login(self, request: Request) -> Response:
        ticket = request.query_params.get("ticket")
        if ticket is None:
            return _login_page()
        # Previews fetch links, and a link may be a stranger's: only a button uses it up.
        caller = self._sign_ins.ticket_holder(ticket)
        if caller is None:
            return _login_page(USED)
        return _confirm_page(caller, ticket)

    async def _log_in(self, request: Request) -> Response:
        wait_s = self._sign_ins.wait_s(request)
        if wait_s:
            said = "Too many tried to sign in from your address; try again in a moment."
            answer = _login_page(said, HTTPStatus.TOO_MANY_REQUESTS)
            answer.headers["Retry-After"] = str(ceil(wait_s))
            return answer
        form = parse_qs(await _small_body(request))
        ticket, token = form.get("ticket", [None])[0], form.get("token", [""])[0].strip()
        secret = await self._sign_ins.enter(request, LOGIN, token=token, ticket=ticket)
        if secret is None:
            return _login_page("This token is not valid." if ticket is None else USED)
        answer = _let_in()
        self._sign_ins.keep(request, answer, secret)
        return answer

    def _log_out(self, request: Request) -> Response:
        answer = Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": LOGIN})
        self._sign_ins.leave(request, answer)
        return answer


def _let_in() -> Response:
    """Answer with a page that goes on by itself.

    Browsers do not send a strict cookie along when another site's link was redirected, but
    they do when a page of ours goes on.
    """
    return HTMLResponse(
        _document(
            '<p>You are in. <a href="/">Go on</a>.</p>',
            '<meta http-equiv="refresh" content="0;url=/">',
        ),
        headers=NO_STORE,
    )


def _confirm_page(caller: Caller, ticket: str) -> Response:
    body = f"""<form method="post" action="{LOGIN}">
<h1>interlane</h1>
<p>This link signs you in as <strong>{escape(caller.name)}</strong> ({caller.role.word}).</p>
<input name="ticket" value="{escape(ticket)}" hidden>
<button type="submit" autofocus>Sign in</button></form>"""
    return HTMLResponse(_document(body), headers=NO_STORE)


def _login_page(said: str = "", status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> Response:
    alert = f'<p class="alert" role="alert">{escape(said)}</p>' if said else ""
    body = f"""<form method="post" action="{LOGIN}">
<h1>interlane</h1>
<p class="soft">Sign in with a token: <code>interlane up</code> showed one, and
<code>interlane token create</code> makes more.</p>{alert}
<input name="username" value="interlane" autocomplete="username" hidden>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required
autofocus>
<button type="submit">Sign in</button></form>"""
    return HTMLResponse(_document(body), status if said else HTTPStatus.OK, NO_STORE)


def no_such_page(_: Request, __: Exception) -> Response:
    """Answer that there is no such page, and where to go instead."""
    body = """<h1>There is no such page</h1><p><a href="/">Overview</a> or
<a href="/queue">Queue</a> lead on.</p>"""
    return HTMLResponse(_document(body), HTTPStatus.NOT_FOUND, NO_STORE)


def _document(body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>interlane</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f'<link rel="stylesheet" href="{STYLE}">{head}</head>'
        f'<body class="door"><main>{body}</main></body></html>'
    )


def _style(_: Request) -> Response:
    return PlainTextResponse(
        style(), media_type="text/css", headers={"Cache-Control": "no-cache"}
    )


def style() -> str:
    """Return the style sheet of all pages."""
    return files("interlane.pages").joinpath("style.css").read_text(encoding="utf-8")


async def _small_body(request: Request) -> str:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            return ""
    return body.decode("utf-8", "replace")
