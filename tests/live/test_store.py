"""What the store acknowledged is there, whatever happens; what it did not is not."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interlane.live.store.database import safe_url
from interlane.live.store.record import JobRecord, after, fold
from interlane.live.store.rows import FunctionRow, JobsWanted, TokenRow, UsedKey
from interlane.live.store.store import Store, StoreFailed, Superseded
from interlane.model import (
    Demand,
    Finished,
    InvalidInput,
    Job,
    JobId,
    LogEntry,
    Logged,
    MachineId,
    Placement,
    Spot,
    Start,
    Submitted,
    one_task,
)
from interlane.model.lifecycle import OPEN, JobState


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = Store(url)
    store.begin_epoch()
    try:
        yield store
    finally:
        store.close()


def submitted(
    serial: int, name: str = "a", user: str = "ann", spec: dict[str, Any] | None = None
) -> LogEntry:
    job_id, at_s = JobId(f"{name}-{serial}"), float(serial)
    job = Job(job_id, one_task(Demand(gpus=1)), at_s, serial, 1.0, user, "default")
    band = {"low_s": 0.5, "high_s": 2.0}
    detail = {"spec": spec or {"name": name, "run": "true"}, **band}
    return LogEntry(serial, at_s, Submitted(job), detail, serial)


def entry(seq: int, what: Logged, **detail: object) -> LogEntry:
    return LogEntry(seq, float(seq), what, detail, seq)


def commit(store: Store, *entries: LogEntry, keys: tuple[UsedKey, ...] = ()) -> list[JobRecord]:
    """Commit entries with the records that follow from them."""
    records: dict[JobId, JobRecord] = {}
    for entry in entries:
        job_id = entry.job_id
        assert job_id is not None
        records[job_id] = after(records.get(job_id) or store.job(job_id), entry)
    store.commit(entries, records.values(), keys)
    return list(records.values())


def test_what_was_committed_is_there_after_opening_again(url: str) -> None:
    with opened(url) as store:
        (record,) = commit(store, submitted(1))

    with opened(url) as store:
        assert store.open_jobs() == [record]
        assert store.job(record.id) == record
        assert [entry.seq for entry in store.whole_log()] == [1]
        assert (store.ends().seq, store.ends().serial, store.ends().at_s) == (1, 1, 1.0)


def test_records_are_what_the_log_folds_to(url: str) -> None:
    place = Placement((Spot(MachineId("m"), (0,)),))
    with opened(url) as store:
        commit(store, submitted(1), submitted(2, "b"))
        commit(store, entry(3, Start(JobId("a-1"), place)))
        commit(store, entry(4, Finished(JobId("a-1")), exit_code=0))

        records = {record.id: record for record in store.jobs(JobsWanted())}

        assert records == fold(store.whole_log())
        assert records[JobId("a-1")].state is JobState.SUCCEEDED
        assert records[JobId("a-1")].version == 3


def test_a_commit_that_fails_leaves_nothing(url: str) -> None:
    with opened(url) as store:
        commit(store, submitted(1))
        twice = replace(submitted(1), seq=3)

        with pytest.raises(StoreFailed, match="failed"):
            store.commit(
                [submitted(2, "c"), twice],
                [after(None, submitted(2, "c")), after(None, twice)],
            )

        assert [entry.seq for entry in store.whole_log()] == [1]
        assert [record.id for record in store.open_jobs()] == ["a-1"]


def test_a_server_whose_epoch_is_over_writes_nothing_more(url: str) -> None:
    with opened(url) as old, opened(url) as new:
        with pytest.raises(Superseded, match=r"taken .* over"):
            commit(old, submitted(1))

        commit(new, submitted(1))

        assert len(old.open_jobs()) == 1


def test_used_keys_are_found_by_user_and_text(url: str) -> None:
    used = UsedKey("ann", "k1", "digest", JobId("a-1"))
    with opened(url) as store:
        commit(store, submitted(1), keys=(used,))

        assert store.used_keys([("ann", "k1"), ("bob", "k1"), ("ann", "k2")]) == [used]
        assert store.used_keys([]) == []


def test_pages_go_from_new_to_old(url: str) -> None:
    with opened(url) as store:
        commit(store, *(submitted(n, user="ann" if n % 2 else "bob") for n in range(1, 8)))

        first = store.jobs(JobsWanted(limit=3))
        second = store.jobs(JobsWanted(limit=3, before=first[-1].serial))
        anns = store.jobs(JobsWanted(user="ann", states=OPEN))

        assert [record.serial for record in first + second] == [7, 6, 5, 4, 3, 2]
        assert [record.serial for record in anns] == [7, 5, 3, 1]
        assert store.counts()[JobState.QUEUED] == 7


def test_tokens_are_kept_until_they_are_revoked(url: str) -> None:
    row = TokenRow("id1", "ann", "user", "digest", 1.0)
    with opened(url) as store:
        store.add_token(row)

        assert store.tokens() == [row]
        assert store.end_token("id1", 2.0)
        assert not store.end_token("id1", 3.0)
        assert store.tokens() == [replace(row, revoked_s=2.0)]


def test_sqlite_waits_for_the_disk_before_it_acknowledges(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'state.db'}") as store, store._transaction() as open_:
        assert open_.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert open_.exec_driver_sql("PRAGMA synchronous").scalar() == 2


WRITER = """
import sys
from tests_store import commit, submitted
from interlane.live.store.store import Store

