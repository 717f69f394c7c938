"""Playing on from the middle is playing on; bands follow from what is not known."""

from dataclasses import replace
from statistics import median, quantiles

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import EventLog, LogEvent
from interlane.model import Cluster, Job, JobId, MachineId, Placement, Recovered, Request, Spot
from interlane.policy.catalogue import make_order, make_placer
from interlane.policy.policy import Policy
from interlane.sim.engine import Simulator
from interlane.sim.forward import Expected, played_starts
from interlane.testing.build import cluster, job, machine, make
from interlane.testing.strategies import clusters, traces

POLICY = Policy(make_order("fifo"), make_placer("pack"))


def starts_after(log: EventLog, at_s: float) -> list[tuple[float, str]]:
    return [
        (round(line.at_s, 6), log.jobs[line.subject].id)
        for line in log.lines()
        if line.kind is LogEvent.STARTED and line.at_s > at_s
    ]


def rigid(each: Job) -> Job:
    """The same job, all of which starts together, so that it runs at full speed."""
    tasks = tuple(replace(task, instances_min=None) for task in each.request.tasks)
    return replace(each, request=Request(tasks))


@given(on=clusters(most=3), trace=traces(most=10), pick=st.integers(0, 9))
def test_a_run_that_is_resumed_starts_jobs_as_the_whole_run_does(
    on: Cluster, trace: tuple[list[Job], list[float]], pick: int
) -> None:
    jobs, true_s = [rigid(each) for each in trace[0]], trace[1]
    assume(jobs)
    some = pick % len(jobs)
    # Half its length after a job came it can not be over.
    stop_s = jobs[some].submitted_s + true_s[some] / 2
    whole = Simulator(Scheduler(on, POLICY), jobs, true_s).run()
    first = Simulator(Scheduler(on, POLICY), jobs, true_s)
    first.run(stop_s)
    here = [each for each in jobs if first.scheduler.state(each.id) is not None]
    assume(here)
    to_come = [each for each in jobs if each.submitted_s > stop_s]
    length_s = dict(zip((each.id for each in jobs), true_s, strict=True))
    began_s = {jobs[one.subject].id: one.at_s for one in first.log.lines() if one.placement}
    events = [
        Recovered(
            each,
            placement=first.scheduler.placement(each.id),
            started_s=began_s.get(each.id, 0.0),
        )
        for each in here
    ]
    left_s = [
        length_s[each.id] - (stop_s - began_s[each.id] if each.id in began_s else 0.0)
        for each in here
    ]

    second = Simulator(
        Scheduler(on, POLICY), here + to_come, left_s + [length_s[one.id] for one in to_come]
    )
    second.resume(events, stop_s)

    assert starts_after(second.run(), stop_s) == starts_after(whole, stop_s)


ONE_GPU = cluster(machine("m0", gpus=1))
THERE = Placement((Spot(MachineId("m0"), (0,)),))


def expected(
    name: str, seconds: float, *, off_by: float = 1.0, runs_since_s: float | None = None
) -> Expected:
    event = Recovered(
        job(name, gpus=1),
        placement=None if runs_since_s is None else THERE,
        started_s=runs_since_s or 0.0,
    )
    return Expected(event, seconds, seconds / off_by, seconds * off_by)


def test_what_is_known_exactly_gives_a_point() -> None:
    # a has run 40 of 100 s; b takes 50 s; so c starts 60 + 50 s from now.
    jobs = [expected("a", 100, runs_since_s=960.0), expected("b", 50), expected("c", 10)]

    starts_s = played_starts(lambda: make(ONE_GPU), jobs, JobId("c"), now_s=1_000.0)

    assert starts_s is not None
    assert median(starts_s) == pytest.approx(1_110, abs=5)
    assert quantiles(starts_s, n=10)[-1] == pytest.approx(1_110, abs=8)


def test_what_is_not_known_widens_the_band() -> None:
    jobs = [expected("a", 100, off_by=3.0), expected("b", 10)]
    jobs[0] = expected("a", 100, off_by=3.0, runs_since_s=1_000.0)

    starts_s = played_starts(lambda: make(ONE_GPU), jobs, JobId("b"), now_s=1_000.0)

    assert starts_s is not None
    assert 1_060 < median(starts_s) < 1_170
    assert 1_200 < quantiles(starts_s, n=10)[-1] < 1_700


def test_a_job_far_past_its_estimate_is_expected_to_run_on_for_long() -> None:
    jobs = [expected("a", 100, off_by=2.0, runs_since_s=0.0), expected("b", 10)]

    starts_s = played_starts(lambda: make(ONE_GPU), jobs, JobId("b"), now_s=1_000.0)

    assert starts_s is not None
    assert 1_500 < median(starts_s) < 10_000


def test_a_job_that_nothing_known_lets_start_has_no_starts() -> None:
    two_gpus = replace(expected("b", 10), event=Recovered(job("b", gpus=1, instances=2)))

    assert played_starts(lambda: make(ONE_GPU), [two_gpus], JobId("b"), now_s=0.0) is None


def test_a_job_whose_length_nobody_knows_is_seen_to_start_in_every_play() -> None:
    """Lengths are drawn down to nothing; a start must be seen before its end all the same."""
    jobs = [expected("a", 10, off_by=1e6, runs_since_s=999.0), expected("b", 10, off_by=1e6)]

    for seed in range(40):
        found = played_starts(lambda: make(ONE_GPU), jobs, JobId("b"), 1_000.0, seed)

        assert found is not None
