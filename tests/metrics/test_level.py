"""How unequally machines are allocated."""

import pytest

from interlane.metrics.level import allocation_spread
from interlane.model import Cluster
from interlane.policy import place
from interlane.policy.base import Placer
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, job, machine, make


def spread_of(on: Cluster, placer: Placer, *, end_s: float = 100.0) -> float:
    jobs = [job(name, gpus=1, cpus=12, types=["V100"]) for name in "abcd"]
    log = Simulator(make(on, placer=placer), jobs, [100.0] * 4).run()
    return allocation_spread(log, {"V100"}, begin_s=0.0, end_s=end_s)


def two() -> Cluster:
    return cluster(
        *(machine(name, gpus=4, type="V100", cpus=48) for name in "ab"), machine("c", gpus=8)
    )


def test_machines_that_are_equally_full_have_no_spread() -> None:
    assert spread_of(two(), place.balance()) == 0.0


def test_a_full_machine_beside_an_empty_one_has_the_largest_spread() -> None:
    # CPU and GPU full, memory empty: two thirds beside none.
    assert spread_of(two(), place.pack()) == pytest.approx(1 / 3)


def test_moments_without_anybody_count_as_level() -> None:
    assert spread_of(two(), place.pack(), end_s=200.0) == pytest.approx(1 / 6)


def test_types_that_the_cluster_has_not_have_no_spread() -> None:
    assert spread_of(cluster(machine("v", gpus=8, type="V100", cpus=96)), place.pack()) == 0.0
