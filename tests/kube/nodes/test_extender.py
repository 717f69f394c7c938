"""A stock kube-scheduler that asks us: nodes and GPUs are those of our placer."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.kube.nodes.conftest import KEY, PODS, Bench, says
from tests.kube.nodes.test_devices import shell

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.node.claims import claim_of
from interlane.testing.kube_api import Document
from interlane.testing.kube_site import KubeSite
from interlane.testing.waiting import until

NAME = "asks-interlane"


@pytest.fixture(scope="module")
def extended(site: KubeSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeSite]:
    """A second scheduler of the cluster, which asks our extender."""
    folder = tmp_path_factory.mktemp("extender")
    (folder / "key").write_bytes(KEY)
    program = str(Path(sys.executable).parent / "interlane")
    command = (
        *(program, "kube", "extender", "--kubeconfig", str(site.cluster.kubeconfig())),
        *("--seal", str(folder / "key"), "--host", "127.0.0.1", "--port", "0"),
    )
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stderr=log, stdout=log) as process,
    ):
        until(lambda: "Serving http://" in (folder / "log").read_text(), "the extender")
        said = (folder / "log").read_text()
        url = said.partition("Serving ")[2].split()[0]
        scheduler = site.cluster.start_scheduler(config=_config(site, folder, url))
        yield site
        scheduler.end()
        process.terminate()
        assert process.wait() == 0, (folder / "log").read_text()


def _config(site: KubeSite, folder: Path, url: str) -> Path:
    said = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(site.cluster.kubeconfig())},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": NAME}],
        "extenders": [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "bindVerb": "bind",
                "weight": 100,
                "nodeCacheCapable": True,
                "httpTimeout": "60s",
                "managedResources": [{"name": words.SHARE}],
            }
        ],
    }
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(said))
    return file


def asking(name: str, shares: int) -> Document:
    pod: Document = shell(name, "env; sleep 600")
    pod["spec"]["schedulerName"] = NAME
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    pod["spec"]["containers"][0]["resources"] = {"limits": {words.SHARE: str(shares)}}
    return pod


def test_pods_land_where_our_placer_puts_them(extended: KubeSite, bench: Bench) -> None:
    """Six parts of two fifths fill three GPUs, two on each: the placer packs."""
    names = [f"part-{at}" for at in range(6)]
    for name in names:
        bench.create(asking(name, 40))
        bench.running(name)

    held: Counter[tuple[str, int]] = Counter()
    for name in names:
        pod = bench.pod(name)
        claim = claim_of(pod, pod["spec"]["nodeName"], KEY)
        assert claim is not None, "the binding is not sealed"
        (gpu,) = claim.gpus
        held[pod["spec"]["nodeName"], gpu] += 400
        line = f"INTERLANE_DEVICES={gpu}"
        until(partial(says, extended, pod, line), f"words of {name}")
    assert sorted(held.values()) == [800, 800, 800]
    assert len({node for node, _ in held}) == 2

    bench.create(asking("large", 100))
    bench.running("large")
    pod = bench.pod("large")
    where = pod["spec"]["nodeName"], int(pod["metadata"]["annotations"][words.GPU_INDEX])
    assert where not in held


def test_a_pod_that_asks_for_what_cannot_be_waits_and_is_told_why(
    extended: KubeSite, bench: Bench
) -> None:
    bench.create(asking("odd", 150))

    def told() -> bool:
        return any("FailedScheduling" in one for one in bench.events("odd"))

    until(told, "an event of the scheduler")
    said = json.dumps(bench.events("odd"))
    assert "100 for each of 1 GPUs at most" in said
    assert not extended.api.get(f"{PODS}/odd")["spec"].get("nodeName")
