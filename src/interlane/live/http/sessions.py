"""Who is looking: sessions of browsers, and tickets that begin one.

A session belongs to a token and lasts no longer than it: whoever revokes the token ends its
sessions.  Browsers and links carry random secrets of which only digests are kept here, in
memory; a server that starts anew asks everybody again.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from interlane.live.auth import Caller, Tokens

SESSION_S: Final = 12 * 3600.0
TICKET_S: Final = 600.0
KEPT_MAX: Final = 20
"""Sessions or tickets of one token; its oldest make way."""

SECRET_BYTES: Final = 32

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Pass:
    token_id: str
    ends_s: float


class Passes:
    """Secrets that stand for a token for a while."""

    def __init__(self, now_s: Clock, life_s: float, kept_max: int) -> None:
        self._now_s = now_s
        self._kept_max = kept_max
        self._life_s = life_s
        self._lock = threading.Lock()
        self._kept: dict[str, _Pass] = {}

    def make(self, token_id: str) -> str:
        """Return a new secret."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        now_s = self._now_s()
        with self._lock:
            self._kept = {of: one for of, one in self._kept.items() if one.ends_s > now_s}
            own = [of for of, one in self._kept.items() if one.token_id == token_id]
            for of in own[: max(0, len(own) - self._kept_max + 1)]:
                del self._kept[of]
            self._kept[_digest(secret)] = _Pass(token_id, now_s + self._life_s)
        return secret

    def token_id(self, secret: str) -> str | None:
        """Return whose token a secret stands for; None if for nobody's, or no longer."""
        with self._lock:
            return self._good(self._kept.get(_digest(secret)))

    def take(self, secret: str) -> str | None:
        """Return the same, and let the secret count no longer."""
        with self._lock:
            return self._good(self._kept.pop(_digest(secret), None))

    def _good(self, found: _Pass | None) -> str | None:
        return found.token_id if found is not None and found.ends_s > self._now_s() else None


class Sessions:
    """Lets browsers in by token or ticket, and knows them again."""

    def __init__(self, tokens: Tokens, now_s: Clock, kept_max: int = KEPT_MAX) -> None:
        self._tokens = tokens
        self._sessions = Passes(now_s, SESSION_S, kept_max)
        self._tickets = Passes(now_s, TICKET_S, kept_max)

    def ticket(self, token: str) -> str | None:
        """Return a ticket that lets its bearer in once; None if the token is not valid."""
        token_id = self._tokens.id_of(token)
        return None if token_id is None else self._tickets.make(token_id)

    def ticket_holder(self, ticket: str) -> Caller | None:
        """Return who would be signed in by a ticket; it is not used up."""
        token_id = self._tickets.token_id(ticket)
        return None if token_id is None else self._tokens.holder(token_id)

    def enter_by_token(self, token: str) -> str | None:
        """Begin a session; return its secret."""
        return self._begun(self._tokens.id_of(token))

    def enter_by_ticket(self, ticket: str) -> str | None:
        """Begin a session; return its secret.  A ticket is good for one."""
        return self._begun(self._tickets.take(ticket))

    def caller(self, secret: str) -> Caller | None:
        """Return whose session this is, as their token stands now."""
        token_id = self._sessions.token_id(secret)
        return None if token_id is None else self._tokens.holder(token_id)

    def leave(self, secret: str) -> None:
        """End a session."""
        self._sessions.take(secret)

    def _begun(self, token_id: str | None) -> str | None:
        if token_id is None or self._tokens.holder(token_id) is None:
            return None
        return self._sessions.make(token_id)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
