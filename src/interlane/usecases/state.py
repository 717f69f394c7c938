"""Copies of a server's state: made while it serves, put back, and looked through."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from interlane.live import folder
from interlane.live.archive import Archive
from interlane.live.auth import Tokens, role_of
from interlane.live.store.record import JobRecord, UnreadableRecord, fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store, StoreFailed
from interlane.live.store.tables import VERSION
from interlane.live.up import ARCHIVE_FOLDER, DATABASE_FILE, RUNS_FOLDER, database_of
from interlane.model import InterlaneError, InvalidInput
from interlane.wiring import look_through_runs

TRIES: Final = 5
"""Looks at a database that a server writes to meanwhile."""

EVERYTHING: Final = 10**9
SHOWN: Final = 20
"""Findings of a kind that are named."""


# -- copies ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a database."""

    path: Path
    jobs: int
    entries: int


def back_up(state: Path, to: Path, database_url: str | None = None) -> Copied:
    """Copy the database of a folder into a new file; its server may run meanwhile."""
    file = _file_of(state, database_url)
    if not file.is_file():
        raise InvalidInput(f"There is no database in {state}; name the folder with --state.")
    try:
        os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise InvalidInput(f"{to} is there already; name a file that is not.") from None
    try:
        _copy(file, to)
        return _looked_at(to)
    except BaseException:
        to.unlink()
        raise


@dataclass(frozen=True, slots=True)
class Restored:
    """A database that was put back."""

    copy: Copied
    kept: Path | None
    """Where that is which was there before; None if nothing was."""


def restore(
    state: Path, copy: Path, database_url: str | None = None, *, of_another: bool = False
) -> Restored:
    """Put a copy in the place of a folder's database; what was there is kept beside it.

    Unless that is accepted, it must be a copy of that database and not ``of_another``.
    """
    file = _file_of(state, database_url)
    if not copy.is_file():
        raise InvalidInput(f"There is no file {copy}.")
    found = _looked_at(copy)
    folder.prepare(state)
    with _alone(state):
        new = file.with_name(f"{file.name}.restored")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _copy(copy, new)
        _check_whose(state, new, of_another=of_another)
        kept = _moved_away(file)
        new.replace(file)
    return Restored(found, kept)


def _file_of(state: Path, database_url: str | None) -> Path:
    """Return the file of a database, or say what copies the others."""
    if database_url is None:
        return state / DATABASE_FILE
    if not database_url.startswith("sqlite:///"):
        raise InvalidInput(
            "This copies files of SQLite only; copy PostgreSQL with pg_dump -Fc, and put it "
            "back with pg_restore --clean while no server runs."
        )
    return Path(database_url.removeprefix("sqlite:///"))


def _copy(file: Path, to: Path) -> None:
    """Copy a database as it is at one moment, with what is not in its main file yet."""
    with (
        closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as old,
        closing(sqlite3.connect(to)) as new,
    ):
        try:
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.DatabaseError as error:
            raise StoreFailed(f"{file} cannot be copied ({error}).") from None


