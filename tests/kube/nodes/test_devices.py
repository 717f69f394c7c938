"""Pods get the devices that the scheduler chose, and nothing else."""

import json

from tests.kube.nodes.conftest import Bench

from interlane.engines.kubernetes import annotations as words
from interlane.testing.kube_image import BUSYBOX
from interlane.testing.kube_site import KubeSite
from interlane.testing.waiting import until

NODE = "real-0"


def shell(name: str, *script: str) -> dict[str, object]:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", *script],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def test_pods_find_the_index_that_was_chosen_in_their_environment(bench: Bench) -> None:
    """Four of one size on two GPUs, bound in an order that no rule would choose."""
    wanted = {"d": 1, "a": 0, "c": 0, "b": 1}
    for name, gpu in wanted.items():
        bench.place(shell(name, "env"), NODE, (gpu,), 300)
    bench.place(shell("both", "env"), NODE, (0, 1), 400)

    for name, gpu in wanted.items():
        phase, output = bench.over(name)
        env = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert phase == "Succeeded"
        assert (env["INTERLANE_DEVICES"], env["INTERLANE_GPU_MILLI"]) == (str(gpu), "300")
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        request = json.loads(env["INTERLANE_SHARE_REQUEST"])
        assert (request["device"], request["share"]) == (gpu, 300)
    _, output = bench.over("both")
    env = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert env["INTERLANE_DEVICES"] == "0,1"
    assert "INTERLANE_SHARE_REQUEST" not in env


def test_a_pod_whose_annotations_a_user_wrote_never_starts(bench: Bench) -> None:
    def forged(said: dict[str, str]) -> dict[str, str]:
        return {**said, words.GPU_INDEX: "1"}

    bench.place(shell("thief", "env"), NODE, (0,), 500, forge=forged)
    phase, output = bench.over("thief")

    assert (phase, output) == ("Failed", "")
    found = bench.pod("thief")["status"]
    assert "interlane" in found["message"]
    assert found["reason"] == "UnexpectedAdmissionError"


def test_what_others_hold_is_not_given_to_a_pod(bench: Bench) -> None:
    """Whoever bound both believed that GPU 0 was free: the node does not."""
    bench.place(shell("first", "sleep 600"), NODE, (0,), 700)
    bench.running("first")
    bench.place(shell("second", "env"), NODE, (0,), 400)

    assert bench.over("second") == ("Failed", "")
    assert "owns GPU 0 of real-0" in bench.pod("second")["status"]["message"]
    assert bench.pod("first")["status"]["phase"] == "Running"


def test_an_agent_that_starts_again_knows_who_holds_what(site: KubeSite, bench: Bench) -> None:
    bench.place(shell("before", "sleep 600"), NODE, (1,), 500)
    bench.running("before")

    path = f"/api/v1/namespaces/{site.wanted.namespace}/pods"
    (agent,) = (one for one in site.api.items(path) if one["spec"]["nodeName"] == NODE)
    site.api.delete(f"{path}/{agent['metadata']['name']}")

    def has_come() -> bool:
        found = [one for one in site.api.items(path) if one["spec"].get("nodeName") == NODE]
        ready = [
            each["ready"]
            for one in found
            for each in one["status"].get("containerStatuses", ())
            if one["metadata"]["uid"] != agent["metadata"]["uid"]
        ]
        return ready == [True]

    until(has_come, "the next agent")
    bench.place(shell("after", "env"), NODE, (0,), 500)
    phase, output = bench.over("after")
    assert phase == "Succeeded"
    assert "INTERLANE_DEVICES=0" in output.splitlines()
    assert bench.pod("before")["status"]["phase"] == "Running"


def test_a_kubelet_that_starts_again_counts_the_same(site: KubeSite, bench: Bench) -> None:
    """It forgets its plugins: the agent registers anew, and what runs keeps its devices."""
    node = site.node("real-2")
    bench.place(shell("stays", "sleep 600"), node.name, (0,), 800)
    bench.running("stays")
    path = f"/api/v1/namespaces/{site.wanted.namespace}/pods"
    (agent,) = (one for one in site.api.items(path) if one["spec"]["nodeName"] == node.name)
    before = site.output(agent).count("The kubelet counts")
    node.kubelet.kill()
    node.kubelet.start()
    until(
        lambda: site.output(agent).count("The kubelet counts") > before, "the plugin's return"
    )

    bench.place(shell("fits", "env"), node.name, (1,), 800)
    phase, output = bench.over("fits")
    assert phase == "Succeeded"
    assert "INTERLANE_DEVICES=1" in output.splitlines()
    bench.place(shell("wide", "env"), node.name, (0,), 300)
    assert bench.over("wide") == ("Failed", "")
    assert bench.pod("stays")["status"]["phase"] == "Running"
