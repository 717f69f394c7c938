"""Pods that wait for us: one job for each, and one for each gang that is complete.

A job's key stands for exactly these pods, for ever: a pod that is deleted takes its job along,
and the one that its owner makes instead is another job.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.affinity import FitRules
from interlane.engines.kubernetes.pods import (
    Pod,
    PodAsk,
    PodName,
    ask_of,
    job_of,
    name_of,
    tasks_of,
)
from interlane.live.files.job import INSTANCES_MAX, JobSpec
from interlane.live.port import Wanted
from interlane.model import InterlaneError, InvalidField

GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Labels that name the PodGroup of a pod, the newer one first."""
KEY_BYTES: Final = 16
AGAIN: Final = ":"
"""Comes before how often the same pods were wanted again, in a key."""


@dataclass(frozen=True, slots=True)
class GangName:
    """A gang that pods say they are of."""

    namespace: str
    name: str
    by: str
    """``annotation``, or the kind of the object that says how large it is."""


@dataclass(frozen=True, slots=True)
class WantedPods:
    """A job that came in as pods."""

    wanted: Wanted
    pods: tuple[PodName, ...]
    """By task, as the tasks are in the job."""


Bad = Callable[[PodName, str], None]
"""Told of a pod that cannot be scheduled as it is, and what to change."""


