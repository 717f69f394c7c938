"""The engine of this machine keeps the contract of all engines, with real processes."""

from pathlib import Path

import pytest

from interlane.testing.conformance import check_engine
from interlane.testing.local_world import LocalWorld


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_of_this_machine_keeps_the_contract(seed: int, tmp_path: Path) -> None:
    check_engine(lambda rng: LocalWorld(rng, tmp_path), seed, steps=40)
