"""How long a sweep takes on four emulated devices: one trial per device, or several in lanes.

    python -m benchmarks.sweep --trials 300 --framework torch

Every way gets a server of its own.  The makespan is from the first submission to the last end,
as the server has them on record.  Salus reports a ratio of 2.38 (figure 11, light model).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from interlane.client.client import Client

SALUS = 2.38
DEVICES = 4
STEPS = 100
HERE = Path(__file__).parent.parent


def measure(*, quick: bool) -> dict[str, Any]:
    """Sweep in both ways, numpy trials for the sake of time."""
    return makespans(16 if quick else 300, "numpy", beside=4)


def makespans(trials: int, framework: str, beside: int) -> dict[str, Any]:
    """Return how long each way took, and how much sooner lanes end."""
    alone_s = _makespan_s("alone", trials, framework, 1.0)
    shared_s = _makespan_s("shared", trials, framework, 1 / beside)
    return {
        "trials": trials,
        "framework": framework,
        "per_device": beside,
        "alone_makespan_s": round(alone_s, 1),
        "shared_makespan_s": round(shared_s, 1),
        "ratio": round(alone_s / shared_s, 2),
        "salus_ratio": SALUS,
    }


def _makespan_s(name: str, trials: int, framework: str, gpus: float) -> float:
    with TemporaryDirectory() as folder, _serving(Path(folder)) as client:
        program = f"-m benchmarks.sweep_trial {framework} --steps {STEPS}".split()
        command = [
            *(sys.executable, "-m", "interlane", "sweep", "--name", name, "--metric", "loss"),
            *("--set", "lr=log:0.001..1", "--set", "width=32..128", "--random", str(trials)),
            *("--gpus", f"{gpus:g}", "--state", folder, "-o", "json", "--"),
            *(sys.executable, *program, "--lr", "{lr}", "--width", "{width}"),
        ]
        began_s, loads = time.monotonic(), [os.getloadavg()[0]]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=HERE, check=True)
        loads.append(os.getloadavg()[0])
        jobs = list(client.jobs())
        ended = [job.ended_s or 0.0 for job in jobs]
        taken_s = max(ended) - min(job.submitted_s for job in jobs)
        runs = json.loads(done.stdout)["runs"]
        told = f"{name}: {taken_s:.0f} s ({time.monotonic() - began_s:.0f} s with the command)"
        print(f"{told}, {runs}, load {loads[0]:.0f} to {loads[1]:.0f}", file=sys.stderr)
        if runs["ended"] != trials:
            raise SystemExit(f"{name}: {runs} of {trials} trials.")
        return taken_s


@contextmanager
def _serving(folder: Path) -> Iterator[Client]:
    command = [
        *(sys.executable, "-m", "interlane", "up", "--port", "0", "--state", str(folder)),
        *("--devices", f"cpu:{DEVICES}:4GB", "--trust-users"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        if not any(line.startswith("Serving") for line in server.stderr):
            raise SystemExit("The server did not start.")
        try:
            yield Client(state=folder)
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--framework", choices=("numpy", "torch"), default="torch")
    parser.add_argument("--beside", type=int, default=4, help="trials per device")
    said = parser.parse_args()
    print(json.dumps(makespans(said.trials, said.framework, said.beside), indent=2))


if __name__ == "__main__":
    main()
