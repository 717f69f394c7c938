"""What users write about a job, and the kernel's job that it means.

The models say which fields there are, and thereby what the API documents; amounts are read
by ``amounts``.  Whatever breaks a rule raises ``InvalidInput`` with one sentence.
"""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from math import ceil
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError

from interlane.live.files.fields import (
    Amount,
    LabelKey,
    LabelValue,
    Line,
    MemoryText,
    Role,
    Short,
    Strict,
    Variable,
    VariableText,
    Word,
    sentence,
)
from interlane.live.files.notify import Notify
from interlane.live.files.waiting import (
    AFTER_MAX,
    After,
    EnvironmentFields,
    RetryFields,
    array_of,
    check_retry,
    start_s,
)
from interlane.model import (
    ANYWHERE,
    MILLI,
    Closeness,
    Cluster,
    Demand,
    InvalidField,
    InvalidInput,
    Job,
    JobId,
    Request,
    Task,
    amounts,
)
from interlane.model.cluster import MACHINE_LEVEL
from interlane.model.machine import Label

SECRETS_MAX: Final = 64
PORTS_MAX: Final = 16
TERMINAL_AWAY_S: Final = 60.0
"""Seconds for which a job waits for somebody at its terminal: servers come back by then."""

HANG_UP: Final = "SIGHUP"
"""What ends a shell, which pays no heed to a polite SIGTERM."""

STOP_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
GRACE_S: Final = 30.0
"""Seconds between asking a job to stop and making it, unless it says otherwise."""

GRACE_S_MAX: Final = 3_600.0
DEFAULT_PRIORITY: Final = 50
RETRIES: Final = 3
RETRIES_MAX: Final = 100
WORKER: Final = "worker"
"""The role of the only task of a job that names none."""

INSTANCES_MAX: Final = 1_000
TASKS_MAX: Final = 32
LABELS_MAX: Final = 64
ANY_VALUE: Final = "*"
"""Tolerates a taint whatever its value is."""

TRIALS_MAX: Final = 1_000_000
RUNGS_MAX: Final = 100
SCRIPT_MAX: Final = 64
ARRAY_MIB_MAX: Final = 16
ARRAY_BYTES_MAX: Final = ARRAY_MIB_MAX << 20
TAG_LENGTH: Final = 12
"""Digits that tell groups of one script apart."""

_SCRIPT: Final = re.compile(r"[\w.+-]+\.(?:py|sh|bash|ipynb|jl|R|pl|lua|js)(?![\w.])")
_WORD: Final = re.compile(r"[\w.+-]+(?=\s|$)")


class ShareMode(StrEnum):
    """How a job shares its GPUs."""

    AUTO = "auto"
    EXCLUSIVE = "exclusive"
    SPATIAL = "spatial"
    LANES = "lanes"


class GpuFields(Strict):
    """GPUs of each instance; ``memory`` and ``compute`` are asked of each GPU."""

    count: int = Field(default=1, ge=0, le=62)
    type: list[Annotated[str, Field(max_length=64)]] | str = Field(default_factory=list)
    memory: MemoryText | None = Field(
        default=None, description="12GB, or request..limit as in 12GB..20GB."
    )
    compute: Amount | None = Field(
        default=None, description="Thousandths of a GPU, as in 300m."
    )


def _gpus_in_short(said: object) -> object:
    """Return the fields that a bare number means: so many GPUs, or a share of one."""
    fields = {"count": said} if _is_number(said) else said
    if not isinstance(fields, dict) or not isinstance(fields.get("count"), float):
        return fields
    count = fields["count"]
    if 0.0 < count < 1.0:
        if fields.get("compute") is not None:
            raise ValueError("compute gives a share, too; leave one of them out")
        return {**fields, "count": 1, "compute": f"{ceil(round(count * MILLI, 6))}m"}
    if not count.is_integer():
        raise ValueError(f"GPUs are whole, or a share of one; write {int(count) or 1}")
    return {**fields, "count": int(count)}


def _is_number(said: object) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool)


class Resources(Strict):
    """What each instance of a job needs."""

    gpu: Annotated[
        GpuFields | None,
        BeforeValidator(
            _gpus_in_short,
            json_schema_input_type=GpuFields | Annotated[float, Field(ge=0, le=62)] | None,
        ),
    ] = Field(default=None, description="In short: 2 for two GPUs, 0.5 for half of one.")
    cpu: Amount = 0
    memory: MemoryText | None = None