@dataclass
class WaitingPods:
    """See the module's text."""

    rules: FitRules
    taints: Callable[[], Iterable[tuple[str, str]]]
    group_size: Callable[[GangName], int | None]
    """Returns how many pods a group has; None if there is no such object."""
    bad: Bad
    jobs: dict[str, WantedPods] = field(default_factory=dict)
    """By key."""
    _pods: dict[str, tuple[Pod, PodAsk]] = field(default_factory=dict)
    """Pods that wait and can be understood, by uid."""
    _gangs: dict[GangName, set[str]] = field(default_factory=dict)
    _key_of: dict[str, str] = field(default_factory=dict)
    _refused: dict[str, None] = field(default_factory=dict)
    """Keys of jobs that fit on no node, in the order in which they were refused."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def key_of(self, uid: str) -> str | None:
        """Return the job of a pod."""
        return self._key_of.get(uid)

    def add(self, pod: Pod) -> list[Wanted]:
        """Take in a pod that waits; return the job that it makes or completes."""
        name = name_of(pod)
        if name.uid in self._pods:
            return []
        try:
            gang = gang_of(pod)
            ask = ask_of(pod, self.rules, self.taints())
            self._pods[name.uid] = pod, ask
            if gang is None:
                return [self._single(name, pod, ask)]
            self._gangs.setdefault(gang, set()).add(name.uid)
            return self.complete(gang)
        except InterlaneError as error:
            self._forget(name.uid, pod)
            self.bad(name, str(error))
            return []

    def _forget(self, uid: str, pod: Pod) -> None:
        """Know a pod no more, nor that it is of a gang."""
        self._pods.pop(uid, None)
        gang = gang_of(pod)
        if gang is not None:
            self._gangs.get(gang, set()).discard(uid)
            if not self._gangs.get(gang):
                self._gangs.pop(gang, None)

    def remove(self, uid: str) -> str | None:
        """Forget a pod that no longer waits; return the job that is gone with it."""
        found = self._pods.get(uid)
        if found is None:
            return None
        self._forget(uid, found[0])
        key = self._key_of.pop(uid, None)
        if key is None:
            return None
        job = self.jobs.pop(key, None)
        for one in () if job is None else job.pods:
            self._key_of.pop(one.uid, None)
        return key

    def refused(self, key: str) -> None:
        """Note that a job fits on none of the nodes that there are."""
        if key in self.jobs:
            self._refused[key] = None

    def refused_again(self) -> list[Wanted]:
        """Return jobs that were refused under other keys: nodes are others than they were.

        What was refused has ended, and a key is never used twice.
        """
        made: list[Wanted] = []
        for key in self._refused:
            job = self.jobs.pop(key, None)
            if job is not None:
                wanted = job.wanted
                made.append(self._want(_next_key(key), wanted.job, job.pods, wanted.user))
        self._refused.clear()
        return made

    def taken(self, key: str) -> WantedPods | None:
        """Take a job's pods out, as they are bound now."""
        job = self.jobs.pop(key, None)
        for one in () if job is None else job.pods:
            pod, _ = self._pods.pop(one.uid)
            self._key_of.pop(one.uid, None)
            gang = gang_of(pod)
            if gang is not None and gang in self._gangs:
                self._gangs[gang].discard(one.uid)
        return job

    def gangs(self) -> list[GangName]:
        """Return the gangs of which some pods wait."""
        return list(self._gangs)

    def complete(self, gang: GangName) -> list[Wanted]:
        """Return the jobs of a gang that has come to be complete."""
        made: list[Wanted] = []
        free = [uid for uid in self._gangs.get(gang, ()) if uid not in self._key_of]
        size = self._size(gang, [self._pods[uid][0] for uid in free])
        if size is None or len(free) < size:
            return made
        free.sort(key=lambda uid: _age(self._pods[uid][0]))
        while len(free) >= size:
            chosen, free = free[:size], free[size:]
            made.append(self._gang(gang, chosen))
        return made

    def short_of(self, gang: GangName) -> tuple[int, int | None]:
        """Return how many pods of a gang wait, and how many it needs; None if unknown."""
        free = [uid for uid in self._gangs.get(gang, ()) if uid not in self._key_of]
        try:
            return len(free), self._size(gang, [self._pods[uid][0] for uid in free])
        except InterlaneError:
            return len(free), None

    def waiting_of(self, gang: GangName) -> list[PodName]:
        """Return the pods of a gang that is not complete."""
        free = (uid for uid in self._gangs.get(gang, ()) if uid not in self._key_of)
        return [name_of(self._pods[uid][0]) for uid in free]

    def _size(self, gang: GangName, pods: list[Pod]) -> int | None:
        if not pods:
            return None
        if gang.by != "annotation":
            return self.group_size(gang)
        sizes: set[str | None] = {
            (one["metadata"].get("annotations") or {}).get(words.GANG_SIZE) for one in pods
        }
        if len(sizes) > 1:
            said = ", ".join(sorted(map(str, sizes)))
            raise InvalidField(words.GANG_SIZE, said, "all pods of a gang must say the same")
        (size,) = sizes
        if size is None or not size.isdecimal() or not 1 <= int(size[:6]) <= INSTANCES_MAX:
            rule = f"it must be 1 to {INSTANCES_MAX}, how many pods the gang has"
            raise InvalidField(words.GANG_SIZE, size, rule)
        return int(size)

    def _single(self, name: PodName, pod: Pod, ask: PodAsk) -> Wanted:
        return self._want(name.uid, job_of([(pod, ask)], name.name), (name,), name.namespace)

    def _gang(self, gang: GangName, uids: list[str]) -> Wanted:
        """Return the job of these pods of a gang, alike ones together."""
        pods = [self._pods[uid] for uid in uids]
        order = list(tasks_of(ask for _, ask in pods))
        pods.sort(key=lambda one: order.index(one[1]))
        digest = sha256("\0".join(sorted(uids)).encode()).hexdigest()
        key = f"gang-{digest[: 2 * KEY_BYTES]}"
        names = tuple(name_of(pod) for pod, _ in pods)
        return self._want(key, job_of(pods, gang.name), names, gang.namespace)

    def _want(self, key: str, job: JobSpec, pods: tuple[PodName, ...], user: str) -> Wanted:
        wanted = Wanted(key, job, user)
        self.jobs[key] = WantedPods(wanted, pods)
        for one in pods:
            self._key_of[one.uid] = key
        return wanted


def _next_key(key: str) -> str:
    """Return the key of the same pods when they are wanted once more."""
    first, _, times = key.partition(AGAIN)
    return f"{first}{AGAIN}{int(times or 0) + 1}"


def job_again(pods: Iterable[Pod], rules: FitRules, taints: Iterable[Any]) -> JobSpec:
    """Return the job of pods that run already."""
    listed = [(one, ask_of(one, rules, taints)) for one in pods]
    gang = gang_of(listed[0][0])
    return job_of(listed, gang.name if gang else listed[0][0]["metadata"]["name"])


def gang_of(pod: Pod) -> GangName | None:
    """Return the gang that a pod says it is of."""
    meta = pod["metadata"]
    labels: Mapping[str, str] = meta.get("labels") or {}
    name = (meta.get("annotations") or {}).get(words.GANG)
    if name:
        return GangName(meta["namespace"], name, "annotation")
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if native:
        return GangName(meta["namespace"], native, "scheduling.k8s.io")
    for label in GROUP_LABELS:
        if labels.get(label):
            return GangName(meta["namespace"], labels[label], "scheduling.x-k8s.io")
    return None


def _age(pod: Pod) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]
