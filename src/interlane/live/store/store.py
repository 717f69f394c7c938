"""What outlives the server: the log, a record of every job, tokens and used keys.

A commit writes entries of the log and the records that follow from them in one transaction,
so that the records are a snapshot as new as the log, and starting never reads history.  When
``commit`` returns, everything in it is on disk: SQLite writes ahead with ``synchronous=FULL``.

One server at a time may write.  Each takes the next *life* when it begins, and every commit
says in whose life it is made; a server whose life is over is told so and must end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from interlane.live.files.job import check_spec
from interlane.live.store.database import engine_of, failure, safe_url
from interlane.live.store.opening import RESTORE, opened
from interlane.live.store.record import (
    SPEC,
    JobRecord,
    UnreadableRecord,
    document_record,
    dumped,
    fold,
    record_document,
    unreadable,
)
from interlane.live.store.rows import (
    DrainRow,
    Ends,
    FunctionRow,
    JobsPart,
    JobsWanted,
    Life,
    OldJob,
    Past,
    TokenRow,
    UsedKey,
)
from interlane.live.store.tables import (
    DRAINS,
    EPOCH,
    FUNCTIONS,
    JOBS,
    KEYS,
    LOG,
    TOKENS,
)
from interlane.model import InterlaneError, InvalidInput, JobChanged, JobId, LogEntry
from interlane.model.codec import entry_row, row_entry
from interlane.model.lifecycle import OPEN, JobState

PAGE: Final = 10_000
"""Entries read at a time when all of the log is."""


CAUSE_MAX: Final = 200
"""Letters that are shown of what cannot be read."""


class StoreFailed(InterlaneError):
    """The database did not take what it was given, or did not answer."""


class Superseded(InterlaneError):
    """Another server has taken this database over."""


class Store:
    """The database."""

    def __init__(self, url: str, past: Past | None = None, *, only_reads: bool = False) -> None:
        """Open a database; unless it is only read, it is made or brought up to date.

        What was moved out of it is found in its ``past``.
        """
        self.url = url
        self._past = past
        self._engine = self._connected(url)
        self._epoch = 0
        self._ends = Ends()
        self.unread: list[JobRecord] = []
        """Jobs that had not ended at the last look, and whose records cannot be read."""
        self.said: str | None = None
        """What the operator should know of how it was opened."""
        try:
            self.said = opened(self._engine, url, only_reads=only_reads)
        except SQLAlchemyError as error:
            self.close()
            raise StoreFailed(failure(url, error)) from error
        except InvalidInput:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _connected(self, url: str) -> Engine:
        return engine_of(url)

    # -- writing ----------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether this one has taken the database over."""
        return self._epoch > 0

    def life(self) -> Life:
        """Return who writes, or wrote last."""
        asked = select(EPOCH.c.identity, EPOCH.c.number, EPOCH.c.server, EPOCH.c.beat)
        with self._transaction() as connection:
            return Life(*connection.execute(asked).one())

    def begin_epoch(self, server: str = "", after: int | None = None) -> int:
        """Take the database over from whoever wrote before; return the number of the life.

        Where ``after`` is given, only if that was the last life.
        """
        mine = update(EPOCH).values(number=EPOCH.c.number + 1, server=server)
        if after is not None:
            mine = mine.where(EPOCH.c.number == after)
        with self._transaction() as connection:
            if connection.execute(mine).rowcount != 1:
                raise self._superseded()
            self._epoch = connection.execute(select(EPOCH.c.number)).scalar_one()
            self._ends = self._whole_ends(connection)
        return self._epoch

    def beat(self, at_s: float) -> None:
        """Let others see that this server lives; raises once another has taken over."""
        with self._transaction() as connection:
            self._claim(connection, {"beat": EPOCH.c.beat + 1, "at_s": at_s})

    def sign_off(self) -> None:
        """Let others see that this server has ended by itself."""
        ours = update(EPOCH).where(EPOCH.c.number == self._epoch)
        with self._transaction() as connection:
            connection.execute(ours.values(server=""))

    def commit(
        self,
        entries: Sequence[LogEntry],
        records: Iterable[JobRecord],
        keys: Sequence[UsedKey] = (),
        drains: Sequence[DrainRow] = (),
    ) -> None:
        """Store entries, the records after them, the keys they used and drains, or nothing."""
        if not entries and not drains:
            return
        made = {
            entry.job_id
            for entry in entries
            if SPEC in entry.detail and not isinstance(entry.what, JobChanged)
        }
        rows = [_job_row(record) for record in records]
        changed = [
            {"of": row["serial"], **{name: row[name] for name in _CHANGES}}
            for row in rows
            if row["id"] not in made
        ]
        ends = self._ends
        if entries:
            serial = max((row["serial"] for row in rows), default=0)
            ends = Ends(entries[-1].seq, entries[-1].at_s, max(ends.serial, serial))
        with self._transaction() as connection:
            self._claim(connection, asdict(ends))
            _insert(connection, LOG, [entry_row(entry) for entry in entries])
            _insert(connection, JOBS, [row for row in rows if row["id"] in made])
            if changed:
                connection.execute(_UPDATE_JOB, changed)
            _insert(connection, KEYS, [asdict(key) for key in keys])
            for row in drains:
                connection.execute(delete(DRAINS).where(DRAINS.c.machine_id == row.machine_id))
            _insert(connection, DRAINS, _last_of_each(drains))
        self._ends = ends

    def must_have_room(self) -> None:
        """Raise unless the server's disk has room for more than the smallest of commits."""
        if self._past is not None:
            self._past.must_have_room()

    def _claim(self, connection: Connection, new: dict[str, Any] | None = None) -> None:
        """Make sure that nobody else has begun to write; holds others off until the end."""
        ours = update(EPOCH).where(EPOCH.c.number == self._epoch)
        if connection.execute(ours.values(new or {"number": self._epoch})).rowcount != 1:
            raise self._superseded()

    def _superseded(self) -> Superseded:
        return Superseded(
            f"Another server has taken {safe_url(self.url)} over; this one stops."
        )

    def _whole_ends(self, connection: Connection) -> Ends:
        """Return where the log ends; a copy of an old database ends before its archive does."""
        ends, past = _ends(connection), self._past
        if past is None:
            return ends
        seq, serial = max(ends.seq, past.last_seq), max(ends.serial, past.newest_serial)
        return Ends(seq, ends.at_s, serial)

    # -- jobs and the log -------------------------------------------------------------

    def open_jobs(self) -> list[JobRecord]:
        """Return the jobs that have not ended, in the order of submission.

        Those whose records cannot be read are not among them: nobody can do anything for them,
        and they are no reason to do nothing for the others.
        """
        wanted = select(JOBS).where(JOBS.c.state.in_(sorted(OPEN)))
        found = self._records(wanted.order_by(JOBS.c.serial))
        self.unread = [record for record in found if isinstance(record, UnreadableRecord)]
        return [record for record in found if not isinstance(record, UnreadableRecord)]

    def job(self, job_id: str) -> JobRecord | None:
        """Return the record of a job."""
        found = self._records(select(JOBS).where(JOBS.c.id == job_id))
        if found or self._past is None:
            return found[0] if found else None
        old = self._past.job(job_id)
        return None if old is None else self._record(old)

    def jobs(self, wanted: JobsWanted) -> list[JobRecord]:
        """Return a page of jobs, the newest first."""
        asked = select(JOBS)
        if wanted.by_end:
            ended = asked.where(JOBS.c.ended_s.is_not(None)).order_by(JOBS.c.ended_s.desc())
            return self._records(ended.limit(wanted.limit))
        if wanted.before is not None:
            asked = asked.where(JOBS.c.serial < wanted.before)
        if wanted.after is not None:
            asked = asked.where(JOBS.c.serial > wanted.after)
        if wanted.states is not None:
            asked = asked.where(JOBS.c.state.in_(sorted(wanted.states)))
        if wanted.sweep is not None:
            asked = asked.where(JOBS.c.document.contains(wanted.mark, autoescape=True))
        if wanted.user is not None:
            asked = asked.where(JOBS.c.user == wanted.user)
        found = self._records(asked.order_by(JOBS.c.serial.desc()).limit(wanted.limit))
        return self._with_older(found, wanted)

    def _with_older(self, found: list[JobRecord], wanted: JobsWanted) -> list[JobRecord]:
        """Return a page with the jobs that were moved and belong there."""
        past, ended = self._past, wanted.states is None or not wanted.states <= OPEN
        is_full = len(found) == wanted.limit
        if past is None or not ended or (is_full and found[-1].serial > past.newest_serial):
            return found
        by_serial = {one.serial: self._old_record(one) for one in past.jobs(wanted)}
        by_serial |= {record.serial: record for record in found}
        return [by_serial[one] for one in sorted(by_serial, reverse=True)[: wanted.limit]]

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        counted = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        past = self._past
        with self._transaction() as connection:
            found = Counter({row[0]: row[1] for row in connection.execute(counted)})
            if past is not None:  # a part that is being moved is in both
                both = select(JOBS.c.id).where(JOBS.c.ended_s < past.until_s)
                found.update(past.counts(set(connection.execute(both).scalars())))
        return {one: found[one] for one in JobState if one is not JobState.GROWING}

    def ends(self) -> Ends:
        """Return where the log ends."""
        with self._transaction() as connection:
            return self._whole_ends(connection)

    def log(
        self, after: int = 0, limit: int = PAGE, job_id: str | None = None
    ) -> list[LogEntry]:
        """Return entries that follow one, the oldest first."""
        found = self._stored_log(after, limit, job_id)
        past = self._past
        if past is None:
            return found
        if job_id is not None:
            old = [] if found or after else past.log_of(job_id)
            return found or old[:limit]
        if after >= past.last_seq:
            return found
        by_seq = {entry.seq: entry for entry in (*past.log(after, limit), *found)}
        return [by_seq[seq] for seq in sorted(by_seq)[:limit]]

    def _stored_log(self, after: int, limit: int, job_id: str | None) -> list[LogEntry]:
        asked = select(LOG).where(LOG.c.seq > after).order_by(LOG.c.seq).limit(limit)
        if job_id is not None:
            asked = asked.where(LOG.c.job_id == job_id)
        with self._transaction() as connection:
            rows = [dict(row) for row in connection.execute(asked).mappings()]
        try:
            return [row_entry(row) for row in rows]
        except ValueError as error:
            raise self._unreadable(error) from None

    def whole_log(self) -> Iterator[LogEntry]:
        """Yield all of the log, the oldest entry first."""
        after = 0
        while page := self.log(after):
            yield from page
            after = page[-1].seq

    def used_keys(self, wanted: Iterable[tuple[str, str]]) -> list[UsedKey]:
        """Return those of the keys, each with its user, that were used before."""
        pairs = list(wanted)
        if not pairs:
            return []
        asked = select(KEYS).where(tuple_(KEYS.c.user, KEYS.c.key).in_(pairs))
        with self._transaction() as connection:
            return [
                UsedKey(row.user, row.key, row.digest, JobId(row.job_id))
                for row in connection.execute(asked)
            ]

    def _records(self, asked: Select[Any]) -> list[JobRecord]:
        with self._transaction() as connection:
            rows = [dict(row) for row in connection.execute(asked).mappings()]
        return [self._row_record(row) for row in rows]

    def _row_record(self, row: Mapping[str, Any]) -> JobRecord:
        """Return the record of a row; if it cannot be read, what the log tells of the job."""
        try:
            return self._record(row["document"])
        except StoreFailed:
            pass
        try:
            return _sound(fold(self._stored_log(0, PAGE, row["id"]))[JobId(row["id"])])
        except (StoreFailed, InterlaneError, ValueError, KeyError, TypeError) as error:
            cause = " ".join(str(error).split())[:CAUSE_MAX]
        why = f"Its record cannot be read ({cause}); use the version that wrote it, or a copy."
        try:
            state = JobState(row["state"])
        except ValueError:
            state = JobState.UNKNOWN
        return unreadable(row["serial"], row["id"], row["user"], state, why)

    def _record(self, text: str) -> JobRecord:
        try:
            return _sound(document_record(json.loads(text)))
        except (ValueError, KeyError, TypeError, RecursionError, InvalidInput) as error:
            raise self._unreadable(error) from None

    def _old_record(self, old: OldJob) -> JobRecord:
        try:
            return self._record(old.document)
        except StoreFailed as error:
            return unreadable(
                old.serial, f"unreadable-{old.serial}", "", JobState.FAILED, f"{error}"
            )

    def _unreadable(self, error: Exception) -> StoreFailed:
        cause = " ".join(str(error).split())[:CAUSE_MAX]
        return StoreFailed(
            f"The database {safe_url(self.url)} holds what interlane did not write ({cause}); "
            f"{RESTORE}."
        )

    # -- the past ---------------------------------------------------------------------

    def whole_from(self) -> int:
        """Return the first entry from which on none is missing."""
        with self._transaction() as connection:
            there = set(connection.execute(select(LOG.c.seq)).scalars())
        for seqs in () if self._past is None else self._past.seqs():
            there.update(seqs)
        seq = self.ends().seq
        while seq in there:
            seq -= 1
        return seq + 1

    def oldest_s(self) -> float | None:
        """Return when the first job of those here ended, or an entry about no job was made."""
        ended = select(func.min(JOBS.c.ended_s))
        made = select(func.min(LOG.c.at_s)).where(LOG.c.job_id.is_(None))
        with self._transaction() as connection:
            found = [connection.execute(asked).scalar() for asked in (ended, made)]
        return min((at_s for at_s in found if at_s is not None), default=None)

    def ended_between(self, begin_s: float, end_s: float, limit: int) -> JobsPart:
        """Return jobs that ended in a time, with their entries; else those about no job."""
        ended = (JOBS.c.ended_s >= begin_s) & (JOBS.c.ended_s < end_s)
        jobs = select(JOBS).where(ended).order_by(JOBS.c.serial).limit(limit)
        of_none = LOG.c.job_id.is_(None) & (LOG.c.at_s >= begin_s) & (LOG.c.at_s < end_s)
        with self._transaction() as connection:
            found = [dict(row) for row in connection.execute(jobs).mappings()]
            ids = [row["id"] for row in found]
            theirs = LOG.c.job_id.in_(ids) if ids else of_none
            log = connection.execute(select(LOG).where(theirs)).mappings()
            return JobsPart(found, [dict(row) for row in log])

    def forget(self, part: JobsPart) -> None:
        """Delete rows that are kept elsewhere now."""
        ids = [row["id"] for row in part.jobs]
        with self._transaction() as connection:
            self._claim(connection)
            if ids:
                connection.execute(delete(LOG).where(LOG.c.job_id.in_(ids)))
                connection.execute(delete(JOBS).where(JOBS.c.id.in_(ids)))
            else:
                seqs = [row["seq"] for row in part.log]
                moved = LOG.c.seq.between(min(seqs), max(seqs)) & LOG.c.job_id.is_(None)
                connection.execute(delete(LOG).where(moved))

    # -- tokens -----------------------------------------------------------------------

    def add_token(self, token: TokenRow) -> None:
        """Store a token."""
        with self._transaction() as connection:
            connection.execute(insert(TOKENS), [asdict(token)])

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, the oldest first."""
        asked = select(TOKENS).order_by(TOKENS.c.created_s, TOKENS.c.id)
        with self._transaction() as connection:
            return [TokenRow(**row) for row in connection.execute(asked).mappings()]

    def end_token(self, token_id: str, at_s: float) -> bool:
        """Let a token count until then, unless it ends before; return whether it did not."""
        ends_s = TOKENS.c.revoked_s
        still = (TOKENS.c.id == token_id) & (ends_s.is_(None) | (ends_s > at_s))
        with self._transaction() as connection:
            done = connection.execute(update(TOKENS).where(still).values(revoked_s=at_s))
        return done.rowcount == 1

    # -- machines ---------------------------------------------------------------------

    def drains(self) -> list[DrainRow]:
        """Return the machines that are drained, by name."""
        asked = select(DRAINS).order_by(DRAINS.c.machine_id)
        with self._transaction() as connection:
            rows = connection.execute(asked).mappings().all()
        return [DrainRow(row["machine_id"], True, row["by"], row["at_s"]) for row in rows]

    # -- functions --------------------------------------------------------------------

    def put_function(self, row: FunctionRow) -> None:
        """Store a function, in place of the one of its name."""
        with self._transaction() as connection:
            self._claim(connection)
            connection.execute(delete(FUNCTIONS).where(FUNCTIONS.c.name == row.name))
            connection.execute(insert(FUNCTIONS), [asdict(row)])

    def drop_function(self, name: str) -> None:
        """Forget a function."""
        with self._transaction() as connection:
            self._claim(connection)
            connection.execute(delete(FUNCTIONS).where(FUNCTIONS.c.name == name))

    def functions(self) -> list[FunctionRow]:
        """Return all functions by name."""
        asked = select(FUNCTIONS).order_by(FUNCTIONS.c.name)
        with self._transaction() as connection:
            return [FunctionRow(**row) for row in connection.execute(asked).mappings()]

    # -- transactions -----------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreFailed(failure(self.url, error)) from error


def _sound(record: JobRecord) -> JobRecord:
    """Return a record, or raise if its job could not be understood when it is scheduled."""
    check_spec(record.job)
    return record


_CHANGES: Final = ("state", "ended_s", "document")
"""Columns of a job that change."""

_UPDATE_JOB: Final = (
    update(JOBS)
    .where(JOBS.c.serial == bindparam("of"))
    .values({name: bindparam(name) for name in _CHANGES})
)


def _ends(connection: Connection) -> Ends:
    row = connection.execute(select(EPOCH.c.seq, EPOCH.c.at_s, EPOCH.c.serial)).one()
    return Ends(row.seq, row.at_s, row.serial)


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _last_of_each(drains: Sequence[DrainRow]) -> list[dict[str, Any]]:
    """Return rows of machines that are drained after all of these."""
    last = {row.machine_id: row for row in drains}
    return [
        {"machine_id": row.machine_id, "by": row.by, "at_s": row.at_s}
        for row in last.values()
        if row.drained
    ]


def _job_row(record: JobRecord) -> dict[str, Any]:
    return {
        "serial": record.serial,
        "id": record.id,
        "state": record.state.value,
        "user": record.user,
        "ended_s": record.ended_s,
        "document": dumped(record_document(record)),
    }
