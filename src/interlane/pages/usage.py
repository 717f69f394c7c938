"""What devices and jobs were seen to do, every few seconds while the server runs."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from interlane.live.measure.occupancy import DeviceUse
from interlane.live.view import View
from interlane.model import JobId

EVERY_S: Final = 5.0
KEPT: Final = int(86_400 / EVERY_S)
JOBS_KEPT: Final = 500
POINTS_MAX: Final = 720
"""Looks that are kept of a job; beyond them every other one goes."""


@dataclass(frozen=True, slots=True)
class JobLook:
    """What a job had done on its devices by a moment."""

    at_s: float
    iterations: int
    busy_s: float
    """Inside iterations, of all that it was there."""
    present_s: float
    used_bytes: int | None


@dataclass(slots=True)
class JobSeries:
    """A job over time."""

    looks: list[JobLook] = field(default_factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, look: JobLook) -> None:
        """Take in a look; an attempt that began anew begins the series anew."""
        if self.looks and look.iterations < self.looks[-1].iterations:
            self.looks, self._every = [], 1
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.looks.append(look)
        if len(self.looks) > POINTS_MAX:
            del self.looks[1::2]
            self._every *= 2

    def steps(self) -> Iterator[tuple[JobLook, JobLook]]:
        """Yield each look with the one before it."""
        yield from zip(self.looks, self.looks[1:], strict=False)


class Usage:
    """Looks at the devices, and remembers a day of it."""

    def __init__(self, view: View) -> None:
        self._view = view
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
            self._jobs.setdefault(job_id, JobSeries()).add(look)
            self._jobs.move_to_end(job_id)
        while len(self._jobs) > JOBS_KEPT:
            self._jobs.popitem(last=False)

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
        return self._jobs.get(job_id)


def _jobs_on(devices: Sequence[DeviceUse], now_s: float) -> dict[JobId, JobLook]:
    """Return a look at every job of which the device daemon knows something."""
    found: dict[JobId, JobLook] = {}
    for device in devices:
        for one in device.jobs:
            if one.use is None:
                continue
            before = found.get(one.id)
            used = one.used_bytes
            if before is not None and before.used_bytes is not None:
                used = before.used_bytes + (used or 0)
            found[one.id] = JobLook(
                now_s, one.use.iterations, one.use.busy_s, one.use.present_s, used
            )
    return found
