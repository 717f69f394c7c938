"""The co-runs of this machine, kept as ``interlane predict degradation train`` reads them."""

import logging
from collections import deque
from math import log as ln
from pathlib import Path
from typing import Final

import numpy as np

from interlane.model import InvalidInput
from interlane.server.monitor import CoRun, Solo
from interlane.server.spec import program_in
from interlane.traces.colocation import own
from interlane.traces.colocation.coruns import Corun, CoRuns, Way

COUNTERS: Final = ("host_cpu", "memory", "log_speed")
KEPT: Final = 5_000
"""Co-runs of either way to share, the newest of them."""

WAYS: Final = {True: Way("side-by-side", "training"), False: Way("lanes", "training")}
RETAINED_MOST: Final = 3.0
S_PER_H: Final = 3_600.0

log = logging.getLogger("interlane.server")


class CoRunFiles:
    """``profiles.csv`` and ``coruns.csv`` in a folder, written anew with every co-run."""

    def __init__(self, folder: Path, gpu_type: str) -> None:
        self._folder = folder
        self._gpu_type = gpu_type
        self._profiles: dict[str, tuple[float, ...]] = {}
        """By program."""
        self._coruns: dict[Way, deque[Corun]] = {
            way: deque(maxlen=KEPT) for way in WAYS.values()
        }
        if (folder / own.CORUNS).exists():
            self._read()

    def add(self, found: CoRun) -> None:
        """Keep a co-run; a disk that is full costs the file, never a job."""
        victim, aggressor = program_in(found.pair.victim), program_in(found.pair.aggressor)
        for job_id in (found.pair.victim, found.pair.aggressor):
            self._learn(program_in(job_id), found.solos.get(job_id))
        retained = min(RETAINED_MOST, 1.0 / found.slowdown)
        run = Corun(self._gpu_type, victim, aggressor, retained)
        self._coruns[WAYS[found.pair.beside]].append(run)
        try:
            self._write()
        except (InvalidInput, OSError) as error:
            log.warning("The co-runs of this machine cannot be kept: %s", error)

    def _learn(self, program: str, solo: Solo | None) -> None:
        unknown = (np.nan,) * len(COUNTERS)
        if solo is None:
            self._profiles.setdefault(program, unknown)
        else:
            speed = ln(max(solo.iterations_per_s * S_PER_H, 1.0))
            self._profiles[program] = (solo.busy, solo.memory, speed)

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
                self._coruns[way].extend(runs)

    def _write(self) -> None:
        """Write beside, then replace: profiles first, which know at least as many programs."""
        beside = self._folder / "new"
        programs = tuple(self._profiles)
        kept = {way: tuple(runs) for way, runs in self._coruns.items() if runs}
        values = np.array([[self._profiles[one] for one in programs]])
        own.write(
            CoRuns("live", programs, programs, (self._gpu_type,), COUNTERS, values, kept),
            beside,
        )
        for name in (own.PROFILES, own.CORUNS):
            (beside / name).replace(self._folder / name)
