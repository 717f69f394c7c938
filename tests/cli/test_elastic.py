"""Elastic gangs from the command line: what if they could start with a part and grow?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.metrics.log import LogEvent
from interlane.sim.record import read_log
from interlane.traces.data import data_dir

Call = Callable[..., Any]
MORE = ("", ",elastic=0.5")


@pytest.fixture
def gangs(tmp_path: Path) -> Path:
    """Two GPUs: x has one for 10 s, and a gang of two wants both."""
    path = tmp_path / "gangs.csv"
    path.write_text(
        "job_id,submit_s,duration_s,instances,gpus\nx,0,10,1,1\ngang,5,20,2,1\n",
        encoding="utf-8",
    )
    return path


def test_gangs_wait_until_they_are_whole_unless_they_are_elastic(
    call: Call, gangs: Path, lab: Path
) -> None:
    words = ("simulate", gangs, "--cluster", lab, "-o", "json")

    rigid = json.loads(call(*words).out)
    elastic = json.loads(call(*words, "--elastic", 0.5).out)

    # Whole, it runs from 10 s to 30 s.  Elastic, one of two instances does 2.5 s of the work
    # until 10 s, and both do the other 17.5 s.
    assert (rigid["makespan_s"], elastic["makespan_s"]) == (31, 28.5)
    assert (rigid["growths"], elastic["growths"]) == (0, 1)
    assert (rigid["max_wait_s"], elastic["max_wait_s"]) == (5, 0)
    # 10 s of one GPU and 20 s of two, in either case.
    assert rigid["gpu_allocated_ratio"] == pytest.approx(50 / 60)
    assert elastic["gpu_allocated_ratio"] == pytest.approx(50 / 55)
    assert elastic["policy"] == "fifo/pack/skip/elastic(0.5)"


def test_elastic_and_whole_gangs_are_compared_side_by_side(
    call: Call, gangs: Path, lab: Path
) -> None:
    said = call(
        "compare", gangs, "--cluster", lab, "--policy", "order=fifo", "--policy",
        "order=fifo,elastic=0.5", "--processes", 1, "-o", "json",
    )  # fmt: skip

    runs = json.loads(said.out)["runs"]
    assert [run["elastic"] for run in runs] == [None, 0.5]
    assert [run["makespan_s"] for run in runs] == [31, 28.5]


def test_a_timeline_tells_of_growth(call: Call, gangs: Path, lab: Path) -> None:
    words = ("timeline", "gang", "--trace", gangs, "--cluster", lab, "--elastic", 0.5)

    told = call(*words).out
    answer = json.loads(call(*words, "-o", "json").out)

    assert "grew after running 5 s by 1 instance on one (GPU 0); it now has 2 of 2" in told
    assert "finished after running 22 s" in told
    assert [moment["event"] for moment in answer["moments"]] == [
        "submitted", "started", "grown", "finished",
    ]  # fmt: skip
    assert (answer["waited_s"], answer["ran_s"]) == (0, 22.5)


def test_explain_says_what_a_running_job_lacks(call: Call, gangs: Path, lab: Path) -> None:
    words = ("explain", "gang", "--trace", gangs, "--cluster", lab, "--elastic", 0.5)

    assert "It could use 1 more instance" in call(*words, "--at", 7).out
    assert "could use" not in call(*words, "--at", 12).out
    answer = json.loads(call(*words, "--at", 12, "-o", "json").out)
    assert (answer["state"], answer["since_s"], answer["lacking"]) == ("running", 5, 0)


def test_growth_is_written_to_the_log_and_read_back(
    call: Call, tmp_path: Path, lab: Path
) -> None:
    path, target = tmp_path / "own.csv", tmp_path / "log.parquet"
    path.write_text(
        "job_id,submit_s,duration_s,instances,instances_min,gpus\nx,0,10,1,,1\ngang,5,20,2,1,1\n"
    )

    call("simulate", path, "--cluster", lab, "--log", target)

    log = read_log(target)
    (line,) = [line for line in log.lines() if line.kind is LogEvent.GROWN]
    assert (line.at_s, log.jobs[line.subject].id) == (10, "gang")
    assert line.placement is not None
    assert line.placement.spots[0].gpus == (0,)


@pytest.mark.data
def test_elastic_gangs_free_a_queue_that_published_gangs_block(call: Call) -> None:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    data = data_dir(None) or beside
    if not (data / "pai-v2020").is_dir():
        pytest.skip("needs the published traces; set INTERLANE_DATA")
    words = [f"queue={queue}{more}" for queue in ("strict", "skip") for more in MORE]

    said = call(
        "compare", "pai-v2020/pai_real_1000jobs.csv", "--data", data, "--cluster",
        "pai2020-1to5", *(word for text in words for word in ("--policy", text)),
        "--processes", 1, "-o", "json",
    )  # fmt: skip

    # What docs/concepts/elastic.md shows.
    runs = json.loads(said.out)["runs"]
    assert [round(run["mean_jct_s"]) for run in runs] == [7463, 6800, 5489, 5559]
    assert [round(run["mean_wait_s"]) for run in runs] == [2167, 1467, 193, 247]
    assert [round(run["max_wait_s"]) for run in runs] == [7447, 5003, 6690, 6348]


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "nan"])
def test_a_share_that_is_none_is_refused_in_one_sentence(
    call: Call, gangs: Path, lab: Path, share: str
) -> None:
    said = call("simulate", gangs, "--cluster", lab, "--elastic", share)

    assert "it must be above 0 and at most 1" in said.error
