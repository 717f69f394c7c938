import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlane.sim.record import read_log

Call = Callable[..., Any]


KEYS = {
    "jobs",
    "instances",
    "gpus",
    "machines",
    "mean_jct_s",
    "mean_wait_s",
    "p50_jct_s",
    "p90_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "p50_wait_s",
    "p90_wait_s",
    "p99_wait_s",
    "makespan_s",
    "gpu_allocated_ratio",
    "fragmentation_ratio",
    "preemptions",
    "growths",
    "seed",
    "policy",
    "events",
    "cpu_s",
    "refused",
    "weight",
    "trace",
    "cluster",
    "order",
    "placer",
    "queue",
    "estimate",
    "elastic",
    "max_wait_s",
}


def test_the_figures_are_those_worked_out_by_hand(call: Call, trace: Path, lab: Path) -> None:
    said = call("simulate", trace, "--cluster", lab, "-o", "json")

    answer = json.loads(said.out)
    assert said.code == 0
    assert said.err == ""
    assert set(answer) >= KEYS
    # a runs 0-100, b 100-150, c 150-180: completion times 100, 140, 160; waits 0, 90, 130.
    assert answer["mean_jct_s"] == pytest.approx(400 / 3)
    assert answer["mean_wait_s"] == pytest.approx(220 / 3)
    assert (answer["p50_jct_s"], answer["p50_wait_s"]) == (140, 90)
    assert answer["max_wait_s"] == 130
    assert answer["makespan_s"] == 181
    # 2 GPUs for 150 s and half a GPU for 30 s, of 2 GPUs for 180 s.
    assert answer["gpu_allocated_ratio"] == pytest.approx((300 + 15) / 360)
    assert (answer["jobs"], answer["instances"], answer["refused"]) == (3, 3, 0)
    assert (answer["gpus"], answer["machines"], answer["events"]) == (2, 1, 9)
    assert answer["policy"] == "fifo/pack/skip"


def test_fragmentation_is_the_idle_share_that_typical_instances_cannot_use(
    call: Call, trace: Path, lab: Path
) -> None:
    answer = json.loads(call("simulate", trace, "--cluster", lab, "-o", "json").out)

    # Idle share exists only while c runs alone (150-180 of 180 s: 17 of 100 moments).  Then
    # 1.5 GPUs are idle; two of three instances ask for two whole GPUs and cannot use them,
    # and the third can use all: 2/3 of the idle share is a fragment.
    assert answer["fragmentation_ratio"] == pytest.approx(0.17 * 2 / 3)


