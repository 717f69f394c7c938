"""Turns or beside: real jobs on this machine's CPU, under two fixed rules and the measured one.

Two jobs with one thread fill half of two cores each; two jobs with as many threads as there
are cores fill them.  The rule that measures must find out which is which, and pay for it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Final

from interlane.device.launch import status
from interlane.device.link import NoDaemon
from interlane.model import InterlaneError
from interlane.reproduce.base import (
    Basis,
    Excuse,
    Reproduction,
    Row,
    Setting,
    checked,
    figure,
)

CORES: Final = 2
RULES: Final = ("turns", "beside", "measured")
LOADS: Final = {"half-filling": 1, "filling": CORES}
"""Threads of each job."""
ALONE_S: Final = 10.0
"""How long the steps of one job should take alone."""
MOST_S: Final = 45.0
"""What a run may take; one that would take longer is extrapolated."""
CALIBRATION_STEPS: Final = 30
DISTURBED: Final = (0.85, 1.0)
"""How far ratios may fall where others keep cores busy."""
START_S: Final = 120.0


def _beside(setting: Setting) -> list[Row]:
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES:
        raise InterlaneError(
            f"this needs {CORES} cores, and this process may use {len(cores)}."
        )
    others = os.getloadavg()[0]
    taken_s: dict[tuple[str, str], float] = {}
    lanes: dict[str, int] = {}
    for at, (load, threads) in enumerate(LOADS.items()):
        steps = _steps(threads)
        for number, rule in enumerate(RULES):
            taken_s[load, rule], found = _taken(rule, threads, steps, cores)
            lanes |= {load: found} if rule == "measured" else {}
            setting.progress(at * len(RULES) + number + 1, len(LOADS) * len(RULES), "runs")
    why = f"others kept {others:.0f} cores busy: measure on an idle machine"
    excuse = Excuse(why, *DISTURBED) if others > 1 else None
    return [*_rows(taken_s, excuse), *_choices(lanes)]


def _rows(taken_s: dict[tuple[str, str], float], excuse: Excuse | None) -> Iterator[Row]:
    for load in LOADS:
        for rule in RULES:
            yield figure(f"{load}, {rule}: s", round(taken_s[load, rule], 1))
    total_s = {rule: sum(taken_s[load, rule] for load in LOADS) for rule in RULES}
    for rule in RULES[:-1]:
        ratio = total_s[rule] / total_s["measured"]
        yield checked(
            f"both loads, {rule} / measured",
            round(ratio, 2),
            "above 1",
            ratio > 1,
            "Trials would cost more than they save.",
            excuse,
        )


def _choices(lanes: dict[str, int]) -> Iterator[Row]:
    wrong = "One load would be mistaken for the other."
    for load, right in (("half-filling", "2"), ("filling", "1")):
        found = lanes[load]
        yield checked(f"lanes of {load} jobs", found, right, str(found) == right, wrong)


def _steps(threads: int) -> int:
    """Return how many steps take ``ALONE_S`` alone."""
    ended = subprocess.run(
        _filler(threads, CALIBRATION_STEPS), capture_output=True, text=True, check=True
    )
    seen = json.loads(ended.stdout)
    step_s: float = (seen["ended_s"] - seen["began_s"]) / CALIBRATION_STEPS
    return max(20, round(ALONE_S / step_s))


def _taken(rule: str, threads: int, steps: int, cores: list[int]) -> tuple[float, int]:
    """Return the seconds that two jobs take, and in how many lanes they end."""
    with _daemon(rule, cores) as path:
        jobs = [_job(path, threads, steps) for _ in range(2)]
        lanes = 0
        while any(job.poll() is None for job in jobs):
            found = status(path).devices[0]
            if sum(one.state in ("running", "waiting") for one in found.processes) == 2:
                lanes = len(found.lanes)
            sleep(0.5)
        seen = [json.loads(job.communicate()[0]) for job in jobs]
    return max(one["ended_s"] for one in seen) - min(one["began_s"] for one in seen), lanes


def _job(path: Path, threads: int, steps: int) -> "subprocess.Popen[str]":
    words = ["share", "run", "--socket", str(path), "--memory", "100MiB+200MiB", "--"]
    command = [sys.executable, "-m", "interlane", *words, *_filler(threads, steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _filler(threads: int, steps: int) -> list[str]:
    module = "interlane.device.bench.filler"
    return [sys.executable, "-m", module, str(threads), str(steps), str(MOST_S)]


@contextmanager
def _daemon(rule: str, cores: list[int]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="interlane-") as folder:
        path = Path(folder) / "share.sock"
        device = f"cpu:2GiB:{','.join(map(str, cores))}"
        words = ["--socket", str(path), "--device", device, "--sharing", rule, "--order", "rr"]
        process = subprocess.Popen(
            [sys.executable, "-m", "interlane", "share", "daemon", *words],
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(path, process)
            yield path
        finally:
            process.terminate()
            process.wait()


def _await(path: Path, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(round(START_S / 0.1)):
        with suppress(NoDaemon):
            status(path)
            return
        if process.poll() is not None:
            break
        sleep(0.1)
    raise InterlaneError("the daemon of this experiment did not start.")


BESIDE: Final = Reproduction(
    name="share-beside",
    claim="two jobs that each fill the device should take turns, two that half-fill it should "
    "run beside each other; measuring which is which beats both fixed rules on total time",
    if_not="trials cost more than they save, or mistake one load for the other",
    run=_beside,
    needs_data=False,
    basis=Basis.MACHINE,
)
