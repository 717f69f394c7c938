"""What devices and jobs were seen to do, every few seconds while the server runs."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interlane.live.measure.job_series import JobLook, JobSeries, SeriesFiles
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.view import View
from interlane.model import JobId

EVERY_S: Final = 5.0
KEPT: Final = int(86_400 / EVERY_S)
JOBS_KEPT: Final = 500
"""Jobs that are remembered; what files there are know more."""


class UseHistory:
    """Looks at the devices, and remembers a day of it; of jobs, as long as files are kept."""

    def __init__(self, view: View, files: SeriesFiles | None = None) -> None:
        self._view = view
        self._files = files
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._jobs: OrderedDict[JobId, JobSeries] = OrderedDict()

    async def follow(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(EVERY_S)

    def look(self) -> None:
        """Look once."""
        devices, now_s = self._view.devices(), self._view.now_s()
        known = [one.busy for one in devices if one.busy is not None]
        if known:
            self._seen.append((now_s, sum(known) / len(known)))
        for job_id, look in _jobs_on(devices, now_s).items():
            self._take_in(job_id, look)
        while len(self._jobs) > JOBS_KEPT:
            self._jobs.popitem(last=False)

    def _take_in(self, job_id: JobId, look: JobLook) -> None:
        series = self._jobs.get(job_id)
        if series is None:  # it may have been seen by the server before this one
            series = self._jobs[job_id] = self._stored(job_id) or JobSeries()
        self._jobs.move_to_end(job_id)
        is_same = series.add(look)
        if self._files is None:
            return
        if not is_same:
            self._files.replace(job_id, series.looks)
        elif series.looks[-1] is look:
            self._files.append(job_id, look)

    def _stored(self, job_id: JobId) -> JobSeries | None:
        return None if self._files is None else self._files.read(job_id)

    @property
    def now(self) -> float | None:
        """The share of all devices' time that was used of late; None while nobody knows."""
        if not self._seen or self._view.now_s() - self._seen[-1][0] > 3 * EVERY_S:
            return None
        return self._seen[-1][1]

    def since(self, since_s: float) -> tuple[Sequence[float], Sequence[float]]:
        """Return moments, and the share that was used then."""
        found = [one for one in tuple(self._seen) if one[0] >= since_s]
        return [at_s for at_s, _ in found], [busy for _, busy in found]

    def of_job(self, job_id: JobId) -> JobSeries | None:
        """Return what a job was seen to do; None if it was on no shared device."""
        return self._jobs.get(job_id) or self._stored(job_id)


def _jobs_on(devices: Sequence[DeviceUse], now_s: float) -> dict[JobId, JobLook]:
    """Return a look at every job of which the device daemon knows something."""
    found: dict[JobId, JobLook] = {}
    for device in devices:
        for one in device.jobs:
            if one.use is None:
                continue
            seen = one.seen
            look = JobLook(
                now_s,
                one.use.iterations,
                one.use.busy_s,
                one.use.present_s,
                one.used_bytes,
                None if seen is None else seen.persistent_bytes,
                None if seen is None else seen.peak_bytes,
            )
            before = found.get(one.id)
            found[one.id] = look if before is None else _with_memory_of(before, look)
    return found


def _with_memory_of(one: JobLook, other: JobLook) -> JobLook:
    """Return a look at a job on several devices, whose memory is the sum of theirs."""
    return replace(
        other,
        used_bytes=_sum(one.used_bytes, other.used_bytes),
        between_bytes=_sum(one.between_bytes, other.between_bytes),
        peak_bytes=_sum(one.peak_bytes, other.peak_bytes),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    return other if one is None else one + (other or 0)
