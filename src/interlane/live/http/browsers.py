"""The front end's way in: one application for browsers and for the API's clients.

What the API answers goes to it untouched.  Everything else needs a session, websockets too,
but for the paths that begin one.  Nothing that a page holds may be fetched from elsewhere, and
no other site may show a page or speak for whoever looks at it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlane.live.audit import AuditLog
from interlane.live.auth import Caller, Role, Tokens, acting
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import CALLER, PREFIX
from interlane.live.http.problems import problem
from interlane.live.http.service import address_of
from interlane.live.http.sessions import SESSION_S, Clock, Sessions
from interlane.live.http.upload_gate import UploadGate
from interlane.live.http.watchers import Watchers
from interlane.live.questions.desk import TooManyRequests
from interlane.live.rates import RateLimit

LINK: Final = f"{PREFIX}/pages"
"""Where those who have a token get a link that lets a browser in."""

PROBES: Final = ("/healthz", "/readyz", "/metrics")
SECRET: Final = "interlane.secret"
"""Where a request's scope says which session it belongs to."""

FRAMEWORK: Final = "/_nicegui"
"""Where pages fetch scripts and send what was uploaded."""

PAGES_IN_A_ROW_S: Final = 30.0
NO_STORE: Final = {"Cache-Control": "no-store"}

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


