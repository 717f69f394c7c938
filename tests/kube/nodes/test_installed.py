"""The scheduler as ``interlane kube manifests`` installs it, in pods of the cluster."""

import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest
from tests.kube.nodes.conftest import Bench, says
from tests.kube.nodes.test_devices import shell

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.install.objects import objects_of
from interlane.engines.kubernetes.install.roles import SCHEDULER
from interlane.testing.kube_api import Document
from interlane.testing.kube_site import PATHS, KubeSite, apply, runs_installed
from interlane.testing.waiting import until

READY_S = 600.0
"""A server compiles beside its work when it starts for the first time."""


@pytest.fixture
def installed(site: KubeSite) -> Iterator[KubeSite]:
    home = site.wanted.namespace
    (made,) = (one for one in objects_of(site.wanted) if one["kind"] == "Deployment")
    apply(site.api, runs_installed(made))
    path = f"{PATHS['Deployment'].format(home)}/{SCHEDULER}"

    def is_ready() -> bool:
        return bool(site.api.get(path)["status"].get("readyReplicas"))

    try:
        until(is_ready, "a scheduler that is ready", READY_S)
    except AssertionError:
        for pod in schedulers(site):
            print(pod["status"], site.output(pod) if pod["spec"].get("nodeName") else "")
        raise
    yield site
    site.api.delete(path, {"propagationPolicy": "Background"})
    until(lambda: not schedulers(site), "the end of the scheduler")


def schedulers(site: KubeSite) -> list[Document]:
    path = f"/api/v1/namespaces/{site.wanted.namespace}/pods"
    return site.api.items(path, labelSelector=f"app={SCHEDULER}")


def test_the_installed_scheduler_serves_and_gives_pods_their_parts_of_gpus(
    installed: KubeSite, bench: Bench
) -> None:
    leaders = [
        one
        for one in schedulers(installed)
        if all(each["ready"] for each in one["status"].get("containerStatuses", ()))
    ]
    assert len(leaders) == 1, "one leads, and the other stands by"
    assert len(schedulers(installed)) == 2
    at = f"http://{leaders[0]['status']['podIP']}:7411"
    with urllib.request.urlopen(f"{at}/readyz") as answer:
        assert answer.status == 200

    for name in ("one", "two"):
        pod = shell(name, "env; sleep 600")
        pod["spec"]["schedulerName"] = words.SCHEDULER  # type: ignore[index]
        pod["spec"]["terminationGracePeriodSeconds"] = 0  # type: ignore[index]
        container = pod["spec"]["containers"][0]  # type: ignore[index]
        container["resources"] = {"limits": {words.SHARE: "50", "cpu": "100m"}}
        bench.create(pod)
    for name in ("one", "two"):
        bench.running(name)
        found = bench.pod(name)
        gpu = found["metadata"]["annotations"][words.GPU_INDEX]
        line = f"INTERLANE_DEVICES={gpu}"
        until(partial(says, installed, found, line), f"words of {name}")
