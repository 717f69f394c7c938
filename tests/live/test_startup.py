"""What a server reads when it begins does not grow with its history."""

import time
from pathlib import Path

from interlane.live.archive import Archive
from interlane.live.driver.state import WORKLOAD_JOBS
from interlane.live.keeping import move_old
from interlane.live.questions.estimates import REMEMBERED
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store
from interlane.testing.histories import fill
from interlane.testing.live import driving

ENDED = 3_000


class Counting(Store):
    read = 0

    def _record(self, text: str) -> JobRecord:
        self.read += 1
        return super()._record(text)


def test_a_server_reads_no_more_than_its_newest_jobs(tmp_path: Path) -> None:
    fill(tmp_path, ENDED, time.time() - ENDED * 100, every_s=100.0)
    store = Counting(f"sqlite:///{tmp_path / 'state.db'}", Archive(tmp_path / "archive"))

    with driving(tmp_path, store=store):
        assert 0 < store.read <= REMEMBERED + WORKLOAD_JOBS


def test_nor_does_it_when_they_were_moved(tmp_path: Path) -> None:
    fill(tmp_path, ENDED, time.time() - ENDED * 100, every_s=100.0)
    archive = Archive(tmp_path / "archive")
    store = Counting(f"sqlite:///{tmp_path / 'state.db'}", archive)
    store.begin_epoch()
    move_old(store, archive, time.time())
    store.read = 0

    with driving(tmp_path, store=store):
        # The newest are merged from both, and those that are in one only are read for naught.
        assert 0 < store.read <= 2 * (REMEMBERED + WORKLOAD_JOBS)
