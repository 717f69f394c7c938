"""Runs a handler on slices of one size after another, and tells how fast it is on each.

A slice is emulated, by a control group that has its part of the cores (or by pauses, where no
such group can be made), or one of an NVIDIA GPU, which is cut up for it and made as it was
afterwards.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.device.emulated_mig import EmulatedSettings
from interlane.device.nvidia_gpus import NvidiaGpus
from interlane.device.repartition import repartition
from interlane.engines.local.attempt_group import AttemptGroup
from interlane.engines.local.groups import CoreSlice, GroupLimits, groups_here
from interlane.mig.interpolation import compute_share
from interlane.mig.layouts import SlicePlace
from interlane.mig.partition import GpuMode, gpu_named
from interlane.mig.profiles import MigProfile, gpu_model
from interlane.model import MILLI, InvalidInput

WORKER: Final = "interlane.engines.local.measure_worker"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class HandlerWork:
    """What is timed."""

    handler: str
    load: str | None
    path: str | None
    payload: Any
    in_batches: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """How fast a batch was, or why it was not."""

    batch: int
    calls: int = 0
    seconds: float = 0.0
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class OpenSlice:
    """A slice in which a process can be started."""

    environment: dict[str, str]
    group: AttemptGroup | None = None
    """What a process joins for what is measured."""
    pace: int = 0
    memory_bytes: int | None = None


@contextmanager
def emulated_slice(settings: EmulatedSettings, profile: MigProfile) -> Iterator[OpenSlice]:
    """Open a slice of an emulated GPU."""
    cores = len(os.sched_getaffinity(0))
    share = compute_share(gpu_model(settings.model), profile)
    milli = max(1, int(MILLI * cores / settings.count * share))
    memory_bytes = settings.memory_of(profile) << 20
    with (
        tempfile.TemporaryDirectory(prefix="interlane-measure-") as folder,
        ExitStack() as ends,
    ):
        groups = groups_here(Path(folder))
        environment = {**os.environ, VISIBLE: ""}
        if "cpu" not in groups.limits:
            pace = max(1, milli // cores)
            yield OpenSlice(environment, None, pace, memory_bytes)
            return
        group = groups.make("measured", GroupLimits(slice=CoreSlice(profile.name, milli)))
        ends.callback(groups.tidy, -1.0)
        ends.callback(group.end)
        environment |= group.variables
        yield OpenSlice(environment, group, 0, memory_bytes)


@contextmanager
def nvidia_slice(name: str, profile: MigProfile) -> Iterator[OpenSlice]:
    """Cut a GPU of this host so that it has a slice of a size; afterwards it is as it was."""
    gpus = NvidiaGpus()
    before = gpu_named(gpus.look(), name)
    place = SlicePlace(profile.starts[0], profile.name)
    was = None if before.mode is GpuMode.WHOLE else before.layout
    cut = repartition(gpus, before.id, (place,))
    try:
        found = cut.slice_at(place)
        assert found is not None
        yield OpenSlice({**os.environ, VISIBLE: found.uuid})
    finally:
        repartition(gpus, before.id, was)


def model_of_gpu(name: str) -> str:
    """Return what the catalogue calls a GPU of this host."""
    found = gpu_named(NvidiaGpus().look(), name)
    if not found.model:
        raise InvalidInput(f"{found.id} is a {found.name}, of which no MIG profiles are known.")
    return found.model


def timed(work: HandlerWork, batches: Sequence[int], within: OpenSlice) -> Iterator[TimedBatch]:
    """Time a handler in a slice; yields each batch as soon as it is known."""
    process = subprocess.Popen(
        [sys.executable, "-m", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=within.environment,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(_told(work, batches, within) + "\n")
        process.stdin.close()
        left = list(batches)
        for line in process.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("batch") in left:
                left.remove(said["batch"])
                yield TimedBatch(**said)
            elif "failed" in said:
                yield from (TimedBatch(batch, failed=said["failed"]) for batch in left)
                return
        code = process.wait()
        yield from (TimedBatch(batch, failed=f"it ended with {code}") for batch in left)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _told(work: HandlerWork, batches: Sequence[int], within: OpenSlice) -> str:
    return json.dumps(
        {
            "handler": work.handler,
            "load": work.load,
            "path": work.path,
            "payload": work.payload,
            "in_batches": work.in_batches,
            "seconds": work.seconds,
            "batches": list(batches),
            "group": None if within.group is None else within.group.document,
            "pace": within.pace,
            "memory_bytes": within.memory_bytes,
        }
    )
