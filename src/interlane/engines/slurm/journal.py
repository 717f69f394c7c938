"""What Slurm forgets: which attempts we asked it for, and how they ended.

Slurm drops a job's record some minutes after its end (``MinJobAge``).  A server that was away
for longer would not know whether an attempt has run, and would have to run it again or to give
it up.  So what was asked for is noted before it is asked, and what came of it when it is seen.
The journal lies in the server's folder and is no record of what runs: that is Slurm's.
"""

import sqlite3
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from interlane.live.port import Attempt, Ended

FILE: Final = "slurm.db"
_SCHEMA: Final = """
create table if not exists attempt (
    job_id text, number integer, uid text, stage text not null, at_s real not null,
    exit_code integer, why text, output text not null default '', owner integer,
    serial integer not null,
    primary key (job_id, number, uid)
)
"""


class Stage(StrEnum):
    """How far an attempt has come, as far as we know."""

    FENCED = "fenced"
    """It has not begun, and never will."""
    ASKED = "asked"
    STOPPING = "stopping"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Noted:
    """What the journal has of an attempt."""

    stage: Stage
    at_s: float
    exit_code: int | None
    why: str | None
    output: str
    owner: int | None
    """Whose the file must be that it prints to."""

    def ended(self, attempt: Attempt) -> Ended:
        """Return the end that was noted."""
        return Ended(attempt, self.exit_code, self.why)


class SlurmJournal:
    """See the module's text; any thread may use it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(folder / FILE, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def get(self, attempt: Attempt) -> Noted | None:
        """Return what is known of an attempt."""
        with self._lock:
            row = self._db.execute(
                "select stage, at_s, exit_code, why, output, owner from attempt "
                "where job_id=? and number=? and uid=?",
                _key(attempt),
            ).fetchone()
        return None if row is None else Noted(Stage(row[0]), *row[1:])

    def ask(self, attempt: Attempt, serial: int) -> Stage:
        """Note that an attempt is asked for; return how far it had come before, if it had."""
        return self._put(attempt, Stage.ASKED, serial)

    def fence(self, attempt: Attempt) -> Stage:
        """Note that an attempt never begins, unless it was asked for before."""
        return self._put(attempt, Stage.FENCED, 0)

    def _put(self, attempt: Attempt, stage: Stage, serial: int) -> Stage:
        """Note a stage unless there is one; return the one that there is."""
        with self._lock:
            self._db.execute(
                "insert or ignore into attempt (job_id, number, uid, stage, at_s, serial) "
                "values (?, ?, ?, ?, ?, ?)",
                (*_key(attempt), stage, time.time(), serial),
            )
            (found,) = self._db.execute(
                "select stage from attempt where job_id=? and number=? and uid=?", _key(attempt)
            ).fetchone()
        return Stage(found)

    def never_began(self, attempt: Attempt) -> None:
        """Note that an attempt which was asked for has not begun."""
        self._set(attempt, Stage.FENCED)

    def stopping(self, attempt: Attempt) -> None:
        """Note that an attempt is to stop."""
        self._set(attempt, Stage.STOPPING)

    def over(self, ended: Ended) -> None:
        """Note how an attempt ended."""
        self._set(ended.attempt, Stage.OVER, ended.exit_code, ended.why)

    def _set(
        self,
        attempt: Attempt,
        stage: Stage,
        exit_code: int | None = None,
        why: str | None = None,
    ) -> None:
        with self._lock:
            self._db.execute(
                "update attempt set stage=?, exit_code=?, why=? "
                "where job_id=? and number=? and uid=? and stage not in ('over', 'fenced')",
                (stage, exit_code, why, *_key(attempt)),
            )

    def prints_to(self, attempt: Attempt, path: str, owner: int) -> None:
        """Note where an attempt prints to, and as whom."""
        with self._lock:
            self._db.execute(
                "update attempt set output=?, owner=? where job_id=? and number=? and uid=?",
                (path, owner, *_key(attempt)),
            )

    def serial(self) -> int:
        """Return the highest number of a job that was asked for."""
        with self._lock:
            (found,) = self._db.execute("select max(serial) from attempt").fetchone()
        return int(found or 0)

    def forget(self, keep_s: float) -> None:
        """Forget what ended long ago."""
        with self._lock:
            self._db.execute(
                "delete from attempt where at_s < ? and stage in ('over', 'fenced')",
                (time.time() - keep_s,),
            )


def _key(attempt: Attempt) -> tuple[str, int, str]:
    return attempt.job_id, attempt.number, attempt.uid