class Share(Strict):
    """How a job may share GPUs with others."""

    mode: ShareMode = ShareMode.AUTO
    max_slowdown: float | None = Field(default=None, ge=1.0, le=100.0)


class Gang(Strict):
    """How many instances start together, and how few will do."""

    nodes: int = Field(default=1, ge=1, le=INSTANCES_MAX)
    min: int | None = Field(default=None, ge=1, le=INSTANCES_MAX)


class TimeFields(Strict):
    """How long a job is expected to run, how long it may, and when it may start."""

    expected: Amount | None = None
    limit: Amount | None = None
    start: Amount | None = Field(
        default=None, description="Not before: 2h from now, or 2026-11-18T08:00+01:00."
    )


class Checkpoint(Strict):
    """How a job is asked to stop, and what it loses by it."""

    interval: Amount | None = None
    signal: str = "SIGTERM"
    grace: Amount = GRACE_S


class TerminalFields(Strict):
    """The terminal of a job."""

    rows: int = Field(default=24, ge=1, le=10_000)
    columns: int = Field(default=80, ge=1, le=10_000)
    keep: bool = Field(default=False, description="Run on when nobody is attached.")


class TaskSpec(Strict):
    """A role of a job: so many instances that need the same and run the same."""

    role: Role
    count: int = Field(default=1, ge=1, le=INSTANCES_MAX)
    min: int | None = Field(
        default=None,
        ge=1,
        le=INSTANCES_MAX,
        description="How few instances will do at the start; all, if not given.",
    )
    resources: Resources
    run: Line | None = Field(default=None, description="The job's, if not given.")
    env: dict[Variable, VariableText] = Field(
        default_factory=dict, max_length=1_000, description="On top of the job's."
    )


class SweepFields(Strict):
    """Which trial of which sweep a job is; ``interlane sweep`` writes it."""

    name: Word
    trial: int = Field(ge=0, le=TRIALS_MAX)
    rung: int = Field(ge=0, le=RUNGS_MAX)
    definition: dict[str, Any] = Field(description="What is swept, and what is best.")
    job: dict[str, Any] = Field(description="The job that all trials are made of.")


class TopologyFields(Strict):
    """How close the instances of a job want to be: each names a level, such as rack."""

    same: LabelKey | None = Field(
        default=None, description="All in one domain of this level, or the job waits."
    )
    pack: LabelKey | None = Field(default=None, description="In as few domains as can be had.")
    spread: LabelKey | None = Field(
        default=None, description="Over as many domains as can be had."
    )


class JobSpec(Strict):
    """A job as users write it."""

    kind: Literal["job"] = "job"
    name: Word
    group: Short | None = Field(
        default=None, description="What recurs; jobs of one command, if not given."
    )
    family: Short | None = Field(
        default=None, description="Family of the model, such as bert or ctr."
    )
    queue: Word = "default"
    priority: int = Field(default=DEFAULT_PRIORITY, ge=0, le=100)
    resources: Resources = Resources()
    share: Share = Share()
    gang: Gang = Gang()
    tasks: list[TaskSpec] = Field(
        default_factory=list,
        max_length=TASKS_MAX,
        description="Roles that start together, in place of resources and gang.",
    )
    selectors: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=LABELS_MAX,
        description="Labels that a machine must have, all of them.",
    )
    tolerations: dict[LabelKey, LabelValue | Literal["*"]] = Field(
        default_factory=dict,
        max_length=LABELS_MAX,
        description="Taints that a machine may have, of this value or any (*), and no others.",
    )
    topology: TopologyFields = TopologyFields()
    time: TimeFields = TimeFields()
    retries: int = Field(
        default=RETRIES,
        ge=0,
        le=RETRIES_MAX,
        description="How often it runs again after what runs jobs was killed under it.",
    )
    retry: RetryFields | None = None
    after: list[After] = Field(
        default_factory=list,
        max_length=AFTER_MAX,
        description="Jobs that must have succeeded, or ended, failed or started, first.",
    )
    hold: bool = Field(default=False, description="Wait until somebody releases it.")
    array: Annotated[str, Field(max_length=1_000)] | None = Field(
        default=None, description="As many jobs, 0-99, or 0-99%8 for 8 at a time."
    )
    checkpoint: Checkpoint | None = None
    terminal: TerminalFields | None = Field(
        default=None, description="It has a terminal at which one attaches; see run --pty."
    )
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default_factory=list,
        max_length=PORTS_MAX,
        description="Ports at which it listens, reached with port-forward.",
    )
    notify: Notify | None = Field(
        default=None, description="Who is told of its end, or more; an address or fields."
    )
    environment: EnvironmentFields | None = None
    run: Line | None = Field(
        default=None, description="A command line for /bin/sh, of tasks that have none."
    )
    image: Short | None = Field(
        default=None, description="Container image, where the engine runs containers."
    )
    workdir: Line | None = Field(
        default=None, description="Absolute path; a folder of its own if not given."
    )
    env: dict[Variable, VariableText] = Field(default_factory=dict, max_length=1_000)
    secrets: list[Variable] = Field(
        default_factory=list,
        max_length=SECRETS_MAX,
        description="Variables whose values lie in the server's folder of secrets.",
    )
    sweep: SweepFields | None = Field(
        default=None, description="Which trial of a sweep it is; `interlane sweep` writes it."
    )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The job as it is stored and shown: what is not as if nothing had been said."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def roles(self) -> tuple[TaskSpec, ...]:
        """Its tasks; where the file names none, the one that it means."""
        if self.tasks:
            return tuple(self.tasks)
        gang = self.gang
        task = TaskSpec(role=WORKER, count=gang.nodes, min=gang.min, resources=self.resources)
        return (task,)

    def command(self, task: TaskSpec) -> str:
        """Return the command line of a task, with what makes its environment ready."""
        command = self.written(task)
        return command if self.environment is None else self.environment.before(command)

    def written(self, task: TaskSpec) -> str:
        """Return the command line of a task as its user wrote it."""
        return task.run or self.run or ""

    @property
    def request(self) -> str:
        """What it asks for, in a few words: ``2 x 4 GPU A100 40GB``."""
        return " + ".join(_task_told(task) for task in self.roles)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What a job may have of each GPU's memory."""

    stays_mib: int
    """Its own from start to end."""
    passes_mib: int
    """On top of it inside an iteration: a part of its lane, which others use in their turn."""


