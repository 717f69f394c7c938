"""Real Kubernetes keeps the contract of every engine; only kubelets are played."""

import os
from random import Random

import pytest

from interlane.testing.conformance import check_engine
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_world import KubeWorld

SCRIPTS = int(os.environ.get("INTERLANE_KUBE_SCRIPTS", "6"))


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_the_engine_keeps_the_contract(cluster: KubeCluster, seed: int) -> None:
    worlds: list[KubeWorld] = []

    def made(rng: Random) -> KubeWorld:
        worlds.append(KubeWorld(rng, cluster))
        return worlds[-1]

    try:
        assert check_engine(made, seed, steps=60) > 60
    finally:
        for world in worlds:
            world.close()
