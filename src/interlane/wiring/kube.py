"""Words to what runs in a Kubernetes cluster: agents, what is installed, and looks at it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from interlane.model import Unreachable

if TYPE_CHECKING:
    from interlane.engines.kubernetes.client import KubeClient
    from interlane.engines.kubernetes.install.doctor import ClusterFinding
    from interlane.engines.kubernetes.install.status import ClusterStatus


def kube_agent(
    node: str,
    *,
    kubeconfig: Path | None,
    namespace: str,
    seal: Path,
    devices: str,
    turns: str,
    sharing: str,
    folder: Path,
    kubelet: Path,
    host: str,
    port: int,
    report_every_s: float,
) -> None:
    """Serve a node of a cluster until told to end."""
    from interlane.engines.kubernetes.config import server_of
    from interlane.engines.kubernetes.node.agent import AgentSettings, run_agent

    settings = AgentSettings(
        node,
        namespace,
        seal,
        devices,
        turns,
        sharing,
        folder=folder,
        kubelet=kubelet,
        host=host,
        port=port,
        report_every_s=report_every_s,
    )
    asyncio.run(run_agent(settings, server_of(kubeconfig)))


def kube_extender(
    placer: str,
    *,
    kubeconfig: Path | None,
    seal: Path,
    host: str,
    port: int,
    say: Callable[[str], None],
) -> None:
    """Answer a cluster's own scheduler until told to end."""
    from interlane.engines.kubernetes.config import server_of
    from interlane.engines.kubernetes.extender.server import ExtenderSettings, run_extender
    from interlane.wiring import live_scheduler_maker

    make = live_scheduler_maker({"order": "fifo", "placer": placer, "queue": "skip"})
    settings = ExtenderSettings(seal, host, port)
    server = server_of(kubeconfig)
    asyncio.run(run_extender(settings, server, lambda cluster: make(cluster, ()), say))


def kube_objects(words: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all objects that are to be installed in a cluster."""
    from interlane.engines.kubernetes.install.objects import Installation, objects_of

    return objects_of(Installation(**words))


def kube_chart(words: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a Helm chart that installs the same."""
    from interlane.engines.kubernetes.install.chart import chart_of
    from interlane.engines.kubernetes.install.objects import Installation

    return chart_of(Installation(**words))


def kube_findings(
    kubeconfig: Path | None, context: str | None, home: str, jobs: str
) -> "list[ClusterFinding]":
    """Return what a cluster can do for us."""
    from interlane.engines.kubernetes.install.doctor import findings

    return _asked_of_cluster(kubeconfig, context, lambda client: findings(client, home, jobs))


def kube_status(kubeconfig: Path | None, context: str | None, home: str) -> "ClusterStatus":
    """Return who holds which GPU of a cluster."""
    from interlane.engines.kubernetes.install.status import status

    return _asked_of_cluster(kubeconfig, context, lambda client: status(client, home))


_T = TypeVar("_T")


def _asked_of_cluster(
    kubeconfig: Path | None,
    context: str | None,
    ask: "Callable[[KubeClient], Awaitable[_T]]",
) -> _T:
    """Ask an API server something, as a user's kubeconfig file says."""
    from interlane.engines.kubernetes.client import ApiError, KubeClient
    from interlane.engines.kubernetes.config import server_of

    async def asked() -> _T:
        client = KubeClient(server_of(kubeconfig, context))
        await client.open()
        try:
            return await ask(client)
        except ApiError as error:
            if error.status == 0:
                raise Unreachable(
                    f"No API server answers at {client.server.url} ({error.said})."
                ) from None
            raise
        finally:
            await client.close()

    return asyncio.run(asked())
