"""Whether jobs start when ``eta`` says: a simulated week, told as the live machine would.

Jobs like PAI's come to a small lab.  Their lengths are estimated by what the server estimates
with, from jobs that have ended, and some of those that must wait are asked about when they
come in.  No play knows anything that the server would not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from interlane.kernel.rest import Decides, Wrapper
from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    MILLI,
    Cluster,
    Event,
    Finished,
    Job,
    JobId,
    Machine,
    MachineId,
    Placement,
    Recovered,
    Started,
    Submitted,
)
from interlane.model.gpu import GPU_MEMORY_MIB
from interlane.model.units import MIB_PER_GIB
from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked

if TYPE_CHECKING:
    from interlane.live.questions.estimates import EstimateBand, JobFeatures, LiveEstimates
    from interlane.policy.policy import Policy
    from interlane.predict.starts import Calibrated, StartBand
    from interlane.sim.forward import Expected

JOBS: Final = 3_000
LOAD: Final = 0.8
"""Together about a week."""

WARM_UP_S: Final = 86_400.0
ASKED_ONE_IN: Final = 6
QUEUES: Final = (("fifo", "skip"), ("sjf", "skip"), ("fifo", "easy"))
EVEN: Final = (0.40, 0.60)
"""Share of jobs that must start by the earlier time told."""

LEAST, MOST = 0.80, 0.95
"""Share of jobs that must start by the later time told, and inside the whole band."""


def _lab() -> Cluster:
    large = Machine(
        MachineId("a"), "V100", 8, 96 * MILLI, 512 * MIB_PER_GIB, GPU_MEMORY_MIB["V100"]
    )
    small = [
        replace(large, id=MachineId(f"b{number}"), gpus=2, cpu_milli=32 * MILLI)
        for number in range(3)
    ]
    return Cluster("lab", (large, *small))


class Watched(Wrapper):
    """A scheduler whose jobs get the server's estimates, and which remembers how they stand."""

    def __init__(self, inner: Decides, estimates: "LiveEstimates") -> None:
        super().__init__(inner)
        self.started_s: dict[JobId, float] = {}
        self._estimates = estimates
        self._open: dict[JobId, tuple[Job, JobFeatures, EstimateBand]] = {}
        self._places: dict[JobId, Placement] = {}

    def learn(self, event: Event, now_s: float) -> None:
        """Take one event into the state."""
        match event:
            case Submitted(job):
                event = Submitted(self._estimated(job, now_s))
            case Started(job_id, placement):
                self.started_s[job_id] = now_s
                self._places[job_id] = placement
            case Finished(job_id):
                _, asked, _ = self._open.pop(job_id)
                del self._places[job_id]
                self._estimates.learn(asked, now_s - self.started_s[job_id])
            case _:
                raise AssertionError(f"{event} happens in no such week.")
        super().learn(event, now_s)

    def _estimated(self, job: Job, now_s: float) -> Job:
        from interlane.live.questions.estimates import JobFeatures

        asked = JobFeatures(job.id, job.program, job.user, job.request, now_s, None)
        span = self._estimates.estimate(asked)
        job = replace(job, duration_s_estimate=span.seconds)
        self._open[job.id] = job, asked, span
        return job

    def waits(self, job_id: JobId) -> bool:
        """Tell whether a job that came in has no place yet."""
        return job_id in self._open and job_id not in self._places

    def expected(self) -> "list[Expected]":
        """Return all open jobs as the server would play them: first those that run."""
        from interlane.sim.forward import Expected

        holders_first = sorted(
            self._open.values(), key=lambda one: (one[0].id not in self._places, one[0].serial)
        )
        return [
            Expected(
                Recovered(
                    job,
                    placement=self._places.get(job.id),
                    started_s=self.started_s.get(job.id, 0.0),
                ),
                span.seconds,
                span.low_s,
                span.high_s,
            )
            for job, _, span in holders_first
        ]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often what was told held."""

    asked: int
    by_p50: float
    by_p90: float
    inside: float


def _told(policy: "Policy", seed: int, tell: Callable[[int], None]) -> Coverage:
    """Play a week, ask about jobs that wait, and count how often the answers held."""
    from interlane.live.questions.estimates import LiveEstimates
    from interlane.predict.starts import Calibrated
    from interlane.sim.engine import Simulator
    from interlane.traces.jobs import jobs_of
    from interlane.traces.synth import synthesize

    cluster = _lab()
    trace = synthesize(jobs=JOBS, cluster=cluster, load=LOAD, seed=seed)
    jobs, true_s = jobs_of(trace, estimate=None)
    make = partial(Scheduler, cluster, policy)
    scheduler = make()
    watched = Watched(scheduler, LiveEstimates())
    engine, calibrated = Simulator(scheduler, jobs, true_s, through=watched), Calibrated()
    told: dict[JobId, StartBand] = {}
    for number, job in enumerate(jobs):
        engine.run(until_s=job.submitted_s)
        tell(number)
        if number % ASKED_ONE_IN == 0 and watched.waits(job.id):
            band = _asked(watched, calibrated, job, make)
            if job.submitted_s >= jobs[0].submitted_s + WARM_UP_S:
                told[job.id] = band
    engine.run()
    return _coverage(told, watched.started_s)


def _asked(
    watched: Watched, calibrated: "Calibrated", job: Job, make: Callable[[], Scheduler]
) -> "StartBand":
    from interlane.sim.forward import played_starts

    for job_id in calibrated.awaited:
        if job_id in watched.started_s:
            calibrated.started(job_id, watched.started_s[job_id])
    starts_s = played_starts(make, watched.expected(), job.id, job.submitted_s)
    assert starts_s is not None  # no machine of the lab ever fails
    calibrated.note(job.id, starts_s, job.submitted_s)
    return calibrated.band(starts_s, job.submitted_s)


def _coverage(told: "dict[JobId, StartBand]", started_s: dict[JobId, float]) -> Coverage:
    def share(holds: "Callable[[float, StartBand], bool]") -> float:
        return sum(holds(started_s[job], band) for job, band in told.items()) / len(told)

    return Coverage(
        len(told),
        share(lambda at_s, band: at_s <= band.p50_s),
        share(lambda at_s, band: at_s <= band.p90_s),
        share(lambda at_s, band: band.low_s <= at_s <= band.high_s),
    )


def rows_of(name: str, found: Coverage) -> list[Row]:
    """Return what is shown of one queue."""
    must = f"{LEAST:.0%} to {MOST:.0%}"
    return [
        checked(
            f"{name}: jobs asked about",
            found.asked,
            None,
            found.asked >= 50,
            "Too few would wait for anything to be shown.",
        ),
        checked(
            f"{name}: started by P50",
            f"{found.by_p50:.1%}",
            f"{EVEN[0]:.0%} to {EVEN[1]:.0%}",
            EVEN[0] <= found.by_p50 <= EVEN[1],
        ),
        checked(
            f"{name}: started by P90",
            f"{found.by_p90:.1%}",
            must,
            LEAST <= found.by_p90 <= MOST,
        ),
        checked(
            f"{name}: started within the band",
            f"{found.inside:.1%}",
            must,
            LEAST <= found.inside <= MOST,
        ),
    ]


def _eta(setting: Setting) -> list[Row]:
    from interlane.policy.catalogue import make_order, make_placer
    from interlane.policy.policy import Discipline, Policy

    rows: list[Row] = []
    for at, (order, queue) in enumerate(QUEUES):
        policy = Policy(make_order(order), make_placer("pack"), Discipline(queue))

        def tell(number: int, at: int = at) -> None:
            setting.progress(at * JOBS + number, len(QUEUES) * JOBS, "jobs")

        rows += rows_of(f"{order}/{queue}", _told(policy, setting.seed, tell))
    return rows


ETA: Final = Reproduction(
    name="eta-simulated",
    claim="In a simulated week, jobs start when 'eta' says: by P90, and within the band, 80 to "
    "95 of 100.",
    if_not="Bands of start times promise more, or less, than they hold.",
    run=_eta,
    needs_data=False,
    seed=42,
    basis=Basis.DRAWN,
)
