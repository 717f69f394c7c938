"""A private Slurm for the tests of its engine; without root or Slurm they are skipped."""

from collections.abc import Iterator

import pytest

from interlane.testing.slurm_cluster import SlurmCluster, lacking, slurm


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    why = lacking()
    if why is not None:
        pytest.skip(why)
    with slurm() as running:
        yield running


@pytest.fixture
def on_cluster(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The private Slurm, to which programs of this process speak."""
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    return cluster
