"""Folders of jobs that ended long ago are removed, and no others."""

import os
import time
from pathlib import Path

import pytest

from interlane.engines.local import shim
from interlane.engines.local.retention import Retention, prune
from interlane.testing.waiting import until

DAY_S = 86_400.0


def ended(runs: Path, job: str, days_ago: float, attempt: int = 1) -> Path:
    folder = runs / job / str(attempt)
    folder.mkdir(parents=True)
    for name in ("log.0", shim.ENDED):
        (folder / name).touch()
        at_s = time.time() - days_ago * DAY_S
        os.utime(folder / name, (at_s, at_s))
    return folder.parent


def test_only_what_ended_long_ago_is_removed(tmp_path: Path) -> None:
    old, new = ended(tmp_path, "old-1", 9), ended(tmp_path, "new-2", 1)
    ended(tmp_path, "twice-3", 9)
    twice = ended(tmp_path, "twice-3", 1, attempt=2)
    runs_still = ended(tmp_path, "open-4", 9)

    count = prune(tmp_path, lambda name: name == "open-4", time.time() - 7 * DAY_S)

    assert count == 1
    assert not old.exists()
    assert all(folder.exists() for folder in (new, twice, runs_still))


def test_a_job_whose_end_nobody_wrote_down_goes_by_its_last_trace(tmp_path: Path) -> None:
    (tmp_path / "lost-1" / "1").mkdir(parents=True)

    assert prune(tmp_path, lambda name: False, time.time() - DAY_S) == 0
    assert prune(tmp_path, lambda name: False, time.time() + DAY_S) == 1


def test_the_server_prunes_when_it_starts(tmp_path: Path) -> None:
    old = ended(tmp_path, "old-1", 9)
    retention = Retention(tmp_path, lambda name: False, 7 * DAY_S)

    retention.start()
    until(lambda: not old.exists())
    retention.close()


@pytest.mark.parametrize("jump_s", [-90 * DAY_S, 90 * DAY_S])
def test_a_clock_that_jumps_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    true_s = time.time
    before = ended(tmp_path, "before-1", 5)
    retention = Retention(tmp_path, lambda name: False, 7 * DAY_S)
    monkeypatch.setattr(time, "time", lambda: true_s() + jump_s)
    after = ended(tmp_path, "after-2", 5)

    retention.look()

    assert before.exists()
    assert after.exists()
