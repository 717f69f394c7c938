"""A report on 7.5 million instances: the seven tables as CSV in, all figures and a page out."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from interlane.traces.report.page import render
from interlane.traces.report.report import read, report_on

QUICK = 0.02


def measure(*, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        _make(tables, QUICK if quick else 1.0)
        size = sum(path.stat().st_size for path in tables.iterdir())
        begin_s, begin_cpu_s = time.monotonic(), time.process_time()
        report = report_on(read(tables))
        (tables / "report.html").write_text(render(report))
        cpu_s, wall_s = time.process_time() - begin_cpu_s, time.monotonic() - begin_s
    return {
        "instances": report.trace["instances"],
        "csv_gib": round(size / 1024**3, 2),
        "figures_told": sum(bool(figure.numbers) for figure in report.figures),
        "cpu_s": round(cpu_s, 2),
        "wall_s": round(wall_s, 2),
        "peak_memory_gib": round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 2
        ),
    }


def _make(folder: Path, scale: float) -> None:
    """Make the tables in a process of its own, so that its memory is not ours."""
    command = [sys.executable, "-m", "interlane", "trace", "synth", str(folder)]
    command += ["--like", "pai2020", "--scale", str(scale), "--seed", "1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
