"""Whatever goes wrong with the API server, the ledger equals the cluster afterwards."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.testing.kube_audit import findings
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_proxy import ApiFaults
from interlane.testing.kube_scheduled import ScheduledCluster
from interlane.testing.kube_world import NODES, PODS, labelled, pod_document
from interlane.testing.waiting import until

STALLED_S = 8.0
"""Longer than requests may last, so that some are given up and asked again."""


class Scheduled(ScheduledCluster):
    """Four nodes, and pods that share their GPUs."""

    def __init__(self, cluster: KubeCluster, folder: Path) -> None:
        machines = [labelled(f"node-{number}", 4, 16_000) for number in range(4)]
        super().__init__(cluster, folder, machines)
        self._names = iter(range(10_000))

    def come(self, count: int) -> None:
        """Let pods come that share GPUs."""
        for _ in range(count):
            pod = pod_document(
                f"pod-{next(self._names)}", cpu="100m", schedulerName="interlane"
            )
            pod["metadata"]["annotations"] = {"interlane.dev/gpu-fraction": "0.3"}
            self.api.post(PODS, pod)

    def settled(self) -> None:
        super().settled()
        assert findings(self.api) == []


@pytest.fixture
def scheduled(cluster: KubeCluster, tmp_path: Path) -> Iterator[Scheduled]:
    with Scheduled(cluster, tmp_path) as made:
        assert isinstance(made, Scheduled)
        yield made


@pytest.mark.parametrize(
    "faults",
    [
        ApiFaults(refused=0.3),
        ApiFaults(unanswered=0.3),
        ApiFaults(conflicts=0.3),
        ApiFaults(closed=0.2, expired=0.5),
        ApiFaults(slow_s=0.5),
        ApiFaults(0.1, 0.1, 0.1, 0.1, 0.1, 0.2),
    ],
    ids=["storms of 429 and 500", "lost answers", "409", "closed watches", "slow", "all"],
)
def test_storms_pass_and_leave_nothing_behind(scheduled: Scheduled, faults: ApiFaults) -> None:
    scheduled.proxy.faults = faults
    scheduled.come(12)
    until(lambda: len(scheduled.in_cluster()) >= 8, "most pods are bound in the storm")
    assert scheduled.proxy.played or faults.slow_s
    scheduled.proxy.faults = ApiFaults()
    scheduled.settled()
    assert sum(scheduled.in_cluster().values()) == 12


def test_a_restarted_api_server_loses_nothing(scheduled: Scheduled) -> None:
    scheduled.come(4)
    scheduled.proxy.faults = ApiFaults(slow_s=1.0)  # bindings are on their way when it dies
    scheduled.come(4)
    scheduled.cluster.restart_apiserver()
    scheduled.proxy.faults = ApiFaults()
    scheduled.come(4)
    scheduled.settled()
    assert sum(scheduled.in_cluster().values()) == 12


def test_a_stalled_etcd_delays_pods_and_no_decision(scheduled: Scheduled) -> None:
    scheduled.come(4)
    scheduled.settled()
    scheduled.proxy.faults = ApiFaults(slow_s=0.5)
    scheduled.come(4)
    with scheduled.cluster.stalled_etcd():
        late = threading.Thread(target=scheduled.come, args=(4,))
        late.start()
        for _ in range(20):  # whoever asks the scheduler is answered meanwhile
            assert sum(scheduled.in_ledger().values()) >= 4
        time.sleep(STALLED_S)
        assert scheduled.driver.is_ready
    late.join()
    scheduled.proxy.faults = ApiFaults()
    scheduled.settled()
    assert sum(scheduled.in_cluster().values()) == 12


def test_a_node_that_is_lost_takes_its_pods_out_of_the_ledger(scheduled: Scheduled) -> None:
    scheduled.come(10)
    scheduled.settled()
    node = next(iter(scheduled.in_cluster()))[1]
    scheduled.kubelets.lose_node(node)
    scheduled.api.delete(f"{NODES}/{node}")

    def is_out() -> bool:
        return all(one[1] != node for one in scheduled.in_ledger() + scheduled.in_cluster())

    until(is_out, "nothing is counted there")
    scheduled.settled()


def test_pods_that_are_deleted_while_they_are_bound_are_forgotten(scheduled: Scheduled) -> None:
    scheduled.proxy.faults = ApiFaults(slow_s=0.3)
    scheduled.come(10)
    for pod in scheduled.api.items(PODS)[::2]:
        scheduled.api.delete(f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    scheduled.proxy.faults = ApiFaults()
    until(lambda: len(scheduled.api.items(PODS)) == 5, "half of the pods are gone")
    scheduled.settled()
    until(lambda: len(scheduled.driver.open_records()) == 5, "their jobs have ended")