@dataclass(frozen=True, slots=True)
class StopFields:
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
    """Refuse what cannot be understood, so that what is stored can be read for ever."""
    _check_tasks(spec)
    for at in range(len(spec.roles)):
        _demand(spec, at, [1 << 40], frozenset())
    _check_times(spec)
    _check_terminal(spec)
    _check_waiting(spec)
    stop_of(spec)
    checkpoint_s(spec)
    _closeness(spec.topology)
    if spec.share.mode is ShareMode.LANES and not takes_lane(spec):
        rule = "only one process on one GPU can take turns; spatial or exclusive suits others"
        raise InvalidField("share.mode", spec.share.mode.value, rule)
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        raise InvalidField("workdir", spec.workdir, "it must be an absolute path")
    if spec.image is not None and " " in spec.image:
        raise InvalidField("image", spec.image, "an image is named without spaces")
    for env in (spec.env, *(task.env for task in spec.tasks)):
        twice = set(spec.secrets) & set(env)
        if twice:
            raise InvalidField("secrets", min(twice), "env gives it a value already")


def _check_terminal(spec: JobSpec) -> None:
    """Refuse a terminal that several processes would have to share."""
    if spec.terminal is None:
        return
    if len(spec.roles) > 1 or spec.roles[0].count > 1:
        raise InvalidField("terminal", "given", "only a job of one process can have one")
    if spec.array is not None:
        raise InvalidField("array", spec.array, "jobs with a terminal come one by one")


def terminal_of(spec: JobSpec) -> dict[str, Any] | None:
    """Return what a shim must know of a job's terminal; None if it has none."""
    if spec.terminal is None:
        return None
    said = spec.terminal
    away_s = None if said.keep else TERMINAL_AWAY_S
    return {"rows": said.rows, "columns": said.columns, "away_s": away_s}


def _check_times(spec: JobSpec) -> None:
    expected, limit = expected_s(spec), limit_s(spec)
    if expected is not None and limit is not None and limit < expected:
        rule = f"time.limit would end it after {spec.time.limit}; raise the limit"
        raise InvalidField("time.expected", spec.time.expected, rule)


def _check_waiting(spec: JobSpec) -> None:
    not_before_s(spec, 0.0)
    if spec.array is not None:
        _check_array(spec, spec.array)
    if spec.retry is not None:
        check_retry(spec.retry)


