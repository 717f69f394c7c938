"""What users write about a job, and the kernel's job that it means.

The models say which fields there are, and thereby what the API documents; amounts are read
by ``amounts``.  Whatever breaks a rule raises ``InvalidInput`` with one sentence.
"""

import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import ceil
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from interlane.live.files.fields import Amount, Line, Strict, Text, Variable, Word, sentence
from interlane.model import (
    MILLI,
    Cluster,
    Demand,
    InvalidField,
    InvalidInput,
    Request,
    Task,
    amounts,
)

SECRETS_MAX: Final = 64
STOP_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
GRACE_S: Final = 30.0
"""Seconds between asking a job to stop and making it, unless it says otherwise."""

GRACE_S_MAX: Final = 3_600.0
DEFAULT_PRIORITY: Final = 50


class Mode(StrEnum):
    """How a job shares its GPUs."""

    AUTO = "auto"
    EXCLUSIVE = "exclusive"
    SPATIAL = "spatial"
    LANES = "lanes"


class Gpu(Strict):
    """GPUs of each instance; ``memory`` and ``compute`` are asked of each GPU."""

    count: int = Field(default=1, ge=0, le=62)
    type: list[Annotated[str, Field(max_length=64)]] | str = Field(default_factory=list)
    memory: str | None = Field(
        default=None, description="12GB, or request..limit as in 12GB..20GB."
    )
    compute: Amount | None = Field(
        default=None, description="Thousandths of a GPU, as in 300m."
    )


class Resources(Strict):
    """What each instance of a job needs."""

    gpu: Gpu | None = None
    cpu: Amount = 0
    memory: str | None = None


class Share(Strict):
    """How a job may share GPUs with others."""

    mode: Mode = Mode.AUTO
    max_slowdown: float | None = Field(default=None, ge=1.0, le=100.0)


class Gang(Strict):
    """How many instances start together, and how few will do."""

    nodes: int = Field(default=1, ge=1, le=1_000)
    min: int | None = Field(default=None, ge=1, le=1_000)


class Times(Strict):
    """How long a job is expected to run, and how long it may."""

    expected: Amount | None = None
    limit: Amount | None = None


class Checkpoint(Strict):
    """How a job is asked to stop, and what it loses by it."""

    interval: Amount | None = None
    signal: str = "SIGTERM"
    grace: Amount = GRACE_S


class JobSpec(Strict):
    """A job as users write it."""

    kind: Annotated[str, Field(pattern="^job$")] = "job"
    name: Word
    queue: Word = "default"
    priority: int = Field(default=DEFAULT_PRIORITY, ge=0, le=100)
    resources: Resources = Resources()
    share: Share = Share()
    gang: Gang = Gang()
    time: Times = Times()
    checkpoint: Checkpoint | None = None
    run: Line
    workdir: Line | None = Field(
        default=None, description="Absolute path; a folder of its own if not given."
    )
    env: dict[Variable, Text] = Field(default_factory=dict, max_length=1_000)
    secrets: list[Variable] = Field(
        default_factory=list,
        max_length=SECRETS_MAX,
        description="Variables whose values lie in the server's folder of secrets.",
    )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The job as it is stored and shown: what is not as if nothing had been said."""
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What a job may have of each GPU's memory."""

    stays_mib: int
    """Its own from start to end."""
    passes_mib: int
    """On top of it inside an iteration: a part of its lane, which others use in their turn."""


@dataclass(frozen=True, slots=True)
class Stop:
    """How to stop a job."""

    signal: int
    grace_s: float


def read_spec(said: object) -> JobSpec:
    """Return the job that a document describes, or say what is wrong with it."""
    try:
        spec = JobSpec.model_validate(said)
    except ValidationError as error:
        raise InvalidInput(sentence(error.errors(), JobSpec, "job")) from None
    check_spec(spec)
    return spec


def check_spec(spec: JobSpec) -> None:
    """Refuse amounts that cannot be read, so that what is stored can be read for ever."""
    demand_of(spec, gpu_memory_mib=1 << 40)
    expected_s(spec)
    limit_s(spec)
    stop_of(spec)
    checkpoint_s(spec)
    least = spec.gang.min
    if least is not None and least > spec.gang.nodes:
        raise InvalidField("gang.min", least, f"it must be 1 to gang.nodes, {spec.gang.nodes}")
    if spec.share.mode is Mode.LANES and not takes_lane(spec):
        rule = "only one process on one GPU can take turns; spatial or exclusive suits others"
        raise InvalidField("share.mode", spec.share.mode.value, rule)
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        raise InvalidField("workdir", spec.workdir, "it must be an absolute path")
    twice = set(spec.secrets) & set(spec.env)
    if twice:
        raise InvalidField("secrets", min(twice), "env gives it a value already")


