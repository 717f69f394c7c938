from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from interlane.traces.read.pai2020 import TABLES
from interlane.traces.report.figure import ReportFigure
from interlane.traces.report.report import FIGURES
from interlane.traces.report.tables import TraceTables, read_tables

Row = tuple[object, ...]
Write = Callable[..., Path]
Numbers = Callable[[TraceTables, str], Mapping[str, float | None]]

FILES = {
    "job": "pai_job_table",
    "task": "pai_task_table",
    "instance": "pai_instance_table",
    "tag": "pai_group_tag_table",
    "sensor": "pai_sensor_table",
    "machine": "pai_machine_spec",
    "metric": "pai_machine_metric",
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write tables as they were published: no header, one row per line."""

    def write(*, header: bool = False, **tables: Iterable[Row]) -> Path:
        for word, rows in tables.items():
            name = FILES[word]
            lines = [",".join(TABLES[name])] if header else []
            lines += [",".join(map(str, row)) for row in rows]
            text = "".join(f"{line}\n" for line in lines)
            (tmp_path / f"{name}.csv").write_text(text)
        return tmp_path

    return write


# Two users, three jobs of one program (g1) and one of another (g2); four machines.
JOBS: list[Row] = [
    ("j1", "i1", "ann", "Terminated", 1000, 2200),
    ("j2", "i2", "ann", "Terminated", 2000, 4100),
    ("j3", "i3", "ann", "Terminated", 3000, 9000),
    ("j4", "i4", "bob", "Failed", 90_000, 100_000),
]
TASKS: list[Row] = [
    ("j1", "worker", 4, "Terminated", 1100, 2200, 600, 29, 50, "MISC"),
    ("j2", "worker", 2, "Terminated", 3100, 4100, 1200, 59, 100, "V100"),
    ("j2", "ps", 1, "Terminated", 3200, 4100, 200, 8, "", "CPU"),
    ("j3", "worker", 1, "Terminated", 3010, 9000, 600, 29, 25, "MISC"),
    ("j4", "worker", 2, "Failed", 90_000, 100_000, 800, 32, 200, "V100"),
]
INSTANCES: list[Row] = [
    *(("j1", "worker", f"n{i}", f"w1{i}", "i1", "T", 1100, 2100, "m2") for i in range(4)),
    ("j2", "worker", "n4", "w20", "i2", "T", 3100, 4100, "m8"),
    ("j2", "worker", "n5", "w21", "i2", "T", 3100, 4100, "m9"),
    ("j2", "ps", "n6", "w22", "i2", "T", 3200, 4100, "m0"),
    ("j3", "worker", "n7", "w30", "i3", "T", 3010, 9000, "m2"),
    ("j4", "worker", "n8", "w40", "i4", "F", 90_000, 100_000, "m8"),
    ("j4", "worker", "n9", "w41", "i4", "F", 90_000, 100_000, "m8"),
]
TAGS: list[Row] = [
    ("i1", "ann", "", "g1", "ctr"),
    ("i2", "ann", "V100", "g1", "bert"),
    ("i3", "ann", "", "g1", "ctr"),
    ("i4", "bob", "", "g2", ""),
]
MACHINES: list[Row] = [
    ("m0", "CPU", 96, 512, 0),
    ("m2", "MISC", 64, 512, 2),
    ("m8", "V100", 96, 384, 8),
    ("m9", "V100", 96, 384, 8),
]


def _sensor(worker: str, machine: str, gpu: str, cpu: float, gpus: float, gib: float) -> Row:
    rest = (gib * 2, 10, 20, 5e6, 5e6, 10, 10)
    return ("j", "t", worker, "i", machine, gpu, cpu, gpus, gib, *rest)


SENSORS: list[Row] = [
    *(_sensor(f"w1{i}", "m2", f"/dev/nvidia{i % 2}", 300, 50, 3) for i in range(4)),
    _sensor("w20", "m8", "/dev/nvidia0", 1300, 80, 60),
    _sensor("w21", "m9", "/dev/nvidia0", 1100, 100, 40),
    _sensor("w30", "m2", "/dev/nvidia0", 100, 0, 3),
]
METRICS: list[Row] = [
    # worker, machine, from, to, iowait, kernel, usr, gpu, load, received, workers, cpu
    ("w10", "m2", 1, 10_000, 0.02, 2, 18, 30, 1, 125e6, 2, 20),
    ("w20", "m8", 1, 10_000, 0.02, 4, 36, 80, 1, 125e6, 2, 40),
    ("w21", "m9", 1, 10_000, 0.02, 6, 54, 40, 1, 250e6, 2, 60),
]


@pytest.fixture
def tables(write: Write) -> TraceTables:
    """All seven tables, small enough to count by hand."""
    return read_tables(
        write(
            job=JOBS,
            task=TASKS,
            instance=INSTANCES,
            tag=TAGS,
            sensor=SENSORS,
            machine=MACHINES,
            metric=METRICS,
        )
    )


@pytest.fixture
def figure() -> Callable[[TraceTables, str], ReportFigure]:
    """Make one figure by its key."""

    def make(tables: TraceTables, key: str) -> ReportFigure:
        made = {figure.key: figure for figure in (make(tables) for make in FIGURES)}
        return made[key]

    return make


@pytest.fixture
def numbers(figure: Callable[[TraceTables, str], ReportFigure]) -> Numbers:
    """Return the values of one figure by name."""

    def values(tables: TraceTables, key: str) -> Mapping[str, float | None]:
        return {name: number.value for name, number in figure(tables, key).numbers.items()}

    return values
