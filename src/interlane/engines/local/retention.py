"""Folders of jobs that ended long ago do not stay for ever, nor what was printed there."""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.engines.local import shim
from interlane.engines.local.places import remove_places
from interlane.engines.local.trees import remove_tree
from interlane.live.driver.clock import Clock
from interlane.live.folder import write_private

LOOK_EVERY_S: Final = 600.0
SEEN_FILE: Final = "retention.json"
OFF_S_MAX: Final = 86_400.0
"""Seconds for which a server is believed to have been off."""

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
        remove_tree(folder)
    return len(old)


def _ended_s(folder: Path) -> float:
    """Return when the last attempt ended; if nobody wrote it down, when it was last touched."""
    marks = [*folder.glob(f"*/{shim.ENDED}")] or [folder, *folder.iterdir()]
    return max(mark.stat().st_mtime for mark in marks)


@dataclass(slots=True)
class SeenTime:
    """Time as a server has seen it pass, so that a clock that is wrong costs a day at most.

    How long a server was off, nobody but the clock can tell: more than a day is not believed,
    and what is kept is kept so much longer.
    """

    file: Path
    late_s: float = 0.0
    """How far it is behind the clock."""

    def at(self, clock_s: float, *, is_first: bool) -> float:
        """Return the time when the clock shows this, and remember it for the next start."""
        if is_first:
            last_s, self.late_s = self._read(clock_s)
            gone_s = clock_s - last_s
            unbelieved_s = max(0.0, gone_s - OFF_S_MAX) if gone_s > 0 else gone_s
            self.late_s = max(0.0, self.late_s + unbelieved_s)
        write_private(self.file, json.dumps({"clock_s": clock_s, "late_s": self.late_s}))
        return clock_s - self.late_s

    def _read(self, clock_s: float) -> tuple[float, float]:
        try:
            said = json.loads(self.file.read_text())
            return float(said["clock_s"]), float(said["late_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return clock_s, 0.0


class Retention:
    """Prunes at the start and every ten minutes, in a thread of its own."""

    def __init__(self, runs: Path, is_open: Callable[[str], bool], keep_s: float) -> None:
        self._runs = runs
        self._is_open = is_open
        self._keep_s = keep_s
        self._clock = Clock(0.0)
        """The time without the jumps that a clock may make."""
        self._seen = SeenTime(runs.parent / SEEN_FILE)
        self._is_first = True
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
        clock_s = min(time.time(), self._clock.now_s())
        now_s = self._seen.at(clock_s, is_first=self._is_first)
        self._is_first = False
        prune(self._runs, self._is_open, now_s - self._keep_s)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = LOOK_EVERY_S
            try:
                self.look()
            except OSError as error:
                log.warning("Folders of old jobs cannot be removed: %s", error)
