"""What outlives the server: the log, a record of every job, tokens and used keys.

A commit writes entries of the log and the records that follow from them in one transaction,
so that the records are a snapshot as new as the log, and starting never reads history.  When
``commit`` returns, everything in it is on disk: SQLite writes ahead with ``synchronous=FULL``.

One server at a time may write.  Each takes the next *life* when it begins, and every commit
says in whose life it is made; a server whose life is over is told so and must end.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import (
    Connection,
    RowMapping,
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

from interlane.live.store.database import engine_of, failure, safe_url
from interlane.live.store.record import (
    OPEN,
    JobRecord,
    Kind,
    LogEntry,
    State,
    document_record,
    dumped,
    record_document,
)
from interlane.live.store.rows import DrainRow, Ends, FunctionRow, JobsWanted, TokenRow, UsedKey
from interlane.live.store.tables import (
    DRAINS,
    EPOCH,
    FUNCTIONS,
    JOBS,
    KEYS,
    LOG,
    TABLES,
    TOKENS,
    VERSION,
)
from interlane.model import InterlaneError, InvalidInput, JobId

PAGE: Final = 10_000
"""Entries read at a time when all of the log is."""


class StoreFailed(InterlaneError):
    """The database did not take what it was given, or did not answer."""


class Superseded(InterlaneError):
    """Another server has taken this database over."""


class Store:
    """The database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = engine_of(url)
        self._epoch = 0
        with self._transaction() as connection:
            TABLES.create_all(connection)
        with self._transaction() as connection:
            self._check_version(connection)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # -- writing ----------------------------------------------------------------------

    def begin_epoch(self) -> int:
        """Take the database over from whoever wrote before; return the number of the life."""
        with self._transaction() as connection:
            connection.execute(update(EPOCH).values(number=EPOCH.c.number + 1))
            self._epoch = connection.execute(select(EPOCH.c.number)).scalar_one()
        return self._epoch

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
        made = {entry.job_id for entry in entries if entry.kind is Kind.SUBMITTED}
        rows = [_job_row(record) for record in records]
        changed = [
            {"of": row["serial"], "state": row["state"], "document": row["document"]}
            for row in rows
            if row["id"] not in made
        ]
        with self._transaction() as connection:
            self._claim(connection)
            _insert(connection, LOG, [_log_row(entry) for entry in entries])
            _insert(connection, JOBS, [row for row in rows if row["id"] in made])
            if changed:
                connection.execute(_UPDATE_JOB, changed)
            _insert(connection, KEYS, [asdict(key) for key in keys])
            for row in drains:
                connection.execute(delete(DRAINS).where(DRAINS.c.machine_id == row.machine_id))
            _insert(connection, DRAINS, _last_of_each(drains))

    def _claim(self, connection: Connection) -> None:
        """Make sure that nobody else has begun to write; holds others off until the end."""
        ours = update(EPOCH).where(EPOCH.c.number == self._epoch).values(number=self._epoch)
        if connection.execute(ours).rowcount != 1:
            raise Superseded(
                f"Another server has taken {safe_url(self.url)} over; this one stops."
            )

    # -- jobs and the log -------------------------------------------------------------

    def open_jobs(self) -> list[JobRecord]:
        """Return the jobs that have not ended, in the order of submission."""
        wanted = select(JOBS.c.document).where(JOBS.c.state.in_(sorted(OPEN)))
        return self._records(wanted.order_by(JOBS.c.serial))

    def job(self, job_id: str) -> JobRecord | None:
        """Return the record of a job."""
        found = self._records(select(JOBS.c.document).where(JOBS.c.id == job_id))
        return found[0] if found else None

    def jobs(self, wanted: JobsWanted) -> list[JobRecord]:
        """Return a page of jobs, the newest first."""
        asked = select(JOBS.c.document)
        if wanted.before is not None:
            asked = asked.where(JOBS.c.serial < wanted.before)
        if wanted.states is not None:
            asked = asked.where(JOBS.c.state.in_(sorted(wanted.states)))
        if wanted.user is not None:
            asked = asked.where(JOBS.c.user == wanted.user)
        return self._records(asked.order_by(JOBS.c.serial.desc()).limit(wanted.limit))

    def counts(self) -> dict[State, int]:
        """Return how many jobs are in each state."""
        counted = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        with self._transaction() as connection:
            found = {State(state): count for state, count in connection.execute(counted)}
        return {state: found.get(state, 0) for state in State}

    def ends(self) -> Ends:
        """Return where the log ends."""
        last = select(LOG.c.seq, LOG.c.at_s).order_by(LOG.c.seq.desc()).limit(1)
        with self._transaction() as connection:
            row = connection.execute(last).one_or_none()
            serial = connection.execute(select(func.max(JOBS.c.serial))).scalar()
        return Ends(serial=serial or 0) if row is None else Ends(row.seq, row.at_s, serial or 0)

    def log(
        self, after: int = 0, limit: int = PAGE, job_id: str | None = None
    ) -> list[LogEntry]:
        """Return entries that follow one, the oldest first."""
        asked = select(LOG).where(LOG.c.seq > after).order_by(LOG.c.seq).limit(limit)
        if job_id is not None:
            asked = asked.where(LOG.c.job_id == job_id)
        with self._transaction() as connection:
            return [_entry(row) for row in connection.execute(asked).mappings()]

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
            texts = connection.execute(asked).scalars().all()
        return [document_record(json.loads(text)) for text in texts]

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

    def revoke_token(self, token_id: str, at_s: float) -> bool:
        """Note that a token no longer counts; return whether it did."""
        still = (TOKENS.c.id == token_id) & TOKENS.c.revoked_s.is_(None)
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

    def _check_version(self, connection: Connection) -> None:
        found = connection.execute(select(EPOCH.c.version)).scalar()
        if found is None:
            connection.execute(insert(EPOCH), [{"version": VERSION, "number": 0}])
        elif found != VERSION:
            raise InvalidInput(
                f"The database {safe_url(self.url)} has tables of version {found}, but this "
                f"program knows version {VERSION}; use the program that made them."
            )


_UPDATE_JOB: Final = (
    update(JOBS)
    .where(JOBS.c.serial == bindparam("of"))
    .values(state=bindparam("state"), document=bindparam("document"))
)


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


def _log_row(entry: LogEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at_s": entry.at_s,
        "kind": entry.kind.value,
        "job_id": entry.job_id,
        "change": dumped(entry.change),
    }


def _entry(row: RowMapping) -> LogEntry:
    change = json.loads(row["change"])
    return LogEntry(row["seq"], row["at_s"], Kind(row["kind"]), JobId(row["job_id"]), change)


def _job_row(record: JobRecord) -> dict[str, Any]:
    return {
        "serial": record.serial,
        "id": record.id,
        "state": record.state.value,
        "user": record.user,
        "document": dumped(record_document(record)),
    }
