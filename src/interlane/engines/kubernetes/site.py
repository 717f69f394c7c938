"""The cluster as the engine knows it, and how it writes there: what all its parts share.

All of it belongs to one event loop.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.affinity import FitRules
from interlane.engines.kubernetes.binding import Binder
from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.discovery import ServedApi
from interlane.engines.kubernetes.foreign import ForeignPods
from interlane.engines.kubernetes.informer import Informer
from interlane.engines.kubernetes.lease import Leadership
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.engines.kubernetes.nodes import NodeSight, sight_of
from interlane.engines.kubernetes.notices import Notices
from interlane.engines.kubernetes.pods import Pod
from interlane.engines.kubernetes.reports import SELECTOR, NodeReport
from interlane.engines.kubernetes.runs import AttemptRuns, Run
from interlane.engines.kubernetes.sealing import FIELD, KEY_BYTES, SECRET
from interlane.engines.kubernetes.wanting import GangName, WaitingPods, job_again
from interlane.live.files.job import JobSpec, read_spec
from interlane.live.port import Attempt, Begun, NeverBegan, Pending, Report, Sight, Withdrawn
from interlane.model import InterlaneError, MachineId

NEVER: Final = "Nobody had begun it."
JOBS_ALL: Final = "/apis/batch/v1/jobs"
WRITE_AGAIN_S: Final = 0.2
WRITE_AGAIN_S_MAX: Final = 5.0

Answer = TypeVar("Answer")

log = logging.getLogger("interlane.engines.kubernetes")


def _nobody(before: Document | None, now: Document | None) -> None:
    """Take in nothing: nobody listens yet."""


@dataclass
class ClusterState:
    """See the module's text."""

    client: KubeClient
    settings: PodSettings
    tell: Callable[[Report], None]
    leadership: Leadership | None = None
    keep_s: float = 3_600.0
    """Seconds for which Jobs that have ended are kept."""
    runs: AttemptRuns = field(default_factory=AttemptRuns)
    rules: FitRules = field(default_factory=FitRules)
    sights: dict[MachineId, NodeSight] = field(default_factory=dict)
    reports: dict[str, NodeReport] = field(default_factory=dict)
    unclaimed: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """Pods that say that we made them, by their owner, until we know it."""
    seal: bytes = b""
    served: ServedApi = field(default_factory=ServedApi)
    serial: int = 0
    is_closing: bool = False

    def __post_init__(self) -> None:
        self.binder = Binder(self.client, self.may_write)
        self.notices = Notices(self.client, self.may_write)
        self.waiting = WaitingPods(
            self.rules, self.taints, self.group_size, self.notices.refuse
        )
        self.foreign = ForeignPods()
        mine = {"labelSelector": words.JOB_UID}
        own = f"/api/v1/namespaces/{self.settings.own_namespace}/configmaps"
        self.nodes = Informer(self.client, "/api/v1/nodes", _nobody)
        self.pods = Informer(self.client, "/api/v1/pods", _nobody)
        self.jobs = Informer(self.client, JOBS_ALL, _nobody, mine)
        self.told = Informer(self.client, own, _nobody, {"labelSelector": SELECTOR})
        """What agents tell of their nodes; nobody waits for it."""
        self.groups: list[Informer] = []
        self._taints: frozenset[tuple[str, str]] = frozenset()
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- to write ---------------------------------------------------------------------

    def may_write(self) -> bool:
        """Tell whether we lead."""
        return self.leadership is None or self.leadership.may_write

    def spawn(self, work: "Awaitable[None]") -> "asyncio.Task[None]":
        """Let something go on beside everything else."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end_tasks(self) -> None:
        """End all that goes on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def persist(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask for something until there is an answer; raise one that is no."""
        tries = 0
        while True:
            try:
                if self.may_write():
                    return await call()
                wait_s = WRITE_AGAIN_S_MAX
            except ApiError as error:
                if not error.is_passing:
                    raise
                wait_s = error.wait_s
            tries += 1
            pause_s = min(WRITE_AGAIN_S_MAX, WRITE_AGAIN_S * 2 ** min(tries, 8))
            await asyncio.sleep(max(wait_s, pause_s))

    async def sealing_key(self) -> bytes:
        """Return the key of seals; the first server makes it."""
        path = f"/api/v1/namespaces/{self.settings.own_namespace}/secrets"
        try:
            found = await self.client.get(f"{path}/{SECRET}")
        except ApiError as error:
            if not error.is_gone:
                raise
            made = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            body = {"metadata": {"name": SECRET}, "type": "Opaque", "data": {FIELD: made}}
            try:
                found = await self.client.post(path, body)
            except ApiError as another:
                if not another.is_conflict:
                    raise
                found = await self.client.get(f"{path}/{SECRET}")
        return base64.b64decode(found["data"][FIELD])

    # -- what there is ----------------------------------------------------------------

    def taints(self) -> frozenset[tuple[str, str]]:
        """Return the taints that nodes have."""
        return self._taints

    def see_node(self, node: Document) -> NodeSight | None:
        """Know what a node offers; None if it says what cannot be."""
        labels, report = self.rules.labels_of(node), self.reports.get(node["metadata"]["name"])
        try:
            sight = sight_of(node, labels, report)
        except InterlaneError as error:
            self.notices.refuse_node(node, str(error))
            return None
        self.sights[sight.machine.id] = sight
        self._taints |= frozenset(sight.machine.taints)
        return sight

    def group_size(self, gang: GangName) -> int | None:
        """Return how many pods a group has; None if there is no such object."""
        for informer in self.groups:
            for one in informer.objects.values():
                meta = one["metadata"]
                if (meta["namespace"], meta["name"]) == (gang.namespace, gang.name):
                    return _group_size(one)
        return None

    def used_gpus(self, name: MachineId) -> frozenset[int]:
        """Return the GPUs of a node that our attempts have."""
        pods = self.runs.on_node.get(name, {}).values()
        return frozenset(gpu for pod in pods if pod.is_live for gpu in pod.slot.gpus)

    def job_of(self, run: Run) -> JobSpec:
        """Return the job of an attempt; of one that came in as pods, as these say it."""
        if run.job is None:
            pods = sorted(run.pods.values(), key=lambda one: one.slot.rank)
            known = (self.pods.objects.get(one.name.uid) for one in pods)
            try:
                run.job = job_again((one for one in known if one), self.rules, self.taints())
            except (InterlaneError, IndexError) as error:
                log.warning("%s runs, but its pods cannot be read: %s", run.attempt, error)
                run.job = read_spec({"name": "unreadable", "run": "unreadable"})
        return run.job

    def sight(self, attempt: Attempt) -> Sight:
        """Say what has become of an attempt; one that nobody has begun never will."""
        run = self.runs.open.get(attempt)
        if run is not None:
            return Begun(attempt) if run.is_begun else Pending(attempt)
        if attempt not in self.runs.over:
            self.runs.note(NeverBegan(attempt, NEVER))
        return self.runs.over[attempt]

    def withdraw(self, run: Run) -> None:
        """Tell that nobody wants a job any more that came in as pods."""
        if not run.is_withdrawn and run.origin.key is not None:
            run.is_withdrawn = True
            self.tell(Withdrawn(run.origin.key))


def _group_size(group: Document) -> int | None:
    """Return how many pods a group needs, in any of the spellings."""
    spec = group.get("spec") or {}
    policy = spec.get("schedulingPolicy") or spec.get("policy") or {}
    found = spec.get("minMember") or (policy.get("gang") or {}).get("minCount")
    return int(found) if found else None
