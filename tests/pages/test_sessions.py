"""Sessions and tickets: how long they last, and what ends them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from interlane.live.audit import AuditLog
from interlane.live.auth import Caller, Role, Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.http.browsers import BrowserGate, FrontEnd, SignIns
from interlane.live.http.sessions import SESSION_S, TICKET_S, Sessions
from interlane.live.rates import KNOWN_MAX, RateLimit
from interlane.live.store.store import Store
from interlane.pages.front import LOGIN, OPEN_PATHS, Entrance


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def nothing() -> None:
    pass


def gate_of(tokens: Tokens, clock: Clock, bounds: ServerBounds) -> BrowserGate:
    """Return the way in to pages that are not there yet."""
    sign_ins = SignIns(tokens, clock, bounds, AuditLog(None, clock))
    app = Entrance(sign_ins).app
    front_end = FrontEnd(LOGIN, OPEN_PATHS, app, FastAPI, nothing, upload_bytes_max=1)
    return BrowserGate(FastAPI(), front_end, sign_ins, bounds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return Tokens(Store(f"sqlite:///{tmp_path / 'state.db'}"), clock)


def test_a_session_is_its_tokens_until_either_ends(tokens: Tokens, clock: Clock) -> None:
    token, row = tokens.make("ann", Role.USER)
    known = Sessions(tokens, clock)

    first, second = known.enter_by_token(token), known.enter_by_token(token)
    assert first is not None
    assert second is not None
    assert first != second

    assert known.caller(first) == Caller("ann", Role.USER)
    known.leave(first)
    assert known.caller(first) is None
    assert known.caller(second) == Caller("ann", Role.USER)
    tokens.revoke(row.id)
    assert known.caller(second) is None
    assert known.enter_by_token(token) is None


def test_sessions_and_tickets_end_with_time(tokens: Tokens, clock: Clock) -> None:
    token, _ = tokens.make("ann", Role.USER)
    known = Sessions(tokens, clock)
    session, ticket = known.enter_by_token(token), known.ticket(token)
    assert session is not None
    assert ticket is not None

    clock.now_s += TICKET_S
    assert known.enter_by_ticket(ticket) is None
    assert known.caller(session) is not None
    clock.now_s += SESSION_S - TICKET_S
    assert known.caller(session) is None


def test_a_ticket_is_good_for_one_session(tokens: Tokens, clock: Clock) -> None:
    tokens.make("op", Role.ADMIN)  # who stays
    token, row = tokens.make("ann", Role.ADMIN)
    known = Sessions(tokens, clock)
    ticket = known.ticket(token)
    assert ticket is not None

    session = known.enter_by_ticket(ticket)
    assert session is not None
    assert known.caller(session) == Caller("ann", Role.ADMIN)
    assert known.enter_by_ticket(ticket) is None
    assert known.caller(ticket) is None

    late = known.ticket(token)
    assert late is not None
    tokens.revoke(row.id)
    assert known.enter_by_ticket(late) is None
    assert known.ticket(token) is None


def test_the_oldest_sessions_make_way(tokens: Tokens, clock: Clock) -> None:
    token, _ = tokens.make("ann", Role.USER)
    known = Sessions(tokens, clock, kept_max=3)

    made = [known.enter_by_token(token) or "" for _ in range(5)]

    assert [known.caller(one) is not None for one in made] == [False, False, True, True, True]


def test_many_logins_of_one_token_sign_nobody_else_out(tokens: Tokens, clock: Clock) -> None:
    admin, _ = tokens.make("admin", Role.ADMIN)
    viewer, _ = tokens.make("eve", Role.VIEWER)
    known = Sessions(tokens, clock, kept_max=3)
    kept, ticket = known.enter_by_token(admin), known.ticket(admin)
    assert kept is not None
    assert ticket is not None

    own = [known.enter_by_token(viewer) or "" for _ in range(1_000)]
    for _ in range(1_000):
        known.ticket(viewer)

    assert known.caller(kept) == Caller("admin", Role.ADMIN)
    assert known.enter_by_ticket(ticket) is not None
    assert [known.caller(one) is not None for one in own].count(True) == 3
    assert known.caller(own[-1]) == Caller("eve", Role.VIEWER)


def test_a_ticket_is_not_used_up_by_a_look_at_it(tokens: Tokens, clock: Clock) -> None:
    token, row = tokens.make("ann", Role.USER)
    known = Sessions(tokens, clock)
    ticket = known.ticket(token)
    assert ticket is not None

    assert [known.ticket_holder(ticket) for _ in range(3)] == [Caller("ann", Role.USER)] * 3
    assert known.enter_by_ticket(ticket) is not None
    assert known.ticket_holder(ticket) is None
    other = known.ticket(token)
    tokens.revoke(row.id)
    assert known.ticket_holder(other or "") is None


def test_a_session_ends_when_its_token_expires(tokens: Tokens, clock: Clock) -> None:
    token, _ = tokens.make("ann", Role.USER, expires_s=60.0)
    known = Sessions(tokens, clock)
    session = known.enter_by_token(token)
    assert session is not None

    clock.now_s += 59.0
    assert known.caller(session) is not None
    clock.now_s += 1.0
    assert known.caller(session) is None
    assert known.enter_by_token(token) is None


def test_an_address_signs_in_so_often_and_no_more(tokens: Tokens, clock: Clock) -> None:
    token, _ = tokens.make("ann", Role.USER)
    front = gate_of(tokens, clock, ServerBounds(logins_per_minute=5))

    async def ask(address: str, shown: str) -> httpx.Response:
        way = httpx.ASGITransport(front, client=(address, 1))
        async with httpx.AsyncClient(transport=way, base_url="http://here") as browser:
            return await browser.post("/login", data={"token": shown})

    def log_in(address: str, shown: str) -> httpx.Response:
        """Ask in a thread of its own: a browser may have left a loop in this one."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, ask(address, shown)).result()

    told = [log_in("10.0.0.1", "wrong").status_code for _ in range(6)]
    refused = log_in("10.0.0.1", token)

    assert told == [401] * 5 + [429]
    assert (refused.status_code, "set-cookie" in refused.headers) == (429, False)
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert log_in("10.0.0.2", token).status_code == 200


