"""A job that does not come to its next boundary while others wait for it."""

import signal
from typing import Final

from interlane.device import page
from interlane.device.settings import DeviceSettings
from interlane.device.shared_job import SharedJob
from interlane.device.talk import log

PRESS_AFTER_S: Final = 5.0
"""From the warning of a hung job to its termination, and from there to its killing."""


def press(job: SharedJob, now_s: float, settings: DeviceSettings) -> None:
    """Warn of a hung holder, then terminate it, then kill it."""
    if now_s < job.overdue_next_s:
        return
    job.overdue_stage += 1
    job.overdue_next_s = now_s + min(PRESS_AFTER_S, settings.hung_after_s)
    if job.overdue_stage == 1:
        inside = job.word(page.BEGAN_NS)
        why = "is inside one iteration for too long" if inside else "keeps an idle lane"
        log(f"{job.id} {why}, and others wait")
    elif settings.kills_hung:
        number = signal.SIGTERM if job.overdue_stage == 2 else signal.SIGKILL
        job.kill(number)
        log(f"{job.id} does not answer and was sent {number.name}")
