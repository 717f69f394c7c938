"""Sessions and tickets: how long they last, and what ends them."""

from pathlib import Path

import pytest

from interlane.live.auth import Caller, Role, Tokens
from interlane.live.store.store import Store
from interlane.pages.sessions import SESSION_S, TICKET_S, Sessions


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


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