def test_who_opens_page_after_page_is_told_to_wait_and_nobody_else(
    tokens: Tokens, clock: Clock
) -> None:
    ann, bob = (tokens.make(name, Role.VIEWER)[0] for name in ("ann", "bob"))
    pages = FastAPI()
    pages.add_api_route("/{path:path}", lambda path: "a page")

    async def play() -> dict[str, list[int]]:
        front = gate_of(tokens, clock, ServerBounds(pages_per_s=0.1))  # three in a row
        front._pages = asyncio.get_running_loop().create_future()
        front._pages.set_result(pages)
        way = httpx.ASGITransport(front)
        told: dict[str, list[int]] = {}
        for token in (ann, bob):
            async with httpx.AsyncClient(transport=way, base_url="http://here") as browser:
                await browser.post(LOGIN, data={"token": token})
                paths = ["/"] * 5 + ["/_nicegui/script.js"]
                answers = [await browser.get(path) for path in paths]
                told[token] = [one.status_code for one in answers]
        return told

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(asyncio.run, play()).result()

    expected = [200, 200, 200, 429, 429, 200]
    assert told == {ann: expected, bob: expected}


def test_rates_come_back_with_time_and_are_kept_of_few(clock: Clock) -> None:
    rates = RateLimit(2.0, 3.0, clock)
    assert [rates.wait_s("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock.now_s += 0.5
    assert [rates.wait_s("a"), rates.wait_s("a")] == [0.0, 0.5]
    for who in range(3 * KNOWN_MAX):
        assert rates.wait_s(who) == 0.0
    assert len(rates._left) <= KNOWN_MAX
