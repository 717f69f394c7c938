from pathlib import Path

from interlane.traces.read import read_trace
from interlane.traces.stats import describe

ROWS = """job_id,submit_s,duration_s,role,instances,gpus,gpu_milli,gpu_types,user,group_dur
a,0,100,ps,1,0,1000,,ann,90
a,0,100,worker,3,1,500,T4,ann,90
b,3600,3600,worker,1,1,1000,,bob,
c,1800,400,worker,1,2,1000,T4,ann,100
"""


def test_a_small_trace_is_described_by_hand_derived_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)

    found = describe(read_trace(path))

    assert (found["jobs"], found["tasks"], found["instances"]) == (3, 4, 6)
    assert (found["users"], found["span_s"], found["bad_rows"]) == (2, 3600, 0)
    # 1.5 GPUs x 100 s + 1 x 3600 + 2 x 400 = 4,550 GPU seconds over 3,600.
    assert found["gpu_hours"] == round(4550 / 3600, 3)
    assert found["gpus_busy_mean"] == round(4550 / 3600, 3)
    assert found["kinds"] == {
        "cpu_only": 0.25,
        "shared_gpu": 0.25,
        "one_gpu": 0.25,
        "more": 0.25,
    }
    # Three of six instances; 1.5 of 4.5 GPUs.
    assert found["gangs"] == {
        "of_tasks": 0.25,
        "of_instances": 0.5,
        "of_gpu_demand": 0.3333,
        "largest": 3,
    }
    assert found["gpu_types"] == {"T4": 2, "any": 1}
    # 90 for 100 is close, 100 for 400 is not.
    assert found["estimates"] == {
        "duration": {"jobs": 3, "mae_s": 0, "within_25_percent": 1},
        "group_dur": {"jobs": 2, "mae_s": 155, "within_25_percent": 0.5},
    }


def test_durations_are_counted_per_job(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)

    spread = describe(read_trace(path))["duration_s"]

    # Of 100, 400 and 3,600 seconds.
    assert isinstance(spread, dict)
    assert (spread["p50"], spread["mean"], spread["max"]) == (400, 1366.667, 3600)


def test_a_trace_without_gpus_has_no_gpu_requests_to_describe(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,duration_s\na,0,5\n")

    found = describe(read_trace(path))

    assert found["gpus_per_job"] == {}
    assert found["gpus_busy_mean"] is None
