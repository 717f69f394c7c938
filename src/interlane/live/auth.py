"""Who may do what: tokens and roles.

A token is shown once, when it is made; the store keeps its digest.  Tokens are 256 random
bits, so that a plain digest is as good as a slow one.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from math import inf
from typing import Final, Literal

from pydantic import Field

from interlane.live.files.fields import Amount, Strict
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import TokenRow
from interlane.live.store.store import Store
from interlane.model import InterlaneError, InvalidField, UnknownName

PREFIX: Final = "il"
TOKEN_BYTES: Final = 32
NAME_MAX: Final = 64
EXPIRES_S_MAX: Final = 100 * 366 * 86_400.0


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

    def owns(self, user: str) -> bool:
        """Tell whether what is somebody's is the caller's, or the caller an admin."""
        return self.role >= Role.ADMIN or user == self.name

    def insist_may_cancel(self, record: JobRecord) -> None:
        """Raise unless a job is the caller's own, or the caller an admin."""
        self.insist(Role.USER)
        if not self.may_cancel(record):
            raise Denied(
                f"Job {record.id} is {record.user}'s; only they or an admin may cancel it."
            )

    def insist_may_change(self, record: JobRecord) -> None:
        """Raise unless a job is the caller's own, or the caller an admin."""
        self.insist(Role.USER)
        if not self.may_cancel(record):
            said = f"Job {record.id} is {record.user}'s; only they or an admin may change it."
            raise Denied(said)

    def may_cancel(self, record: JobRecord) -> bool:
        """Tell whether a job is the caller's own, or the caller an admin."""
        return self.role >= Role.USER and self.owns(record.user)


class NewToken(Strict):
    """A token that is wanted."""

    name: str = Field(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00-\x1f]*$")
    role: Literal["viewer", "user", "admin"]
    expires: Amount | None = Field(
        default=None, description="After so long it counts no longer, as in 30d."
    )
    same_account: bool = Field(
        default=False, description="The name has a token already, and this is another of it."
    )


class NameTaken(InterlaneError):
    """Somebody else has a token of this name."""


class NoSuchToken(InterlaneError):
    """There is no such token, or it counts no longer."""


class Denied(InterlaneError):
    """The caller's role does not suffice."""


class LastAdmin(InterlaneError):
    """Without this token nobody could make others."""


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
        return sum(self._counts(row) for row in tuple(self._valid.values()))

    def make(
        self,
        name: str,
        role: Role,
        *,
        expires_s: float | None = None,
        same_account: bool = False,
    ) -> tuple[str, TokenRow]:
        """Make a token; return it, for the only time, and what is stored of it.

        Jobs and functions belong to a name; so two people must not get the same by mistake.
        """
        if not 0 < len(name) <= NAME_MAX or not name.isprintable():
            raise InvalidField("name", name, f"it must be 1 to {NAME_MAX} printable characters")
        if expires_s is not None and not 0 < expires_s < EXPIRES_S_MAX:
            raise InvalidField("expires", expires_s, "it must be above 0 s, up to 100 years")
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(TOKEN_BYTES)
        now_s = self._now_s()
        ends_s = None if expires_s is None else now_s + expires_s
        row = TokenRow(token_id, name, role.word, _digest(secret), now_s, ends_s)
        with self._lock:
            if not same_account:
                self._must_be_free(name)
            self._store.add_token(row)
            self._valid[token_id] = row
        return f"{PREFIX}_{token_id}_{secret}", row

    def rotate(
        self, token_id: str, *, grace_s: float = 0.0, expires_s: float | None = None
    ) -> tuple[str, TokenRow]:
        """Make another token in the place of one, which counts for a while yet."""
        row = self._valid.get(token_id)
        if row is None or not self._counts(row):
            raise NoSuchToken(f"There is no valid token {token_id!r}.")
        made = self.make(row.name, role_of(row.role), expires_s=expires_s, same_account=True)
        self.revoke(token_id, after_s=grace_s)
        return made

    def _must_be_free(self, name: str) -> None:
        if any(row.name == name and self._counts(row) for row in self._valid.values()):
            raise NameTaken(
                f"{name} has a token already; rotate or revoke it, or say that this is another "
                "one of the same account (same_account)."
            )

    def _counts(self, row: TokenRow) -> bool:
        return row.is_valid(self._now_s())

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
        return token_id if self._counts(row) else None

    def holder(self, token_id: str) -> Caller | None:
        """Return whose token has this id; None once it is revoked."""
        row = self._valid.get(token_id)
        if row is None or not self._counts(row):
            return None
        return Caller(row.name, role_of(row.role), token_id)

    def all(self) -> list[TokenRow]:
        """Return what is stored of all tokens, revoked ones too."""
        return self._store.tokens()

    def revoke(self, token_id: str, *, after_s: float = 0.0) -> bool:
        """Let a token count no longer, or only for a while yet; return whether it did.

        The last admin's stays: nobody could make another.
        """
        now_s = self._now_s()
        with self._lock:
            self._must_not_be_last(token_id, now_s)
            row = self._valid.pop(token_id, None)
            was_valid = row is not None and row.is_valid(now_s)
            if row is not None and after_s > 0:
                ends_s = min(now_s + after_s, inf if row.revoked_s is None else row.revoked_s)
                self._valid[token_id] = replace(row, revoked_s=ends_s)
                self._store.end_token(token_id, ends_s)
            elif was_valid:
                self._store.end_token(token_id, now_s)
        self.on_revoke()
        return was_valid

    def _must_not_be_last(self, token_id: str, now_s: float) -> None:
        valid = [row for row in self._valid.values() if row.is_valid(now_s)]
        if {row.id for row in valid if row.role == Role.ADMIN.word} == {token_id}:
            raise LastAdmin(
                "This is the last token of an admin; make another before it is revoked."
            )

    def _read(self) -> dict[str, TokenRow]:
        now_s = self._now_s()
        return {row.id: row for row in self._store.tokens() if row.is_valid(now_s)}


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
