"""Strict queues and EASY backfilling."""

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.rest import Wrapper
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.model import (
    Action,
    Event,
    Finished,
    Grow,
    Job,
    JobId,
    Start,
    Started,
    Submitted,
    held_gpu_milli,
)
from interlane.policy.order import FairShare, Fifo, PriorityWithAgeing, ShortestFirst
from interlane.policy.place import pack
from interlane.policy.policy import Discipline, Policy
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, ends, job, make, play, pool, starts
from interlane.testing.strategies import traces

Trace = tuple[list[Job], list[float]]


@st.composite
def pool_traces(draw: st.DrawFn) -> Trace:
    """Draw whole-GPU jobs and gangs, some elastic, for a pool of four, estimates true."""
    jobs, true_s, now_s = [], [], 0.0
    for number in range(draw(st.integers(1, 9))):
        now_s += draw(st.sampled_from([0, 0, 1, 7, 20]))
        length_s = float(draw(st.integers(1, 40)))
        gpus = draw(st.sampled_from([1, 1, 2, 3, 4]))
        least = draw(st.one_of(st.none(), st.integers(1, gpus)))
        asked = job(gpus=gpus) if least is None else job(gpus=1, instances=gpus, at_least=least)
        jobs.append(
            replace(
                asked,
                id=JobId(f"j{number}"),
                submitted_s=now_s,
                duration_s_estimate=length_s,
                serial=number,
            )
        )
        true_s.append(length_s)
    return jobs, true_s


@given(trace=traces(most=10))
def test_a_strict_queue_starts_jobs_in_order(trace: Trace) -> None:
    jobs, true_s = trace

    log = play(jobs, true_s, make(cluster(gpus=[2, 4]), queue=Discipline.STRICT))

    started = [
        log.jobs[line.subject].serial for line in log.lines() if line.kind is LogEvent.STARTED
    ]
    assert started == sorted(started)


def test_nobody_passes_the_head_of_a_strict_queue() -> None:
    jobs = [job("a", gpus=1), job("b", gpus=2, at=1), job("c", gpus=1, at=2)]

    log = play(jobs, 10.0, make(pool(2), queue=Discipline.STRICT))

    # b waits for a until 10 s and takes both GPUs; c waits for b.
    assert starts(log) == {"a": 0, "b": 10, "c": 20}


def test_easy_lets_a_job_pass_that_ends_in_time() -> None:
    jobs = [
        job("a", gpus=1, estimate=10),
        job("b", gpus=2, estimate=10, at=1),
        job("long", gpus=1, estimate=9, at=2),
        job("short", gpus=1, estimate=8, at=2),
    ]
    lengths = {"a": 10, "b": 10, "long": 9, "short": 8}

    log = play(jobs, lengths, make(pool(2), queue=Discipline.EASY))

    # b is promised both GPUs at 10 s; from 2 s on, 8 s fit before that and 9 s do not.
    assert starts(log) == {"a": 0, "short": 2, "b": 10, "long": 20}


def test_easy_lets_a_long_job_pass_where_the_head_leaves_room() -> None:
    jobs = [
        job("a", gpus=2, estimate=10),
        job("b", gpus=3, estimate=10, at=1),
        job("long", gpus=1, estimate=1000, at=2),
    ]

    log = play(jobs, {"a": 10, "b": 10, "long": 1000}, make(pool(4), queue=Discipline.EASY))

    # Of four GPUs b will need three at 10 s; the fourth is long's for as long as it likes.
    assert starts(log) == {"a": 0, "long": 2, "b": 10}


