"""The world behind the Kubernetes engine: a real API server, and kubelets that are played."""

import time
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.engine import KubernetesEngine, KubeSettings
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.live.driver.clock import Timed
from interlane.live.port import Attempt, Engine
from interlane.model import Machine, MachineId, Occupied, Placement
from interlane.testing.engines import Limits
from interlane.testing.kube_api import KubeApi, KubeRefused
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_kubelets import PlayedKubelets
from interlane.testing.kube_proxy import ApiFaults, FaultyProxy
from interlane.testing.waiting import AheadClock, until

STEP_S: Final = 0.05
IDLE_S: Final = 10.0
"""Seconds within which what was asked is done, as a rule."""
NAMESPACE: Final = "default"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES: Final = "/api/v1/nodes"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
GPU_MIB: Final = 16_384


def node_document(machine: Machine, **meta: object) -> dict[str, Any]:
    """Return the object of a node that offers what a machine has."""
    offers = {
        "cpu": f"{machine.cpu_milli}m",
        "memory": f"{machine.memory_mib}Mi",
        "pods": "250",
        **({"nvidia.com/gpu": f"{machine.gpus}"} if machine.gpus else {}),
    }
    ready = {"type": "Ready", "status": "True", "reason": "Played"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.id, "labels": dict(machine.labels), **meta},
        "status": {"capacity": offers, "allocatable": offers, "conditions": [ready]},
    }


def labelled(name: str, gpus: int, cpu_milli: int, memory_mib: int = 65_536) -> Machine:
    """Return a machine whose node says what its GPUs are."""
    labels = (("nvidia.com/gpu.memory", f"{GPU_MIB}"), ("nvidia.com/gpu.product", "PLAYED"))
    return Machine(
        MachineId(name),
        "PLAYED" if gpus else "",
        gpus,
        cpu_milli,
        memory_mib,
        GPU_MIB if gpus else 0,
        labels=labels if gpus else (),
    )


def empty(api: KubeApi) -> None:
    """Delete everything that a test has left."""
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for path in (JOBS, PODS, NODES):
        with suppress(KubeRefused):
            api.delete(path, now)

    def is_empty() -> bool:
        left = [one for path in (JOBS, PODS, NODES) for one in api.items(path)]
        if left:
            with suppress(KubeRefused):
                api.delete(PODS, now)
        return not left

    until(is_empty, "an empty cluster")