def _check_array(spec: JobSpec, array: str) -> None:
    """Refuse an array whose jobs, each of which is stored, are too much together."""
    count = len(array_of(array).indices)
    size = count * len(spec.model_dump_json(exclude_defaults=True))
    if size > ARRAY_BYTES_MAX:
        rule = (
            f"its {count:,} jobs would take {amounts.written(size)}, and {ARRAY_MIB_MAX} MiB "
            "is the most; put long scripts and data into files"
        )
        raise InvalidField("array", array, rule)


def not_before_s(spec: JobSpec, submitted_s: float) -> float | None:
    """Return the moment before which a job that is submitted now does not start."""
    start = spec.time.start
    return None if start is None else start_s("time.start", start, submitted_s)


def _check_tasks(spec: JobSpec) -> None:
    """Refuse tasks that contradict each other or the rest of the job."""
    least = spec.gang.min
    if least is not None and least > spec.gang.nodes:
        raise InvalidField("gang.min", least, f"it must be 1 to gang.nodes, {spec.gang.nodes}")
    if not spec.tasks:
        if spec.run is None:
            raise InvalidInput("run is missing; a job needs it, or tasks that each have it.")
        return
    for field, plain in (("resources", Resources()), ("gang", Gang())):
        if getattr(spec, field) != plain:
            said = spec.document[field]
            raise InvalidField(field, said, "tasks is there too; each task says its own")
    seen: set[str] = set()
    for at, task in enumerate(spec.tasks):
        _check_task(spec, at, task)
        if task.role in seen:
            rule = "another task has this role; give one of them another, or raise count"
            raise InvalidField(f"tasks.{at}.role", task.role, rule)
        seen.add(task.role)


def _check_task(spec: JobSpec, at: int, task: TaskSpec) -> None:
    if task.min is not None and task.min > task.count:
        raise InvalidField(f"tasks.{at}.min", task.min, f"it must be 1 to count, {task.count}")
    if task.run is None and spec.run is None:
        raise InvalidInput(
            f"tasks.{at}.run is missing; task {task.role} needs it, or the job a run for all."
        )
    if task.resources == Resources():
        rule = f"task {task.role} must ask for something: gpu, cpu or memory"
        raise InvalidField(f"tasks.{at}.resources", {}, rule)


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose job it is and how it came in: what an engine keeps that keeps the record."""

    serial: int
    """The number in the job's id; no other job has it.  0 where nobody has given it one."""
    user: str
    submitted_s: float
    key: str | None = None
    """What the engine calls the job, if it came in through the engine; see ``Wanted``."""


def job_of(
    job_id: JobId, spec: JobSpec, origin: Origin, request: Request, estimate_s: float | None
) -> Job:
    """Return a job as the scheduler knows it."""
    return Job(
        job_id,
        request,
        origin.submitted_s,
        origin.serial,
        estimate_s,
        origin.user,
        queue=spec.queue,
        priority=spec.priority,
        checkpoint_s=checkpoint_s(spec) or 0.0,
        program=program_of(spec),
        family=spec.family or "",
    )


def request_of(
    spec: JobSpec, cluster: Cluster, *, spans_machines: bool = False, grows: bool = False
) -> Request:
    """Return what the kernel must find for a job on these machines.

    Args:
        spec: the job.
        cluster: the machines; their GPUs say what share of one some memory is.
        spans_machines: whether a job may be on several of them; else it is on one, however
            close its instances want to be.
        grows: whether a task that began with its least may get more instances later.
    """
    tolerated = _tolerated(spec, cluster)
    tasks = tuple(
        Task(
            _demand(spec, at, _cards_mib(task, cluster), tolerated),
            task.count,
            task.min,
            same_machine=not spans_machines,
            role=task.role,
            is_fixed=task.min is not None and not grows,
        )
        for at, task in enumerate(spec.roles)
    )
    if spans_machines:
        return Request(tasks, _closeness(spec.topology))
    # A single task has said it already.
    return Request(tasks, Closeness(same=MACHINE_LEVEL) if len(tasks) > 1 else ANYWHERE)


def _closeness(asked: TopologyFields) -> Closeness:
    if asked.same is not None and asked.spread == asked.same:
        rule = "same wants all in one of them; name another level, or leave one out"
        raise InvalidField("topology.spread", asked.spread, rule)
    if asked.pack is not None and asked.spread is not None:
        rule = "pack wants the opposite; name one of them"
        raise InvalidField("topology.spread", asked.spread, rule)
    if asked == TopologyFields():
        return ANYWHERE
    return Closeness(asked.same, asked.pack, asked.spread)


