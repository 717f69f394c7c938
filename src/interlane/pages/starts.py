"""When waiting jobs are likely to start, for pages that show many of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from interlane.live.http.service import LiveService
from interlane.live.questions.desk import TooManyQuestions
from interlane.model import JobId
from interlane.predict.starts import StartBand

OPEN_MAX: Final = 2_000
"""With more open jobs than this, only a job's own page says when it may start."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Asks as everybody else does."""

    service: LiveService

    async def bands(self, job_ids: Sequence[JobId]) -> Mapping[JobId, StartBand]:
        """Return when jobs are likely to start, as found lately; takes its time."""
        view = self.service.view
        asked = tuple(job_ids)
        if len(asked) != 1 and len(view.open_jobs()) > OPEN_MAX:
            return {}
        try:
            return await self.service.desk.answer("eta", asked, lambda: view.starts(asked))
        except TooManyQuestions:
            return {}