def test_instances_may_count_as_jobs(call: Call, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "gang.csv"
    path.write_text(
        "job_id,submit_s,duration_s,instances,gpus,gpu_milli\n"
        "a,0,100,3,1,500\nb,0,10,1,1,1000\n"
    )

    by_job = json.loads(call("simulate", path, "--cluster", lab, "-o", "json").out)
    words = ("--weight", "instance", "-o", "json")
    by_instance = json.loads(call("simulate", path, "--cluster", lab, *words).out)

    # The gang of three runs 0-100 on one and a half GPUs, b must wait: 100-110.
    assert by_job["mean_jct_s"] == pytest.approx((100 + 110) / 2)
    assert by_instance["mean_jct_s"] == pytest.approx((3 * 100 + 110) / 4)
    assert by_instance["p50_jct_s"] == 100
    assert by_instance["instances"] == by_job["instances"] == 4


@pytest.mark.parametrize("order", ["sjf", "srtf", "hrrn", "las", "priority", "fair", "fifo"])
@pytest.mark.parametrize("queue", ["skip", "strict", "easy"])
def test_every_order_and_queue_ends_with_all_jobs_done(
    call: Call, trace: Path, lab: Path, order: str, queue: str
) -> None:
    words = ("--order", order, "--queue", queue, "--paranoid", "-o", "json")
    said = call("simulate", trace, "--cluster", lab, *words)

    answer = json.loads(said.out)
    assert answer["jobs"] == 3
    looks_at_estimates = order in ("sjf", "srtf", "hrrn") or queue == "easy"
    assert answer["estimate"] == ("duration" if looks_at_estimates else None)
    assert ("oracle" in answer["policy"]) == looks_at_estimates


def test_the_same_seed_gives_the_same_answer(call: Call, trace: Path, lab: Path) -> None:
    words = ("simulate", trace, "--cluster", lab, "--placer", "random", "--failures", "200:20")
    answers = [json.loads(call(*words, "--seed", seed, "-o", "json").out) for seed in (1, 1, 2)]
    for answer in answers:
        for clock in ("cpu_s", "load_s", "compile_s"):
            del answer[clock]

    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_speed_and_slow_down_change_the_run(call: Call, trace: Path, lab: Path) -> None:
    words = ("simulate", trace, "--cluster", lab, "-o", "json")

    fast = json.loads(call(*words, "--speed", "T4=2").out)
    slowed = json.loads(call(*words, "--slowdown", "share:0.5", "--slowdown", "cpu").out)

    assert fast["makespan_s"] == 91
    assert slowed["makespan_s"] == 181  # nobody shares a GPU here


def test_a_gang_larger_than_the_cluster_is_refused_and_the_run_ends(
    call: Call, trace: Path, tmp_path: Path, lab: Path
) -> None:
    path = tmp_path / "large.csv"
    path.write_text(trace.read_text() + "d,5,10,64,1000,1000,eve,0,10")

    said = call("simulate", path, "--cluster", lab, "-o", "json")

    answer = json.loads(said.out)
    assert (said.code, answer["refused"], answer["jobs"]) == (0, 1, 3)
    assert "refused: 1, the first d: never fits" in said.err


def test_a_trace_of_which_nothing_fits_still_ends(
    call: Call, tmp_path: Path, lab: Path
) -> None:
    path = tmp_path / "none.csv"
    path.write_text("job_id,submit_s,duration_s,cpu_milli\na,0,1,99000\n")

    said = call("simulate", path, "--cluster", lab, "-o", "json")

    answer = json.loads(said.out)
    assert (said.code, answer["jobs"], answer["refused"]) == (0, 0, 1)
    assert answer["mean_jct_s"] is None
    assert call("simulate", path, "--cluster", lab).code == 0


def test_a_pool_cuts_requests_to_its_size(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_text(trace.read_text() + "d,5,10,64,1000,1000,eve,0,10")

    answer = json.loads(call("simulate", path, "--cluster", "pool:2", "-o", "json").out)

    assert (answer["jobs"], answer["refused"]) == (4, 0)


def test_yaml_and_table_hold_the_same_figures(call: Call, trace: Path, lab: Path) -> None:
    as_yaml = yaml.safe_load(call("simulate", trace, "--cluster", lab, "-o", "yaml").out)
    table = call("simulate", trace, "--cluster", lab).out

    assert as_yaml["makespan_s"] == 181
    assert any(line.split() == ["makespan_s", "181"] for line in table.splitlines())


def test_the_log_is_written_and_read_back(
    call: Call, trace: Path, lab: Path, tmp_path: Path
) -> None:
    target = tmp_path / "log.parquet"

    said = call("simulate", trace, "--cluster", lab, "--log", target, "-o", "json")

    log = read_log(target)
    told = [(line.at_s, line.kind.name, line.subject) for line in log.lines()]
    assert f"{target}: 9 events" in said.err
    assert told[:2] == [(0.0, "SUBMITTED", 0), (0.0, "STARTED", 0)]
    assert log.placements[0].spots[0].gpus == (0, 1)
    assert len(log) == 9


def test_bad_rows_are_left_out(call: Call, trace: Path, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(trace.read_text() + "d,-5,10,1,1000,1000,eve,0,10")

    said = call("simulate", path, "--cluster", lab, "--skip-bad", "-o", "json")

    assert json.loads(said.out)["jobs"] == 3
    assert "1 bad rows left out" in said.err
    assert "line 5" in said.err


def test_a_job_that_machines_never_let_finish_is_abandoned(
    call: Call, tmp_path: Path, lab: Path
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,100000,1\nb,0,5,1\n")
    words = ("--cluster", lab, "--failures", "10:10", "--paranoid")

    said = call("simulate", path, *words, "-o", "json")

    answer = json.loads(said.out)
    assert (said.code, answer["jobs"], answer["refused"]) == (0, 1, 1)
    assert "failed 1000 times" in said.err
    assert "failed 1000 times" in call("timeline", "a", "--trace", path, *words).out


FUNCTION_KEYS = {
    "requests",
    "cold_starts",
    "p95_latency_s",
    "p99_latency_s",
    "deadline_misses",
    "best_effort_gpu_h",
    "job_slowdown_mean",
    "truth",
}


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Two functions of our own format, for an hour."""
    rows = [f"{60 * minute},{name},3" for minute in range(60) for name in ("f", "g")]
    path = tmp_path / "asked.csv"
    path.write_text("timestamp,function,count\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_functions_are_played_beside_jobs_and_have_figures_of_their_own(
    call: Call, trace: Path, lab: Path, asked: Path
) -> None:
    options = ("--cluster", lab, "--truth", "share:0.02", "-o", "json")
    said = call("simulate", trace, "--functions", asked, *options)

    answer = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert set(answer) >= KEYS | FUNCTION_KEYS
    assert answer["requests"] == 360
    assert answer["policy"].endswith("+ bounded/portfolio")


def test_functions_of_a_parquet_file_with_profiles_are_what_the_file_says(
    call: Call, trace: Path, lab: Path, asked: Path, tmp_path: Path
) -> None:
    import polars as pl

    packed, profiles = tmp_path / "asked.parquet", tmp_path / "profiles.csv"
    pl.read_csv(asked).write_parquet(packed)
    profiles.write_text("function,service_s,load_s,memory_mib\n*,0.5,1,100\n", "utf-8")
    options = ("--cluster", lab, "--truth", "share:0", "-o", "json")

    said = call(
        "simulate", trace, "--functions", packed, "--function-profiles", profiles, *options
    )

    answer = json.loads(said.out)
    assert answer["requests"] == 360
    assert answer["p50_latency_s"] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("word", "value", "says"),
    [
        ("--functions", "generate:many", "generate:40"),
        ("--functions", "nowhere.csv", "no such file"),
        ("--truth", "share:much", "share:0.05"),
        ("--known-pairs", "1.5", "from 0 to below 1"),
        ("--colocate", "apart", "bounded"),
        ("--forecast", "stars", "ls-lstm"),
        ("--function-load", "0", "above 0"),
    ],
)
def test_what_cannot_be_understood_of_functions_is_said_in_a_sentence(
    call: Call, trace: Path, lab: Path, word: str, value: str, says: str
) -> None:
    given = {"--functions": "generate:2", "--truth": "share:0.02", word: value}
    options = [part for pair in given.items() for part in pair]

    said = call("simulate", trace, "--cluster", lab, *options)

    assert said.code == 2
    assert says in said.err


def test_policies_of_functions_are_compared_like_those_of_jobs(
    call: Call, trace: Path, lab: Path, asked: Path
) -> None:
    parts = ("colocate=none", "colocate=smore,forecast=trees")
    policies = [word for part in parts for word in ("--policy", part)]
    options = ("--cluster", lab, "--truth", "share:0.02", "--processes", "1")

    told = call("compare", trace, "--functions", asked, *policies, *options, "-o", "json")
    shown = call("compare", trace, "--functions", asked, *policies, *options)

    runs = json.loads(told.out)["runs"]
    assert [run["policy"].split(" + ")[1] for run in runs] == ["none/portfolio", "smore/trees"]
    assert "late requests" in shown.out
