"""Jobs that wait for a moment, for others or for their user, and those that are tried again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlane.live.driver import Driver, NotWaiting
from interlane.live.driver.state import SchedulerPlan, attempt_of
from interlane.live.files.job import JobSpec
from interlane.live.files.waiting import array_of
from interlane.live.replay import replay
from interlane.live.store.record import JobRecord, fold
from interlane.live.store.store import Store
from interlane.model import InvalidInput, JobId
from interlane.model.lifecycle import JobState
from interlane.policy.order import Fifo, PriorityWithAgeing
from interlane.testing.live import make_scheduler, spec, this_machine
from interlane.testing.pretend import PretendEngine

HELD, QUEUED, RUNNING = JobState.HELD, JobState.QUEUED, JobState.RUNNING


class HandClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.at_s = 1_000_000.0

    def now_s(self) -> float:
        return self.at_s


class Stage:
    """A driver that does one turn at a time, on an engine that runs nothing."""

    def __init__(self, folder: Path, gpus: int = 2) -> None:
        self.clock = HandClock()
        self.engine = PretendEngine(this_machine(gpus).machines)
        self.folder = folder
        self.driver = self._opened()

    def _opened(self) -> Driver:
        driver = Driver(
            Store(f"sqlite:///{self.folder / 'state.db'}"),
            SchedulerPlan(make_scheduler(Fifo())),
            self.engine,
            clock=lambda at_least_s: self.clock,
        )
        driver.open()
        return driver

    def begin_again(self) -> None:
        """Let the server die, and another take over."""
        self.driver.store.close()
        self.driver = self._opened()
        self.turn()

    def turn(self, times: int = 4) -> None:
        for _ in range(times):
            self.driver.turn(waits=False)

    def submit(self, name: str, **more: object) -> JobRecord:
        return self.hand_in(spec(name, **more))  # type: ignore[arg-type]

    def hand_in(self, job: JobSpec) -> JobRecord:
        answer = self.driver.submit(job, "ann")
        self.turn()
        return answer.result(0)

    def job(self, job_id: str) -> JobRecord:
        found = self.driver.open_record(job_id) or self.driver.store.job(job_id)
        assert found is not None
        return found

    def state(self, job_id: str) -> JobState:
        return self.job(job_id).state

    def finish(self, job_id: str, exit_code: int = 0) -> None:
        self.engine.finish(attempt_of(self.job(job_id)), exit_code)
        self.turn()

    def pass_time(self, seconds: float) -> None:
        self.clock.at_s += seconds
        self.turn()

    def must_replay(self) -> None:
        """See that the log tells the records, and a fresh scheduler decides the same."""
        log = list(self.driver.store.whole_log())
        found = replay(log, lambda words: make_scheduler(Fifo()))
        assert found.difference is None, found.difference
        assert found.starts > 0
        told = fold(log)
        assert {one.id: one for one in self.driver.open_records()} == {
            one.id: one for one in told.values() if one.is_open
        }


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_job_runs_after_another_has_succeeded(stage: Stage) -> None:
    first = stage.submit("a").id
    second = stage.submit("b", after=[first]).id

    assert stage.state(second) is HELD
    assert stage.job(second).reason == f"It runs after {first} has succeeded."
    stage.finish(first)

    assert stage.state(second) is RUNNING
    stage.must_replay()


@pytest.mark.parametrize(
    ("when", "exit_code", "becomes"),
    [
        ("succeeded", 0, RUNNING),
        ("succeeded", 1, JobState.CANCELLED),
        ("failed", 1, RUNNING),
        ("failed", 0, JobState.CANCELLED),
        ("ended", 0, RUNNING),
        ("ended", 1, RUNNING),
    ],
)
def test_conditions_decide_what_becomes_of_who_waits(
    stage: Stage, when: str, exit_code: int, becomes: JobState
) -> None:
    first = stage.submit("a").id
    second = stage.submit("b", after=[f"{first}:{when}"]).id
    third = stage.submit("c", after=[{"job": second, "when": "started"}]).id

    stage.finish(first, exit_code)

    assert stage.state(second) is becomes
    if becomes is RUNNING:
        assert stage.state(third) is RUNNING  # there are two devices
    else:
        assert "which has" in (stage.job(second).reason or "")
        assert stage.state(third) is JobState.CANCELLED  # what it waits for will never be
    stage.must_replay()


def test_who_waits_for_a_job_that_can_never_run_does_not_wait_for_ever(stage: Stage) -> None:
    first = stage.submit("a", hold=True, gpus=3).id
    second = stage.submit("b", after=[first]).id

    stage.driver.hold(JobId(first), "ann", held=False)
    stage.turn()

    assert stage.state(first) is JobState.REFUSED
    assert stage.state(second) is JobState.CANCELLED


def test_a_job_that_is_after_nobody_is_refused(stage: Stage) -> None:
    answer = stage.driver.submit(spec("a", after=["none-7"]), "ann")
    stage.turn()

    with pytest.raises(InvalidInput, match="there is no such job"):
        answer.result(0)


def test_a_job_does_not_start_before_its_time(stage: Stage) -> None:
    later = stage.submit("a", time={"start": "2h"}).id
    fixed = stage.submit("b", time={"start": "1970-01-12T13:46:50Z"}).id  # 1,000,010 s

    assert (stage.state(later), stage.state(fixed)) == (HELD, HELD)
    stage.pass_time(10.0)
    assert (stage.state(later), stage.state(fixed)) == (HELD, RUNNING)
    stage.begin_again()
    stage.pass_time(7_200.0)

    assert stage.state(later) is RUNNING
    stage.must_replay()


def test_a_job_is_held_and_released_by_its_user(stage: Stage) -> None:
    held = stage.submit("a", hold=True).id

    assert stage.state(held) is HELD
    stage.begin_again()
    assert stage.state(held) is HELD
    stage.driver.hold(JobId(held), "ann", held=False)
    stage.turn()
    assert stage.state(held) is RUNNING

    refused = stage.driver.hold(JobId(held), "ann")
    stage.turn()
    with pytest.raises(NotWaiting, match="only jobs that wait"):
        refused.result(0)


def test_a_held_job_can_be_cancelled(stage: Stage) -> None:
    held = stage.submit("a", hold=True).id

    stage.driver.cancel(JobId(held), "ann")
    stage.turn()

    assert stage.state(held) is JobState.CANCELLED
    stage.must_replay()


def test_a_job_that_fails_is_tried_again_after_a_while(stage: Stage) -> None:
    job = stage.submit("a", retry={"times": 2, "wait": "10s"}).id

    stage.finish(job, 7)
    assert stage.state(job) is HELD
    assert (stage.job(job).reason or "").startswith("It ended with exit code 7; try 2 of 3 is")
    stage.pass_time(9.0)
    assert stage.state(job) is HELD
    stage.pass_time(1.0)
    assert (stage.state(job), stage.job(job).attempt) == (RUNNING, 2)
    stage.finish(job, 7)
    stage.pass_time(19.0)
    assert stage.state(job) is HELD  # twice as long
    stage.pass_time(1.0)
    stage.finish(job, 7)

    assert stage.state(job) is JobState.FAILED
    assert stage.job(job).exit_code == 7
    stage.must_replay()


def test_only_exit_codes_that_count_are_tried_again(stage: Stage) -> None:
    retry = {"times": 5, "codes": [75]}
    counts = stage.submit("a", retry=retry).id
    other = stage.submit("b", retry=retry).id

    stage.finish(counts, 75)
    stage.finish(other, 1)

    assert (stage.state(counts), stage.state(other)) == (HELD, JobState.FAILED)


def test_an_array_is_many_jobs_of_which_some_run_at_a_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path, gpus=8)
    first = stage.submit("a", array="3-9:2%2")
    later = stage.submit("b", after=[first.id]).id

    jobs = [f"a-{number}" for number in range(1, 5)]
    assert (first.id, first.array_count) == ("a-1", 4)
    assert [stage.job(one).job.env["INTERLANE_ARRAY_INDEX"] for one in jobs] == list("3579")
    assert [stage.state(one) for one in jobs] == [RUNNING, RUNNING, HELD, HELD]
    stage.finish("a-2")
    assert [stage.state(one) for one in jobs[2:]] == [RUNNING, HELD]
    for one in ("a-1", "a-3", "a-4"):
        assert stage.state(later) is HELD
        stage.finish(one)

    assert stage.state(later) is RUNNING
    stage.must_replay()


def test_a_job_that_waits_is_changed_and_keeps_its_place(stage: Stage) -> None:
    runs = stage.submit("a", gpus=2).id
    waits = [stage.submit(name, gpus=2).id for name in ("b", "c")]

    changed = spec("b", gpus=1, time={"limit": "1h"})
    answer = stage.driver.change(JobId(waits[0]), changed, "ann", "ann")
    stage.turn()

    assert answer.result(0).job.time.limit == "1h"
    stage.finish(runs)
    assert [stage.state(one) for one in waits] == [RUNNING, QUEUED]
    refused = stage.driver.change(JobId(waits[1]), spec("other", gpus=1), "ann", "ann")
    stage.turn()
    with pytest.raises(InvalidInput, match="The name"):
        refused.result(0)
    stage.must_replay()


def test_those_who_wait_learn_from_those_that_ended(stage: Stage) -> None:
    running = stage.submit("a", gpus=2).id
    waiting = stage.submit("a", gpus=2).id
    before = stage.job(waiting).estimate_s

    stage.clock.at_s += 20.0
    stage.finish(running)

    again = stage.job(waiting)
    assert abs(again.estimate_s - 20.0) < abs(before - 20.0)
    assert again.basis.startswith("1 run")
    assert any(one.kind == "JobChanged" for one in stage.driver.store.whole_log())
    stage.must_replay()


def test_a_priority_that_does_not_count_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    assert stage.driver.notes_on(spec("a")) == []
    (note,) = stage.driver.notes_on(spec("a", priority=90))
    assert note == "priority 90 does not count here: jobs are ordered by test."
    by_priority = Driver(
        stage.driver.store,
        SchedulerPlan(make_scheduler(PriorityWithAgeing())),
        PretendEngine(this_machine().machines),
    )
    by_priority.open()
    assert by_priority.notes_on(spec("a", priority=90)) == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "finish", "fail", "time", "hold", "release", "restart"]),
        st.integers(0, 5),
        st.sampled_from([{}, {"hold": True}, {"retry": {"times": 1}}, {"array": "0-3%1"}]),
    ),
    max_size=25,
)


@settings(suppress_health_check=list(HealthCheck), max_examples=40)
@given(actions=ACTIONS)
def test_whatever_happens_nobody_is_forgotten_and_the_log_tells_it(
    actions: list[tuple[str, int, dict[str, object]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    doing: dict[str, Callable[[str], object]] = {
        "finish": stage.finish,
        "fail": lambda job: stage.finish(job, 3),
        "hold": lambda job: stage.driver.hold(JobId(job), "ann"),
        "release": lambda job: stage.driver.hold(JobId(job), "ann", held=False),
    }
    for what, number, more in actions:
        jobs = sorted(one.id for one in stage.driver.open_records())
        if what == "submit":
            after = {"after": [jobs[number % len(jobs)]]} if number % 2 and jobs else {}
            stage.submit(f"j{number}", **more, **after)
        elif what == "time":
            stage.pass_time(5.0 * number)
        elif what == "restart":
            stage.begin_again()
        elif jobs:
            job = jobs[number % len(jobs)]
            if what not in ("finish", "fail") or stage.state(job) is RUNNING:
                doing[what](job)
        stage.turn()
    stage.must_replay()
    # Who waits for nothing but time has run once enough has passed and all places are free.
    for _ in range(200):
        stage.pass_time(600.0)
        for record in stage.driver.open_records():
            if record.held_by is not None:
                stage.driver.hold(record.id, "ann", held=False)
            elif record.state is RUNNING:
                stage.finish(record.id)
        if not stage.driver.open_records():
            break
    assert not stage.driver.open_records()
    stage.driver.store.close()


@pytest.mark.parametrize(
    ("text", "indices", "at_a_time"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("0-9:4%2", (0, 4, 8), 2),
        ("5,1,5", (5, 1), None),
        ("7", (7,), None),
    ],
)
def test_arrays_are_read(text: str, indices: tuple[int, ...], at_a_time: int | None) -> None:
    found = array_of(text)

    assert (found.indices, found.at_a_time) == (indices, at_a_time)


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "0-9:0", "0-9%0", "0-1000", "1-", "-1", "0-9%x"]
)
def test_arrays_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="array is"):
        array_of(text)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"time": {"start": "2026-11-18T08:00"}}, "it needs its zone"),
        ({"time": {"start": "2026-13-18T08:00Z"}}, "it must read like 2h, or 2026"),
        ({"time": {"start": "soon"}}, "time.start is 'soon'"),
        ({"retry": {"times": 101}}, "retry.times is 101"),
        ({"retry": {"codes": [0]}}, "retry.codes.0 is 0"),
        ({"retry": {"wait": "2d"}}, "it must be at most 1d"),
        ({"after": ["a-1:done"]}, "after.0.when is 'done'"),
        ({"array": "x"}, "array is 'x'"),
        ({"array": "0-999", "env": {"A": "x" * 60_000}}, "16 MiB is the most"),
    ],
)
def test_what_is_wrong_is_one_sentence(more: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        spec("a", **more)  # type: ignore[arg-type]

    assert says in str(refused.value)
