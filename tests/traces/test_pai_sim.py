from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.model import MILLI
from interlane.traces.checks import cards
from interlane.traces.read import read_trace


def read_rows(folder: Path, *lines: str) -> list[dict[str, object]]:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines))
    return read_trace(path).frame.to_dicts()


def test_what_is_missing_gets_the_published_defaults(tmp_path: Path) -> None:
    header = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user"

    (row,) = read_rows(tmp_path, header, "5,,,,,,80.9,")

    assert row["instances"] == 1
    assert row["submit_s"] == 1
    assert row["cpu_milli"] == 0
    assert row["gpus"] == 0
    assert row["gpu_types"] == ""
    assert row["serial"] == 5
    # The whole part of 80.9 seconds.
    assert row["duration_s"] == 80


def test_a_fraction_of_a_second_lasts_one(tmp_path: Path) -> None:
    (row,) = read_rows(tmp_path, "job_id,num_cpu,num_gpu,duration", "5,1,1,0.2")

    assert row["duration_s"] == 1


def test_requests_are_rounded_to_hundredths_half_to_even(tmp_path: Path) -> None:
    # 100 x 0.125 = 12.5 -> 12 and 100 x 0.375 = 37.5 -> 38, as Python rounds.
    first, second = read_rows(
        tmp_path, "job_id,num_cpu,num_gpu,duration", "1,0.375,0.125,5", "2,0.125,0.375,5"
    )

    assert (first["gpu_milli"], first["cpu_milli"]) == (120, 380)
    assert (second["gpu_milli"], second["cpu_milli"]) == (380, 120)


def test_a_job_of_pods_is_one_instance_with_the_total(tmp_path: Path) -> None:
    header = "job_id,num_gpu,num_cpu,num_pod,duration,gpu_type,user_dur,group_dur"

    (row,) = read_rows(tmp_path, header, "139,2.5,80.0,5.0,202,MISC,937.0,")

    assert (row["instances"], row["pods"]) == (1, 5)
    assert (row["gpus"], row["gpu_milli"]) == (5, 500)
    assert row["cpu_milli"] == 80_000
    assert row["duration"] == 202
    assert row["user_dur"] == 937
    assert row["group_dur"] is None


def test_names_that_are_no_numbers_are_ordered_by_row(tmp_path: Path) -> None:
    rows = read_rows(tmp_path, "job_id,num_cpu,num_gpu,duration", "b,1,1,5", "a,1,1,5")

    assert [row["serial"] for row in rows] == [0, 1]


SPLITS = {
    "nothing": (0, 1, (0, 1000)),
    "a share of one": (250, 4, (1, 250)),
    "one": (1000, 4, (1, 1000)),
    "whole ones, however many pods": (8000, 16, (8, 1000)),
    "a share per pod": (2500, 5, (5, 500)),
    "pods that do not divide the total": (2500, 3, (4, 625)),
    "pods that would ask for more than a card": (2500, 2, (4, 625)),
    # 1010 = 2 x 5 x 101: two cards of 505.
    "the fewest cards of equal share": (1010, 1, (2, 505)),
}


@pytest.mark.parametrize("case", SPLITS)
def test_a_total_is_split_into_cards(case: str) -> None:
    total, pods, expected = SPLITS[case]

    assert cards(total, pods) == expected


@given(total=st.integers(1, 10**9), pods=st.integers(1, 600))
def test_no_split_loses_or_adds_anything(total: int, pods: int) -> None:
    gpus, share = cards(total, pods)

    assert gpus * share == total
    assert 1 <= share <= MILLI
