"""Words to the engine of a Kubernetes cluster."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.engine import KEEP_S, KubernetesEngine, KubeSettings
from interlane.engines.kubernetes.explaining import Explaining
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.live.view import View


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The engine, and what is worth knowing of it before it runs."""

    engine: KubernetesEngine
    greeting: str

    def lead(self, say: Callable[[str], None]) -> None:
        """Wait until this server leads."""
        self.engine.lead(lambda holder: say(f"Standing by: {holder} leads the cluster."))

    def explain_from(self, view: View) -> None:
        """Say on pods why they wait."""
        Explaining(view, self.engine).start()


def kubernetes(
    kubeconfig: Path | None,
    namespace: str | None,
    home: str | None,
    image: str | None,
    keep_s: float,
) -> Kubernetes:
    """Return the engine of a cluster.

    Args:
        kubeconfig: where the cluster is; as kubectl finds it, if not given.
        namespace: of submitted jobs; the kubeconfig's, if not given.
        home: of the lease, the key and agents' reports; that of jobs, if not given.
        image: of jobs that name none.
        keep_s: seconds for which Jobs that have ended are kept, an hour at most.
    """
    server = server_of(kubeconfig)
    server = replace(server, namespace=namespace or server.namespace)
    identity = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    settings = KubeSettings(
        PodSettings(server.namespace, home or "", image), identity, keep_s=min(keep_s, KEEP_S)
    )
    greeting = (
        f"Scheduling pods of {server.url} that say schedulerName: interlane; jobs run in "
        f"namespace {server.namespace}."
    )
    return Kubernetes(KubernetesEngine(server, settings), greeting)
