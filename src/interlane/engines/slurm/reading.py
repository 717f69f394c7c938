"""What ``squeue --json`` and ``sinfo --json`` print, as values.

Versions differ: a number is a number or ``{"set": ..., "number": ...}``, a state is a word or a
list of words, and fields come and go.  Whatever cannot be understood is left out and counted,
with a sentence that says what it was; it never stops the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os import WEXITSTATUS, WIFEXITED, WIFSIGNALED, WTERMSIG
from typing import Any, Final, TypeVar

from interlane.engines.slurm.claims import NOTHING, Claim, HeldClaim, read_claim
from interlane.engines.slurm.gres import Gres, hostnames, read_gres

WAITING: Final = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)
LEAVES: Final = "COMPLETING"
"""A run has ended and leaves its nodes."""
RUNNING: Final = frozenset(
    (
        "RUNNING",
        "SUSPENDED",
        LEAVES,
        "CONFIGURING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
    )
)
"""As long as it is so, resources are held."""
OVER: Final = frozenset(
    (
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
    )
)
_ORDER: Final = (LEAVES, "REQUEUE_HOLD", "REQUEUED", "SPECIAL_EXIT")
"""Flags that say more than the state that they come with."""
GONE_STATES: Final = frozenset(("down", "unknown", "future", "error"))
DRAINED_FLAGS: Final = frozenset(("drain", "draining", "drained", "fail", "maint", "reboot"))
NODE_STATES: Final = GONE_STATES | {"idle", "allocated", "mixed", "planned", "reserved"}
NODE_FLAGS: Final = DRAINED_FLAGS | {
    "completing",
    "not_responding",
    "planned",
    "cloud",
    "powered_down",
    "powering_down",
    "powering_up",
    "power_down",
    "reserved",
    "invalid_reg",
    "dynamic_norm",
    "resume",
    "undrain",
    "reboot_issued",
    "reboot_requested",
    "blocked",
}
SIGNALLED: Final = 128
_BINDING: Final = ("required_nodes", "excluded_nodes", "features", "resv_name")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, or one task of an array, as Slurm shows it."""

    number: int
    """Slurm's number of the record; tasks of an array share one until they are told apart."""
    array: int
    """The number of its array; 0 if it is of none."""
    task: int | None
    """Its number in the array."""
    tasks: str
    """Tasks of an array that have no record of their own yet, as in ``3-99``."""
    state: str
    reason: str
    user: str
    uid: int
    partition: str
    name: str
    command: str
    comment: str
    admin_comment: str
    submitted_s: float
    started_s: float
    ended_s: float
    restarts: int
    priority: int
    nodes: tuple[str, ...]
    """Where it runs or ran."""
    gres: tuple[tuple[Gres, ...], ...]
    """What it has on each of these nodes."""
    asked: tuple[Gres, ...]
    """What it asks for on each node."""
    asked_in_all: tuple[Gres, ...]
    """What it asks for on all of them together."""
    node_count: int
    cpus: int
    memory_mib: int
    """On each node."""
    limit_s: float | None
    dependency: str
    exit_code: int
    output: str
    tres_per_node: str = ""
    tres_per_job: str = ""
    first_s: float = 0.0
    """When it was submitted for the first time: Slurm changes that when it requeues a job."""
    is_bound: bool = False
    """Whether its user says which nodes it may have, or that it goes with other jobs."""
    claim: Claim | None = None
    """What we have written into its administrator's comment."""

    @property
    def id(self) -> str:
        """What users call it."""
        return f"{self.array}_{self.task}" if self.task is not None else str(self.number)

    @property
    def key(self) -> str:
        """What no other job ever is called: numbers are used again."""
        return f"{self.id}.{self.first_s:.0f}"

    @property
    def held_claim(self) -> HeldClaim:
        """Which attempt at a job of a user's we asked for last."""
        return self.claim if isinstance(self.claim, HeldClaim) else NOTHING

    def is_asked_for(self, number: int) -> bool:
        """Tell whether its present run is the attempt that we asked for under a number."""
        claim = self.held_claim
        return claim.begins and (claim.number, claim.restarts) == (number, self.restarts)

    @property
    def is_held(self) -> bool:
        """Whether it waits until somebody releases it."""
        return self.state in WAITING and self.priority == 0


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm shows it."""

    name: str
    address: str
    cpus: int
    memory_mib: int
    gres: tuple[Gres, ...]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    is_there: bool
    is_drained: bool


@dataclass(slots=True)
class Skipped:
    """What could not be understood, by sentence."""

    count: Counter[str] = field(default_factory=Counter)
    numbers: set[int] = field(default_factory=set)
    """Of jobs that could not be understood, where that could be."""

    def clear(self) -> None:
        """Begin anew."""
        self.count.clear()
        self.numbers.clear()

    def note(self, why: str) -> None:
        """Count one thing more."""
        self.count["".join(one if one.isprintable() else " " for one in why)[:200]] += 1

    def each(
        self, what: str, documents: Iterable[Any], read: Callable[[Any], Value]
    ) -> list[Value]:
        """Read all documents that can be read."""
        found = []
        for one in documents:
            try:
                found.append(read(one))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self.note(f"{what} left out: {error}")
                with suppress(ValueError, TypeError, KeyError, AttributeError):
                    self.numbers.add(_number(one["job_id"]))
        return found


def read_jobs(document: Any, skipped: Skipped) -> list[SlurmJob]:  # noqa: ANN401 - JSON
    """Return the jobs of a document of ``squeue``."""
    return skipped.each("A job was", _listed(document, "jobs"), _job)


def read_nodes(document: Any, skipped: Skipped) -> list[SlurmNode]:  # noqa: ANN401 - JSON
    """Return the nodes of a document of ``sinfo`` or ``scontrol``."""
    return skipped.each("A node was", _listed(document, "nodes"), partial(_node, skipped))


def _listed(document: Any, name: str) -> list[Any]:  # noqa: ANN401 - JSON
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, list) else []


def _job(said: Mapping[str, Any]) -> SlurmJob:
    state = _state(said["job_state"])
    if state not in WAITING | RUNNING | OVER:
        raise ValueError(f"state {state!r} is not known")
    count = max(1, _number(said.get("node_count"), 1))
    cpus = max(1, _number(said.get("cpus"), 1))
    nodes = tuple(hostnames(_text(said.get("nodes"))))
    array = _number(said.get("array_job_id"), 0)
    limit_min = _number(said.get("time_limit"), -1)
    admin_comment = _text(_comment(said, "administrator", "admin_comment"))
    claim, submitted_s = read_claim(admin_comment), float(_number(said["submit_time"]))
    return SlurmJob(
        number=_number(said["job_id"]),
        array=array,
        task=_maybe(said.get("array_task_id")) if array else None,
        tasks=_text(said.get("array_task_string")),
        state=state,
        reason=_text(said.get("state_reason")),
        user=_text(said.get("user_name")) or str(_number(said["user_id"])),
        uid=_number(said["user_id"]),
        partition=_text(said.get("partition")),
        name=_text(said.get("name")),
        command=_text(said.get("command")),
        comment=_text(_comment(said, "user", "comment")),
        admin_comment=admin_comment,
        claim=claim,
        submitted_s=submitted_s,
        first_s=claim.first_s if isinstance(claim, HeldClaim) else submitted_s,
        started_s=float(_number(said.get("start_time"), 0)),
        ended_s=float(_number(said.get("end_time"), 0)),
        restarts=_number(said.get("restart_cnt"), 0),
        priority=_number(said.get("priority"), 0),
        nodes=nodes,
        gres=tuple(tuple(read_gres(one)) for one in said.get("gres_detail") or ()),
        asked=tuple(read_gres(_text(said.get("tres_per_node")))),
        asked_in_all=tuple(read_gres(_text(said.get("tres_per_job")))),
        node_count=count,
        cpus=cpus,
        memory_mib=_memory_mib(said, cpus, count),
        limit_s=60.0 * limit_min if 0 < limit_min < 1 << 31 else None,
        dependency=_text(said.get("dependency")),
        exit_code=_exit_code(said.get("exit_code")),
        output=_text(said.get("standard_output")),
        tres_per_node=_text(said.get("tres_per_node")),
        tres_per_job=_text(said.get("tres_per_job")),
        is_bound=any(said.get(one) for one in _BINDING)
        or _number(said.get("het_job_id"), 0) > 0,
    )


def _node(skipped: Skipped, said: Mapping[str, Any]) -> SlurmNode:
    """Read a node; one in a state that nobody knows keeps what it runs, and gets no more."""
    words = said["state"] if isinstance(said["state"], list) else [said["state"]]
    first, *rest = [str(word).lower() for word in words]
    flags = {*rest, *(str(one).lower() for one in said.get("state_flags") or ())}
    odd = sorted({first} - NODE_STATES | flags - NODE_FLAGS)
    if odd:
        why = f"state {', '.join(odd)!r} is not known"
        skipped.note(f"Node {said.get('name')!r} takes nothing new: {why}")
    features = said.get("active_features") or ()
    if isinstance(features, str):
        features = features.split(",")
    return SlurmNode(
        name=str(said["name"]),
        address=_text(said.get("address")),
        cpus=_number(said["cpus"]),
        memory_mib=_number(said["real_memory"]),
        gres=tuple(read_gres(_text(said.get("gres")))),
        partitions=tuple(map(str, said.get("partitions") or ())),
        features=tuple(filter(None, map(str, features))),
        is_there=first not in GONE_STATES and "powered_down" not in flags,
        is_drained=bool(flags & DRAINED_FLAGS or "not_responding" in flags or odd),
    )


def _state(said: Any) -> str:  # noqa: ANN401 - JSON
    """Return a state: newer versions list it with flags."""
    words = [str(one) for one in said] if isinstance(said, list) else [str(said)]
    return next((flag for flag in _ORDER if flag in words), words[0] if words else "")


def _comment(said: Mapping[str, Any], newer: str, older: str) -> object:
    comment = said.get("comment")
    return comment.get(newer) if isinstance(comment, Mapping) else said.get(older)


def _memory_mib(said: Mapping[str, Any], cpus: int, nodes: int) -> int:
    on_node = _number(said.get("memory_per_node"), 0)
    return on_node or _number(said.get("memory_per_cpu"), 0) * -(-cpus // nodes)


def _exit_code(said: Any) -> int:  # noqa: ANN401 - JSON
    """Return an exit code as shells have it."""
    if isinstance(said, Mapping):
        by_signal = said.get("signal") or {}
        number = _number(by_signal.get("id", by_signal.get("signal_id")), 0)
        return SIGNALLED + number if number else _number(said.get("return_code"), 0)
    return shell_code(_number(said, 0))


def shell_code(status: int) -> int:
    """Return the exit code that shells give for what ``wait`` returned."""
    if WIFSIGNALED(status):
        return SIGNALLED + WTERMSIG(status)
    return WEXITSTATUS(status) if WIFEXITED(status) else status


def _number(said: Any, usual: int | None = None) -> int:  # noqa: ANN401 - JSON
    """Return a number, whether it is wrapped or not; ``usual`` where it is not set."""
    found = _maybe(said)
    if found is not None:
        return found
    if usual is None:
        raise ValueError("a number is missing")
    return usual


def _maybe(said: Any) -> int | None:  # noqa: ANN401 - JSON
    if isinstance(said, Mapping):
        is_set = said.get("set", True) and not said.get("infinite", False)
        return _maybe(said.get("number")) if is_set else None
    if said is None or isinstance(said, bool):
        return None
    if not isinstance(said, int | float):
        raise TypeError(f"{said!r} is not a number")
    return int(said)


def _text(said: object) -> str:
    return said if isinstance(said, str) else ""
