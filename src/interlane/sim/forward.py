"""When a waiting job will start: what is known now, played forward again and again.

Nobody knows how long jobs will run; bands say how far estimates are off.  So each play draws
every job's length anew: its logarithm from Student's distribution with two degrees of
freedom, with the band as its middle eight tenths.  Its tails are as long as those of real
jobs: one that has outrun its estimate by far is likely to run for as long again.  Jobs that are
yet to come are not played: under orders that let newcomers pass, the true start may be later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from random import Random
from typing import Final

from interlane.kernel.scheduler import Scheduler
from interlane.model import JobId, Recovered
from interlane.sim.engine import Simulator

PLAYS_MAX: Final = 64
PLAYS_MIN: Final = 16
JOBS_PLAYED: Final = 100_000
"""Jobs over all plays, about: with many jobs, fewer plays must do."""

LEAST_S: Final = 0.001
"""No job is drawn shorter: one that ended in the moment of its start would not be seen."""

SPREAD_MIN: Final = 0.01
SURE: Final = 1.0 - 1e-9
LONGEST: Final = 30.0
"""No job is drawn longer than so many times its band, or than it has run already."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A job as it stands, and how long it is estimated to run, as a band."""

    event: Recovered
    seconds: float
    low_s: float
    high_s: float

    def left_s(self, now_s: float, rng: Random) -> float:
        """Draw how much longer the job runs."""
        ran_s = 0.0 if self.event.placement is None else now_s - self.event.started_s
        already = self.event.ran_s + ran_s
        middle = log(max(self.seconds, 1.0))
        spread = log(max(self.high_s, 1.0) / max(self.low_s, 1.0)) / (2 * _quantile(0.9))
        spread = max(spread, SPREAD_MIN)
        passed = _share_below((log(already) - middle) / spread) if already > 0 else 0.0
        drawn = min(max(passed + (1.0 - passed) * rng.random(), 1.0 - SURE), SURE)
        longest = log(LONGEST * max(self.high_s, already, 1.0))
        return max(exp(min(middle + spread * _quantile(drawn), longest)) - already, LEAST_S)


def _share_below(value: float) -> float:
    """Return Student's distribution function, two degrees of freedom."""
    return 0.5 + value / (2.0 * sqrt(2.0 + value * value))


def _quantile(share: float) -> float:
    """Return its inverse."""
    return (2.0 * share - 1.0) / sqrt(2.0 * share * (1.0 - share))


def played_starts(
    make: Callable[[], Scheduler],
    jobs: Sequence[Expected],
    job_id: JobId,
    now_s: float,
    seed: int = 0,
) -> list[float] | None:
    """Return when a waiting job starts in each play, in order; None if it may never."""
    return all_played_starts(make, jobs, [job_id], now_s, seed).get(job_id)


def all_played_starts(
    make: Callable[[], Scheduler],
    jobs: Sequence[Expected],
    job_ids: Sequence[JobId],
    now_s: float,
    seed: int = 0,
) -> dict[JobId, list[float]]:
    """Return the same of several jobs, but for those that may never start."""
    rng = Random(seed)
    plays = max(PLAYS_MIN, min(PLAYS_MAX, JOBS_PLAYED // max(1, len(jobs))))
    played = [_starts(make, jobs, job_ids, now_s, rng) for _ in range(plays)]
    return {
        job_id: sorted(starts_s[job_id] for starts_s in played)
        for job_id in job_ids
        if all(job_id in starts_s for starts_s in played)
    }


def _starts(
    make: Callable[[], Scheduler],
    jobs: Sequence[Expected],
    job_ids: Sequence[JobId],
    now_s: float,
    rng: Random,
) -> dict[JobId, float]:
    """Play until all these jobs have started, or nothing happens any more."""
    left_s = [job.left_s(now_s, rng) for job in jobs]
    engine = Simulator(make(), [job.event.job for job in jobs], left_s)
    engine.resume([job.event for job in jobs], now_s)
    wanted = set(job_ids)
    awaited = {
        at: job.event.job.id for at, job in enumerate(jobs) if job.event.job.id in wanted
    }
    starts_s: dict[JobId, float] = {}
    seen = 0
    while True:
        for start_s, number in engine.log.starts_since(seen):
            if number in awaited:
                starts_s[awaited.pop(number)] = start_s
        seen = len(engine.log)
        at_s = engine.next_moment_s()
        if not awaited or at_s == inf:
            return starts_s
        engine.run(until_s=at_s)
