"""Attempts as they are in the cluster: their pods, and what has become of each."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from interlane.engines.kubernetes.claims import Slot
from interlane.engines.kubernetes.pods import Pod, PodName, is_going, is_over
from interlane.live.files.job import JobSpec, Origin
from interlane.live.port import Attempt, Ended, NeverBegan, Stop, Wanted
from interlane.model import MachineId, Placement

REMEMBERED: Final = 20_000
"""Attempts that are over and are still known."""
STOPPED: Final = "stopped"
LOST: Final = "lost"
CUT_OFF: Final = "cut off"
NODE_FAULTS: Final = ("Evicted", "NodeLost", "Shutdown", "NodeShutdown", "Terminated")
"""Why a kubelet ends a pod that did nothing wrong."""


@dataclass
class PodRun:
    """One pod of an attempt."""

    name: PodName
    slot: Slot
    is_bound: bool = False
    is_going: bool = False
    is_gone: bool = False
    is_over: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        """Whether it runs or may run."""
        return not (self.is_gone or self.is_over)

    @property
    def has_failed(self) -> bool:
        """Whether it ended as it should not."""
        return self.is_over and self.status.get("phase") != "Succeeded"

    def see(self, pod: Pod) -> None:
        """Take in what the pod is now; once it is over, nothing more can become of it."""
        if self.is_over:
            return
        self.status = pod.get("status") or {}
        self.is_over = is_over(pod)
        self.is_going = is_going(pod)
        self.is_bound = self.is_bound or bool(pod["spec"].get("nodeName"))


@dataclass
class Run:
    """An attempt that was asked for, or was found."""

    attempt: Attempt
    origin: Origin
    size: int
    started_s: float
    namespace: str
    job: JobSpec | None = None
    wanted: Wanted | None = None
    """The job as it came in, if it came in as pods."""
    pods: dict[str, PodRun] = field(default_factory=dict)
    """By uid."""
    free: dict[int, list[Slot]] = field(default_factory=dict)
    """Places that no pod has yet, by task."""
    unbound: list[PodRun] = field(default_factory=list)
    """Somebody's pods that were to be bound, and were not."""
    owners: dict[str, int] = field(default_factory=dict)
    """Our Jobs by uid, and of which task each is."""
    job_names: list[str] = field(default_factory=list)
    is_begun: bool = False
    is_done: bool = False
    """Whether a Job of ours says that all its pods have succeeded."""
    is_withdrawn: bool = False
    stop: Stop | None = None
    is_ending: bool = False
    lost: str | None = None
    """What took it along."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    ending: "asyncio.Task[None] | None" = None

    @property
    def is_ours(self) -> bool:
        """Whether we made its pods."""
        return self.origin.key is None

    @property
    def live(self) -> list[PodRun]:
        """Its pods that run or may run."""
        return [one for one in self.pods.values() if one.is_live]

    @property
    def is_broken(self) -> bool:
        """Whether a part of it has gone, and the rest must follow."""
        return any(one.is_gone or one.has_failed or one.is_going for one in self.pods.values())

    @property
    def placement(self) -> Placement:
        """Where its pods are."""
        slots = sorted((one.slot for one in self.pods.values()), key=lambda one: one.rank)
        return Placement(tuple(slot.spot for slot in slots))

    @property
    def nodes(self) -> frozenset[MachineId]:
        """The nodes of pods that run or may run."""
        return frozenset(one.slot.node for one in self.live if one.is_bound)

    def wake(self) -> None:
        """Let whoever waits for a change look again."""
        self.changed.set()

    async def change(self, timeout_s: float) -> None:
        """Wait for a change, but not for ever."""
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), timeout_s)
        except TimeoutError:
            return


def end_of(run: Run) -> Ended:
    """Return how an attempt has ended of which nothing runs any more."""
    pods = list(run.pods.values())
    done_well = [one for one in pods if one.is_over and not one.has_failed]
    if len(done_well) == len(pods) == run.size:
        return Ended(run.attempt, 0)
    code = next((code for one in pods if (code := _exit_code(one.status)) is not None), None)
    if run.stop is not None:
        return Ended(run.attempt, code, STOPPED)
    if run.lost is not None:
        return Ended(run.attempt, None, LOST, cause=run.lost)
    failed = [one for one in pods if one.has_failed and not one.is_going]
    if not failed:
        gone = next((one.name.name for one in pods if one.is_gone or one.is_going), "One")
        return Ended(run.attempt, None, LOST, cause=f"Pod {gone} was deleted.")
    return _failure(run, failed[0], code)


def _failure(run: Run, pod: PodRun, code: int | None) -> Ended:
    reason, said = pod.status.get("reason") or "", pod.status.get("message") or ""
    told = f"Pod {pod.name.name} on {pod.slot.node}: {reason}. {said}".strip()
    if reason == "DeadlineExceeded":
        return Ended(run.attempt, code, "limit")
    if reason in NODE_FAULTS:
        return Ended(run.attempt, None, LOST, cause=told)
    if reason and code is None:  # the node refused it before anything of it ran
        return Ended(run.attempt, None, CUT_OFF, cause=told)
    if _was_killed_for_memory(pod.status):
        return Ended(run.attempt, code, "memory")
    why = None if code is not None else f"The pod failed. {said}".strip()
    return Ended(run.attempt, code, why)


def _terminated(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in status.get("containerStatuses") or ():
        found = (one.get("state") or {}).get("terminated")
        if found:
            yield found


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """Return the first exit code that is not 0, if a container has ended so."""
    codes = [int(one.get("exitCode") or 0) for one in _terminated(status)]
    return next((code for code in codes if code), None)


def _was_killed_for_memory(status: Mapping[str, Any]) -> bool:
    return any(one.get("reason") == "OOMKilled" for one in _terminated(status))


@dataclass
class AttemptRuns:
    """All attempts that are known, by what they are and by their pods."""

    open: dict[Attempt, Run] = field(default_factory=dict)
    of_pod: dict[str, Run] = field(default_factory=dict)
    of_owner: dict[str, Run] = field(default_factory=dict)
    on_node: dict[MachineId, dict[str, PodRun]] = field(default_factory=dict)
    """The pods of all attempts by node and uid."""
    over: "OrderedDict[Attempt, Ended | NeverBegan]" = field(default_factory=OrderedDict)

    def add(self, run: Run) -> None:
        """Know an attempt."""
        self.open[run.attempt] = run
        for pod in run.pods.values():
            self.member(run, pod)

    def own(self, run: Run, uid: str, task: int) -> None:
        """Know a Job of an attempt."""
        run.owners[uid] = task
        self.of_owner[uid] = run

    def member(self, run: Run, pod: PodRun) -> None:
        """Know a pod of an attempt."""
        run.pods[pod.name.uid] = pod
        self.of_pod[pod.name.uid] = run
        self.on_node.setdefault(pod.slot.node, {})[pod.name.uid] = pod

    def leave(self, pod: PodRun) -> None:
        """Forget whose a pod is."""
        self.of_pod.pop(pod.name.uid, None)
        self.on_node.get(pod.slot.node, {}).pop(pod.name.uid, None)

    def close(self, run: Run, end: Ended | NeverBegan) -> None:
        """Note that nothing is left of an attempt."""
        self.open.pop(run.attempt, None)
        for pod in run.pods.values():
            self.leave(pod)
        for uid in run.owners:
            self.of_owner.pop(uid, None)
        self.note(end)

    def note(self, end: Ended | NeverBegan) -> None:
        """Remember what became of an attempt; the first word counts."""
        self.over.setdefault(end.attempt, end)
        while len(self.over) > REMEMBERED:
            self.over.popitem(last=False)
