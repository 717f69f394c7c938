"""Measure interlane in CPU seconds and print JSON.

    python -m benchmarks.run [--only GROUP] [--quick]

Every group runs in a process of its own, so that memory is that group's alone.  Compilation
is done and timed before anything else is; what is measured afterwards runs warm.  CPU time
on a shared machine varies, so each figure is the best of several runs, beside the time of a
fixed loop of plain Python (``reference_s``) by which it can be compared across machines.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

GROUPS = (
    "pooled", "million", "decision", "report", "mig", "colocate", "startup", "live",
    "functions", "soak", "sweep",
)  # fmt: skip
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=GROUPS, action="append", help="measure this group")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer runs")
    parser.add_argument("--group", choices=GROUPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.group:
        print(json.dumps(measure(arguments.group, quick=arguments.quick)))
        return
    report: dict[str, Any] = {"machine": machine(), "commit": commit()}
    for group in arguments.only or GROUPS:
        print(f"measuring {group} ...", file=sys.stderr)
        report[group] = in_own_process(group, quick=arguments.quick)
    report["within_ranges"] = judged(report, quick=arguments.quick)
    print(json.dumps(report, indent=2))


def in_own_process(group: str, *, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.run", "--group", group]
    done = subprocess.run(
        command + ["--quick"] * quick, stdout=subprocess.PIPE, check=True, cwd=HERE.parent
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(group: str, *, quick: bool) -> dict[str, Any]:
    from interlane.compiling import compile_at_once

    compile_at_once()
    from benchmarks import (
        colocate,
        decision,
        functions,
        live,
        mig,
        million,
        pooled,
        report,
        soak,
        startup,
        sweep,
    )

    module = {
        "pooled": pooled,
        "million": million,
        "decision": decision,
        "report": report,
        "mig": mig,
        "colocate": colocate,
        "startup": startup,
        "live": live,
        "functions": functions,
        "soak": soak,
        "sweep": sweep,
    }[group]
    result: dict[str, Any] = module.measure(quick=quick)
    result["reference_s"] = reference_s()
    return result


def reference_s() -> float:
    """Return the CPU time of a fixed loop, the best of three."""
    return min(_reference_once() for _ in range(3))


def _reference_once() -> float:
    begin_s = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number & 7
    return round(time.process_time() - begin_s, 4)


def machine() -> dict[str, object]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0].partition(":")[2].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def commit() -> str:
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=HERE
    )
    return git.stdout.strip() or "unknown"


def judged(report: dict[str, Any], *, quick: bool) -> dict[str, bool]:
    """Compare with the recorded ranges; sizes of a quick run are not comparable.

    A bound on a figure that its group has not measured does not hold: it may have been renamed.
    """
    if quick:
        return {}
    ranges = tomllib.loads((HERE / "ranges.toml").read_text())
    verdicts = {}
    for group, bounds in ranges.items():
        for name, bound in bounds.items():
            if group in report:
                measured = report[group].get(name, float("inf"))
                verdicts[f"{group}.{name}"] = measured <= bound["most"]
    return verdicts


if __name__ == "__main__":
    main()
