"""Run small PyTorch jobs alone and two at a time, and measure what each keeps of its speed.

Each job is a process of its own on the same cores, which stand for the device.  Both are
built and warmed up before either is timed, and both are timed over the same seconds.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Final

from interlane.model import InvalidField, InvalidInput, UnknownName

WORKER: Final = "interlane.device.corun_worker"
BUILT_IN: Final = {
    "mlp/16": "mlp",
    "mlp/256": "mlp",
    "cnn/8": "cnn",
    "lstm/16": "lstm",
    "embedding/512": "embedding",
    "matmul/1": "matmul",
}
"""Jobs that come along -> their family; the number is the batch."""


@dataclass(frozen=True, slots=True)
class SoloRun:
    """What a job does alone."""

    name: str
    family: str
    steps_per_s: float
    cpu_share: float
    """CPU time over what the cores had to give."""
    memory_share: float
    """Of this machine's memory."""


@dataclass(frozen=True, slots=True)
class CorunPair:
    """What both sides of a co-run kept of their solo speed."""

    one: str
    other: str
    kept_one: float
    kept_other: float


Told = Callable[[int, int], None]
"""Told how many runs are over, of how many."""


def measure(
    names: Sequence[str],
    *,
    pairs: int,
    seconds: float,
    cores: int,
    seed: int,
    tell: Told = lambda done, total: None,
) -> tuple[list[SoloRun], list[CorunPair]]:
    """Run every job alone, then a random sample of pairs."""
    _check(names, pairs, seconds, cores)
    every = [(one, other) for at, one in enumerate(names) for other in names[at:]]
    sample = Random(seed).sample(every, min(pairs, len(every)))
    total = len(names) + len(sample)
    with ExitStack() as stack:
        bench = _Bench(stack, cores)
        solos = {}
        for done, name in enumerate(names, 1):
            ((speed, cpu, memory),) = bench.together((name,), seconds)
            solos[name] = SoloRun(name, BUILT_IN.get(name, name), speed, cpu, memory)
            tell(done, total)
        found = []
        for done, both in enumerate(sample, len(names) + 1):
            speeds = [speed for speed, _, _ in bench.together(both, seconds)]
            alone = [solos[name].steps_per_s for name in both]
            found.append(CorunPair(*both, speeds[0] / alone[0], speeds[1] / alone[1]))
            tell(done, total)
    return list(solos.values()), found


def _check(names: Sequence[str], pairs: int, seconds: float, cores: int) -> None:
    for name in names:
        if name not in BUILT_IN and ":" not in name:
            raise UnknownName("workload", name, [*BUILT_IN, "module:function"])
    if len(set(names)) != len(names):
        raise InvalidField("workloads", list(names), "each may be named once")
    for field, value in (("pairs", pairs), ("seconds", seconds)):
        if value <= 0:
            raise InvalidField(field, value, "it must be above 0")
    have = len(os.sched_getaffinity(0))
    if not 1 <= cores <= have:
        raise InvalidField("cores", cores, f"it must be 1 to {have}, which this machine has")


class _Bench:
    """Jobs that are built once, wait, and run whenever they are told to."""

    def __init__(self, stack: ExitStack, cores: int) -> None:
        self._stack, self._cores = stack, cores
        self._workers: dict[tuple[str, int], subprocess.Popen[str]] = {}

    def together(
        self, names: Sequence[str], seconds: float
    ) -> list[tuple[float, float, float]]:
        """Run jobs at once; return steps a second, CPU share and memory share of each."""
        workers = [
            self._worker(name, names[:place].count(name)) for place, name in enumerate(names)
        ]
        for worker in workers:
            _pipe(worker.stdin).write(f"{seconds}\n")
            _pipe(worker.stdin).flush()
        answers = [json.loads(_answer(worker)) for worker in workers]
        return [
            (
                one["steps"] / one["seconds"],
                one["cpu_s"] / one["seconds"] / self._cores,
                one["memory_mib"] / _memory_mib(),
            )
            for one in answers
        ]

    def _worker(self, name: str, copy: int) -> subprocess.Popen[str]:
        if (name, copy) not in self._workers:
            worker = self._stack.enter_context(_worker(name, self._cores))
            _answer(worker)
            self._workers[name, copy] = worker
        return self._workers[name, copy]


@contextmanager
def _worker(name: str, cores: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", WORKER, name, str(cores)]
    worker = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def _answer(worker: subprocess.Popen[str]) -> str:
    line = _pipe(worker.stdout).readline()
    if not line:
        said = _pipe(worker.stderr).read().strip().splitlines() or ["nothing"]
        raise InvalidInput(f"A workload ended before it was measured; it said: {said[-1]}")
    return line


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _memory_mib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
