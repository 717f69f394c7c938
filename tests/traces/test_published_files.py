"""The published files, read whole; their numbers are those of their own descriptions."""

from dataclasses import replace
from pathlib import Path

import pytest

from interlane.model import Request, Task
from interlane.traces.jobs import jobs_of, sample
from interlane.traces.read import read_trace
from interlane.traces.stats import describe
from interlane.traces.write import write_trace

pytestmark = pytest.mark.data

ROWS = {
    "pai-v2020/pai_real_1000jobs.csv": 1000,
    "pai-v2020/pai_real_1000jobs_with_estimates.csv": 1000,
    "pai-v2020/pai_real_4011jobs_requests.csv": 4011,
    "pai-v2020/standin_estimate_100K.csv.gz": 100_000,
    "philly-jobs/philly.csv.gz": 82_247,
    "helios-venus/venus_gpu_jobs.csv.gz": 125_303,
    "pai-v2023/openb_pod_list_default.csv": 8152,
    "pai-v2023/openb_pod_list_gpuspec33.csv.gz": 8152,
    "pai-v2023/openb_pod_list_multigpu50.csv.gz": 9061,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_published_file_reads_without_a_bad_row_and_back_again(
    data: Path, tmp_path: Path, name: str
) -> None:
    trace = read_trace(data / name)

    assert trace.jobs == trace.frame.height == ROWS[name]
    for ending in (".csv", ".parquet"):
        write_trace(trace, tmp_path / f"again{ending}")
        assert read_trace(tmp_path / f"again{ending}").frame.equals(trace.frame)


def test_the_stand_in_has_325_distinct_requests_but_for_gpu_types(data: Path) -> None:
    def untyped(request: Request, pods: int) -> Request:
        (task,) = request.tasks
        return Request((Task(replace(task.demand, gpu_types=frozenset())),))

    trace = read_trace(data / "pai-v2020/standin_estimate_100K.csv.gz")
    jobs, _ = jobs_of(trace, estimate="group_gpu_dur", adapt=untyped)

    assert len({id(job.request) for job in jobs}) == 325
    assert all(job.duration_s_estimate is not None for job in jobs)
    assert len(jobs_of(sample(trace, 20_000, 42), estimate=None)[0]) == 20_000


def test_totals_of_the_real_jobs_are_kept_exactly(data: Path) -> None:
    trace = read_trace(data / "pai-v2020/pai_real_1000jobs.csv")

    # 4,638 instances, 83.7 % of them in gangs, which ask for 79.5 % of the GPUs.
    found = describe(trace)
    assert found["instances"] == 4638
    gangs = found["gangs"]
    assert isinstance(gangs, dict)
    assert gangs["of_instances"] == pytest.approx(0.837, abs=0.001)
    assert gangs["of_gpu_demand"] == pytest.approx(0.795, abs=0.001)


def test_the_real_estimates_are_as_far_off_as_published(data: Path) -> None:
    found = describe(read_trace(data / "pai-v2020/pai_real_1000jobs_with_estimates.csv"))

    estimates = found["estimates"]
    assert isinstance(estimates, dict)
    errors_s = {name: round(estimate["mae_s"]) for name, estimate in estimates.items()}
    assert errors_s == {
        "duration": 0,
        "user_dur": 6518,
        "group_dur": 1709,
        "group_gpu_dur": 1652,
    }


def test_philly_holds_the_gpu_hours_that_its_description_gives(data: Path) -> None:
    found = describe(read_trace(data / "philly-jobs/philly.csv.gz"))

    assert found["gpu_hours"] == pytest.approx(978_078, abs=1)


def test_openb_asks_for_the_published_sum_of_gpus(data: Path) -> None:
    frame = read_trace(data / "pai-v2023/openb_pod_list_default.csv").frame

    assert (frame["gpus"] * frame["gpu_milli"]).sum() == pytest.approx(6_086_800, abs=50)
    assert (frame["gpus"] == 0).sum() == 1088
