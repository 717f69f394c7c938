"""The engine of Slurm keeps the contract of all engines, on a real Slurm."""

import os
from pathlib import Path

import pytest

from interlane.testing.conformance import check_engine
from interlane.testing.slurm_cluster import SlurmCluster
from interlane.testing.slurm_world import SlurmWorld

SCRIPTS = int(os.environ.get("INTERLANE_SLURM_SCRIPTS", "3"))
STEPS = 40


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_the_engine_of_slurm_keeps_the_contract(
    seed: int, tmp_path: Path, on_cluster: SlurmCluster
) -> None:
    worlds: list[SlurmWorld] = []

    def made(rng: object) -> SlurmWorld:
        worlds.append(SlurmWorld(rng, tmp_path, on_cluster))  # type: ignore[arg-type]
        return worlds[0]

    try:
        check_engine(made, seed, steps=STEPS)
    finally:
        worlds[0].close()
