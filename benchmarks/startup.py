"""How long the command line takes to say what it can do, and a server to begin.

A server begins on stores of 1,000 and 100,000 jobs that have ended: neither its time nor its
memory may grow with them.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from interlane.testing.histories import fill

FEW, MANY = 1_000, 100_000
DAY_S = 86_400.0
BEGIN = """
import os, resource, sys, time
from pathlib import Path
from interlane.live.archive import Archive
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan
from interlane.live.store.store import Store
from interlane.testing.live import make_engine, make_scheduler

folder = Path(sys.argv[1])
engine = make_engine(folder, gpus=4)
before_s = time.process_time()
store = Store(f"sqlite:///{folder / 'state.db'}", Archive(folder / "archive"))
Driver(store, SchedulerPlan(make_scheduler()), engine).open()
used_s = time.process_time() - before_s
print(used_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
os._exit(0)
"""


def measure(*, quick: bool) -> dict[str, Any]:
    runs = [_help_cpu_s() for _ in range(2 if quick else 5)]
    with tempfile.TemporaryDirectory() as folder:
        few = _server(Path(folder) / "few", FEW)
        many = _server(Path(folder) / "many", 10 * FEW if quick else MANY)
    return {
        "help_cpu_s": min(runs),
        "server_cpu_s": many[0],
        "server_mib": many[1],
        "server_more_mib": round(many[1] - few[1], 1),
    }


def _server(folder: Path, jobs: int) -> tuple[float, float]:
    """Return CPU seconds and memory of a server that begins with so many ended jobs."""
    fill(folder, jobs, time.time() - 20 * DAY_S)
    words = (sys.executable, "-c", BEGIN, str(folder))
    tries = [subprocess.run(words, stdout=subprocess.PIPE, check=True) for _ in range(3)]
    found = [tuple(map(float, one.stdout.split())) for one in tries]
    cpu_s, mib = min(found)
    return round(cpu_s, 2), round(mib, 1)


def _help_cpu_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "interlane", "--help"], stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(used_s, 3)
