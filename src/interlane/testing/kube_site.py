"""A cluster with real nodes on which our agents run, installed as users install them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.engines.kubernetes.annotations import SHARE, SHARES_PER_GPU
from interlane.engines.kubernetes.install.objects import Installation, objects_of
from interlane.testing.kube_api import Document, KubeApi
from interlane.testing.kube_cluster import KubeCluster, kube_cluster
from interlane.testing.kube_image import HOST, host_mounts
from interlane.testing.kube_nodes import KubeNode, kube_nodes
from interlane.testing.waiting import until

GPUS: Final = 2
"""Emulated ones of each node."""
PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1beta1/namespaces/{}/poddisruptionbudgets",
    "Secret": "/api/v1/namespaces/{}/secrets",
}


@dataclass(frozen=True)
class KubeSite:
    """Where tests run their pods."""

    cluster: KubeCluster
    nodes: list[KubeNode]
    api: KubeApi
    wanted: Installation
    shared: Path
    """A folder that every pod of ``host_pod`` may write to."""

    def node(self, name: str) -> KubeNode:
        """Return a node by name."""
        return next(one for one in self.nodes if one.name == name)

    def output(self, pod: Document) -> str:
        """Return what the container of a pod printed."""
        container = pod["spec"]["containers"][0]["name"]
        return self.node(pod["spec"]["nodeName"]).output(pod, container)

    def host_pod(self, name: str, *command: str, **spec: Any) -> Document:  # noqa: ANN401
        """Return a pod that runs a command of this machine."""
        return runs_here(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "main", "command": list(command)}],
                    **spec,
                },
            },
            self.shared,
        )


def runs_here(pod: Document, *more: Path) -> Document:
    """Let the containers of a pod, or of a pod's template, run what this machine has."""
    volumes, mounts = host_mounts(*more)
    for container in pod["spec"]["containers"]:
        container.update(image=HOST, imagePullPolicy="Never")
        container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
    pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), *volumes]
    return pod


def apply(api: KubeApi, made: Document) -> Document:
    """Create an object."""
    return api.post(PATHS[made["kind"]].format(made["metadata"].get("namespace")), made)


@contextmanager
def kube_site(
    folder: Path, nodes: int = 3, before: Callable[[KubeSite], None] = lambda site: None
) -> Iterator[KubeSite]:
    """Run a cluster with agents on all nodes; our scheduler is not among what runs there.

    Args:
        folder: one that pods may write to.
        nodes: how many there are.
        before: called when there are nodes and not yet agents, which wait for a Secret.
    """
    wanted = Installation(
        devices=f"cpu:{GPUS}:1GiB", node_selector={}, policy_api="policy/v1beta1"
    )
    with kube_cluster() as cluster, kube_nodes(cluster, nodes) as running:
        cluster.start_scheduler()
        site = KubeSite(cluster, running, cluster.api(), wanted, folder)
        _install(site)
        before(site)
        until(lambda: _offered(site) == nodes, "GPUs of all nodes")
        yield site


def _install(site: KubeSite) -> None:
    for made in objects_of(site.wanted):
        if made["kind"] == "Deployment":
            continue
        apply(site.api, runs_installed(made) if made["kind"] == "DaemonSet" else made)


def runs_installed(made: Document) -> Document:
    """Let what is installed run this very checkout instead of an image's."""
    runs_here(made["spec"]["template"])
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["command"][0] = str(Path(sys.executable).parent / "interlane")
    return made


def _offered(site: KubeSite) -> int:
    """Return on how many nodes all shares can be had."""
    nodes = site.api.items("/api/v1/nodes")
    shares = [one["status"]["allocatable"].get(SHARE, "0") for one in nodes]
    return shares.count(str(GPUS * SHARES_PER_GPU))