class KubeWorld:
    """A few nodes; they vanish and return, and pods are created and deleted by others."""

    def __init__(self, rng: Random, cluster: KubeCluster) -> None:
        self.limits = Limits(gpus_max=2, nodes_max=2, elastic=False)
        self.ahead_s = 0.0
        self._rng = rng
        self._api = cluster.api()
        empty(self._api)
        self._proxy = FaultyProxy(cluster.url, cluster.ca, Random(rng.random()))
        self._kubeconfig = cluster.kubeconfig(server=self._proxy.start())
        self._machines = {
            name: labelled(name, rng.randint(1, 3), rng.randint(2, 4) * 1_000)
            for name in (f"n{number}" for number in range(rng.randint(1, 3)))
        }
        self._there = dict(self._machines)
        self._cordoned: set[str] = set()
        self._foreign: dict[str, str] = {}
        self._asked: set[str] = set()
        self._names = iter(range(100_000))
        self._engine: KubernetesEngine | None = None
        self.kubelets = PlayedKubelets(self._api)
        for machine in self._machines.values():
            self._api.post(NODES, node_document(machine))
            self.kubelets.add_node(machine.id)
        self.kubelets.start()
        self._faults = rng.choice(
            (
                ApiFaults(),
                ApiFaults(refused=0.1, closed=0.05, expired=0.2),
                ApiFaults(unanswered=0.1, slow_s=0.1),
                ApiFaults(0.1, 0.1, 0.05, 0.05, 0.05, 0.2),
            )
        )
        self._proxy.faults = self._faults

    def close(self) -> None:
        """End what plays."""
        self.kubelets.close()
        self._proxy.close()

    def engine(self) -> Engine:
        """Return a new engine on the same cluster."""
        settings = KubeSettings(PodSettings(NAMESPACE, image="played"), lease_s=60.0)
        self._engine = KubernetesEngine(server_of(self._kubeconfig), settings)
        return self._engine

    def engine_died(self, engine: Engine) -> None:
        """Let its thread end; pods go on."""
        engine.close()

    def clock(self, at_least_s: float) -> Timed:
        """Return real time, and what was let pass."""
        return AheadClock(lambda: self.ahead_s, at_least_s)

    def wait(self, seconds: float) -> None:
        """Let time pass, and what is under way be done if there is enough of it."""
        self.ahead_s += seconds
        end_s = time.monotonic() + min(seconds, IDLE_S)
        time.sleep(min(seconds, STEP_S))
        while not self._is_idle() and time.monotonic() < end_s:
            time.sleep(STEP_S)

    def _is_idle(self) -> bool:
        return self._engine is None or self._engine.is_idle

    def command(self) -> str:
        """Return anything: nobody runs it."""
        return "true"

    def running(self) -> Mapping[Attempt, Placement]:
        """Return what kubelets run."""
        return self.kubelets.placements()

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often attempts have begun."""
        return self.kubelets.begun()

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return the codes with which attempts ended by themselves."""
        return self.kubelets.exits

    def struck(self) -> frozenset[Attempt]:
        """Return the attempts of which others deleted a pod, or took a node away."""
        with self.kubelets.lock:
            return frozenset(self.kubelets.hit)

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return the nodes that there are."""
        return {one.id: one for one in self._there.values()}

    def drained(self) -> frozenset[MachineId]:
        """Return the nodes that are cordoned."""
        return frozenset(MachineId(one) for one in self._cordoned)

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return what pods of others ask for."""
        taken: dict[MachineId, int] = {}
        for node in self._foreign.values():
            taken[MachineId(node)] = taken.get(MachineId(node), 0) + 500
        return {one: Occupied(one, milli) for one, milli in taken.items()}

    def withdrawn(self) -> frozenset[str]:
        """Return the pods for us that are gone."""
        return frozenset(self._asked & self.kubelets.gone)

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Let an attempt end by itself."""
        self.kubelets.finish(attempt, exit_code)

    def work(self) -> bool:
        """Give the engine's thread a moment; nobody can tell whether it is idle."""
        time.sleep(STEP_S)
        return False

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self._proxy.faults = ApiFaults()

    def restore(self) -> None:
        """Let all nodes be there, and nobody but us use them."""
        for name in self._machines.keys() - self._there.keys():
            self._return(name)
        for name in list(self._cordoned):
            self._cordon(name, cordoned=False)
        for name in list(self._foreign):
            self._delete(name)
            del self._foreign[name]

    # -- mishaps ----------------------------------------------------------------------

    def mishap(self) -> None:
        """Let one of many things happen."""
        name = self._rng.choice(sorted(self._machines))
        what = self._rng.randrange(9)
        if what == 0:
            (self._vanish if name in self._there else self._return)(name)
        elif what in (1, 2) and name not in self._there:
            self._return(name)
        elif what == 3 and name in self._there:
            self._cordon(name, cordoned=self._rng.random() < 0.5)
        elif what == 4 and name in self._there:
            self._occupy(name)
        elif what == 5:
            self._want()
        elif what == 6:
            self._delete_pod()
        elif what == 7:
            self._kill_pod()
        else:
            self._proxy.faults = ApiFaults() if self._rng.random() < 0.5 else self._faults

    def _vanish(self, name: str) -> None:
        """Let a node go; what others have there goes with it."""
        del self._there[name]
        self._cordoned.discard(name)
        self.kubelets.lose_node(name)
        self._api.delete(f"{NODES}/{name}")
        for pod in [pod for pod, node in self._foreign.items() if node == name]:
            self._delete(pod)
            del self._foreign[pod]

    def _return(self, name: str) -> None:
        self._api.post(NODES, node_document(self._machines[name]))
        self._there[name] = self._machines[name]
        self.kubelets.add_node(name)

    def _cordon(self, name: str, *, cordoned: bool) -> None:
        self._api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": cordoned}})
        (self._cordoned.add if cordoned else self._cordoned.discard)(name)

    def _occupy(self, node: str) -> None:
        """Let somebody else bind a pod, or delete theirs."""
        mine = sorted(pod for pod, where in self._foreign.items() if where == node)
        if mine:
            self._delete(mine[0])
            del self._foreign[mine[0]]
            return
        name = f"foreign-{next(self._names)}"
        self._api.post(PODS, pod_document(name, cpu="500m", nodeName=node))
        self._foreign[name] = node

    def _want(self) -> None:
        name = f"wanted-{next(self._names)}"
        pod = pod_document(name, cpu="1", schedulerName="interlane")
        made = self._api.post(PODS, pod)
        self._asked.add(made["metadata"]["uid"])

    def _delete_pod(self) -> None:
        """Let somebody delete a pod of ours: one that was made for us, or by us."""
        pods = self._api.items(PODS, fieldSelector="spec.schedulerName=interlane")
        if pods:
            self._delete(self._rng.choice(sorted(one["metadata"]["name"] for one in pods)))

    def _delete(self, name: str) -> None:
        with suppress(KubeRefused):
            self._api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        self.kubelets.lose_pod(f"{PODS}/{name}")

    def _kill_pod(self) -> None:
        with self.kubelets.lock:
            ours = self.kubelets.running.items()
            running = sorted(uid for uid, one in ours if one.attempt is not None)
        if running:
            self.kubelets.kill(self._rng.choice(running))


def pod_document(name: str, *, cpu: str = "1", **spec: object) -> dict[str, Any]:
    """Return a pod of one container."""
    container = {
        "name": "main",
        "image": "played",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }
