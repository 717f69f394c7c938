"""Real kubelets with containerd, on which agents run as users install them."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.claims import Claim, Slot, bound_annotations
from interlane.engines.kubernetes.pods import name_of
from interlane.engines.kubernetes.reports import NodeReport, report_in
from interlane.engines.kubernetes.sealing import FIELD, SECRET
from interlane.live.files.job import Origin
from interlane.live.port import Attempt
from interlane.model import JobId, MachineId
from interlane.testing.kube_api import Document, KubeRefused
from interlane.testing.kube_cluster import ProgramsMissing, find_programs
from interlane.testing.kube_nodes import why_no_nodes
from interlane.testing.kube_site import KubeSite, apply, kube_site
from interlane.testing.waiting import until

PODS = "/api/v1/namespaces/default/pods"
KEY = b"a key of thirty-two bytes, of tests"[:32]


@dataclass
class Bench:
    """Runs pods on the site, bound as the scheduler binds them."""

    site: KubeSite
    made: list[str] = field(default_factory=list)

    def place(
        self,
        pod: Document,
        node: str,
        gpus: tuple[int, ...],
        milli: int = 500,
        *,
        size: int = 1,
        rank: int = 0,
        asks: int | None = None,
        forge: Callable[[dict[str, str]], dict[str, str]] = lambda said: said,
    ) -> Document:
        """Create a pod that asks for shares, and bind it."""
        if gpus:
            shares = len(gpus) * milli // 10 if asks is None else asks
            container = pod["spec"]["containers"][0]
            container.setdefault("resources", {}).setdefault("limits", {})[words.SHARE] = str(
                shares
            )
        # A name that no scheduler has: pods are bound here.
        pod["spec"]["schedulerName"] = "tests"
        name = name_of(self.create(pod))
        claim = Claim(
            Attempt(JobId(f"job-{name.name}"), 1, name.uid),
            Origin(1, "ann", 0.0, None),
            time.time(),
            size,
            Slot(MachineId(node), gpus, 0, rank),
        )
        said = bound_annotations(KEY, name, claim, gpu_milli=milli, gpu_memory_mib=0)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name.name, "annotations": forge(said)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.site.api.post(f"{PODS}/{name.name}/binding", binding)
        return self.site.api.get(f"{PODS}/{name.name}")

    def create(self, pod: Document) -> Document:
        """Create a pod, which a scheduler of the cluster binds."""
        made = self.site.api.post(PODS, pod)
        self.made.append(made["metadata"]["name"])
        return made

    def pod(self, name: str) -> Document:
        """Return a pod as it is now."""
        return self.site.api.get(f"{PODS}/{name}")

    def over(self, name: str) -> tuple[str, str]:
        """Wait for the end of a pod; return its phase and what it printed."""

        def is_over() -> bool:
            return self.pod(name)["status"].get("phase") in ("Succeeded", "Failed")

        try:
            until(is_over, f"the end of pod {name}")
        except AssertionError:
            print(json.dumps(self.pod(name)["status"], indent=1))
            print(self.events(name))
            raise
        found = self.pod(name)
        return found["status"]["phase"], self.site.output(found)

    def running(self, name: str) -> None:
        """Wait until a pod runs."""
        until(
            lambda: self.pod(name)["status"].get("phase") in ("Running", "Succeeded"),
            f"pod {name}",
        )

    def events(self, name: str) -> list[str]:
        """Return what was told about a pod."""
        found = self.site.api.items(
            "/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}"
        )
        return [f"{one['reason']}: {one['message']}" for one in found]

    def tidy(self) -> None:
        """Delete all pods."""
        for name in self.made:
            with suppress(KubeRefused):  # one that is gone already
                self.site.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        until(lambda: not self.site.api.items(PODS), "the end of all pods")


def _sealed(site: KubeSite) -> None:
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": site.wanted.namespace},
        "data": {FIELD: base64.b64encode(KEY).decode()},
    }
    apply(site.api, made)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeSite]:
    try:
        find_programs()
    except ProgramsMissing as error:
        pytest.skip(str(error))
    why = why_no_nodes()
    if why is not None:
        pytest.skip(why)
    shared = tmp_path_factory.mktemp("shared")
    shared.chmod(0o777)
    with kube_site(shared, before=_sealed) as made:
        yield made


@pytest.fixture
def bench(site: KubeSite) -> Iterator[Bench]:
    made = Bench(site)
    yield made
    made.tidy()


@pytest.fixture
def shared(site: KubeSite, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own that pods may write to."""
    folder: Path = site.shared / request.node.name.replace("[", "-").replace("]", "")[:60]
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def said(output: str) -> dict[str, Any]:
    """Return the last line that a program printed as JSON."""
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def report(site: KubeSite, node: str) -> NodeReport:
    """Return what the agent of a node tells."""
    path = f"/api/v1/namespaces/{site.wanted.namespace}/configmaps"
    return report_in(site.api.get(f"{path}/interlane-node-{node}"))


def says(site: KubeSite, pod: Document, line: str) -> bool:
    """Tell whether a pod has printed a line."""
    return line in site.output(pod).splitlines()
