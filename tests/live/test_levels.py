"""What the machine held and who waited, read backwards from its log."""

from pathlib import Path

import pytest

from interlane.live.questions.levels import LevelHistory
from interlane.metrics.levels import AttemptUse, used_gpus
from interlane.testing.live import driving, ended, spec


@pytest.mark.parametrize("kept", [50_000, 3])
def test_the_past_ends_in_the_present_and_begins_with_the_log(
    tmp_path: Path, kept: int
) -> None:
    with driving(tmp_path, gpus=2) as driver:
        ended(driver, driver.submit(spec("first", gpus=2), "ann").result())
        runs = driver.submit(spec("runs", "sleep 100", gpus=1), "ann").result()
        driver.submit(spec("waits", gpus=2), "ann").result()
        stays = driver.submit(spec("stays", gpus=2), "ann").result()
        driver.cancel(stays.id, "ann").result()
        seen = LevelHistory(driver.store, driver.snapshot, kept)

        levels = seen.levels(60.0, 50)
        waits = seen.waits(3_600)
        driver.cancel(runs.id, "ann").result()
        ended(driver, runs)
        later = seen.waits(3_600)

    assert (levels.held_ratio[-1], levels.waiting[-1]) == (0.5, 1)
    if kept > 3:
        # Before the first entry nobody knows, which is not the same as none.
        assert (levels.held_ratio[0], levels.waiting[0], levels.used_ratio[0]) == (None,) * 3
        assert waits.starts == 2
        assert later.starts == 3
    assert later.p95_s is not None
    assert later.p95_s > 0


def test_what_attempts_were_measured_to_use_is_spread_over_them() -> None:
    uses = [AttemptUse(0.0, 10.0, 0.5), AttemptUse(5.0, 20.0, 1.0)]

    assert used_gpus(uses, [0.0, 5.0, 10.0, 20.0]) == [0.5, 1.5, 1.0, None]
    assert used_gpus([], [0.0]) == [None]