store = Store(sys.argv[1])
store.begin_life()
serial = store.ends().serial
while True:
    serial += 1
    commit(store, submitted(serial))
    print(serial, flush=True)
"""


def test_no_acknowledged_commit_is_lost_to_kill(url: str, tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    (tmp_path / "tests_store.py").write_text(Path(__file__).read_text())
    last = 0
    for round_ in range(3):
        with subprocess.Popen(
            (sys.executable, str(script), url), stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                last = int(line)
                if last % 5 == round_ + 1 and last > 5 * round_:
                    writer.send_signal(signal.SIGKILL)

        with opened(url) as store:
            assert store.ends().serial >= last
            assert {r.id: r for r in store.open_jobs()} == fold(store.whole_log())


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("nonsense", "cannot be understood"),
        ("oracle://x/y", "cannot be understood|not supported|not installed"),
        ("sqlite:////nowhere/at/all/state.db", "unable to open database file"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence(address: str, says: str) -> None:
    with pytest.raises((InvalidInput, StoreFailed), match=says):
        Store(address)


def test_a_database_that_somebody_holds_is_said_to_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.live.store.database.BUSY_S", 0)
    with opened(f"sqlite:///{tmp_path / 'state.db'}") as store:
        holder = sqlite3.connect(tmp_path / "state.db")
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match=r"locked.*end that program"):
            store.begin_epoch()
        holder.close()

        store.begin_epoch()


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    file.write_bytes(b"not a database, " * 1_000)

    with pytest.raises(StoreFailed, match=r"not a database.*restore it from a copy"):
        Store(f"sqlite:///{file}")

    assert file.read_bytes() == b"not a database, " * 1_000


def test_a_database_of_another_version_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with opened(url) as store, store._transaction() as open_:
        open_.exec_driver_sql("UPDATE life SET version = 99")

    with pytest.raises(InvalidInput, match="newer interlane"):
        Store(url)


def test_passwords_of_databases_are_not_shown() -> None:
    assert "hunter2" not in safe_url("postgresql://il:hunter2@host/name")


def test_functions_are_kept_by_name(url: str) -> None:
    with opened(url) as store:
        for name, version in (("b", 1), ("a", 1), ("b", 2), ("c", 1)):
            store.put_function(FunctionRow(name, "ann", version, 1.5, '{"name": "x"}'))
        store.drop_function("c")
        store.drop_function("never")

        assert [(row.name, row.version) for row in store.functions()] == [("a", 1), ("b", 2)]

    with opened(url) as store:
        assert store.functions()[0] == FunctionRow("a", "ann", 1, 1.5, '{"name": "x"}')


def test_a_server_whose_epoch_is_over_deploys_nothing(url: str) -> None:
    with opened(url) as old, opened(url) as new:
        with pytest.raises(Superseded):
            old.put_function(FunctionRow("a", "ann", 1, 0.0, "{}"))

        assert new.functions() == []
