"""The door: one application for browsers and for the API's clients.

What the API answers goes to it untouched.  Everything else needs a session, websockets too,
but for the page that begins one.  Nothing that a page holds may be fetched from elsewhere, and
no other site may show a page or speak for whoever looks at it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from html import escape
from http import HTTPStatus
from importlib.resources import files
from math import ceil
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlane.live.audit import AuditLog
from interlane.live.auth import Caller
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import CALLER, PREFIX
from interlane.live.http.problems import problem
from interlane.live.http.service import address_of
from interlane.live.http.watchers import Watchers
from interlane.live.questions.desk import TooManyRequests
from interlane.live.rates import RateLimit
from interlane.pages.sessions import SESSION_S, Sessions
from interlane.pages.upload_gate import UploadGate

LOGIN: Final = "/login"
LINK: Final = f"{PREFIX}/pages"
"""Where those who have a token get a link that lets a browser in."""

LOGOUT: Final = "/logout"
STYLE: Final = "/style.css"
PROBES: Final = ("/healthz", "/readyz", "/metrics")
SECRET: Final = "interlane.secret"
"""Where a request's scope says which session it belongs to."""

FRAMEWORK: Final = "/_nicegui"
"""Where pages fetch scripts and send what was uploaded."""

PAGES_IN_A_ROW_S: Final = 30.0
FORM_BYTES_MAX: Final = 4096
NO_STORE: Final = {"Cache-Control": "no-store"}
USED: Final = "This link has been used, or is too old."
UPLOAD_BYTES_MAX: Final = 64 << 20

POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # templates compile in the browser
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

log = logging.getLogger("interlane.live")


