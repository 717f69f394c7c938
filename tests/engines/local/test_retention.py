"""Folders of jobs that ended long ago are removed, and no others."""

import os
import time
from pathlib import Path

import pytest

from interlane.engines.local import shim
from interlane.engines.local.retention import Retention, SeenTime, prune
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


def test_a_start_with_a_wrong_clock_costs_a_day_at_most(tmp_path: Path) -> None:
    file, now_s = tmp_path / "seen", 1e9
    assert SeenTime(file).at(now_s, is_first=True) == now_s

    wrong_s = now_s + 20 * DAY_S
    assert SeenTime(file).at(wrong_s, is_first=True) == now_s + DAY_S
    again = SeenTime(file)
    assert again.at(wrong_s + 60, is_first=True) == now_s + DAY_S + 60
    assert again.at(wrong_s + 660, is_first=False) == now_s + DAY_S + 660

    right = SeenTime(file).at(now_s + 700, is_first=True)
    assert now_s <= right <= now_s + DAY_S + 700


def test_time_that_a_server_has_seen_pass_counts_in_full(tmp_path: Path) -> None:
    seen, now_s = SeenTime(tmp_path / "seen"), 1e9
    seen.at(now_s, is_first=True)

    for day in range(1, 40):
        assert seen.at(now_s + day * DAY_S, is_first=False) == now_s + day * DAY_S
    (tmp_path / "seen").write_text("{")
    assert SeenTime(tmp_path / "seen").at(now_s, is_first=True) == now_s
