"""Reports on the files that were published, against numbers counted from them elsewhere."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from interlane.traces.report.report import read
from interlane.traces.report.tables import TraceTables, read_tables

Numbers = Callable[[TraceTables, str], Mapping[str, float | None]]

pytestmark = pytest.mark.data


def test_pods_of_openb_waited_as_was_counted(data: Path, numbers: Numbers) -> None:
    tables = read(data / "pai-v2023" / "openb_pod_list_default.csv")

    wait = numbers(tables, "queueing")
    assert (wait["p50"], wait["p90"]) == (2, 106)
    # 3,078 of the 7,064 pods with GPUs share one, 75 take several.
    asked = numbers(tables, "requests")
    assert asked["gpu_1"] == pytest.approx(100 * 3911 / 7064)
    assert asked["gpu_above_1"] == pytest.approx(100 * 75 / 7064)


def test_the_machines_of_pai_have_the_published_cpus_per_gpu(
    data: Path, tmp_path: Path, numbers: Numbers
) -> None:
    for name in ("pai_machine_spec.csv", "pai_machine_spec.header"):
        shutil.copy(data / "pai-v2020" / name, tmp_path)
    (tmp_path / "pai_task_table.csv").write_text("j,worker,1,T,1,2,600,29,50,T4\n")

    tables = read_tables(tmp_path)

    assert tables.machines.height == 1897
    assert tables.machines["gpus"].sum() == 6742
    ratio = numbers(tables, "cpu_per_gpu")
    assert ratio["machines_all"] == pytest.approx(23.22, abs=0.005)
    assert ratio["machines_8"] == 12
    assert ratio["machines_2"] == pytest.approx(38.14, abs=0.005)


def test_philly_ran_as_long_as_was_published(data: Path, numbers: Numbers) -> None:
    tables = read(data / "philly-jobs" / "philly.csv.gz")

    run = numbers(tables, "run_times")
    assert run["instances"] == 82_247
    assert run["p50"] == 1144
    assert tables.clock_s is not None