def _cards_mib(task: TaskSpec, cluster: Cluster) -> Iterable[int]:
    """Return the memory of the GPUs that will do; of all, if there are none such."""
    known = cluster.gpu_memory_mib
    return [known[kind] for kind in _types(task) if kind in known] or known.values()


def _types(task: TaskSpec) -> list[str]:
    gpu = task.resources.gpu
    if gpu is None:
        return []
    return [gpu.type] if isinstance(gpu.type, str) else gpu.type


def _path(spec: JobSpec, at: int) -> str:
    """Return what the file calls the resources of a task."""
    return f"tasks.{at}.resources" if spec.tasks else "resources"


def _tolerated(spec: JobSpec, cluster: Cluster) -> frozenset[Label]:
    """Return the taints that a job tolerates, of those that machines have."""
    said = spec.tolerations
    if ANY_VALUE not in said.values():
        return frozenset(said.items())
    any_value = (one for one in cluster.taints if said.get(one[0]) == ANY_VALUE)
    return frozenset([*any_value, *(one for one in said.items() if one[1] != ANY_VALUE)])


def _demand(
    spec: JobSpec, at: int, cards_mib: Iterable[int], tolerated: frozenset[Label]
) -> Demand:
    """Return what an instance of a task asks for, where GPUs have so much memory."""
    task, path = spec.roles[at], _path(spec, at)
    gpu = task.resources.gpu or GpuFields(count=0)
    memory = _range_mib(f"{path}.gpu.memory", gpu.memory)
    share = _asked_milli(f"{path}.gpu.compute", gpu)
    if share is None:
        share = _share_of(memory, max(cards_mib, default=0))
    return Demand(
        gpus=gpu.count,
        gpu_milli=_gpu_milli(spec, share),
        gpu_memory_mib=memory if gpu.count else 0,
        cpu_milli=amounts.milli(f"{path}.cpu", task.resources.cpu),
        memory_mib=_range_mib(f"{path}.memory", task.resources.memory),
        gpu_types=frozenset(_types(task)),
        selectors=frozenset(spec.selectors.items()),
        tolerations=tolerated,
    )


def _gpu_milli(spec: JobSpec, share_milli: int) -> int:
    """Return the share of each GPU that a job holds if it asks for so much.

    Turns go by share, so that a job is slowed down by the sum of shares over its own at most;
    one with a bound therefore holds a share that keeps it whoever else comes.  Where nothing
    takes turns there is no such bound, and the job gets whole GPUs.
    """
    bound = spec.share.max_slowdown
    if spec.share.mode is ShareMode.EXCLUSIVE or (bound is not None and not takes_lane(spec)):
        return MILLI
    least = 1 if bound is None else ceil(MILLI / bound)
    return max(least, share_milli)


def _asked_milli(field: str, gpu: GpuFields) -> int | None:
    if gpu.compute is None:
        return None
    low, high = amounts.ends(str(gpu.compute))
    asked = amounts.milli(field, low)
    limit = asked if high is None else amounts.milli(field, high)
    if not 0 < asked <= limit <= MILLI:
        raise InvalidField(field, gpu.compute, f"it must be 1m to {MILLI}m of each GPU")
    return asked


def _share_of(memory_mib: int, card_mib: int) -> int:
    """Return the share in proportion to the memory asked for; a whole GPU without any."""
    if not memory_mib or not card_mib:
        return MILLI
    return min(MILLI, ceil(memory_mib * MILLI / card_mib))


def gpu_memory(spec: JobSpec) -> GpuMemory | None:
    """Return the memory of a GPU that a job of one task is held to; None if it said none."""
    gpu = spec.roles[0].resources.gpu
    if gpu is None or gpu.memory is None:
        return None
    field = f"{_path(spec, 0)}.gpu.memory"
    low, high = amounts.ends(gpu.memory)
    stays_mib = amounts.memory_mib(field, low)
    return GpuMemory(
        stays_mib, 0 if high is None else amounts.memory_mib(field, high) - stays_mib
    )


def takes_lane(spec: JobSpec) -> bool:
    """Tell whether a job takes turns: it may, and is one process on one GPU."""
    task, gpu = spec.roles[0], spec.roles[0].resources.gpu
    is_alone = len(spec.roles) == 1 and task.count == 1 and gpu is not None and gpu.count == 1
    return is_alone and spec.share.mode is not ShareMode.SPATIAL


