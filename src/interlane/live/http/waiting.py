"""Of many jobs that wait: why each does, and when it is likely to start."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from interlane.live.http.service import LiveService
from interlane.live.questions.desk import TooManyQuestions
from interlane.live.questions.whatif import refusal_document
from interlane.live.store.record import JobRecord
from interlane.model import JobId
from interlane.model.lifecycle import JobState
from interlane.predict.starts import StartBand

OPEN_MAX: Final = 2_000
"""With more open jobs than this, only a question about one job says when it may start."""

EXPLAINED_MAX: Final = 200
"""Jobs of a page that are told why they wait, those that go first; it takes the scheduler's
time."""


async def start_bands(
    service: LiveService, job_ids: Sequence[JobId]
) -> Mapping[JobId, StartBand]:
    """Return when jobs are likely to start, as found lately; takes its time."""
    view, asked = service.view, tuple(job_ids)
    if not asked or (len(asked) != 1 and len(view.open_jobs()) > OPEN_MAX):
        return {}
    try:
        return await service.desk.answer("eta", asked, lambda: view.starts(asked))
    except TooManyQuestions:
        return {}


async def waiting_documents(
    service: LiveService, records: Sequence[JobRecord]
) -> dict[JobId, dict[str, Any]]:
    """Return why those of some jobs wait that do, and when they are likely to start."""
    waiting = [one.id for one in records if one.state is JobState.QUEUED]
    if not waiting:
        return {}
    line = await service.view.reasons(frozenset(waiting), EXPLAINED_MAX)
    bands = await start_bands(service, waiting)
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
