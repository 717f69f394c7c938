"""Beside or behind: whether a job gets a lane of its own or shares one serially.

Lanes run in parallel; the jobs of one lane take turns.  Two jobs that each fill the device gain
nothing from running side by side and lose by contention; two that half-fill it finish in half
the time.  What decides is how much they slow each other down, measured or predicted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from interlane.model import InvalidField, JobId, UnknownName

Tenants = Sequence[JobId]
"""The jobs of one lane."""


class Sharing(Protocol):
    """Says how jobs spread over lanes.  Memory has the last word, not this."""

    def opens_lane(self, job_id: JobId, lanes: Sequence[Tenants]) -> bool:
        """Tell whether the job should run beside these lanes rather than in one of them."""
        ...

    def clash(self, job_id: JobId, tenants: Tenants) -> float:
        """Rank lanes to share: the higher, the more the job gains from taking turns there."""
        ...


@dataclass(frozen=True, slots=True)
class Serialise:
    """One lane for all: jobs take turns, nobody overlaps."""

    def opens_lane(self, job_id: JobId, lanes: Sequence[Tenants]) -> bool:
        """Open none, once there is one."""
        return False

    def clash(self, job_id: JobId, tenants: Tenants) -> float:
        """All lanes are equal."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """A lane for each job while memory lasts."""

    def opens_lane(self, job_id: JobId, lanes: Sequence[Tenants]) -> bool:
        """Open one for everybody."""
        return True

    def clash(self, job_id: JobId, tenants: Tenants) -> float:
        """All lanes are equal."""
        return 0.0


class LaneSlowdown(Protocol):
    """How much longer a job's iterations take beside another's than alone."""

    def of(self, job_id: JobId, beside: JobId) -> float | None:
        """Return time together over time alone (1 = no effect), or None if unknown."""
        ...


@dataclass(slots=True)
class MeasuredSlowDown:
    """What was measured, and where nothing was, what ``otherwise`` predicts."""

    otherwise: LaneSlowdown | None = None
    _of: dict[tuple[JobId, JobId], float] = field(default_factory=dict)

    def learn(self, job_id: JobId, beside: JobId, slow_down: float) -> None:
        """Keep a measurement; the last one counts."""
        self._of[job_id, beside] = slow_down

    def of(self, job_id: JobId, beside: JobId) -> float | None:
        """Return the last measurement, or else the prediction."""
        if (job_id, beside) in self._of:
            return self._of[job_id, beside]
        return None if self.otherwise is None else self.otherwise.of(job_id, beside)


@dataclass(frozen=True, slots=True)
class FilledSlowDown:
    """Predict from the share of the device that each job keeps busy when alone."""

    filled: Mapping[JobId, float]
    """0 to 1 for each job."""
    contention: float = 0.0
    """Extra slowdown for each whole device that is wanted beyond the one there is."""

    def of(self, job_id: JobId, beside: JobId) -> float | None:
        """Return how far the two oversubscribe the device; None if one is not known."""
        if job_id not in self.filled or beside not in self.filled:
            return None
        wanted = self.filled[job_id] + self.filled[beside]
        return max(1.0, wanted + self.contention * (wanted - 1.0))


_WHOLE: Final = 1.0
"""Work done per second by jobs that take turns: one device's worth."""


@dataclass(frozen=True, slots=True)
class OverlapIfItPays:
    """Overlap two jobs if together they get ``gain`` times as much done as in turns.

    A job that runs ``s`` times slower does 1/s of its work per second, so two do
    1/s1 + 1/s2 together against 1 in turns.  Where nothing is known, jobs take turns.
    """

    slow_down: LaneSlowdown
    gain: float = 1.05

    def __post_init__(self) -> None:
        if not _WHOLE <= self.gain < 2 * _WHOLE:
            raise InvalidField("gain", self.gain, "it must be at least 1 and below 2")

    def opens_lane(self, job_id: JobId, lanes: Sequence[Tenants]) -> bool:
        """Only if overlapping with the worst partner of any lane still pays."""
        return all(self._together(job_id, tenants) >= self.gain for tenants in lanes)

    def clash(self, job_id: JobId, tenants: Tenants) -> float:
        """Share the lane of the worst partner, because one never runs beside one's own lane."""
        return -self._together(job_id, tenants)

    def _together(self, job_id: JobId, tenants: Tenants) -> float:
        return min(self._pair(job_id, other) for other in tenants)

    def _pair(self, one: JobId, two: JobId) -> float:
        first, second = self.slow_down.of(one, two), self.slow_down.of(two, one)
        if first is None or second is None:
            return 0.0
        return 1.0 / first + 1.0 / second


SHARINGS: Final[Mapping[str, Callable[[LaneSlowdown], Sharing]]] = MappingProxyType(
    {
        "turns": lambda _: Serialise(),
        "beside": lambda _: Overlap(),
        "measured": OverlapIfItPays,
    }
)
"""How jobs spread over lanes, by name: as far as the slowdown is known, where that counts."""


def make_sharing(name: str, slow_down: LaneSlowdown) -> Sharing:
    """Return the sharing of this name."""
    if name not in SHARINGS:
        raise UnknownName("sharing", name, SHARINGS)
    return SHARINGS[name](slow_down)
