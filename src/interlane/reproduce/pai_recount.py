"""Some numbers of the report counted a second time: row by row, in plain Python.

Nothing here is shared with ``traces.report``, not even how a file is read, so that a fault
there is not made twice.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

HEAVY: Final = 0.05
LARGE: Final = 100
GPU: Final = 100.0
"""Percent of a GPU, as tasks ask for it."""

# Columns of the two tables.
JOB, JOB_USER, JOB_START = 0, 2, 4
TASK_INSTANCES, TASK_START, TASK_GPU = 2, 4, 8


def recount(folder: Path) -> dict[str, float]:
    """Return figure and number -> what it is, by a second count of jobs and tasks."""
    jobs = {row[JOB]: row for row in _rows(folder, "pai_job_table")}
    by_user, sizes, gpus = Counter[str](), Counter[int](), Counter[bool]()
    first_s: dict[str, float] = {}
    tasks = list(_rows(folder, "pai_task_table"))
    for row in tasks:
        instances = int(float(row[TASK_INSTANCES] or 0))
        by_user[jobs[row[JOB]][JOB_USER]] += instances
        sizes[instances] += instances
        gpus[instances > 1] += instances * round(float(row[TASK_GPU] or 0))
        if row[TASK_START]:
            start_s = float(row[TASK_START])
            first_s[row[JOB]] = min(start_s, first_s.get(row[JOB], start_s))
    everyone = sum(sizes.values())
    heaviest = sorted(by_user.values(), reverse=True)[: max(1, round(HEAVY * len(by_user)))]
    return {
        "user_skew.users": float(len(by_user)),
        "user_skew.top_5_percent_share": 100 * sum(heaviest) / everyone,
        "gangs.gang_share_of_instances": 100 * (1 - sizes[1] / everyone),
        "gangs.gang_share_of_gpus": 100 * gpus[True] / gpus.total(),
        "gangs.share_in_gangs_of_100": _part(sizes, everyone),
        "queueing.shared_p90": _wait_s(tasks, jobs, first_s),
    }


def _part(sizes: Counter[int], everyone: int) -> float:
    return 100 * sum(count for size, count in sizes.items() if size >= LARGE) / everyone


def _wait_s(
    tasks: list[list[str]], jobs: dict[str, list[str]], first_s: dict[str, float]
) -> float:
    """Return within how long nine in ten instances start that ask for a part of a GPU."""
    waits: Counter[float] = Counter()
    for row in tasks:
        asked = float(row[TASK_GPU] or 0)
        submitted = jobs[row[JOB]][JOB_START]
        if 0 < asked < GPU and submitted and row[JOB] in first_s:
            wait_s = first_s[row[JOB]] - float(submitted)
            if wait_s >= 0:
                waits[wait_s] += int(float(row[TASK_INSTANCES] or 0))
    left = ceil(0.9 * waits.total() - 1e-6)
    for wait_s in sorted(waits):
        left -= waits[wait_s]
        if left <= 0:
            return wait_s
    return float("nan")


def _rows(folder: Path, table: str) -> Iterator[list[str]]:
    (path,) = folder.glob(f"{table}.csv")
    with path.open(newline="") as file:
        yield from csv.reader(file)
