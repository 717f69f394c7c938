"""The log of a server, played through fresh schedulers, gives what the server decided."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from interlane import cli
from interlane.kernel.scheduler import Scheduler
from interlane.live.driver import Driver
from interlane.live.driver.state import MakeScheduler, SchedulerPlan
from interlane.live.replay import replay
from interlane.live.store.store import Store
from interlane.model import CancelRequested, Finished, LogEntry, Start, Submitted
from interlane.policy.order import PriorityWithAgeing
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.testing.live import clear, ended, make_engine, spec
from interlane.testing.waiting import until
from interlane.wiring import live_scheduler_maker

WORDS = {"order": "priority:preemptive=true", "placer": "pack", "queue": "skip"}


def policy(settings: object) -> MakeScheduler:
    chosen = Policy(PriorityWithAgeing(preemptive=True), pack(), name="test")
    return lambda cluster, workload: Scheduler(cluster, chosen)


def serve(folder: Path, work: Callable[[Driver], None]) -> None:
    """Let a server work for a while."""
    plan = SchedulerPlan(policy(None), WORDS)
    store = Store(f"sqlite:///{folder / 'state.db'}")
    driver = Driver(store, plan, make_engine(folder))
    driver.start()
    try:
        work(driver)
    finally:
        driver.close()
        store.close()


@pytest.fixture
def log(tmp_path: Path) -> list[LogEntry]:
    """What two servers wrote: jobs preempt each other, one is cancelled, a machine drained."""

    def first(driver: Driver) -> None:
        runs = tmp_path / "runs-now"  # one that is stopped before its shim runs never began
        program = f"touch {runs}; exec sleep 100"
        driver.submit(spec("low", program, gpus=2, priority=10), "ann").result()
        until(runs.exists, "the first job")
        driver.submit(spec("high", "sleep 0.2", gpus=2, priority=90), "bob").result()
        driver.submit(spec("wide", gpus=9), "bob").result()

    def second(driver: Driver) -> None:
        (machine,) = driver.snapshot().cluster
        driver.drain(machine.id, "op").result()
        driver.drain(machine.id, "op", drained=False).result()
        until(lambda: driver.open_record("high-2") is None)
        clear(driver)
        ended(driver, driver.submit(spec("last"), "ann").result())

    serve(tmp_path, first)
    serve(tmp_path, second)
    store = Store(f"sqlite:///{tmp_path / 'state.db'}", only_reads=True)
    entries = list(store.whole_log())
    store.close()
    return entries


def test_a_log_replays(log: list[LogEntry]) -> None:
    found = replay(log, policy)

    kinds = {entry.kind for entry in log}
    assert {"Preempt", "Preempted", "Refuse", "MachineDrained", "CancelRequested"} <= kinds
    assert found.difference is None
    assert (found.starts, found.passed_over) == (2, 0)
    assert found.actions == sum(entry.is_action for entry in log)
    assert found.events + found.actions + found.starts == len(log)


def test_the_words_that_the_log_keeps_make_the_same_scheduler(log: list[LogEntry]) -> None:
    assert replay(log, live_scheduler_maker).difference is None


def test_a_start_elsewhere_is_reported_with_entry_and_time(log: list[LogEntry]) -> None:
    at = next(n for n, entry in enumerate(log) if isinstance(entry.what, Start))
    start = log[at].what
    assert isinstance(start, Start)
    moved = replace(start, placement=replace(start.placement, spots=start.placement.spots[1:]))
    log[at] = replace(log[at], what=moved)

    found = replay(log, policy).difference

    assert found is not None
    assert (found.seq, found.at_s) == (log[at].seq, log[at].at_s)
    assert (found.recorded, found.replayed) == (moved, start)
    assert str(found).startswith(f"Entry {log[at].seq} at ")


@pytest.mark.parametrize("gone", [Submitted, Start, Finished])
def test_an_entry_that_is_missing_is_noticed(log: list[LogEntry], gone: type) -> None:
    at = next(n for n, entry in enumerate(log) if isinstance(entry.what, gone))
    job_id = log[at].job_id
    left = [one for one in log if one is not log[at]]
    if gone is Submitted:
        left = [one for one in left if one.job_id != job_id or one.is_action]

    try:
        assert replay(left, policy).difference is not None
    except Exception as error:
        assert str(job_id) in str(error)  # noqa: PT017


def test_another_policy_decides_otherwise(log: list[LogEntry]) -> None:
    def other(settings: object) -> MakeScheduler:
        return lambda cluster, workload: Scheduler(
            cluster, Policy(PriorityWithAgeing(), pack(), name="other")
        )

    assert replay(log, other).difference is not None


def test_what_a_user_asks_of_a_job_that_runs_is_no_news_to_the_scheduler(
    log: list[LogEntry],
) -> None:
    without = [one for one in log if not isinstance(one.what, CancelRequested)]

    # The record of the job is another then; what was decided is not.
    assert replay(without, policy).difference is None


def test_the_command_says_so(
    log: list[LogEntry], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["replay", "--state", str(tmp_path), "-o", "json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (told["difference"], told["starts"]) == (None, 2)


def test_the_command_leaves_with_1_where_a_decision_differs(
    log: list[LogEntry], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        file.execute(
            "UPDATE log SET what = replace(what, 'high-2', 'low-1') WHERE kind = 'Preempt'"
        )
        file.commit()

    code = cli.run(["replay", "--state", str(tmp_path)])

    assert code == 1
    assert "replayed Preempt(job_id='low-1', in_favour_of='high-2')" in capsys.readouterr().out
