"""Whatever is submitted hurts its sender only: specification, scheduler, store and restart."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlane.live.driver import Driver, NotReady
from interlane.live.driver.state import DriverState
from interlane.live.files.job import JobSpec, check_spec, memory_bytes_max, read_spec
from interlane.live.store.record import JobRecord, fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import InterlaneError, InvalidInput, Request
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, make_driver, spec, this_machine
from interlane.testing.pretend import PretendEngine
from interlane.testing.waiting import PATIENCE_S

NUMBERS = st.one_of(
    st.integers(0, 10**18),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, 1, 2**31, 2**53, 2**62, 2**63, 2**64, 1e308, 0.0004, -1]),
)
UNITS = st.sampled_from(["", "m", "s", "h", "d", "MB", "GiB", "TB", "TiB", "PB", "x"])
AMOUNTS = st.one_of(NUMBERS, st.builds(lambda number, unit: f"{number}{unit}", NUMBERS, UNITS))
TEXTS = st.builds(str, AMOUNTS)
RANGES = st.one_of(TEXTS, st.builds(lambda low, high: f"{low}..{high}", TEXTS, TEXTS))
COUNTS = st.one_of(st.integers(0, 64), st.integers(-1, 10**20))


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


GPUS = some(count=COUNTS, memory=RANGES, compute=AMOUNTS)
RESOURCES = some(gpu=GPUS, cpu=AMOUNTS, memory=RANGES)
JOBS = st.builds(
    lambda more: {"name": "a", "run": "true", **more},
    some(
        resources=RESOURCES,
        gang=some(nodes=st.integers(0, 1_001), min=st.integers(0, 1_001)),
        time=some(expected=AMOUNTS, limit=AMOUNTS),
        checkpoint=some(interval=AMOUNTS, grace=AMOUNTS),
        share=some(max_slowdown=st.floats(), mode=st.sampled_from(["spatial", "lanes"])),
        priority=st.integers(-1, 101),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(JOBS, min_size=1, max_size=8))
def test_any_job_is_refused_or_stored_and_there_after_a_restart(said: list[Any]) -> None:
    with TemporaryDirectory() as name:
        engine = PretendEngine(this_machine().machines)
        driver = _opened(Path(name), engine)
        answers = [(driver.submit(job, "ann"), job) for job in _readable(said)]
        other = driver.submit(spec("other"), "bob")
        driver.turn(waits=False)

        stored = {future.result(0).id: job for future, job in answers}
        assert other.result(0).state is not JobState.FAILED
        _close(driver)
        again = _opened(Path(name), PretendEngine(this_machine().machines))
        known = {one.id: one for one in again.store.jobs(JobsWanted(limit=100))}
        assert {job_id: known[job_id].job for job_id in stored} == stored
        assert known == fold(again.store.whole_log())
        assert not again.store.unread
        _close(again)


def _readable(said: list[Any]) -> Iterator[JobSpec]:
    for document in said:
        try:
            job = read_spec(document)
        except InvalidInput:
            continue
        for at in range(len(job.roles)):
            assert (memory_bytes_max(job, at) or 0) < 1 << 63  # setrlimit takes it
        yield job


def _opened(folder: Path, engine: PretendEngine) -> Driver:
    driver = make_driver(folder, engine=engine)
    driver.open()
    return driver


def _close(driver: Driver) -> None:
    driver.engine.close()
    driver.store.close()


@pytest.mark.parametrize(
    "resources",
    [
        {"memory": "999999999999999TB"},
        {"cpu": 10**15},
        {"gpu": {"memory": "999999999TB"}},
        {"memory": "1GB..999999999999999TB"},
    ],
)
def test_an_impossible_amount_is_refused_where_it_is_read(resources: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="at most"):
        read_spec({"name": "a", "run": "true", "resources": resources})
    job = JobSpec.model_validate({"name": "a", "run": "true", "resources": resources})
    with pytest.raises(InvalidInput, match="at most"):
        check_spec(job)  # as POST /jobs and POST /plan do


def test_a_job_that_makes_the_scheduler_raise_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    understood = DriverState.request_of

    def request_of(state: DriverState, job: JobSpec) -> Request:
        if job.name == "bomb":
            state.scheduler.learn(None, 0.0)  # type: ignore[arg-type]
        return understood(state, job)

    engine = PretendEngine(this_machine().machines)
    driver = make_driver(tmp_path, engine=engine)
    driver.open()
    before = driver.submit(spec("before"), "ann")
    driver.turn(waits=False)
    monkeypatch.setattr(DriverState, "request_of", request_of)
    good = [driver.submit(spec(f"good-{number}"), "ann") for number in range(3)]
    bombs = [driver.submit(spec("bomb"), "eve") for _ in range(2)]
    good += [driver.submit(spec(f"late-{number}"), "ann") for number in range(3)]

    assert driver.turn(waits=False)

    for bomb in bombs:
        with pytest.raises(NotReady, match="tell its operator"):
            bomb.result(0)
    records = [one.result(0) for one in good]
    assert len({one.id for one in records}) == len(good)
    assert driver.is_ready
    known = {one.id for one in driver.store.jobs(JobsWanted(limit=100))}
    assert known == {before.result(0).id, *(one.id for one in records)}
    assert driver.store.open_jobs() == driver.open_records()
    _close(driver)


def test_too_large_amounts_of_an_older_version_do_not_stop_a_server(tmp_path: Path) -> None:
    import json
    import sqlite3

    with driving(tmp_path) as driver:
        done: JobRecord = ended(driver, driver.submit(spec("a"), "ann").result(PATIENCE_S))
    with sqlite3.connect(tmp_path / "state.db") as database:
        row = database.execute("SELECT document FROM jobs").fetchone()
        said = json.loads(row[0])
        said["spec"]["resources"]["memory"] = "900000TB"
        said |= {"state": "queued", "ended_s": None}
        new = (json.dumps(said),)
        database.execute("UPDATE jobs SET state = 'queued', document = ?", new)
        text = database.execute("SELECT detail FROM log WHERE kind = 'Submitted'").fetchone()
        detail = json.loads(text[0])
        detail["spec"] = said["spec"]
        what = "UPDATE log SET detail = ? WHERE kind = 'Submitted'"
        database.execute(what, (json.dumps(detail),))
    database.close()

    with driving(tmp_path) as driver:
        later = driver.submit(spec("later"), "ann").result(PATIENCE_S)
        assert ended(driver, later).state is JobState.SUCCEEDED
        shown = Store(f"sqlite:///{tmp_path / 'state.db'}").job(done.id)
    assert shown is not None
    assert shown.state is JobState.UNKNOWN


def test_errors_are_sentences() -> None:
    with pytest.raises(InterlaneError, match=r"time\.limit is .*at most 36,500 days"):
        read_spec({"name": "a", "run": "true", "time": {"limit": 10**14}})
