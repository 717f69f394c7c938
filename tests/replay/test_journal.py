"""A recorded log fed to a fresh scheduler gives the recorded actions."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cancelled,
    Cluster,
    Demand,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    InvalidInput,
    Job,
    JobId,
    Start,
    Started,
    StartFailed,
    Submitted,
)
from interlane.model.codec import logged, plain
from interlane.policy.base import TypicalDemand
from interlane.policy.catalogue import ORDERS, PLACERS, make_order, make_placer
from interlane.policy.order import PriorityWithAgeing
from interlane.policy.policy import Discipline, Policy
from interlane.sim.engine import Simulator
from interlane.sim.world import Failures, ShareContention, World
from interlane.testing.build import cluster, job, make
from interlane.testing.journal import (
    Decided,
    Journal,
    JournalDifference,
    Learned,
    RecordedScheduler,
    replay,
)
from interlane.testing.strategies import clusters, traces

TYPICAL = (TypicalDemand(Demand(1, 500, cpu_milli=1_000), 1.0),)
WORLD = World(
    slow_downs=(ShareContention(),),
    failures=Failures(mean_up_s=400, mean_down_s=50),
    restart_s=5,
)
POLICIES = {
    **{f"{name} order": Policy(make_order(name), make_placer("random")) for name in ORDERS},
    **{name: Policy(make_order("sjf"), make_placer(name, TYPICAL)) for name in PLACERS},
    "preemptive priority": Policy(
        PriorityWithAgeing(preemptive=True), make_placer("d-choices")
    ),
    "strict": Policy(make_order("fifo"), make_placer("pack"), Discipline.STRICT),
    "easy": Policy(make_order("fifo"), make_placer("random"), Discipline.EASY),
}


def record(scheduler: Scheduler, jobs: list[Job], true_s: list[float]) -> Journal:
    """Play a trace in an eventful world and return the journal of it."""
    recorded = RecordedScheduler(scheduler)
    Simulator(scheduler, jobs, true_s, WORLD, through=recorded).run(until_s=5_000)
    return recorded.journal


class _Recorded(RecordedScheduler):
    """A recorded scheduler with the cluster that the engine asks for."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.cluster = scheduler.cluster


def written_and_read(journal: Journal) -> Journal:
    """Return a journal after all of it was text."""

    def copied(what: Any) -> Any:  # noqa: ANN401 - the same type again
        return logged(type(what).__name__, json.loads(json.dumps(plain(what))))

    return Journal(
        [
            Learned(entry.at_s, copied(entry.event))
            if isinstance(entry, Learned)
            else Decided(entry.at_s, tuple(map(copied, entry.actions)))
            for entry in journal
        ]
    )


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25)
@given(on=clusters(most=3), trace=traces(most=10), seed=st.integers(0, 99))
def test_replay_of_a_recorded_run_gives_identical_actions(
    name: str, on: Cluster, trace: tuple[list[Job], list[float]], seed: int
) -> None:
    journal = record(Scheduler(on, POLICIES[name], seed), *trace)

    copied = written_and_read(journal)

    assert copied == journal
    assert replay(copied, Scheduler(on, POLICIES[name], seed)) is None


def recorded_pair() -> Journal:
    recorded = RecordedScheduler(make(gpus=1))
    recorded.handle(Submitted(job("a", gpus=1)), 0)
    recorded.handle_all([Submitted(job("b", gpus=1, at=1)), Cancelled(JobId("a"))], 1)
    return recorded.journal


def test_a_journal_notes_events_and_actions_in_order() -> None:
    journal = recorded_pair()

    assert [type(entry) for entry in journal] == [Learned, Decided, Learned, Learned, Decided]
    assert [entry.at_s for entry in journal] == [0, 0, 1, 1, 1]


def test_growth_and_its_failure_are_noted_and_read_back() -> None:
    recorded = RecordedScheduler(make(gpus=2))
    gang = job("gang", gpus=1, instances=2, at_least=1)
    recorded.handle(Submitted(job("a", gpus=1)), 0)
    for action in recorded.handle(Submitted(gang), 0):
        assert isinstance(action, Start)
        recorded.learn(Started(action.job_id, action.placement), 0)
    (action,) = recorded.handle(Finished(JobId("a")), 1)
    assert isinstance(action, Grow)
    (again,) = recorded.handle(GrowFailed(gang.id, "no image"), 2)
    assert again == action
    recorded.learn(Grown(gang.id, action.more), 3)

    copied = written_and_read(recorded.journal)

    assert copied == recorded.journal
    assert replay(copied, make(gpus=2)) is None


def test_the_first_difference_is_reported_in_a_sentence() -> None:
    journal = recorded_pair()
    last = journal.entries[-1]
    assert isinstance(last, Decided)
    journal.entries[-1] = replace(last, actions=())

    found = replay(journal, make(gpus=1))

    assert isinstance(found, JournalDifference)
    assert (found.entry, found.at_s, found.recorded) == (4, 1, ())
    assert [type(action) for action in found.replayed] == [Start]
    assert str(found).startswith("Entry 4 at 1 s: recorded nothing, replayed Start(job_id='b'")


def test_another_policy_replays_differently() -> None:
    many = cluster(gpus=[1] * 8)
    recorded = RecordedScheduler(make(many))
    recorded.handle(Submitted(job("a", gpus=1, instances=4)), 0)
    fresh = make(many, placer=make_placer("random"))

    # First fit takes the first four machines; the random draws do so once in 8 * 7 * 6 * 5
    # draws.
    assert replay(recorded.journal, fresh) is not None


def test_a_event_that_was_refused_is_not_noted() -> None:
    recorded = RecordedScheduler(make())

    with pytest.raises(InvalidInput):
        recorded.learn(StartFailed(JobId("a"), "unknown"), 0)

    assert len(recorded.journal) == 0
