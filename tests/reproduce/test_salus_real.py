"""The same with real processes, as small as can be."""

import pytest

from interlane.reproduce import salus, salus_real
from interlane.reproduce.base import Setting
from interlane.reproduce.salus_real import Ran

# Two jobs in turns: a, b, a, a; submitted before anything and after the first iteration.
TURNS = Ran([0, 15], [[(1, 10), (21, 30), (31, 40)], [(16, 20)]])


def test_completion_is_counted_in_iterations_of_all_jobs() -> None:
    # a ends with the fourth iteration, b with the second, having come after the first.
    assert TURNS.before([0, 10, 29, 99]) == [0, 1, 2, 4]
    assert TURNS.mean_jct == (4 + (2 - 1)) / 2


def test_a_job_is_known_to_take_what_its_iterations_took() -> None:
    assert TURNS.held_s == pytest.approx([27e-9, 4e-9])
    assert TURNS.wall_s == pytest.approx(40e-9)


def test_real_jobs_end_sooner_under_srtf_than_under_fifo() -> None:
    setting = Setting(None, seed=1, choice=salus.REAL)

    rows = salus_real.trained(setting, rounds=1, jobs_count=6, work_s=1.0)

    assert [row.published for row in rows[::2]] == [3.19, 1.77]
    assert float(rows[0].ours) > 1.0
