"""A cluster that a real driver schedules through a faulty proxy, all in one process."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final

from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.engine import KubernetesEngine, KubeSettings
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.kernel.scheduler import Scheduler
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import Cluster, JobId, Machine, Placement, Start
from interlane.policy.order import Fifo
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.testing.kube_audit import bound_pods
from interlane.testing.kube_cluster import ADMIN, KubeCluster
from interlane.testing.kube_kubelets import PlayedKubelets
from interlane.testing.kube_proxy import FaultyProxy
from interlane.testing.kube_world import NODES, PODS, node_document
from interlane.testing.waiting import until

PLAYED: Final = PodSettings("default", image="played")


def make_scheduler(machines: Cluster, lately: object) -> Scheduler:
    """Return a scheduler that goes first come, first served, and packs."""
    return Scheduler(machines, Policy(Fifo(), pack(), name="test"))


class ScheduledCluster:
    """See the module's text."""

    def __init__(
        self,
        cluster: KubeCluster,
        folder: Path,
        machines: Iterable[Machine],
        user: str = ADMIN,
        pods: PodSettings = PLAYED,
    ) -> None:
        self.cluster = cluster
        self.api = cluster.api()
        self.kubelets = PlayedKubelets(self.api)
        self.kubelets.start()
        for machine in machines:
            self.api.post(NODES, node_document(machine))
            self.kubelets.add_node(machine.id)
        self.proxy = FaultyProxy(cluster.url, cluster.ca, Random(7))
        kubeconfig = cluster.kubeconfig(user, self.proxy.start())
        settings = KubeSettings(pods)
        self.engine = KubernetesEngine(server_of(kubeconfig), settings)
        self.store = Store(f"sqlite:///{folder / 'state.db'}")
        plan = SchedulerPlan(make_scheduler)
        self.driver = Driver(self.store, plan, self.engine, observe_every_s=1.0)

    def __enter__(self) -> "ScheduledCluster":
        self.driver.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.driver.close()
        self.store.close()
        self.proxy.close()
        self.kubelets.close()

    # -- what is where ----------------------------------------------------------------

    def in_cluster(self) -> "Counter[tuple[str | None, str, tuple[int, ...]]]":
        """Return what the cluster says: whose pods are where."""
        return Counter((one.job, one.node, one.gpus) for one in bound_pods(self.api))

    def in_ledger(self) -> "Counter[tuple[str | None, str, tuple[int, ...]]]":
        """Return what the scheduler believes."""
        ids = [one.id for one in self.driver.open_records()]

        def question(scheduler: Scheduler, now_s: float) -> dict[JobId, Any]:
            return {job_id: scheduler.placement(job_id) for job_id in ids}

        found: Counter[tuple[str | None, str, tuple[int, ...]]] = Counter()
        for job_id, placement in self.driver.ask(question).result(60).items():
            for spot in () if placement is None else placement.spots:
                found[job_id, spot.machine, spot.gpus] += spot.instances
        return found

    def settled(self) -> None:
        """Wait until all pods have a node and the ledger says what the cluster says."""

        def is_settled() -> bool:
            waiting = [one for one in self.api.items(PODS) if not one["spec"].get("nodeName")]
            return not waiting and self.in_ledger() == self.in_cluster()

        until(is_settled, "a ledger that equals the cluster")

    # -- pods by name -----------------------------------------------------------------

    def _record(self, name: str) -> JobRecord | None:
        return next((one for one in self.driver.open_records() if one.job.name == name), None)

    def knows(self, name: str) -> bool:
        """Tell whether the driver knows the job of a pod."""
        return self._record(name) is not None

    def runs(self, name: str) -> bool:
        """Tell whether a pod runs on its node, and the driver knows it."""
        record = self._record(name)
        attempts = {one.job_id for one in self.kubelets.placements()}
        return record is not None and record.id in attempts and record.state.holds

    def told(self, name: str) -> str:
        """Return what a pod's condition says of why it is not scheduled."""
        conditions = (self.api.get(f"{PODS}/{name}").get("status") or {}).get("conditions")
        found = (one for one in conditions or () if one["type"] == "PodScheduled")
        return next((one.get("message") or "" for one in found), "")

    def finish(self, name: str) -> None:
        """Let a pod end well, and wait until the driver knows."""
        record = self._record(name)
        assert record is not None, f"{name} is not there to finish"
        for attempt in self.kubelets.placements():
            if attempt.job_id == record.id:
                self.kubelets.finish(attempt, 0)
        until(lambda: not self.knows(name), f"the end of {name}")

    def placed(self) -> list[tuple[str, Placement]]:
        """Return where jobs were placed, by the name of their pods, in order."""
        names = {one.id: one.job.name for one in self.store.jobs(JobsWanted(limit=100_000))}
        return [
            (names[entry.what.job_id], entry.what.placement)
            for entry in self.store.whole_log()
            if isinstance(entry.what, Start)
        ]
