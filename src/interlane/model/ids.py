"""Names of things, kept apart by type so that one cannot pass for another."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

JobId = NewType("JobId", str)
MachineId = NewType("MachineId", str)


@dataclass(frozen=True, slots=True, order=True)
class GpuRef:
    """One GPU of a cluster."""

    machine: MachineId
    index: int

    def __str__(self) -> str:
        return f"{self.machine}:{self.index}"


class WorkloadKind(StrEnum):
    """What kind of work somebody on a GPU does."""

    JOB = "job"
    FUNCTION = "function"
    SEVERAL = "several"
    """Jobs of which nobody knows what each of them does to others."""


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """What recurs on GPUs, and what slowdown is known of: a job's program, or a function."""

    kind: WorkloadKind
    name: str

    def __str__(self) -> str:
        """Return what tables and files call it: no job's program has a colon in its name."""
        return self.name if self.kind is WorkloadKind.JOB else f"{self.kind}:{self.name}"
