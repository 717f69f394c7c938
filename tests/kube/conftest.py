"""One control plane for all tests of a process; ``make kube`` builds what it is made of."""

from collections.abc import Iterator

import pytest

from interlane.testing.kube_cluster import KubeCluster, ProgramsMissing, kube_cluster
from interlane.testing.kube_world import empty

NOT_TESTED = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[KubeCluster]:
    """Run a control plane."""
    try:
        with kube_cluster() as cluster:
            yield cluster
    except ProgramsMissing as error:
        pytest.skip(f"Kubernetes was not tested. {error}")


@pytest.fixture
def cluster(control_plane: KubeCluster) -> KubeCluster:
    """Return an empty cluster."""
    empty(control_plane.api())
    return control_plane


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Remember what was left out, and why."""
    found = config.stash.setdefault(NOT_TESTED, {})
    for one in terminalreporter.getreports("skipped"):
        why = one.longrepr[2] if isinstance(one.longrepr, tuple) else f"{one.longrepr}"
        why = why.removeprefix("Skipped: ")
        found[why] = found.get(why, 0) + 1


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close with what was not tested on this machine."""
    found = config.stash.get(NOT_TESTED, None)
    if found is None:
        return
    for why, count in found.items():
        print(f"kube: {count} tests were left out: {why}")
    if not found:
        print("kube: nothing was left out; control plane, nodes and pods were real.")
