"""From a job that holds a place to what must be started there."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from interlane.device.lane_request import LaneRequest
from interlane.engines.local.claims import claim_of, folder_name
from interlane.engines.local.devices import Devices
from interlane.engines.local.lanes import PATIENCE_S, Lanes
from interlane.engines.local.ranks import ranks_of
from interlane.engines.local.runner import JobProcess, ShimOrder
from interlane.live.files import job as spec
from interlane.live.files.fields import VARIABLE
from interlane.live.port import Attempt, Launch
from interlane.model import InvalidInput

SHELL: Final = "/bin/sh"
KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the server that jobs get too; no others, because some hold tokens."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that only jobs see: one file each, in a folder that only its owner reads."""

    folder: Path

    def missing(self, names: list[str]) -> list[str]:
        """Return the names that have no value."""
        return [name for name in names if not self._file(name).is_file()]

    def values(self, names: list[str]) -> dict[str, str]:
        """Return values by name; the line end that editors add does not count."""
        return {name: self._file(name).read_text().removesuffix("\n") for name in names}

    def check(self, names: list[str]) -> None:
        """Refuse names that have no value."""
        missing = self.missing(names)
        if missing:
            raise InvalidInput(
                f"secrets names {missing[0]!r}, which has no value; put it into the file "
                f"{self._file(missing[0])}."
            )

    def _file(self, name: str) -> Path:
        if not re.fullmatch(VARIABLE, name):
            raise InvalidInput(f"{name!r} is not a name of a secret.")
        return self.folder / name


def order_of(
    launch: Launch, secrets: Secrets, hardware: Devices, lanes: Lanes | None
) -> ShimOrder:
    """Return what a shim must do to run an attempt."""
    job, attempt = launch.job, launch.attempt
    stop = spec.stop_of(job)
    hidden = secrets.values(job.secrets)
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= dict(job.env) | hidden
    shared = {
        "INTERLANE_JOB_ID": attempt.job_id,
        "INTERLANE_JOB_UID": attempt.uid,
        "INTERLANE_ATTEMPT": str(attempt.number),
    }
    ranks = ranks_of(job, launch.placement, hardware)
    # A job may have its own idea of how its processes find each other, not of where they are.
    envs = [
        {**rank.torch, **env, **job.roles[rank.task].env, **shared, **rank.own}
        for rank in ranks
    ]
    if lanes is not None and spec.takes_lane(job):
        (number,) = ranks[0].devices
        request = _request(launch, number, hardware.shared[number].context_bytes)
        envs = [lanes.environment(each, request) for each in envs]
    processes = tuple(
        JobProcess(
            (SHELL, "-c", job.command(job.roles[rank.task])),
            each,
            spec.memory_bytes_max(job, rank.task),
        )
        for rank, each in zip(ranks, envs, strict=True)
    )
    return ShimOrder(
        attempt,
        processes,
        stop.signal,
        stop.grace_s,
        None if job.workdir is None else Path(job.workdir),
        spec.limit_s(job),
        claim_of(launch, time.time()),
    )


def run_number(attempt: Attempt) -> int:
    """Return the number by which the device daemon knows an attempt; never 0."""
    return crc32(f"{folder_name(attempt)}/{attempt.number}".encode()) or 1


def _request(launch: Launch, number: int, context_bytes: int) -> LaneRequest:
    """Return what a job asks of the device daemon; the memory that it holds has its context."""
    memory = spec.gpu_memory(launch.job)
    return LaneRequest(
        launch.attempt.job_id,
        number,
        launch.job.priority,
        launch.estimate_s,
        None if memory is None else max(1 << 20, (memory.stays_mib << 20) - context_bytes),
        None if memory is None else memory.passes_mib << 20,
        is_declared=memory is not None,
        run=run_number(launch.attempt),
        share=launch.request.tasks[0].demand.gpu_milli,
        patience_s=PATIENCE_S,
    )
