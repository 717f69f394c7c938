"""Who may do what: tokens and roles.

A token is shown once, when it is made; the store keeps its digest.  Tokens are 256 random
bits, so that a plain digest is as good as a slow one.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Literal

from pydantic import Field

from interlane.live.files.fields import Strict
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import TokenRow
from interlane.live.store.store import Store
from interlane.model import InterlaneError, InvalidField, UnknownName

PREFIX: Final = "il"
TOKEN_BYTES: Final = 32
NAME_MAX: Final = 64


class Role(IntEnum):
    """What a token allows; each role may do what those before it may."""

    VIEWER = 0
    """Look at everything."""
    USER = 1
    """Hand in jobs, and cancel one's own."""
    ADMIN = 2
    """Take back anybody's jobs; make and revoke tokens."""

    @property
    def word(self) -> str:
        """The role as users write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever showed a token."""

    name: str
    role: Role
    token_id: str = field(default="", compare=False)
    """Which token it was."""

    def insist(self, role: Role) -> None:
        """Raise unless the caller has at least this role."""
        if self.role < role:
            raise Denied(
                f"The token of {self.name} has the role {self.role.word}, but this needs "
                f"{role.word}; ask an admin for another."
            )

    def insist_may_cancel(self, record: JobRecord) -> None:
        """Raise unless a job is the caller's own, or the caller an admin."""
        self.insist(Role.USER)
        if not self.may_cancel(record):
            raise Denied(
                f"Job {record.id} is {record.user}'s; only they or an admin may cancel it."
            )

    def may_cancel(self, record: JobRecord) -> bool:
        """Tell whether a job is the caller's own, or the caller an admin."""
        return self.role >= Role.ADMIN or (self.role >= Role.USER and record.user == self.name)


class NewToken(Strict):
    """A token that is wanted."""

    name: str = Field(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00-\x1f]*$")
    role: Literal["viewer", "user", "admin"]


class Denied(InterlaneError):
    """The caller's role does not suffice."""


def acting(caller: Caller | None, role: Role) -> Caller:
    """Return who acts, or raise unless they may; nobody may whose token counts no longer."""
    if caller is None:
        raise Denied("Your session is over; sign in again.")
    caller.insist(role)
    return caller


def role_of(word: str) -> Role:
    """Return the role of this name."""
    for role in Role:
        if role.word == word:
            return role
    raise UnknownName("role", word, [role.word for role in Role])


class Tokens:
    """Makes, checks and revokes tokens."""

    name_max: Final = NAME_MAX
    """Characters that a name may have."""

    def __init__(self, store: Store, now_s: Callable[[], float]) -> None:
        self._store = store
        self._now_s = now_s
        self._lock = threading.Lock()
        self._valid = self._read()
        self.on_revoke: Callable[[], None] = lambda: None
        """Told when a token counts no longer."""

    def __len__(self) -> int:
        return len(self._valid)

    def make(self, name: str, role: Role) -> tuple[str, TokenRow]:
        """Make a token; return it, for the only time, and what is stored of it."""
        if not 0 < len(name) <= NAME_MAX or not name.isprintable():
            raise InvalidField("name", name, f"it must be 1 to {NAME_MAX} printable characters")
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(TOKEN_BYTES)
        row = TokenRow(token_id, name, role.word, _digest(secret), self._now_s())
        self._store.add_token(row)
        with self._lock:
            self._valid[token_id] = row
        return f"{PREFIX}_{token_id}_{secret}", row

    def caller(self, token: str) -> Caller | None:
        """Return whose token this is; None if it is nobody's."""
        token_id = self.id_of(token)
        return None if token_id is None else self.holder(token_id)

    def id_of(self, token: str) -> str | None:
        """Return the id of a valid token."""
        prefix, _, rest = token.partition("_")
        token_id, _, secret = rest.partition("_")
        row = self._valid.get(token_id)
        if prefix != PREFIX or row is None or not compare_digest(_digest(secret), row.digest):
            return None
        return token_id

    def holder(self, token_id: str) -> Caller | None:
        """Return whose token has this id; None once it is revoked."""
        row = self._valid.get(token_id)
        return None if row is None else Caller(row.name, role_of(row.role), token_id)

    def all(self) -> list[TokenRow]:
        """Return what is stored of all tokens, revoked ones too."""
        return self._store.tokens()

    def revoke(self, token_id: str) -> bool:
        """Let a token count no longer; return whether it did."""
        with self._lock:
            self._valid.pop(token_id, None)
        was_valid = self._store.revoke_token(token_id, self._now_s())
        self.on_revoke()
        return was_valid

    def _read(self) -> dict[str, TokenRow]:
        return {row.id: row for row in self._store.tokens() if row.revoked_s is None}


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
