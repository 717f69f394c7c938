"""State of an earlier version is brought up to date, and a copy of it is kept."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.live.version_1 import LIVES, write_version_1

from interlane.live.replay import replay
from interlane.live.store.database import engine_of
from interlane.live.store.record import UnreadableRecord, fold, record_document
from interlane.live.store.rows import DrainRow, Ends, JobsWanted
from interlane.live.store.store import Store
from interlane.live.store.tables import VERSION
from interlane.model import InvalidInput
from interlane.testing.live import driving, ended, make_scheduler, spec


def kinds(store: Store, job_id: str) -> list[str]:
    return [entry.kind for entry in store.log(job_id=job_id)]


def test_state_of_version_1_is_migrated_and_read(url: str) -> None:
    documents = write_version_1(url)

    store = Store(url)

    records = {record.id: record for record in store.jobs(JobsWanted(limit=100))}
    found = {str(name): record_document(one) for name, one in records.items()}
    specs = [
        (one.pop("spec")["run"], documents[name].pop("spec")["run"])
        for name, one in found.items()
    ]
    for document in documents.values():  # the only field that has another name now
        document["estimate_s"] = document.pop("guess_s")
        document |= {"uid": "", "holder": "", "former": (), "losses": 0}  # unknown then
        document |= {"failures": 0, "not_before_s": None, "held_by": None}
        document |= {"array_id": None, "array_count": 0}
    assert found == documents
    assert all(new == old for new, old in specs)
    assert records == fold(store.whole_log())
    entries = sum(1 + len(life) for life in LIVES.values())
    assert store.ends() == Ends(entries, 1_000.0 + entries / 4, len(LIVES))
    assert store.drains() == [DrainRow("there", True, "op", 7.5)]
    assert kinds(store, "stopped-3") == [
        *("Submitted", "Start", "Started", "Preempt", "Preempted"),
        *("Start", "Started", "Requeue"),
    ]
    assert kinds(store, "lost-5") == ["Submitted", "Start", "Started", "JobLost", "Cancelled"]
    assert store.begin_epoch() == 6
    store.close()


def test_a_copy_is_kept_and_named(url: str) -> None:
    write_version_1(url)

    store = Store(url)

    assert store.said is not None
    engine = engine_of(url)
    with engine.begin() as connection:
        if url.startswith("sqlite"):
            copy = f"{engine.url.database}.version-1"
            with closing(sqlite3.connect(copy)) as file:
                old = file.execute("SELECT kind FROM log ORDER BY seq").fetchall()
        else:
            copy = store.said.split()[-1].rstrip(".")
            assert copy.startswith("interlane_version_1_")
            asked = text(f"SELECT kind FROM {copy}.log ORDER BY seq")
            old = [tuple(row) for row in connection.execute(asked)]
    engine.dispose()
    assert copy in store.said
    assert old[:2] == [("submitted",), ("placed",)]
    store.close()
    again = Store(url)
    assert again.said is None
    again.close()


def test_a_server_goes_on_with_migrated_state(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    write_version_1(url)

    with driving(tmp_path, gpus=2) as driver:
        done = ended(driver, driver.submit(spec("new"), "ann").result())
        assert done.serial == len(LIVES) + 1
        found = replay(driver.store.whole_log(), lambda settings: make_scheduler())

    assert found.difference is None
    assert found.passed_over == sum(1 + len(life) for life in LIVES.values())
    assert found.starts == 1


def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    write_version_1(url)
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE log SET kind = 'exploded' WHERE seq = 9"))

    for _ in range(2):
        with pytest.raises(InvalidInput, match="Entry 9 of the log of version 1"):
            Store(url)

    with engine.begin() as connection:
        assert connection.execute(text("SELECT version, number FROM life")).one() == (1, 5)
        found = connection.execute(text("SELECT kind FROM log WHERE seq = 9")).scalar()
        changed = connection.execute(text("SELECT change FROM log WHERE seq = 1")).scalar_one()
    engine.dispose()
    assert found == "exploded"
    assert json.loads(changed)["serial"] == 1


def test_a_database_of_a_newer_version_is_left_alone(url: str) -> None:
    Store(url).close()
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE life SET version = {VERSION + 1}"))
    engine.dispose()

    with pytest.raises(InvalidInput, match="made by a newer interlane"):
        Store(url)


def test_a_database_that_is_half_migrated_is_refused(url: str) -> None:
    write_version_1(url)
    engine = engine_of(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE life SET version = {VERSION}"))
    engine.dispose()

    said = rf"version {VERSION}, but log has no what; restore a copy"
    with pytest.raises(InvalidInput, match=said):
        Store(url)


def test_tables_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE jobs (a)")
    other.commit()

    with (
        closing(other),
        pytest.raises(InvalidInput, match="no version that interlane ever made"),
    ):
        Store(f"sqlite:///{file}")

    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("jobs",)]


def test_whoever_only_reads_migrates_nothing(url: str) -> None:
    write_version_1(url)

    with pytest.raises(InvalidInput, match="tables of version 1; start its server once"):
        Store(url, only_reads=True)


def test_what_interlane_did_not_write_costs_its_own_job_one_sentence(url: str) -> None:
    write_version_1(url)
    store = Store(url)
    with store._transaction() as connection:
        connection.execute(text("UPDATE jobs SET document = '{\"x\": 1}' WHERE serial = 1"))
        connection.execute(text("UPDATE log SET what = '[]' WHERE seq = 1"))

    found = store.job("ends-1")
    assert isinstance(found, UnreadableRecord)
    assert found.reason is not None
    assert "holds what interlane did not write" in found.reason
    assert not isinstance(store.job("fails-2"), UnreadableRecord)
    with pytest.raises(Exception, match="entry 1"):
        store.log()
    store.close()
