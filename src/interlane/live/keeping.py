"""Moves jobs that ended long ago out of the database, in a thread of its own."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from interlane.live.archive import DAY_S, PART_JOBS, Archive, day_of, log_frame
from interlane.live.store.store import Store
from interlane.model import InterlaneError

LOOK_EVERY_S: Final = 3_600.0

log = logging.getLogger("interlane.live")


def move_old(
    store: Store, archive: Archive, before_s: float, part_jobs: int = PART_JOBS
) -> int:
    """Move whole days that were over before a moment; return how many jobs were moved."""
    moved = 0
    while (oldest_s := store.oldest_s()) is not None:
        begin_s = oldest_s // DAY_S * DAY_S
        if begin_s + DAY_S > before_s:
            break
        day = day_of(begin_s)
        while part := store.ended_between(begin_s, begin_s + DAY_S, part_jobs):
            archive.write(day, part.jobs, log_frame(part.log))
            store.forget(part)
            moved += len(part.jobs)
    return moved


class Keeping:
    """Moves at the start and every hour."""

    def __init__(
        self, store: Store, archive: Archive, keep_s: float, now_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._archive = archive
        self._keep_s = keep_s
        self._now_s = now_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeping", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            pause_s = LOOK_EVERY_S
            try:
                move_old(self._store, self._archive, self._now_s() - self._keep_s)
            except (InterlaneError, OSError) as error:
                log.warning("Old jobs cannot be moved to the archive: %s", error)