def request_of(spec: JobSpec, cluster: Cluster, *, spans_machines: bool) -> Request:
    """Return what the kernel must find for a job on these machines.

    Where an engine has one machine only, or jobs cannot span several, all are on one.
    """
    card_mib = max((machine.gpu_memory_mib for machine in cluster), default=0)
    demand = demand_of(spec, card_mib)
    return Request(
        (Task(demand, spec.gang.nodes, spec.gang.min, same_machine=not spans_machines),)
    )


def demand_of(spec: JobSpec, gpu_memory_mib: int) -> Demand:
    """Return what one instance asks for; a GPU has so much memory."""
    resources = spec.resources
    gpu = resources.gpu or Gpu(count=0)
    types = [gpu.type] if isinstance(gpu.type, str) else gpu.type
    memory = _range_mib("resources.gpu.memory", gpu.memory)
    ram = _range_mib("resources.memory", resources.memory)
    return Demand(
        gpus=gpu.count,
        gpu_milli=_gpu_milli(spec, gpu, memory, gpu_memory_mib),
        gpu_memory_mib=memory if gpu.count else 0,
        cpu_milli=amounts.milli("resources.cpu", resources.cpu),
        memory_mib=ram,
        gpu_types=frozenset(types),
    )


def _gpu_milli(spec: JobSpec, gpu: Gpu, memory_mib: int, card_mib: int) -> int:
    """Return the share of each GPU: as asked, else in proportion to the memory asked for.

    Turns go by share, so that a job is slowed down by the sum of shares over its own at most;
    one with a bound therefore holds a share that keeps it whoever else comes.  Where nothing
    takes turns there is no such bound, and the job gets whole GPUs.
    """
    bound = spec.share.max_slowdown
    if spec.share.mode is Mode.EXCLUSIVE or (bound is not None and not takes_lane(spec)):
        return MILLI
    least = 1 if bound is None else ceil(MILLI / bound)
    if gpu.compute is not None:
        low, high = amounts.ends(str(gpu.compute))
        asked = amounts.milli("resources.gpu.compute", low)
        limit = asked if high is None else amounts.milli("resources.gpu.compute", high)
        if not 0 < asked <= limit <= MILLI:
            raise InvalidField(
                "resources.gpu.compute", gpu.compute, f"it must be 1m to {MILLI}m of each GPU"
            )
        return max(least, asked)
    if not memory_mib or not card_mib:
        return MILLI
    return min(MILLI, max(least, ceil(memory_mib * MILLI / card_mib)))


def gpu_memory(spec: JobSpec) -> GpuMemory | None:
    """Return the memory of a GPU that a job is held to; None if it asked for none."""
    gpu = spec.resources.gpu
    if gpu is None or gpu.memory is None:
        return None
    field = "resources.gpu.memory"
    low, high = amounts.ends(gpu.memory)
    stays_mib = amounts.memory_mib(field, low)
    return GpuMemory(
        stays_mib, 0 if high is None else amounts.memory_mib(field, high) - stays_mib
    )


def takes_lane(spec: JobSpec) -> bool:
    """Tell whether a job takes turns: it may, and is one process on one GPU."""
    gpu = spec.resources.gpu
    may = spec.share.mode is not Mode.SPATIAL and spec.gang.nodes == 1
    return may and gpu is not None and gpu.count == 1


def _range_mib(field: str, text: str | None) -> int:
    if text is None:
        return 0
    low, high = amounts.ends(text)
    asked = amounts.memory_mib(field, low)
    if high is not None and amounts.memory_mib(field, high) < asked:
        raise InvalidField(field, text, "the limit must not be below the request")
    return asked


def expected_s(spec: JobSpec) -> float | None:
    """Return how long its user expects a job to run."""
    return _span("time.expected", spec.time.expected)


def limit_s(spec: JobSpec) -> float | None:
    """Return how long a job may run."""
    return _span("time.limit", spec.time.limit)


def checkpoint_s(spec: JobSpec) -> float | None:
    """Return the seconds between checkpoints; None for a job that makes none."""
    if spec.checkpoint is None:
        return None
    return _span("checkpoint.interval", spec.checkpoint.interval) or 0.0


def stop_of(spec: JobSpec) -> Stop:
    """Return how to stop a job."""
    asked = spec.checkpoint or Checkpoint()
    if asked.signal not in STOP_SIGNALS:
        rule = f"it must be one of {', '.join(STOP_SIGNALS)}"
        raise InvalidField("checkpoint.signal", asked.signal, rule)
    grace_s = amounts.seconds("checkpoint.grace", asked.grace)
    if grace_s > GRACE_S_MAX:
        raise InvalidField("checkpoint.grace", asked.grace, f"at most {GRACE_S_MAX:g} s")
    return Stop(signal.Signals[asked.signal].value, grace_s)


def program_of(spec: JobSpec) -> str:
    """Return what recurs: the name without the number that people put at its end."""
    return re.sub(r"[._-]?\d+$", "", spec.name) or spec.name


def _span(field: str, text: str | int | float | None) -> float | None:
    if text is None:
        return None
    span_s = amounts.seconds(field, text)
    if span_s <= 0:
        raise InvalidField(field, text, "it must be more than nothing")
    return span_s
