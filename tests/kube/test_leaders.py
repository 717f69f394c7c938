"""Leaders are killed while pods come: nothing is bound twice, and all pods are scheduled."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from interlane.testing.kube_api import KubeApi
from interlane.testing.kube_audit import bound_pods, findings
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_kubelets import PlayedKubelets
from interlane.testing.kube_server import SERVING
from interlane.testing.kube_world import NODES, PODS, labelled, node_document, pod_document
from interlane.testing.waiting import until

KILLS = int(os.environ.get("INTERLANE_KUBE_KILLS", "6"))
LEASE_S = 3.0
"""Short, so that the test is; what is lost within it is the same."""
GANG = 3


class Servers:
    """Two servers of one cluster, of which one leads."""

    def __init__(self, cluster: KubeCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._number = 0
        self.running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self) -> None:
        self._number += 1
        state = self._folder / f"state-{self._number}"
        log = self._folder / f"log-{self._number}"
        command = [sys.executable, "-m", "interlane.testing.kube_server"]
        command += ["--kubeconfig", str(self._cluster.kubeconfig()), "--state", str(state)]
        command += ["--identity", f"server-{self._number}", "--lease-s", f"{LEASE_S}"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        self.running.append((process, log))

    def leader(self) -> "subprocess.Popen[bytes]":
        """Wait for the server that serves, and return it."""

        def serving() -> "list[subprocess.Popen[bytes]]":
            if all(process.poll() is not None for process, _ in self.running):
                self.start()  # one that could not renew in time ends, as it should
            return [
                process
                for process, log in self.running
                if process.poll() is None and SERVING in log.read_text(errors="replace")
            ]

        until(serving, "a server that leads")
        return serving()[0]

    def kill_leader(self) -> None:
        leader = self.leader()
        leader.send_signal(signal.SIGKILL)
        leader.wait()
        self.running = [one for one in self.running if one[0].poll() is None]

    def close(self) -> None:
        for process, _ in self.running:
            process.kill()
            process.wait()


@contextmanager
def servers(cluster: KubeCluster, folder: Path) -> Iterator[Servers]:
    made = Servers(cluster, folder)
    try:
        yield made
    finally:
        made.close()


def _bound(api: KubeApi, least: int) -> bool:
    return len(bound_pods(api)) >= least


def burst(api: KubeApi, number: int) -> None:
    """Let pods and a gang come."""
    for at in range(6):
        pod = pod_document(f"burst-{number}-{at}", cpu="100m", schedulerName="interlane")
        pod["metadata"]["annotations"] = {"interlane.dev/gpu-fraction": "0.25"}
        api.post(PODS, pod)
    for at in range(GANG):
        pod = pod_document(f"gang-{number}-{at}", cpu="100m", schedulerName="interlane")
        pod["metadata"]["annotations"] = {
            "interlane.dev/gang": f"gang-{number}",
            "interlane.dev/gang-size": f"{GANG}",
        }
        api.post(PODS, pod)


def test_killed_leaders_lose_nothing_and_bind_nothing_twice(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    api = cluster.api()
    kubelets = PlayedKubelets(api)
    kubelets.start()
    for number in range(8):
        machine = labelled(f"node-{number}", 8, 64_000)
        api.post(NODES, node_document(machine))
        kubelets.add_node(machine.id)
    with servers(cluster, tmp_path) as made:
        made.start()
        made.leader()
        for number in range(KILLS):
            made.start()  # it stands by, or leads as soon as the other is gone
            burst(api, number)
            least = number * (6 + GANG) + number % 5  # in the midst of binding
            until(partial(_bound, api, least), "some pods are bound")
            made.kill_leader()
            assert findings(api) == []
        made.leader()

        def all_bound() -> bool:
            pods = api.items(PODS)
            return bool(pods) and all(one["spec"].get("nodeName") for one in pods)

        until(all_bound, "all pods are scheduled")
    assert findings(api) == []
    assert len(bound_pods(api)) == KILLS * (6 + GANG)
    assert set(kubelets.begun().values()) == {1}
    kubelets.close()
