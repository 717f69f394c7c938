"""Jobs that ended long ago are moved to files by day, and every question still finds them."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from tests.live.test_store import commit, entry, submitted

from interlane.live.archive import DAY_S, Archive
from interlane.live.keeping import move_old
from interlane.live.questions.history import trace_text
from interlane.live.replay import replay
from interlane.live.store.record import fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store, Superseded
from interlane.model import (
    Finished,
    JobId,
    LogEntry,
    MachineId,
    Placement,
    Spot,
    Start,
    Ticked,
)
from interlane.model.lifecycle import ENDED, OPEN, JobState
from interlane.testing.live import (
    driving,
    ended,
    make_scheduler,
    snapshot_of,
    spec,
    this_machine,
)

NOW_S = 10 * DAY_S


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
def store(url: str, archive: Archive) -> Iterator[Store]:
    store = Store(url, archive)
    store.begin_epoch()
    fill(store)
    yield store
    store.close()


def fill(store: Store) -> None:
    """Store forty jobs, four of each of ten days; every tenth has not ended."""
    place = Placement((Spot(MachineId("here"), (0,)),))
    for serial in range(1, 41):
        seq = 4 * serial - 3
        made = submitted(serial, user="ann" if serial % 2 else "bob")
        at_s = serial * DAY_S / 4
        job = JobId(f"a-{serial}")
        entries = [made, entry(0, Start(job, place))]
        if serial % 10:
            entries.append(entry(0, Finished(job), exit_code=serial % 3))
        dated = [
            LogEntry(seq + at, at_s, one.what, one.detail, seq)
            for at, one in enumerate(entries)
        ]
        commit(store, *dated)
        store.commit([LogEntry(seq + len(dated), at_s, Ticked(), {}, seq + len(dated))], [])


def seen(store: Store) -> dict[str, object]:
    """Return what every question about the past is answered with."""
    everything = store.jobs(JobsWanted(limit=100))
    pages, before = [], None
    while page := store.jobs(JobsWanted(7, before)):
        pages.append([one.serial for one in page])
        before = page[-1].serial
    return {
        "all": everything,
        "pages": pages,
        "ended of ann": store.jobs(JobsWanted(5, 30, ENDED, "ann")),
        "open": store.jobs(JobsWanted(100, states=OPEN)),
        "one": [store.job(f"a-{serial}") for serial in (1, 10, 17, 40, 99)],
        "counts": store.counts(),
        "log": list(store.whole_log()),
        "a page of the log": store.log(13, 9),
        "timeline": store.log(job_id="a-3"),
        "ends": asdict(store.ends()),
        "whole from": store.whole_from(),
        "trace": trace_text(store, snapshot_of(this_machine(), now_s=NOW_S), 0.0),
    }


def test_every_question_finds_what_was_moved(
    store: Store, archive: Archive, tmp_path: Path
) -> None:
    before = seen(store)

    moved = move_old(store, archive, NOW_S - 2 * DAY_S)

    assert moved > 20
    assert seen(store) == before
    assert len(store._stored_log(0, 1_000, None)) < len(before["log"]) / 2  # type: ignore[arg-type]
    days = sorted(path.name for path in (tmp_path / "archive").iterdir())
    assert days[0] == "1970-01-01"
    assert len(days) == 8


def test_another_process_reads_the_same(
    store: Store, archive: Archive, url: str, tmp_path: Path
) -> None:
    before = seen(store)
    move_old(store, archive, NOW_S)

    other = Store(url, Archive(tmp_path / "archive"), only_reads=True)

    assert seen(other) == before
    other.close()


def test_jobs_of_young_days_and_open_ones_stay(store: Store, archive: Archive) -> None:
    assert move_old(store, archive, DAY_S - 1) == 0

    move_old(store, archive, 100 * DAY_S)

    stored = {entry.job_id for entry in store._stored_log(0, 1_000, None)}
    assert stored == {f"a-{serial}" for serial in (10, 20, 30, 40)}
    assert fold(store.whole_log()) == {one.id: one for one in store.jobs(JobsWanted(limit=100))}


@pytest.mark.parametrize("at", range(6))
def test_a_crash_between_file_and_database_doubles_and_loses_nothing(
    url: str, tmp_path: Path, at: int
) -> None:
    """Whoever moves dies before or after the deletion of a part, and another goes on."""

    class Dies(Store):
        left = at

        def forget(self, part: object) -> None:
            if self.left % 2:
                super().forget(part)  # type: ignore[arg-type]
            self.left -= 2
            if self.left < 0:
                raise KeyboardInterrupt

    archive = Archive(tmp_path / "archive")
    store = Dies(url, archive)
    store.begin_epoch()
    fill(store)
    before = seen(store)

    with pytest.raises(KeyboardInterrupt):
        move_old(store, archive, NOW_S)
    assert seen(store) == before
    store.close()

    archive = Archive(tmp_path / "archive")
    again = Store(url, archive)
    again.begin_epoch()
    assert seen(again) == before
    move_old(again, archive, NOW_S)
    assert seen(again) == before
    files = [*(tmp_path / "archive").glob("*/jobs-*.parquet")]
    serials = pl.concat([pl.read_parquet(file) for file in files])["serial"].to_list()
    assert len(serials) == len(set(serials))
    again.close()


def test_many_jobs_of_a_day_make_several_parts(
    store: Store, archive: Archive, tmp_path: Path
) -> None:
    before = seen(store)

    move_old(store, archive, NOW_S, part_jobs=2)

    assert len([*(tmp_path / "archive" / "1970-01-03").glob("jobs-*")]) == 2
    assert seen(store) == before


def test_a_server_whose_epoch_is_over_moves_nothing(
    store: Store, archive: Archive, url: str
) -> None:
    other = Store(url)
    other.begin_epoch()

    with pytest.raises(Superseded):
        move_old(store, archive, NOW_S)

    assert len(other.jobs(JobsWanted(limit=100))) == 40
    other.close()


def test_numbers_are_not_used_again_when_everything_was_moved(tmp_path: Path) -> None:
    url, archive = f"sqlite:///{tmp_path / 'state.db'}", Archive(tmp_path / "archive")
    with driving(tmp_path, store=Store(url, archive)) as driver:
        first = ended(driver, driver.submit(spec("first"), "ann").result())
        move_old(driver.store, archive, driver.now_s() + 2 * DAY_S)
        assert driver.store._stored_log(0, 9, None) == []

        second = ended(driver, driver.submit(spec("second"), "ann").result())

        assert (first.id, second.id) == ("first-1", "second-2")
        assert driver.store.job("first-1") == first
        log = list(driver.store.whole_log())
        found = replay(log, lambda settings: make_scheduler(), driver.store.whole_from())
    assert [one.seq for one in log] == list(range(1, len(log) + 1))
    assert (found.difference, found.starts, found.passed_over) == (None, 1, 0)
    assert second.state is JobState.SUCCEEDED


def test_a_log_whose_beginning_is_gone_is_played_from_the_next_start(tmp_path: Path) -> None:
    url, archive = f"sqlite:///{tmp_path / 'state.db'}", Archive(tmp_path / "archive")
    for name in ("first", "second"):
        with driving(tmp_path, store=Store(url, archive)) as driver:
            ended(driver, driver.submit(spec(name), "ann").result())
            if name == "first":
                move_old(driver.store, archive, driver.now_s() + 2 * DAY_S)
    for file in (tmp_path / "archive").glob("*/*"):
        file.unlink()
    store = Store(url, Archive(tmp_path / "archive"), only_reads=True)

    found = replay(store.whole_log(), lambda settings: make_scheduler(), store.whole_from())

    assert store.whole_from() > 1
    assert (found.difference, found.starts) == (None, 1)
    store.close()
