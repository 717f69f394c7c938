"""Questions about what has not happened: would it start now, and when will it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from interlane.model import Job, JobId, Placement, Recovered, Refusal, Refuse, Start, Submitted
from interlane.server import spec
from interlane.server.books import MakeScheduler, job_of, rebuilt
from interlane.server.driver import Driver
from interlane.server.record import HOLDING, Record, State, placement_document
from interlane.server.spec import JobSpec

PLANNED: Final = JobId("planned")


@dataclass(frozen=True, slots=True)
class Known:
    """A job that has not ended, and how long it is guessed to run, as a band."""

    fact: Recovered
    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class StartBand:
    """When a job is likely to start."""

    p50_s: float
    p90_s: float


class Forecast(Protocol):
    """Plays what is known forward."""

    def __call__(
        self, make: MakeScheduler, jobs: Sequence[Known], job_id: JobId, now_s: float
    ) -> StartBand | None:
        """Return when a job is likely to start; None if it would never."""
        ...


def plan_document(driver: Driver, wanted: JobSpec, user: str) -> dict[str, Any]:
    """Say whether a job would start now; the driver's own books are not touched."""
    now_s, records = driver.now_s(), driver.open_records()
    scheduler = rebuilt(driver.make_scheduler, records, now_s)
    request = spec.request_of(wanted, driver.cluster)
    serial = max((record.serial for record in records), default=0) + 1
    job = Job(
        PLANNED, request, now_s, serial, spec.expected_s(wanted), user, wanted.queue,
        wanted.priority, spec.checkpoint_s(wanted) or 0.0, spec.program_of(wanted),
    )  # fmt: skip
    for wish in scheduler.handle(Submitted(job), now_s):
        if isinstance(wish, Start) and wish.job_id == PLANNED:
            return _would_start(wish.placement, records)
        if isinstance(wish, Refuse) and wish.job_id == PLANNED:
            return {"answer": "never", **_nowhere(), **refusal_document(wish.refusal)}
    why = scheduler.explain(PLANNED, now_s)
    ahead = scheduler.ahead(PLANNED, now_s)
    return {"answer": "waits", **_nowhere(), **refusal_document(why), "ahead_count": len(ahead)}


def _would_start(placement: Placement, records: Sequence[Record]) -> dict[str, Any]:
    mine = {(spot.machine, gpu) for spot in placement.spots for gpu in spot.gpus}
    beside = [
        record.id
        for record in records
        if record.place is not None
        and mine & {(spot.machine, gpu) for spot in record.place.spots for gpu in spot.gpus}
    ]
    return {
        "answer": "starts now",
        "placement": placement_document(placement),
        "beside": beside,
        **refusal_document(None),
        "ahead_count": 0,
    }


def _nowhere() -> dict[str, Any]:
    return {"placement": None, "beside": [], "ahead_count": 0}


def eta_document(driver: Driver, record: Record, forecast: Forecast | None) -> dict[str, Any]:
    """Say when a job is likely to start."""
    document: dict[str, Any] = {
        "id": record.id,
        "state": record.state.value,
        "started_s": record.started_s if record.state is not State.QUEUED else None,
        "now_s": driver.now_s(),
        "p50_s": None,
        "p90_s": None,
    }
    if record.state is not State.QUEUED or forecast is None:
        return document
    known = [_known(one, driver) for one in _holders_first(driver.open_records())]
    band = forecast(driver.make_scheduler, known, record.id, document["now_s"])
    if band is not None:
        document |= {"p50_s": band.p50_s, "p90_s": band.p90_s}
    return document


def _holders_first(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda one: (one.state not in HOLDING, one.serial))


def _known(record: Record, driver: Driver) -> Known:
    job = job_of(record, driver.cluster)
    fact = Recovered(job, record.ran_s, record.place, record.started_s or 0.0)
    return Known(fact, record.guess_s, record.low_s, record.high_s)


def refusal_document(refusal: Refusal | None) -> dict[str, Any]:
    """Return a refusal as the API shows it."""
    return {
        "tier": refusal.tier.label if refusal else None,
        "why": refusal.reason if refusal else None,
        "remedy": refusal.remedy if refusal else None,
        "blocked_by": refusal.blocked_by if refusal else None,
    }
