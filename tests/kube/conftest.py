"""One control plane for all tests of a process; ``make kube`` builds what it is made of."""

from collections.abc import Iterator

import pytest

from interlane.testing.kube_cluster import KubeCluster, ProgramsMissing, kube_cluster
from interlane.testing.kube_world import empty


@pytest.fixture(scope="session")
def control_plane() -> Iterator[KubeCluster]:
    """Run a control plane."""
    try:
        with kube_cluster(users=("scheduler", "nobody")) as cluster:
            yield cluster
    except ProgramsMissing as error:
        pytest.skip(f"Kubernetes was not tested. {error}")


@pytest.fixture
def cluster(control_plane: KubeCluster) -> KubeCluster:
    """Return an empty cluster."""
    empty(control_plane.api())
    return control_plane
