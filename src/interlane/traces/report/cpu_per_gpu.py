"""CPUs for each GPU: what machines have and what work asks for."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import total
from interlane.traces.report.tables import TraceTables

MACHINES: Final = {"all": 23.2, "8": 12.0, "2": 38.1}
REQUESTS: Final = {"all": 21.4, "8": 22.8, "2": 18.1}
"""GPUs of the machine -> the paper's CPUs for each GPU."""

WORDS: Final = {"all": "all machines", "8": "8-GPU machines", "2": "2-GPU machines"}
UNIT: Final = "vCPUs/GPU"


def cpu_per_gpu(tables: TraceTables) -> ReportFigure:
    """Compare the CPUs per GPU of machines with those of requests."""
    key, title = "cpu_per_gpu", "CPUs for each GPU"
    missing = tables.lacks(
        "machine_spec.cap_cpu", "machine_spec.cap_gpu", "task.plan_cpu", "instance.machine"
    )
    numbers: dict[str, Number] = {}
    curves = []
    if not tables.lacks("machine_spec.cap_cpu", "machine_spec.cap_gpu"):
        numbers |= _machines(tables.machines)
        curves.append(_bars("machines", numbers, "machines"))
    if not tables.lacks("task.plan_cpu"):
        numbers |= _requests(tables)
        curves.append(_bars("requests", numbers, "requests"))
    if not numbers:
        return absent(key, title, missing)
    said = [
        f"{noun} have {shown(numbers[f'{noun}_all'].value)} CPUs for each GPU "
        f"(paper: {paper['all']})"
        for noun, paper in (("machines", MACHINES), ("requests", REQUESTS))
        if f"{noun}_all" in numbers
    ]
    sentence = " and ".join(said)
    sentence = sentence[0].upper() + sentence[1:] + "."
    plot = Plot("", UNIT, tuple(curves), bars=True)
    return ReportFigure(key, title, sentence, numbers, (plot,), missing)


def _bars(name: str, numbers: dict[str, Number], prefix: str) -> PlotCurve:
    there = [size for size in WORDS if f"{prefix}_{size}" in numbers]
    return PlotCurve(
        name,
        [WORDS[size] for size in there],
        [numbers[f"{prefix}_{size}"].value for size in there],
    )


def _by_time(tables: TraceTables) -> float | None:
    """Return the CPU time asked for each GPU second, in which long instances weigh more."""
    time_s = tables.instances["run_s"] * tables.instances["count"]
    return _ratio(tables.of_task("cpus") * time_s, tables.of_task("gpus") * time_s)


def _ratio(cpus: pl.Series, gpus: pl.Series) -> float | None:
    return total(cpus) / total(gpus) if total(gpus) else None


def _machines(machines: pl.DataFrame) -> dict[str, Number]:
    numbers = {}
    for size, paper in MACHINES.items():
        part = machines if size == "all" else machines.filter(pl.col("gpus") == int(size))
        numbers[f"machines_{size}"] = Number(_ratio(part["cpus"], part["gpus"]), UNIT, paper)
    return numbers


def _requests(tables: TraceTables) -> dict[str, Number]:
    """Return CPUs per GPU of all requests, and of those that ran on a size of machine."""
    tasks = tables.tasks
    each = Number(
        _ratio(tasks["cpus"] * tasks["instances"], tasks["gpus"] * tasks["instances"]),
        UNIT,
        REQUESTS["all"],
    )
    numbers = {"requests_all": each, "requests_by_time": Number(_by_time(tables), UNIT)}
    if tables.lacks("instance.machine", "machine_spec.cap_gpu"):
        return numbers
    size = tables.machines["gpus"].gather(tables.instances["machine"])
    placed = pl.DataFrame({"size": size, "task": tables.instances["task"]}).drop_nulls()
    counts = placed.group_by("size", "task").len()
    for word in ("8", "2"):
        part = counts.filter(pl.col("size") == int(word))
        cpus, gpus = (
            tasks[name].gather(part["task"]).fill_null(0.0) * part["len"]
            for name in ("cpus", "gpus")
        )
        numbers[f"requests_{word}"] = Number(_ratio(cpus, gpus), UNIT, REQUESTS[word])
    return numbers
