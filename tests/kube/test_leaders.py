"""Leaders are killed while pods come: nothing is bound twice, and all pods are scheduled."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from interlane.testing.kube_api import KubeApi
from interlane.testing.kube_audit import Witness, bound_pods, findings
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_kubelets import PlayedKubelets
from interlane.testing.kube_server import SERVING
from interlane.testing.kube_world import NODES, PODS, labelled, node_document, pod_document
from interlane.testing.waiting import until

KILLS = int(os.environ.get("INTERLANE_KUBE_KILLS", "4"))
GANG = 3
BURST = 9
"""Pods of each burst that are in no gang."""
CLOCKS_S = (0.0, 86_400.0, -86_400.0)
"""By how much the clocks of servers are wrong, in turns."""


class Servers:
    """Servers of one cluster, of which one leads."""

    def __init__(self, cluster: KubeCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._number = 0
        self.running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.killed_s = 0.0
        self.taken_over_s: list[float] = []
        """Seconds from the death of a leader until another one served."""

    def start(self) -> None:
        self._number += 1
        state = self._folder / f"state-{self._number}"
        log = self._folder / f"log-{self._number}"
        command = [sys.executable, "-m", "interlane.testing.kube_server"]
        command += ["--kubeconfig", str(self._cluster.kubeconfig()), "--state", str(state)]
        command += ["--identity", f"server-{self._number}"]
        command += [f"--clock-ahead-s={CLOCKS_S[self._number % len(CLOCKS_S)]}"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        self.running.append((process, log))

    def serving(self) -> "list[tuple[subprocess.Popen[bytes], str]]":
        """Return those that serve, and what they said."""
        self.running = [one for one in self.running if one[0].poll() is None]
        while len(self.running) < 2:
            self.start()  # as a Deployment does it; one that could not renew in time ends
        said = [(process, log.read_text(errors="replace")) for process, log in self.running]
        return [one for one in said if SERVING in one[1]]

    def leader(self) -> "subprocess.Popen[bytes]":
        """Wait for the server that serves, and return it."""
        until(self.serving, "a server that leads")
        process, said = self.serving()[0]
        if self.killed_s:
            served_s = float(said.rpartition(SERVING)[2].split()[0])
            self.taken_over_s.append(round(served_s - self.killed_s, 1))
            self.killed_s = 0.0
        return process

    def kill_leader(self) -> None:
        leader = self.leader()
        self.killed_s = time.monotonic()
        leader.send_signal(signal.SIGKILL)
        leader.wait()

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


@pytest.fixture
def kubelets(cluster: KubeCluster) -> Iterator[PlayedKubelets]:
    made = PlayedKubelets(cluster.api())
    made.start()
    for number in range(8):
        machine = labelled(f"node-{number}", 8, 64_000)
        made.api.post(NODES, node_document(machine))
        made.add_node(machine.id)
    yield made
    made.close()


def _bound(api: KubeApi, least: int) -> bool:
    return len(bound_pods(api)) >= least


def burst(api: KubeApi, number: int) -> None:
    """Let pods and a gang come."""
    for at in range(BURST):
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


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killed_leaders_lose_nothing_and_bind_nothing_twice(
    cluster: KubeCluster, kubelets: PlayedKubelets, tmp_path: Path
) -> None:
    """The clocks of servers are a day apart; whoever looks on sees every change of a pod."""
    api = cluster.api()
    witness = Witness(cluster.api())
    witness.start()
    with servers(cluster, tmp_path) as made:
        made.leader()
        for number in range(KILLS):
            made.serving()  # another one stands by
            burst(api, number)
            least = number * (BURST + GANG) + number % 5  # in the midst of binding
            until(partial(_bound, api, least), "some pods are bound")
            made.kill_leader()
            assert [one for one in findings(api) if "Gang" not in one] == []
        made.leader()

        def all_bound() -> bool:
            pods = api.items(PODS)
            return bool(pods) and all(one["spec"].get("nodeName") for one in pods)

        until(all_bound, "all pods are scheduled")
        print("take-over:", json.dumps(made.taken_over_s), "s")
    assert findings(api) == []
    assert len(bound_pods(api)) == KILLS * (BURST + GANG)
    until(lambda: len(kubelets.begun()) == KILLS * (BURST + 1), "all of them run")
    assert set(kubelets.begun().values()) == {1}
    assert witness.close() == []
    assert len(witness.bound) == KILLS * (BURST + GANG)
    assert len(made.taken_over_s) == KILLS
