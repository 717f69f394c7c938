"""From a job that holds a place to what must be started there."""

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote
from zlib import crc32

from interlane.device.inventory import Devices
from interlane.device.lane_request import LaneRequest
from interlane.device.lanes import PATIENCE_S, Lanes
from interlane.engines.local.accounts import Account
from interlane.engines.local.claims import claim_of, folder_name
from interlane.engines.local.groups import CoreSlice, GroupLimits
from interlane.engines.local.ranks import ranks_of
from interlane.engines.local.runner import JobProcess, ShimOrder
from interlane.live.files import job as spec
from interlane.live.files.fields import VARIABLE
from interlane.live.port import Attempt, Launch
from interlane.live.ranks import Rank
from interlane.model import InvalidField, InvalidInput

SHELL: Final = "/bin/sh"
KEPT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH")
"""Variables of the server that jobs get too; no others, because some hold tokens."""


SHARED: Final = "shared"
OWNED: Final = "of"
ADMIN: Final = "admin"
"""Whose the secrets are that lie in no folder of anybody's."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that only jobs see: one file each, in a folder that only the server reads.

    ``of/USER/NAME`` is for the jobs of one user, ``shared/NAME`` for everybody's, and ``NAME``
    for those of ``admin``.
    """

    folder: Path

    def values(self, names: list[str], user: str) -> dict[str, str]:
        """Return a user's values by name; the line end that editors add does not count."""
        self.check(names, user)
        found = {name: self._found(name, user) for name in names}
        return {
            name: file.read_text().removesuffix("\n")
            for name, file in found.items()
            if file is not None
        }

    def check(self, names: list[str], user: str) -> None:
        """Refuse names that have no value for a user."""
        for name in names:
            if self._found(name, user) is None:
                raise InvalidInput(
                    f"secrets names {name!r}, which has no value for {user!r}; put it into the "
                    f"file {self._files(name, user)[0]}, or for everybody into "
                    f"{self.folder / SHARED / name}."
                )

    def _found(self, name: str, user: str) -> Path | None:
        return next((file for file in self._files(name, user) if file.is_file()), None)

    def _files(self, name: str, user: str) -> list[Path]:
        """Return where a value may lie, the user's own first."""
        if not re.fullmatch(VARIABLE, name):
            raise InvalidInput(f"{name!r} is not a name of a secret.")
        folder = quote(user, safe="").replace(".", "%2E")
        files = [self.folder / OWNED / folder / name, self.folder / SHARED / name]
        return [*files, self.folder / name] if user == ADMIN else files


@dataclass(frozen=True, slots=True)
class JobBounds:
    """What a job may have of a machine, whatever it asks for."""

    processes: int = 4096
    """Processes and threads of an attempt, all together."""
    instances: int = 256
    """Processes that start together, as a gang."""

    def check(self, job: spec.JobSpec) -> None:
        """Refuse jobs that want more."""
        instances = sum(task.count for task in job.roles)
        if instances > self.instances:
            raise InvalidField(
                "tasks" if job.tasks else "gang.nodes",
                instances,
                f"at most {self.instances} processes of a job start together here; ask for "
                "fewer, or an operator to raise --instances-per-job",
            )


def bounds_of(processes: int | None, instances: int | None) -> JobBounds:
    """Return bounds as an operator wants them; None for what is usual."""
    usual = JobBounds()
    return JobBounds(processes or usual.processes, instances or usual.instances)


def check_workdir(job: spec.JobSpec) -> None:
    """Refuse a job that would begin in a folder that is not there."""
    if job.workdir is None:
        return
    try:
        is_folder = stat.S_ISDIR(Path(job.workdir).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_folder = False
    except OSError:  # it may be there, and the job may see it
        return
    if not is_folder:
        rule = "the server's machine has no such folder; make it, or write 'workdir: null' for "
        raise InvalidField("workdir", job.workdir, f"{rule}one of the job's own")


def order_of(
    launch: Launch,
    secrets: Secrets,
    hardware: Devices,
    lanes: Lanes | None,
    bounds: JobBounds,
    account: Account | None = None,
    *,
    paced: bool = False,
) -> ShimOrder:
    """Return what a shim must do to run an attempt.

    ``paced``: whether jobs on emulated slices must be slowed down by their leases, because
    nothing else can hold them to their part of the cores.
    """
    job, attempt = launch.job, launch.attempt
    stop = spec.stop_of(job)
    hidden = secrets.values(job.secrets, launch.origin.user)
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    if account is not None:
        env = _as_account(env, account)
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
        pace = _pace(hardware, number) if paced else 0
        request = _request(launch, number, hardware.shared[number].context_bytes, pace)
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
        GroupLimits(
            _memory_bytes(job, ranks, hardware),
            bounds.processes,
            spec.job_cpu_milli(job),
            _slice(ranks, hardware),
        ),
        account,
        claim_of(launch, time.time()),
    )


def _memory_bytes(job: spec.JobSpec, ranks: Sequence[Rank], hardware: Devices) -> int | None:
    """Return what a job may have; the memory of emulated devices is the machine's, too."""
    asked = spec.job_memory_bytes(job)
    if asked is None or not hardware.emulated:
        return asked
    on_devices = (
        hardware.shared[number].capacity_bytes
        if (most := spec.gpu_memory_bytes_max(job, rank.task)) is None
        else most
        for rank in ranks
        for number in rank.devices
    )
    return asked + sum(on_devices)


def _slice(ranks: Sequence[Rank], hardware: Devices) -> CoreSlice | None:
    """Return the cores of the emulated GPUs, or slices of such, that a job is on."""
    numbers = sorted({number for rank in ranks for number in rank.devices})
    if not numbers or not hardware.cpu_milli:
        return None
    name = "+".join(hardware.uuids[number] for number in numbers)
    return CoreSlice(name, sum(hardware.cpu_milli[number] for number in numbers))


def _pace(hardware: Devices, number: int) -> int:
    """Return the part of the time in which a job may keep an emulated device busy."""
    if not hardware.cpu_milli:
        return 0
    return max(1, hardware.cpu_milli[number] // len(os.sched_getaffinity(0)))


def _as_account(env: dict[str, str], account: Account) -> dict[str, str]:
    """Return an environment in which an account is at home, as far as it has one."""
    names = {"USER": account.name, "LOGNAME": account.name}
    home = {} if account.home is None else {"HOME": account.home}
    return {name: env[name] for name in env if name != "HOME"} | names | home


def run_number(attempt: Attempt) -> int:
    """Return the number by which the device daemon knows an attempt; never 0."""
    return crc32(f"{folder_name(attempt)}/{attempt.number}".encode()) or 1


def _request(launch: Launch, number: int, context_bytes: int, pace: int) -> LaneRequest:
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
        pace=pace,
        patience_s=PATIENCE_S,
    )
