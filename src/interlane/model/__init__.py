"""Nouns and nothing else: jobs, machines, placements, facts and wishes."""

from interlane.model.actions import Action, Grow, Preempt, Refuse, Start, Wake
from interlane.model.cluster import Cluster
from interlane.model.errors import (
    CapacityViolated,
    IllegalTransition,
    InterlaneError,
    InvalidField,
    InvalidFile,
    InvalidInput,
    Rejected,
    UnknownName,
    Unreachable,
)
from interlane.model.events import (
    Cancelled,
    Event,
    Finished,
    GrowFailed,
    Grown,
    MachineLost,
    MachineReturned,
    Preempted,
    Recovered,
    Started,
    StartFailed,
    Submitted,
    Ticked,
)
from interlane.model.ids import JobId, MachineId
from interlane.model.machine import Machine
from interlane.model.placement import Placement, Refusal, Spot, Tier, gang_ratio, held_gpu_milli
from interlane.model.units import MILLI
from interlane.model.work import Demand, Job, Request, Task, one_task

__all__ = [
    "MILLI",
    "Action",
    "Cancelled",
    "CapacityViolated",
    "Cluster",
    "Demand",
    "Event",
    "Finished",
    "Grow",
    "GrowFailed",
    "Grown",
    "IllegalTransition",
    "InterlaneError",
    "InvalidField",
    "InvalidFile",
    "InvalidInput",
    "Job",
    "JobId",
    "Machine",
    "MachineId",
    "MachineLost",
    "MachineReturned",
    "Placement",
    "Preempt",
    "Preempted",
    "Recovered",
    "Refusal",
    "Refuse",
    "Rejected",
    "Request",
    "Spot",
    "Start",
    "StartFailed",
    "Started",
    "Submitted",
    "Task",
    "Ticked",
    "Tier",
    "UnknownName",
    "Unreachable",
    "Wake",
    "gang_ratio",
    "held_gpu_milli",
    "one_task",
]
