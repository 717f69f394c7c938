"""When a waiting job will start: what is known now, played forward again and again.

Nobody knows how long jobs will run; bands say how far guesses are off.  So each play draws
every job's length anew, from a log-normal distribution with the band as its middle eight
tenths, and those that run already are drawn longer than they have run.  Jobs that are yet to
come are not played: under orders that let newcomers pass, the true start may be later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Final

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import Fact
from interlane.model import JobId, Recovered
from interlane.sim.engine import Engine

PLAYS_MAX: Final = 64
PLAYS_MIN: Final = 16
JOBS_PLAYED: Final = 100_000
"""Jobs over all plays, about: with many jobs, fewer plays must do."""

_NORMAL: Final = NormalDist()
_EDGE: Final = _NORMAL.inv_cdf(0.9)
_SPREAD_MIN: Final = 0.01
_SURE: Final = 1.0 - 1e-9
"""A job that has run longer than nearly all of its kind is drawn from what is left."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A job as it stands, and how long it is guessed to run, as a band."""

    fact: Recovered
    seconds: float
    low_s: float
    high_s: float

    def left_s(self, now_s: float, dice: Random) -> float:
        """Draw how much longer the job runs."""
        ran_s = 0.0 if self.fact.placement is None else now_s - self.fact.started_s
        middle = log(max(self.seconds, 1.0))
        spread = max(
            log(max(self.high_s, 1.0) / max(self.low_s, 1.0)) / (2 * _EDGE), _SPREAD_MIN
        )
        already = self.fact.ran_s + ran_s
        passed = _NORMAL.cdf((log(already) - middle) / spread) if already > 0 else 0.0
        drawn = min(passed + (1.0 - passed) * dice.random(), _SURE)
        total_s = exp(middle + spread * _NORMAL.inv_cdf(max(drawn, 1e-9)))
        return max(total_s - already, 0.0)


@dataclass(frozen=True, slots=True)
class StartBand:
    """When a job is likely to start."""

    p50_s: float
    p90_s: float


def start_band(
    make: Callable[[], Scheduler],
    jobs: Sequence[Expected],
    job_id: JobId,
    now_s: float,
    seed: int = 0,
) -> StartBand | None:
    """Return when a waiting job is likely to start; None if it never does."""
    dice = Random(seed)
    plays = max(PLAYS_MIN, min(PLAYS_MAX, JOBS_PLAYED // max(1, len(jobs))))
    starts = [_start(make, jobs, job_id, now_s, dice) for _ in range(plays)]
    known = sorted(start_s for start_s in starts if start_s is not None)
    if len(known) < plays:
        return None
    return StartBand(known[plays // 2], known[min(plays - 1, int(plays * 0.9))])


def _start(
    make: Callable[[], Scheduler],
    jobs: Sequence[Expected],
    job_id: JobId,
    now_s: float,
    dice: Random,
) -> float | None:
    left_s = [job.left_s(now_s, dice) for job in jobs]
    engine = Engine(make(), [job.fact.job for job in jobs], left_s)
    engine.resume([job.fact for job in jobs], now_s)
    number = next(at for at, job in enumerate(jobs) if job.fact.job.id == job_id)
    engine.run()
    for line in engine.log.lines():
        if line.fact is Fact.STARTED and line.subject == number:
            return line.at_s
    return None