class Front:
    """Sends every request where it belongs.

    Pages take a second to load, so that they are built while the API answers already.
    """

    def __init__(
        self,
        api: FastAPI,
        build: Callable[[], FastAPI],
        sessions: Sessions,
        bounds: ServerBounds,
        audit: AuditLog,
        beside: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._api = api
        self._beside = beside
        """Runs as long as the server does."""
        self._build = build
        self._sessions = sessions
        self._audit = audit
        self._bounds = bounds
        self._opened = RateLimit(bounds.pages_per_s, PAGES_IN_A_ROW_S * bounds.pages_per_s)
        self._logins = RateLimit(bounds.logins_per_minute / 60, bounds.logins_per_minute)
        self._pages: asyncio.Future[ASGIApp]
        self._life = Starlette(lifespan=self._lived)
        self._open = Starlette(
            routes=[
                Route(LOGIN, self._show_login, methods=["GET"]),
                Route(LOGIN, self._log_in, methods=["POST"]),
                Route(LINK, self._make_link, methods=["POST"]),
                Route(LOGOUT, self._log_out, methods=["POST"]),
                Route(STYLE, _style),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._life(scope, receive, send)
        elif is_for_api(scope["path"]) and scope["path"] != LINK:
            await self._api(scope, receive, send)
        else:
            await self._answer_browser(scope, receive, send)

    @asynccontextmanager
    async def _lived(self, _: Starlette) -> AsyncIterator[None]:
        self._pages = asyncio.get_running_loop().create_future()
        ending = asyncio.Event()
        async with self._api.router.lifespan_context(self._api):
            building = asyncio.create_task(self._serve_pages(ending))
            beside = asyncio.create_task(self._beside())
            yield
            beside.cancel()
            ending.set()
            await building

    async def _serve_pages(self, ending: asyncio.Event) -> None:
        try:
            pages = await asyncio.to_thread(self._build)
        except Exception as error:
            log.exception("The web pages cannot be shown; the API goes on.")
            self._pages.set_exception(error)
            return
        async with pages.router.lifespan_context(pages):
            self._pages.set_result(UploadGate(pages, UPLOAD_BYTES_MAX, self._bounds))
            await ending.wait()

    async def _answer_browser(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = HTTPConnection(scope)
        send = _with_headers(send)
        if not _is_own(asked):
            await _refuse(scope, receive, send, HTTPStatus.FORBIDDEN)
        elif _is_open(scope["path"]):
            await self._open(scope, receive, send)
        elif (secret := self._secret(asked)) is None:
            await _send_to_login(asked, receive, send)
        else:
            scope[SECRET] = secret
            scope[CALLER] = self._sessions.caller(secret)
            await self._show(scope, receive, send)

    async def _show(self, scope: Scope, receive: Receive, send: Send) -> None:
        pages = await asyncio.shield(self._pages)
        caller = self._sessions.caller(scope[SECRET])
        if scope["type"] != "websocket" or caller is None:
            hurries = caller is not None and self._hurries(caller, scope["path"])
            refused = partial(_refuse, status=HTTPStatus.TOO_MANY_REQUESTS)
            await (refused if hurries else pages)(scope, receive, send)
            return
        watchers: Watchers = self._api.state.watchers
        try:
            with watchers.watching(caller.name):
                await _while_it_counts(watchers.end(caller), pages(scope, receive, send))
        except TooManyRequests:
            await _refuse(scope, receive, send, HTTPStatus.TOO_MANY_REQUESTS)

    def _hurries(self, caller: Caller, path: str) -> bool:
        """Tell whether somebody opens pages too often: each is kept for a while, seen or no."""
        return not path.startswith(FRAMEWORK) and self._opened.wait_s(caller.name) > 0

    def _secret(self, asked: HTTPConnection) -> str | None:
        secret = asked.cookies.get(cookie_name(asked), "")
        return secret if self._sessions.caller(secret) is not None else None

    # -- the way in and out -----------------------------------------------------------

    def _show_login(self, request: Request) -> Response:
        ticket = request.query_params.get("ticket")
        if ticket is None:
            return _login_page(request)
        # Previews fetch links, and a link may be a stranger's: only a button uses it up.
        caller = self._sessions.ticket_holder(ticket)
        if caller is None:
            return _login_page(request, USED)
        return _confirm_page(caller, ticket)

    async def _log_in(self, request: Request) -> Response:
        wait_s = self._logins.wait_s(_address(request))
        if wait_s:
            said = "Too many tried to sign in from your address; try again in a moment."
            answer = _login_page(request, said, HTTPStatus.TOO_MANY_REQUESTS)
            answer.headers["Retry-After"] = str(ceil(wait_s))
            return answer
        form = parse_qs(await _small_body(request))
        ticket = form.get("ticket", [None])[0]
        if ticket is not None:
            secret, said = self._sessions.enter_by_ticket(ticket), USED
        else:
            token = form.get("token", [""])[0].strip()
            secret, said = self._sessions.enter_by_token(token), "This token is not valid."
        caller = None if secret is None else self._sessions.caller(secret)
        if secret is None or caller is None:
            self._audit.deny(None, _address(request), path=LOGIN)
            return _login_page(request, said)
        how = "token" if ticket is None else "link"
        note = self._audit.note
        await asyncio.to_thread(note, "signed in", caller.name, _address(request), by=how)
        return _let_in(request, secret)

    async def _make_link(self, request: Request) -> Response:
        """Return the path of a link that lets its bearer in once, to whoever has a token."""
        _, _, token = request.headers.get("authorization", "").partition(" ")
        path = self.login_path(token)
        if path is None:
            return problem(HTTPStatus.UNAUTHORIZED, "This needs a token that is valid.")
        return JSONResponse({"path": path}, HTTPStatus.CREATED, NO_STORE)

    def login_path(self, token: str) -> str | None:
        """Return the path of a link that lets its bearer in once."""
        ticket = self._sessions.ticket(token)
        return None if ticket is None else f"{LOGIN}?{urlencode({'ticket': ticket})}"

    def _log_out(self, request: Request) -> Response:
        self._sessions.leave(request.cookies.get(cookie_name(request), ""))
        answer = Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": LOGIN})
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")
        return answer


def is_for_api(path: str) -> bool:
    """Tell whether the API answers a path."""
    return path in PROBES or path == PREFIX or path.startswith(f"{PREFIX}/")


def cookie_name(asked: HTTPConnection) -> str:
    """Return the cookie's name: browsers keep one jar for all ports of a host."""
    return f"interlane_{asked.url.port or asked.url.scheme}"


def _is_open(path: str) -> bool:
    return path in (LOGIN, LINK, LOGOUT, STYLE)


def _is_own(asked: HTTPConnection) -> bool:
    """Tell whether a request comes from a page of ours, if it comes from a page at all."""
    origin = asked.headers.get("origin")
    if origin is None:
        return True
    _, _, host = origin.partition("://")
    return host == asked.headers.get("host")


def _let_in(request: Request, secret: str) -> Response:
    """Answer with a page that goes on by itself.

    Browsers do not send a strict cookie along when another site's link was redirected, but
    they do when a page of ours goes on.
    """
    answer = HTMLResponse(
        _document(
            '<p>You are in. <a href="/">Go on</a>.</p>',
            '<meta http-equiv="refresh" content="0;url=/">',
        ),
        headers=NO_STORE,
    )
    answer.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _address(asked: HTTPConnection) -> str:
    return address_of(asked.scope)


def _confirm_page(caller: Caller, ticket: str) -> Response:
    body = f"""<form method="post" action="{LOGIN}">
<h1>interlane</h1>
<p>This link signs you in as <strong>{escape(caller.name)}</strong> ({caller.role.word}).</p>
<input name="ticket" value="{escape(ticket)}" hidden>
<button type="submit" autofocus>Sign in</button></form>"""
    return HTMLResponse(_document(body), headers=NO_STORE)


def _login_page(
    request: Request, said: str = "", status: HTTPStatus = HTTPStatus.UNAUTHORIZED
) -> Response:
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


async def _while_it_counts(end: Awaitable[None], shown: Awaitable[None]) -> None:
    """Show a page as long as the visitor's token counts."""
    ending, showing = asyncio.ensure_future(end), asyncio.ensure_future(shown)
    try:
        await asyncio.wait({ending, showing}, return_when=asyncio.FIRST_COMPLETED)
        if showing.done():
            showing.result()
    finally:
        ending.cancel()
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


# -- refusals -------------------------------------------------------------------------


async def _send_to_login(asked: HTTPConnection, receive: Receive, send: Send) -> None:
    wants_page = "text/html" in asked.headers.get("accept", "")
    if asked.scope["type"] == "http" and wants_page:
        answer = Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": LOGIN})
        await answer(asked.scope, receive, send)
    else:
        await _refuse(asked.scope, receive, send, HTTPStatus.UNAUTHORIZED)


async def _refuse(scope: Scope, receive: Receive, send: Send, status: HTTPStatus) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).close()
    else:
        await PlainTextResponse(f"{status.phrase}\n", status)(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            held = {name.lower() for name, _ in message.get("headers", ())}
            more = [
                (name.lower().encode(), value.encode())
                for name, value in HEADERS.items()
                if name.lower().encode() not in held
            ]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sent
