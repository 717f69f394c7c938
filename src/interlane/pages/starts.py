"""When waiting jobs are likely to start, for pages that show many of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlane.live.http.service import LiveService
from interlane.live.http.waiting import start_bands
from interlane.model import JobId
from interlane.predict.starts import StartBand


@dataclass(frozen=True, slots=True)
class Starts:
    """Asks as everybody else does."""

    service: LiveService

    async def bands(self, job_ids: Sequence[JobId]) -> Mapping[JobId, StartBand]:
        """Return when jobs are likely to start, as found lately; takes its time."""
        return await start_bands(self.service, job_ids)
