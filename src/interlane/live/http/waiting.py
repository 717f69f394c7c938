"""Of many jobs that wait: why each does, and when it is likely to start."""

from collections.abc import Sequence
from typing import Any, Final

from interlane.live.http.service import LiveService
from interlane.live.questions.whatif import refusal_document
from interlane.live.store.record import JobRecord
from interlane.model import JobId
from interlane.model.lifecycle import JobState
from interlane.predict.starts import StartBand

EXPLAINED_MAX: Final = 200
"""Jobs of a page that are told why they wait, those that go first; it takes the scheduler's
time."""


async def waiting_documents(
    service: LiveService, records: Sequence[JobRecord]
) -> dict[JobId, dict[str, Any]]:
    """Return why those of some jobs wait that do, and when they are likely to start."""
    waiting = [one.id for one in records if one.state is JobState.QUEUED]
    if not waiting:
        return {}
    line = await service.view.reasons(frozenset(waiting), EXPLAINED_MAX)
    bands = await service.starts(waiting)
    return {
        one: {
            "position": line[one].position if one in line else None,
            **refusal_document(line[one].refusal if one in line else None),
            **_band_document(bands.get(one)),
        }
        for one in waiting
    }


def _band_document(band: StartBand | None) -> dict[str, float | None]:
    return {
        "start_p50_s": None if band is None else band.p50_s,
        "start_p90_s": None if band is None else band.p90_s,
    }