def test_easy_lets_jobs_pass_in_their_order_whatever_their_shapes() -> None:
    jobs = [
        job("r0", gpus=3, estimate=100, serial=0),
        job("r1", gpus=1, estimate=20, serial=1),
        job("head", gpus=4, estimate=10, at=1, serial=2),
        job("a1", gpus=1, estimate=1000, at=2, serial=3),
        job("b1", gpus=1, cpus=1, estimate=70, at=5, serial=4),
        job("a2", gpus=1, estimate=70, at=10, serial=5),
    ]
    lengths = [one.duration_s_estimate or 0.0 for one in jobs]

    log = play(jobs, lengths, make(pool(4), queue=Discipline.EASY))

    # At 20 s one GPU is free for 80 s: a1 is too long for that, b1 came before a2.
    started = starts(log)
    assert (started["b1"], started["head"]) == (20, 100)
    assert started["a2"] == 110


@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 7, 20]),
            st.integers(1, 60),
            st.sampled_from([1, 1, 1, 2, 3, 4]),
            st.integers(0, 3),
        ),
        min_size=4,
        max_size=16,
    )
)
def test_easy_starts_the_same_jobs_when_what_nobody_lacks_tells_their_shapes_apart(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    def started(*, cores: bool) -> dict[str, float]:
        jobs, now_s = [], 0.0
        for number, (gap_s, length_s, gpus, cpus) in enumerate(drawn):
            now_s += gap_s
            asked = job(f"j{number}", gpus=gpus, cpus=cpus if cores else 0, at=now_s)
            jobs.append(replace(asked, duration_s_estimate=float(length_s), serial=number))
        lengths = [one.duration_s_estimate or 0.0 for one in jobs]
        return dict(starts(play(jobs, lengths, make(pool(4), queue=Discipline.EASY))))

    assert started(cores=True) == started(cores=False)


class Promises(Wrapper):
    """A scheduler that notes the first promise to every head and how it was computed."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.cluster = scheduler.cluster
        self._waiting: dict[JobId, Job] = {}
        self._running: dict[JobId, tuple[float, int]] = {}
        """When each job is expected to end, and the GPUs that it has."""
        self.promised: dict[JobId, float] = {}

    def learn(self, event: Event, now_s: float) -> None:
        if isinstance(event, Submitted):
            self._waiting[event.job.id] = event.job
        if isinstance(event, Finished):
            del self._running[event.job_id]
        super().learn(event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        before = dict(self._waiting)
        actions = super().decide(now_s)
        for action in actions:
            if isinstance(action, Start):
                started = self._waiting.pop(action.job_id)
                gpus = held_gpu_milli(started.request, action.placement) // 1000
                ratio = started.request.gpu_milli // 1000 / gpus
                assert started.duration_s_estimate is not None
                self._running[started.id] = now_s + started.duration_s_estimate * ratio, gpus
        if self._waiting:
            head = min(self._waiting.values(), key=lambda each: (each.submitted_s, each.serial))
            self.promised.setdefault(head.id, self._shadow(head, before, now_s))
        for action in actions:
            if isinstance(action, Grow):
                end_s, gpus = self._running[action.job_id]
                more = gpus + action.more.instances
                self._running[action.job_id] = now_s + (end_s - now_s) * gpus / more, more
        return actions

    def _shadow(self, head: Job, before: dict[JobId, Job], now_s: float) -> float:
        """Return when the head could start if all who were ahead of it ran as estimated."""
        need = head.request.least_gpu_milli // 1000
        ahead = [
            run
            for name, run in self._running.items()
            if name not in before or before[name].serial < head.serial
        ]
        free = self.cluster.gpus - sum(gpus for _, gpus in ahead)
        for end_s, gpus in sorted(ahead):
            free += gpus
            if free >= need:
                return end_s
        return now_s


@given(trace=pool_traces())
def test_easy_never_delays_the_head_beyond_its_promise_when_estimates_are_true(
    trace: Trace,
) -> None:
    jobs, true_s = trace
    scheduler = make(pool(4), queue=Discipline.EASY)
    promises = Promises(scheduler)

    log = Simulator(scheduler, jobs, true_s, through=promises, paranoid=True).run()

    started = starts(log)
    for name, promised_s in promises.promised.items():
        assert started[name] <= promised_s + 1e-6


@given(trace=traces(most=10, exact=True))
def test_easy_ends_every_job_on_machines_too(trace: Trace) -> None:
    jobs, true_s = trace
    scheduler = make(cluster(gpus=[2, 4]), queue=Discipline.EASY, placer=pack())

    log = play(jobs, true_s, scheduler)

    assert len(ends(log)) + len(log.refusals) == len(jobs)


def test_fair_share_serves_whoever_has_less() -> None:
    jobs = [
        job("a1", gpus=1, user="ann"),
        job("a2", gpus=1, user="ann"),
        job("a3", gpus=1, user="ann"),
        job("b1", gpus=1, user="bob"),
    ]

    log = play(jobs, 10.0, make(pool(2), order=FairShare()))

    # ann gets one GPU; then she has one and bob none, so that the second is his.
    assert starts(log) == {"a1": 0, "b1": 0, "a2": 10, "a3": 10}


def test_a_heavier_account_gets_more() -> None:
    jobs = [job(f"a{n}", gpus=1, user="ann") for n in range(4)]
    jobs += [job(f"b{n}", gpus=1, user="bob") for n in range(4)]

    log = play(jobs, 10.0, make(pool(3), order=FairShare(weights={"ann": 2.0})))

    first = [name for name, at_s in starts(log).items() if at_s == 0]
    # Shares over weight: ann 0.5 after one, bob 1 after one, so ann has two of three.
    assert sorted(first) == ["a0", "a1", "b0"]


def test_ageing_lets_a_patient_job_pass_an_important_one() -> None:
    order = PriorityWithAgeing(age_s=10)
    jobs = [
        job("x", gpus=1),
        job("patient", gpus=1, at=1, priority=0),
        job("important", gpus=1, at=25, priority=2),
    ]

    log = play(jobs, 30.0, make(order=order))

    # At 30 s patient has aged 2.9 steps and important, two steps above, 0.5: 2.9 > 2.5.
    assert starts(log) == {"x": 0, "patient": 30, "important": 60}


def test_shortest_first_picks_by_estimate_and_not_by_truth() -> None:
    jobs = [
        job("x", gpus=1, estimate=1),
        job("liar", gpus=1, estimate=5, at=1),
        job("honest", gpus=1, estimate=6, at=1),
    ]

    log = play(jobs, {"x": 10, "liar": 100, "honest": 6}, make(order=ShortestFirst()))

    assert starts(log) == {"x": 0, "liar": 10, "honest": 110}


def test_a_head_is_passed_on_the_word_of_estimates_for_so_long_only() -> None:
    bounded, unbounded = _passed_s(60.0), _passed_s(inf)

    assert bounded
    assert max(bounded) < 60.0
    assert max(unbounded) > 200.0  # it would starve without a bound


def _passed_s(bound_s: float) -> list[float]:
    """Return when a head is passed that waits for a job which outlives its estimate."""
    policy = Policy(Fifo(), pack(), Discipline.EASY, passed_s_max=bound_s)
    scheduler = Scheduler(pool(2), policy)
    head = replace(job("b", gpus=2, estimate=10), serial=1)
    assert _started(scheduler, Submitted(job("a", gpus=1, estimate=10)), 0.0) == ["a"]
    assert _started(scheduler, Submitted(head), 0.0) == []
    passed = []
    for number in range(2, 30):
        now_s = 9.0 * (number - 1)
        short = replace(job(f"j{number}", gpus=1, estimate=0.5), serial=number)
        for one in _started(scheduler, Submitted(short), now_s):
            passed.append(now_s)
            scheduler.learn(Finished(JobId(one)), now_s)
    return passed


def _started(scheduler: Scheduler, event: Event, now_s: float) -> list[str]:
    """Tell a scheduler something; return who starts."""
    names = []
    for action in scheduler.handle(event, now_s):
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)
            names.append(str(action.job_id))
    return names
