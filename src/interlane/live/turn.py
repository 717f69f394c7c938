"""Whose turn it is to serve a database, and what becomes of what another server began.

The server that serves counts up a number in the database while it lives.  Another one finds it
dead when it can take the lock of its folder, if that is on this host, or when the number has
stood still for ``DEAD_S``.  To take over is one row changed: from then on the other one can
store nothing, so that it begins nothing either, and ends when it notices.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from interlane.live.folder import Holder, holder_in
from interlane.live.store.rows import Life
from interlane.live.store.store import Store, StoreFailed, Superseded
from interlane.model import InvalidInput

BEAT_S: Final = 2.0
DEAD_S: Final = 10.0
"""Seconds without a beat after which a server counts as dead."""

LOOK_S: Final = 0.5
SHOWN: Final = 5
"""Jobs that a sentence names."""

log = logging.getLogger("interlane.live")

Unreachable = Callable[[str], str | None]
"""Says why nobody here can tell what became of a holder's attempts; None if somebody can."""


class Taking(StrEnum):
    """What a server does if another may serve its database."""

    REFUSE = "refuse"
    NOW = "now"
    """Take over; what cannot be asked about is unknown."""
    WAIT = "wait"
    """Take over once the other is dead."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A database that may be in use, and who wants to serve it."""

    store: Store
    mine: Holder | None
    """None where whoever asks can ask for everything."""
    unreachable: Unreachable
    taking: Taking
    say: Callable[[str], None]

    def take(self) -> None:
        """Wait for the turn or refuse it, and take the database over."""
        server = "" if self.mine is None else str(self.mine)
        while True:
            life = self._first()
            self._check_held()
            try:
                self.store.begin_epoch(server, life.number)
            except Superseded:
                if self.taking is not Taking.WAIT:
                    raise
            else:
                return

    def _check_held(self) -> None:
        """Say what nobody here can look at, or refuse to begin beside it."""
        held = self._out_of_reach()
        if held and self.taking is Taking.REFUSE:
            raise InvalidInput(_refusal(held))
        for job_id, why in held.items():
            self.say(f"Job {job_id} is left unknown. {why}")

    def _first(self) -> Life:
        """Return the life that is over, or that is to end."""
        life, since_s, has_said = self._life(), time.monotonic(), False
        while self.taking is not Taking.NOW and not self._is_over(life, since_s):
            if not has_said:
                has_said = True
                self.say(self._waits_for(life))
            time.sleep(LOOK_S)
            now = self._life()
            if now != life:
                if self.taking is Taking.REFUSE and now.server == life.server:
                    raise InvalidInput(_is_served(life))
                life, since_s = now, time.monotonic()
        return life

    def _life(self) -> Life:
        """Return who serves; a standby outlives a database that is away for a while."""
        while True:
            try:
                return self.store.life()
            except StoreFailed as error:
                if self.taking is not Taking.WAIT:
                    raise
                log.warning("The database cannot be looked at: %s", error)
                time.sleep(BEAT_S)

    def _is_over(self, life: Life, since_s: float) -> bool:
        """Tell whether nobody serves who could be in the way."""
        if not life.server or self._is_mine(life.server):
            return True
        holder = holder_in(life.server)
        if holder is not None and holder.is_here and self.unreachable(life.server) is None:
            return True  # its folder has no server, and gets none: we have its lock
        return time.monotonic() - since_s >= DEAD_S

    def _is_mine(self, server: str) -> bool:
        """Tell whether the last server was that of our own folder, whose lock we have."""
        other, mine = holder_in(server), self.mine
        if other is None or mine is None or not other.is_here:
            return False
        return other.folder == mine.folder or other.path == mine.path

    def _waits_for(self, life: Life) -> str:
        who = _place(life.server)
        if self.taking is Taking.WAIT:
            return f"Standing by: the server of {who} serves this database."
        return f"The server of {who} has not signed off; {DEAD_S:g} s will show if it lives."

    def _out_of_reach(self) -> dict[str, str]:
        """Return the jobs that others hold and that nobody here can look at, with why."""
        return {
            record.id: why
            for record in self.store.open_jobs()
            if record.state.holds and (why := self.unreachable(record.holder)) is not None
        }


class Beats:
    """Shows others that this server lives, and notices when another has taken over."""

    def __init__(
        self,
        store: Store,
        now_s: Callable[[], float],
        lost: Callable[[Superseded], None],
        every_s: float = BEAT_S,
    ) -> None:
        self._store = store
        self._now_s = now_s
        self._lost = lost
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and say so."""
        self._closing.set()
        self._thread.join()
        with suppress(StoreFailed):
            self._store.sign_off()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self._store.beat(self._now_s())
            except Superseded as error:
                self._lost(error)
                return
            except StoreFailed as error:
                log.warning("Nobody sees that this server lives: %s", error)


def _place(server: str) -> str:
    holder = holder_in(server)
    return server if holder is None else holder.place


def _is_served(life: Life) -> str:
    return (
        f"The server of {_place(life.server)} serves this database; end it, wait for its end "
        "with --standby, or take over with --take-over."
    )


def _refusal(held: dict[str, str]) -> str:
    jobs: Collection[str] = list(held)[:SHOWN]
    more = " and others" if len(held) > SHOWN else ""
    why = next(iter(held.values()))
    return (
        f"Nobody here can tell whether {', '.join(jobs)}{more} still run: {why} Start that "
        "server, or this one with --take-over, which leaves them unknown."
    )