def _looked_at(file: Path) -> Copied:
    """Return what a copy holds, or say why it is none."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            (sound,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise InvalidInput(f"{file} is damaged ({sound}); take another copy.")
            (version,) = database.execute("SELECT version FROM life").fetchone()
            (jobs,) = database.execute("SELECT count(*) FROM jobs").fetchone()
            (entries,) = database.execute("SELECT count(*) FROM log").fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        raise InvalidInput(f"{file} is no database of interlane ({error}).") from None
    if version > VERSION:
        raise InvalidInput(
            f"{file} was made by a newer interlane (tables of version {version}, this one "
            f"knows {VERSION}); use that one."
        )
    return Copied(file, jobs, entries)


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    file = folder.lock(state)
    if file is None:
        raise InvalidInput(f"A server uses {state}; end it first with 'interlane down'.")
    with file:
        yield


def _check_whose(state: Path, copy: Path, *, of_another: bool) -> None:
    """Refuse the database of another folder; an older one has no id, and is believed."""
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as database:
        names = {row[1] for row in database.execute("PRAGMA table_info(life)")}
        asked = "SELECT identity FROM life" if "identity" in names else "SELECT NULL"
        (identity,) = database.execute(asked).fetchone()
    known = folder.identified(state).database
    if identity is not None and known not in (None, identity) and not of_another:
        copy.unlink()
        raise InvalidInput(
            f"This is a copy of another server's database than that of {state}; name a new "
            "folder with --state, or say --of-another if it is meant."
        )
    folder.note_database(state, identity)


def _moved_away(file: Path) -> Path | None:
    """Move a database out of the way, with all of its files."""
    kept = next(
        one
        for number in count(1)
        if not (one := file.with_name(f"{file.name}.before-restore-{number}")).exists()
    )
    for end in ("-wal", "-shm", ""):
        part = file.with_name(f"{file.name}{end}")
        if part.exists():
            part.replace(kept.with_name(f"{kept.name}{end}"))
    return kept if kept.exists() else None


# -- looking through ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateFindings:
    """What is wrong with a server's state, and what is worth knowing."""

    jobs: int
    entries: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as what JSON knows."""
        return asdict(self)


def check(state: Path, database_url: str | None = None) -> StateFindings:
    """Look through a folder and its database; its server may run meanwhile."""
    if database_url is None and not (state / DATABASE_FILE).is_file():
        raise InvalidInput(f"There is no database in {state}; name the folder with --state.")
    if database_url is None:
        _looked_at(state / DATABASE_FILE)
    past = Archive(state / ARCHIVE_FOLDER)
    store = Store(database_of(state, database_url), past, only_reads=True)
    try:
        records, entries, problems = _compared(store)
    finally:
        store.close()
    runs = look_through_runs(state / RUNS_FOLDER, records)
    wrong = (*problems, *runs.problems[:SHOWN])
    return StateFindings(len(records), entries, wrong, runs.remarks[:SHOWN])


def _compared(store: Store) -> tuple[list[JobRecord], int, list[str]]:
    """Fold the log, and compare it with the records, between two commits of a server."""
    for _ in range(TRIES):
        seq = store.ends().seq
        records = store.jobs(JobsWanted(limit=EVERYTHING))
        try:
            log = list(store.whole_log())
            told = fold(log)
        except (InterlaneError, ValueError, KeyError, TypeError) as error:
            return records, seq, [f"The log cannot be followed: {error}", *_unread(records)]
        if store.ends().seq == seq:
            break
    whole_from = store.whole_from()
    differ = [
        f"The record of {one.id} is not what the log tells."
        for one in records
        if not isinstance(one, UnreadableRecord) and one.id in told and told[one.id] != one
    ]
    missing = [f"{job_id} is in the log and has no record." for job_id in told]
    known = {one.id for one in records}
    lost = [said for job_id, said in zip(told, missing, strict=True) if job_id not in known]
    gap = [f"Entries before {whole_from} are missing from the log."] if whole_from > 1 else []
    return records, len(log), [*_unread(records), *differ[:SHOWN], *lost[:SHOWN], *gap]


def _unread(records: list[JobRecord]) -> list[str]:
    bad = [one for one in records if isinstance(one, UnreadableRecord)]
    return [f"{one.id}: {one.reason}" for one in bad[:SHOWN]]


# -- a way back in --------------------------------------------------------------------


def make_token(
    state: Path, name: str, role: str, now_s: float, database_url: str | None = None
) -> str:
    """Make a token without a server; the database must be there, and its server down."""
    if database_url is None and not (state / DATABASE_FILE).is_file():
        raise InvalidInput(f"There is no database in {state}; name the folder with --state.")
    with _alone(state):
        store = Store(database_of(state, database_url), only_reads=True)
        try:
            return Tokens(store, lambda: now_s).make(name, role_of(role))[0]
        finally:
            store.close()
