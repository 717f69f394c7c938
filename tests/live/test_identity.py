"""Work is known by what is never used again: old copies and foreign files fake nothing."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlane.engines.local import shim
from interlane.live.driver import Driver
from interlane.live.port import Output
from interlane.live.store.record import JobRecord
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, make_driver, spec
from interlane.testing.waiting import PATIENCE_S, until


def submit(driver: Driver, name: str = "a", run: str = "true", **more: Any) -> JobRecord:  # noqa: ANN401
    return driver.submit(spec(name, run, **more), "ann").result(PATIENCE_S)


def copied(state: Path, to: Path) -> None:
    """Copy a database while it is used."""
    with (
        closing(sqlite3.connect(state / "state.db")) as old,
        closing(sqlite3.connect(to)) as new,
    ):
        old.backup(new)


def put_back(state: Path, copy: Path) -> None:
    for file in state.glob("state.db*"):
        file.unlink()
    shutil.copy(copy, state / "state.db")


def printed(driver: Driver, record: JobRecord) -> str:
    from interlane.testing.live import view_of

    found: Output = view_of(driver).output(record.id, record.attempt, 0, 10_000)
    return found.data.decode()


def folder_of(state: Path, record: JobRecord) -> Path:
    return state / "runs" / f"{record.id}.{record.uid}" / str(record.attempt)


def test_jobs_after_an_old_copy_was_put_back_really_run(tmp_path: Path) -> None:
    state, copy, ran = tmp_path / "state", tmp_path / "copy.db", tmp_path / "ran"
    with driving(state) as first:
        ended(first, submit(first, run="echo old"))
        copied(state, copy)
        lost = [ended(first, submit(first, run=f"echo old >> {ran}")) for _ in range(3)]
    put_back(state, copy)

    with driving(state) as second:
        new = [ended(second, submit(second, run=f"echo new{n} >> {ran}")) for n in range(3)]
        assert [one.state for one in new] == [JobState.SUCCEEDED] * 3
        assert {one.id for one in new}.isdisjoint(one.id for one in lost)
    assert ran.read_text().split() == ["old"] * 3 + ["new0", "new1", "new2"]


def test_a_job_that_ran_after_the_copy_was_made_does_not_run_again(tmp_path: Path) -> None:
    state, copy, ran = tmp_path / "state", tmp_path / "copy.db", tmp_path / "ran"
    gate = tmp_path / "gate"
    with driving(state, gpus=1) as first:
        blocker = submit(first, "blocker", f"while [ ! -e {gate} ]; do sleep 0.02; done")
        waits = submit(first, "waits", f"echo once >> {ran}; exit 3")
        copied(state, copy)
        gate.touch()
        ended(first, blocker)
        assert ended(first, waits).exit_code == 3
    put_back(state, copy)

    with driving(state, gpus=1) as second:
        known = second.open_record(waits.id)
        assert known is None or ended(second, known) is not None
        after = second.store.job(waits.id)
        assert after is not None
        assert (after.state, after.exit_code) == (JobState.FAILED, 3)
    assert ran.read_text().split() == ["once"]


@pytest.mark.parametrize("ran_when_copied", [False, True], ids=["waited", "ran"])
def test_a_job_that_was_cancelled_after_the_copy_was_made_does_not_run_again(
    tmp_path: Path,
    ran_when_copied: bool,  # noqa: FBT001
) -> None:
    state, copy, ran = tmp_path / "state", tmp_path / "copy.db", tmp_path / "ran"
    gate = tmp_path / "gate"
    with driving(state, gpus=1) as first:
        blocker = submit(first, "blocker", f"while [ ! -e {gate} ]; do sleep 0.02; done")
        job = submit(first, "stopped", f"echo once >> {ran}; exec sleep 1000")
        if not ran_when_copied:
            copied(state, copy)
        gate.touch()
        ended(first, blocker)
        until(ran.exists, "the job")
        if ran_when_copied:
            copied(state, copy)
        first.cancel(job.id, "ann").result(PATIENCE_S)
        assert ended(first, job).state is JobState.CANCELLED
    put_back(state, copy)

    with driving(state, gpus=1) as second:
        known = second.open_record(job.id)
        after = second.store.job(job.id) if known is None else ended(second, known)
        assert after is not None
        assert after.state is JobState.CANCELLED
    assert ran.read_text().split() == ["once"]


def test_what_runs_is_taken_up_though_its_record_is_lost(tmp_path: Path) -> None:
    state, ran, gate = tmp_path / "state", tmp_path / "ran", tmp_path / "gate"
    first = make_driver(state, gpus=1)
    first.start()
    run = f"echo once >> {ran}; while [ ! -e {gate} ]; do sleep 0.02; done; exit 5"
    record = submit(first, run=run)
    until(ran.exists, "the job")
    first.close()
    for file in state.glob("state.db*"):
        file.unlink()

    with driving(state, gpus=1) as second:
        found = second.open_record(record.id)
        assert found is not None
        assert (found.state, found.user, found.job) == (
            *(JobState.RUNNING, "ann"),
            record.job,
        )
        later = submit(second, "later")
        assert later.serial > record.serial
        gate.touch()
        assert ended(second, found).exit_code == 5
        assert ended(second, later).state is JobState.SUCCEEDED
    assert ran.read_text().split() == ["once"]


def test_a_foreign_claim_means_that_the_attempt_never_ran(tmp_path: Path) -> None:
    state, ran = tmp_path / "state", tmp_path / "ran"
    with driving(state) as driver:
        old = ended(driver, submit(driver, run="echo old"))
        gate = tmp_path / "gate"
        hold = [
            submit(driver, "hold", f"while [ ! -e {gate} ]; do sleep 0.02; done")
            for _ in range(2)
        ]
        new = submit(driver, "new", f"echo new | tee {ran}")
        theirs = state / "runs" / f"{new.id}.{new.uid}" / "1"
        shutil.copytree(folder_of(state, old), theirs)
        gate.touch()

        assert ended(driver, new).state is JobState.SUCCEEDED
        assert ran.read_text() == "new\n"
        assert printed(driver, ended(driver, new)) == "new\n"
        for one in hold:
            ended(driver, one)


def test_claims_and_ends_say_whose_they_are(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        record = ended(driver, submit(driver, run="exit 4"))
        folder = folder_of(tmp_path, record)
    claim = json.loads((folder / shim.CLAIM).read_text())
    end = json.loads((folder / shim.ENDED).read_text())

    whose = {"job_id": record.id, "uid": record.uid, "attempt": 1, "format": shim.FORMAT}
    assert whose.items() <= claim.items()
    assert whose.items() <= end.items()
    assert len(claim["digest"]) == 64
    assert claim["holder"] == record.holder


@pytest.mark.parametrize("words", ["x", "", '{"pid": 1}', "[]", "[" * 100_000, "\x00", "-3"])
def test_a_claim_that_a_job_scribbles_over_stops_nobody(tmp_path: Path, words: str) -> None:
    note, gate = tmp_path / "note", tmp_path / "gate"
    note.write_text(words)
    first = make_driver(tmp_path / "state", gpus=1)
    first.start()
    scribble = f"cat {note} > ../claim; touch {tmp_path}/done"
    run = f"{scribble}; while [ ! -e {gate} ]; do sleep 0.02; done; exit 6"
    record = submit(first, run=run)
    until((tmp_path / "done").exists, "the job")
    first.close()

    with driving(tmp_path / "state", gpus=1) as second:
        found = second.open_record(record.id)
        assert found is not None
        assert found.state is JobState.RUNNING
        gate.touch()
        assert ended(second, found).exit_code == 6


@pytest.mark.parametrize("words", ["x", "", '{"exit_code": "0", "why": null}', "[" * 100_000])
def test_an_end_that_cannot_be_read_is_a_failure_of_its_job_alone(
    tmp_path: Path, words: str
) -> None:
    state, gate = tmp_path / "state", tmp_path / "gate"
    first = make_driver(state, gpus=1)
    first.start()
    record = submit(first, run=f"while [ ! -e {gate} ]; do sleep 0.02; done")
    until(lambda: first.open_record(record.id).state is JobState.RUNNING)  # type: ignore[union-attr]
    first.close()
    gate.touch()
    end = state / "runs" / f"{record.id}.{record.uid}" / "1" / shim.ENDED
    until(end.exists, "the end")
    end.write_text(words)

    with driving(state, gpus=1) as second:
        found = second.store.job(record.id)
        assert found is not None
        assert found.state is JobState.FAILED
        assert "cannot be" in str(found.reason)
        assert ended(second, submit(second)).state is JobState.SUCCEEDED
