"""Folders of jobs that ended long ago do not stay for ever, nor what was printed there."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from interlane.engines.local import shim
from interlane.engines.local.places import remove_places
from interlane.live.driver.clock import Clock

LOOK_EVERY_S: Final = 600.0

log = logging.getLogger("interlane.live")


def prune(runs: Path, is_open: Callable[[str], bool], before_s: float) -> int:
    """Remove folders of jobs that ended before a time of the clock; return how many."""
    old = [
        folder
        for folder in runs.iterdir()
        if folder.is_dir() and not is_open(folder.name) and _ended_s(folder) < before_s
    ]
    for folder in old:
        for attempt in folder.iterdir():
            remove_places(attempt)
        shutil.rmtree(folder, ignore_errors=True)
    return len(old)


def _ended_s(folder: Path) -> float:
    """Return when the last attempt ended; if nobody wrote it down, when it was last touched."""
    marks = [*folder.glob(f"*/{shim.ENDED}")] or [folder, *folder.iterdir()]
    return max(mark.stat().st_mtime for mark in marks)


class Retention:
    """Prunes at the start and every ten minutes, in a thread of its own."""

    def __init__(self, runs: Path, is_open: Callable[[str], bool], keep_s: float) -> None:
        self._runs = runs
        self._is_open = is_open
        self._keep_s = keep_s
        self._clock = Clock(0.0)
        """The time without the jumps that a clock may make."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._closing.set()
        self._thread.join()

    def look(self) -> None:
        """Remove what is old; what only a jump of the clock makes old is not."""
        now_s = min(time.time(), self._clock.now_s())
        prune(self._runs, self._is_open, now_s - self._keep_s)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = LOOK_EVERY_S
            try:
                self.look()
            except OSError as error:
                log.warning("Folders of old jobs cannot be removed: %s", error)
