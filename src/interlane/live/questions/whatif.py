"""Would a job start now, and where: asked of a scheduler that are made for the question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from interlane.live.driver.state import Snapshot
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec, Origin
from interlane.live.measure.slowdown import in_turns
from interlane.live.store.record import JobRecord, placement_document
from interlane.model import JobId, Placement, Refusal, Refuse, Start, Submitted

PLANNED: Final = JobId("planned")


def plan_document(now: Snapshot, wanted: JobSpec, user: str) -> dict[str, Any]:
    """Say whether a job would start now; the driver's own state is not touched."""
    now_s, records = now.now_s, now.records
    scheduler = now.scheduler()
    request = now.request_of(wanted)
    serial = max((record.serial for record in records), default=0) + 1
    origin = Origin(serial, user, now_s)
    job = spec.job_of(PLANNED, wanted, origin, request, spec.expected_s(wanted))
    for action in scheduler.handle(Submitted(job), now_s):
        if isinstance(action, Start) and action.job_id == PLANNED:
            return _would_start(action.placement, records, _Joining(wanted, now))
        if isinstance(action, Refuse) and action.job_id == PLANNED:
            return {"answer": "never", **_nowhere(), **refusal_document(action.refusal)}
    why = scheduler.explain(PLANNED, now_s)
    ahead = scheduler.ahead(PLANNED, now_s)
    return {"answer": "waits", **_nowhere(), **refusal_document(why), "ahead_count": len(ahead)}


@dataclass(frozen=True, slots=True)
class _Joining:
    """A job that would come to others on a device."""

    wanted: JobSpec
    now: Snapshot

    def slowdowns(self, others: Sequence[JobRecord]) -> tuple[float | None, ...]:
        """Return what it and each of the others would be slowed down to, where it is known."""
        specs = [self.wanted, *(one.job for one in others)]
        if not others:
            return (1.0,)
        turns = self.now.traits.turns
        if turns is None or not all(map(spec.takes_lane, specs)):
            return (None,) * len(specs)
        shares = [self.now.request_of(one).tasks[0].demand.gpu_milli for one in specs]
        return tuple(
            in_turns(share, shares[:at] + shares[at + 1 :], turns)
            for at, share in enumerate(shares)
        )


def _would_start(
    placement: Placement, records: Sequence[JobRecord], joining: _Joining
) -> dict[str, Any]:
    mine = {(spot.machine, gpu) for spot in placement.spots for gpu in spot.gpus}
    beside = [
        record
        for record in records
        if record.placement is not None
        and mine & {(spot.machine, gpu) for spot in record.placement.spots for gpu in spot.gpus}
    ]
    own, *theirs = joining.slowdowns(beside)
    return {
        "answer": "starts now",
        "placement": placement_document(placement),
        "beside": [record.id for record in beside],
        "slowdown": own,
        "beside_slowdown": dict(zip((one.id for one in beside), theirs, strict=True)),
        **refusal_document(None),
        "ahead_count": 0,
    }


def _nowhere() -> dict[str, Any]:
    return {
        "placement": None,
        "beside": [],
        "slowdown": None,
        "beside_slowdown": {},
        "ahead_count": 0,
    }


def refusal_document(refusal: Refusal | None) -> dict[str, Any]:
    """Return a refusal as the API shows it."""
    return {
        "tier": refusal.tier.label if refusal else None,
        "why": refusal.reason if refusal else None,
        "remedy": refusal.remedy if refusal else None,
        "blocked_by": refusal.blocked_by if refusal else None,
    }