class SignIns:
    """Lets browsers in and out, so often from an address, and on record."""

    def __init__(
        self, tokens: Tokens, now_s: Clock, bounds: ServerBounds, audit: AuditLog
    ) -> None:
        self._sessions = Sessions(tokens, now_s, bounds.sessions_per_token)
        self._audit = audit
        self._often = RateLimit(bounds.logins_per_minute / 60, bounds.logins_per_minute)

    def wait_s(self, request: Request) -> float:
        """Return 0 and count a try to sign in, or after how many seconds the next may be."""
        return self._often.wait_s(address_of(request.scope))

    def ticket_holder(self, ticket: str) -> Caller | None:
        """Return who would be signed in by a ticket; it is not used up."""
        return self._sessions.ticket_holder(ticket)

    async def enter(
        self, request: Request, path: str, *, token: str = "", ticket: str | None = None
    ) -> str | None:
        """Begin a session by a ticket, else by a token; return its secret, None if refused."""
        if ticket is None:
            secret = self._sessions.enter_by_token(token)
        else:
            secret = self._sessions.enter_by_ticket(ticket)
        address = address_of(request.scope)
        caller = None if secret is None else self._sessions.caller(secret)
        if caller is None:
            self._audit.deny(None, address, path=path)
            return None
        how = "token" if ticket is None else "link"
        note = self._audit.note
        await asyncio.to_thread(note, "signed in", caller.name, address, by=how)
        return secret

    def keep(self, request: Request, answer: Response, secret: str) -> None:
        """Let a browser carry the secret of its session."""
        answer.set_cookie(
            cookie_name(request),
            secret,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def leave(self, request: Request, answer: Response) -> None:
        """End a browser's session."""
        self._sessions.leave(request.cookies.get(cookie_name(request), ""))
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")

    def ticket(self, token: str) -> str | None:
        """Return a ticket that lets its bearer in once; None if the token is not valid."""
        return self._sessions.ticket(token)

    def secret(self, asked: HTTPConnection) -> str | None:
        """Return the secret of a browser's session; None if it has none."""
        secret = asked.cookies.get(cookie_name(asked), "")
        return secret if self._sessions.caller(secret) is not None else None

    def visitor(self, asked: HTTPConnection) -> Caller | None:
        """Return who looks at a page, as their token stands now; None once it is revoked."""
        return self._sessions.caller(asked.scope[SECRET])

    def acting(self, asked: HTTPConnection, role: Role) -> Caller:
        """Return who acts on a page, or raise unless they may."""
        return acting(self.visitor(asked), role)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """What browsers are shown."""

    login: str
    """The path to which those without a session are sent."""
    open_paths: frozenset[str]
    """Paths that need no session, ``login`` among them."""
    open_app: ASGIApp
    """Answers those."""
    build: Callable[[], FastAPI]
    """Returns the application of all other pages; it may take a second."""
    beside: Callable[[], Coroutine[Any, Any, None]]
    """Runs as long as the server does."""
    upload_bytes_max: int


class BrowserGate:
    """Sends every request where it belongs.

    Pages take a second to load, so that they are built while the API answers already.
    """

    def __init__(
        self, api: FastAPI, front_end: FrontEnd, sign_ins: SignIns, bounds: ServerBounds
    ) -> None:
        self._api = api
        self._front_end = front_end
        self._sign_ins = sign_ins
        self._bounds = bounds
        self._opened = RateLimit(bounds.pages_per_s, PAGES_IN_A_ROW_S * bounds.pages_per_s)
        self._pages: asyncio.Future[ASGIApp]
        self._life = Starlette(lifespan=self._lived)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._life(scope, receive, send)
        elif is_for_api(scope["path"]) and scope["path"] != LINK:
            await self._api(scope, receive, send)
        else:
            await self._answer_browser(scope, receive, _with_headers(send))

    @asynccontextmanager
    async def _lived(self, _: Starlette) -> AsyncIterator[None]:
        self._pages = asyncio.get_running_loop().create_future()
        ending = asyncio.Event()
        async with self._api.router.lifespan_context(self._api):
            building = asyncio.create_task(self._serve_pages(ending))
            beside = asyncio.create_task(self._front_end.beside())
            yield
            beside.cancel()
            ending.set()
            await building

    async def _serve_pages(self, ending: asyncio.Event) -> None:
        try:
            pages = await asyncio.to_thread(self._front_end.build)
        except Exception as error:
            log.exception("The web pages cannot be shown; the API goes on.")
            self._pages.set_exception(error)
            return
        async with pages.router.lifespan_context(pages):
            most = self._front_end.upload_bytes_max
            self._pages.set_result(UploadGate(pages, most, self._bounds))
            await ending.wait()

    async def _answer_browser(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = HTTPConnection(scope)
        if not _is_own(asked):
            await _refuse(scope, receive, send, HTTPStatus.FORBIDDEN)
        elif scope["path"] == LINK:
            await self._make_link(asked, receive, send)
        elif scope["path"] in self._front_end.open_paths:
            await self._front_end.open_app(scope, receive, send)
        elif (secret := self._sign_ins.secret(asked)) is None:
            await self._send_to_login(asked, receive, send)
        else:
            scope[SECRET] = secret
            scope[CALLER] = self._sign_ins.visitor(asked)
            await self._show(asked, receive, send)

    async def _show(self, asked: HTTPConnection, receive: Receive, send: Send) -> None:
        scope, pages = asked.scope, await asyncio.shield(self._pages)
        caller = self._sign_ins.visitor(asked)
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

    async def _make_link(self, asked: HTTPConnection, receive: Receive, send: Send) -> None:
        """Answer with the path of a link that lets its bearer in once, if there is a token."""
        scope = asked.scope
        if scope["type"] != "http" or scope["method"] != "POST":
            await _refuse(scope, receive, send, HTTPStatus.METHOD_NOT_ALLOWED)
            return
        _, _, token = asked.headers.get("authorization", "").partition(" ")
        path = self.login_path(token)
        said: Response = problem(HTTPStatus.UNAUTHORIZED, "This needs a token that is valid.")
        if path is not None:
            said = JSONResponse({"path": path}, HTTPStatus.CREATED, NO_STORE)
        await said(scope, receive, send)

    def login_path(self, token: str) -> str | None:
        """Return the path of a link that lets its bearer in once."""
        ticket = self._sign_ins.ticket(token)
        login = self._front_end.login
        return None if ticket is None else f"{login}?{urlencode({'ticket': ticket})}"

    async def _send_to_login(self, asked: HTTPConnection, receive: Receive, send: Send) -> None:
        wants_page = "text/html" in asked.headers.get("accept", "")
        if asked.scope["type"] == "http" and wants_page:
            to = {"Location": self._front_end.login}
            answer = Response(status_code=HTTPStatus.SEE_OTHER, headers=to)
            await answer(asked.scope, receive, send)
        else:
            await _refuse(asked.scope, receive, send, HTTPStatus.UNAUTHORIZED)


def is_for_api(path: str) -> bool:
    """Tell whether the API answers a path."""
    return path in PROBES or path == PREFIX or path.startswith(f"{PREFIX}/")


def cookie_name(asked: HTTPConnection) -> str:
    """Return the cookie's name: browsers keep one jar for all ports of a host."""
    return f"interlane_{asked.url.port or asked.url.scheme}"


def _is_own(asked: HTTPConnection) -> bool:
    """Tell whether a request comes from a page of ours, if it comes from a page at all."""
    origin = asked.headers.get("origin")
    if origin is None:
        return True
    _, _, host = origin.partition("://")
    return host == asked.headers.get("host")


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