def memory_bytes_max(spec: JobSpec, at: int) -> int | None:
    """Return the bytes that each process of a task may have, if the task sets a limit."""
    memory = spec.roles[at].resources.memory
    _, limit = (None, None) if memory is None else amounts.ends(memory)
    if limit is None:
        return None
    return amounts.memory_mib(f"{_path(spec, at)}.memory", limit) << 20


def memory_told(spec: JobSpec) -> str:
    """Return the memory that a job asked for, as its file says it."""
    told = [
        f"{amounts.ends(task.resources.memory)[-1] or task.resources.memory}"
        + (f" for each of {task.count}" if task.count > 1 else "")
        for task in spec.roles
        if task.resources.memory is not None
    ]
    return " and ".join(told)


def _task_told(task: TaskSpec) -> str:
    gpu, cpu = task.resources.gpu, amounts.milli("cpu", task.resources.cpu)
    parts = []
    if gpu is not None and gpu.count:
        parts.append(f"{gpu.count} GPU" if gpu.compute is None else _share_told(gpu))
        parts += ["/".join(_types(task)), gpu.memory or ""]
    if not parts:
        memory = task.resources.memory
        parts = [f"{cpu / MILLI:g} CPU" if cpu else "", memory or ""]
    told = " ".join(part for part in parts if part) or "no GPU"
    return told if task.count == 1 else f"{task.count} x {told}"


def _share_told(gpu: GpuFields) -> str:
    share = f"{(_asked_milli('compute', gpu) or MILLI) / MILLI:g}"
    return f"{share} GPU" if gpu.count == 1 else f"{gpu.count} x {share} GPU"


def job_memory_bytes(spec: JobSpec) -> int | None:
    """Return what all processes of a job may have together; None if a task does not say."""
    total = 0
    for at, task in enumerate(spec.roles):
        if task.resources.memory is None:
            return None
        low, high = amounts.ends(task.resources.memory)
        field = f"{_path(spec, at)}.memory"
        total += task.count * amounts.memory_mib(field, low if high is None else high) << 20
    return total


def gpu_memory_bytes_max(spec: JobSpec, at: int) -> int | None:
    """Return what an instance of a task may have of each of its GPUs; None if it said none."""
    gpu = spec.roles[at].resources.gpu
    if gpu is None or gpu.memory is None:
        return None
    low, high = amounts.ends(gpu.memory)
    return amounts.memory_mib(f"{_path(spec, at)}.gpu.memory", high or low) << 20


def job_cpu_milli(spec: JobSpec) -> int:
    """Return the thousandths of cores that a job asks for in all."""
    asked = (
        amounts.milli(f"{_path(spec, at)}.cpu", task.resources.cpu) * task.count
        for at, task in enumerate(spec.roles)
    )
    return sum(asked)


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


def stop_of(spec: JobSpec) -> StopFields:
    """Return how to stop a job."""
    usual = Checkpoint(signal="SIGTERM" if spec.terminal is None else HANG_UP)
    asked = spec.checkpoint or usual
    if asked.signal not in STOP_SIGNALS:
        rule = f"it must be one of {', '.join(STOP_SIGNALS)}"
        raise InvalidField("checkpoint.signal", asked.signal, rule)
    grace_s = amounts.seconds("checkpoint.grace", asked.grace)
    if grace_s > GRACE_S_MAX:
        raise InvalidField("checkpoint.grace", asked.grace, f"at most {GRACE_S_MAX:g} s")
    return StopFields(signal.Signals[asked.signal].value, grace_s)


def program_of(spec: JobSpec) -> str:
    """Return what recurs: the group, else one for all jobs of the same commands.

    It shows the script, and tells apart what else the commands say: ``train.py-3f9a0c41d2e5``.
    """
    if spec.group is not None:
        return spec.group
    commands = [f"{task.role}\x1f{spec.written(task).strip()}" for task in spec.roles]
    text = "\x1e".join(commands)
    tag = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:TAG_LENGTH]
    first = spec.written(spec.roles[0])
    found = _SCRIPT.search(first) or _WORD.search(first)
    return tag if found is None else f"{found[0][:SCRIPT_MAX]}-{tag}"


def plain_name(spec: JobSpec) -> str:
    """Return the name without the number that people put at its end."""
    return _without_number(spec.name)


def _without_number(name: str) -> str:
    return re.sub(r"[._-]?\d+$", "", name) or name


def _span(field: str, text: str | int | float | None) -> float | None:
    if text is None:
        return None
    span_s = amounts.seconds(field, text)
    if span_s <= 0:
        raise InvalidField(field, text, "it must be more than nothing")
    return span_s
