"""The co-runs of this machine, kept as ``interlane predict slowdown train`` reads them."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log as ln
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from interlane.model import InvalidInput, Workload, WorkloadKind
from interlane.predict.slowdown.pairs import THROUGHPUT_LEAST, THROUGHPUT_MOST
from interlane.traces.colocation import own
from interlane.traces.colocation.coruns import Corun, CoRuns, Way

COUNTERS: Final = ("host_cpu", "memory", "log_speed")
KEPT: Final = 5_000
"""Co-runs of every way to share, the newest of them."""

LANES: Final = Way("lanes", "training")
BESIDE: Final = Way("side-by-side", "training")
LATENCY: Final = Way("side-by-side", "latency")
P99: Final = Way("side-by-side", "p99")
S_PER_H: Final = 3_600.0

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class SoloSpeed:
    """What somebody does alone; what is not known is NaN."""

    busy: float
    """Share of the time inside iterations, the time that a job waits for its turn left out."""
    memory: float
    """Share of the device's memory at the peak."""
    per_s: float
    """Iterations, or calls."""


def job_workload(program: str) -> Workload:
    """Return the workload of jobs that run a program."""
    return Workload(WorkloadKind.JOB, program)


def function_workload(name: str) -> Workload:
    """Return the workload of a function's replicas."""
    return Workload(WorkloadKind.FUNCTION, name)


class CoRun(NamedTuple):
    """What one of two that shared a device suffered from the other."""

    way: Way
    victim: Workload
    aggressor: Workload
    slowdown: float


Tell = Callable[[Sequence[CoRun], Mapping[Workload, SoloSpeed]], None]
"""Told of co-runs, and of what workloads do alone as far as is known."""


class CoRunFiles:
    """``profiles.csv`` and ``coruns.csv`` in a folder, written anew with what comes in."""

    def __init__(self, folder: Path, gpu_type: str, kept: int = KEPT) -> None:
        self._folder = folder
        self._gpu_type = gpu_type
        self._profiles: dict[str, tuple[float, ...]] = {}
        """By workload."""
        self._coruns: dict[Way, deque[Corun]] = {
            way: deque(maxlen=kept) for way in (LANES, BESIDE, LATENCY, P99)
        }
        self._writing = Lock()
        """Jobs and functions are told of by different threads."""
        if (folder / own.CORUNS).exists():
            self._read()

    def add(self, found: Sequence[CoRun], solos: Mapping[Workload, SoloSpeed]) -> None:
        """Keep co-runs; a disk that is full costs the file, never a job."""
        with self._writing:
            for one in found:
                for workload in (one.victim, one.aggressor):
                    self._learn(str(workload), solos.get(workload))
                throughput = min(THROUGHPUT_MOST, max(THROUGHPUT_LEAST, 1.0 / one.slowdown))
                run = Corun(self._gpu_type, str(one.victim), str(one.aggressor), throughput)
                self._coruns[one.way].append(run)
            try:
                self._write()
            except (InvalidInput, OSError) as error:
                log.warning("The co-runs of this machine cannot be kept: %s", error)

    def _learn(self, name: str, solo: SoloSpeed | None) -> None:
        unknown = (np.nan,) * len(COUNTERS)
        if solo is None:
            self._profiles.setdefault(name, unknown)
        else:
            speed = ln(max(solo.per_s * S_PER_H, 1.0))
            self._profiles[name] = (solo.busy, solo.memory, speed)

    def _read(self) -> None:
        try:
            found = own.read(self._folder)
        except InvalidInput as error:
            log.warning("The co-runs so far cannot be read and are begun anew: %s", error)
            return
        if found.counters != COUNTERS or found.gpu_types != (self._gpu_type,):
            log.warning("The co-runs so far are of other devices and are begun anew.")
            return
        rows = map(tuple, found.values[0].tolist())
        self._profiles = dict(zip(found.workloads, rows, strict=True))
        for way, runs in found.coruns.items():
            if way in self._coruns:
                self._coruns[way].extend(reversed(runs))

    def _write(self) -> None:
        """Write beside, then replace: profiles first, which know at least as many workloads.

        The newest co-runs come first: of several of a pair, learning takes the first.
        """
        beside = self._folder / "new"
        names = tuple(self._profiles)
        kept = {way: tuple(reversed(runs)) for way, runs in self._coruns.items() if runs}
        values = np.array([[self._profiles[one] for one in names]])
        own.write(
            CoRuns("live", names, names, (self._gpu_type,), COUNTERS, values, kept),
            beside,
        )
        for name in (own.PROFILES, own.CORUNS):
            (beside / name).replace(self._folder / name)
