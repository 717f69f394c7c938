"""The driver and an engine that pretends keep the contract, whatever goes wrong.

``make conformance`` plays a thousand scripts: ``INTERLANE_SCRIPTS`` says how many.
"""

import os

import pytest

from interlane.live.port import Attempt, Ended
from interlane.testing.conformance import check_engine
from interlane.testing.worlds import PretendedWorld, pretended

SCRIPTS = int(os.environ.get("INTERLANE_SCRIPTS", "60"))
BUNDLE = 10
"""Scripts that one test plays."""


@pytest.mark.parametrize("first", range(0, SCRIPTS, BUNDLE))
def test_an_engine_that_pretends_keeps_the_contract(first: int) -> None:
    for seed in range(first, first + BUNDLE):
        check_engine(pretended, seed)


@pytest.mark.parametrize("seed", [211])  # a launch that arrives after an old copy was put back
def test_scripts_that_have_found_a_fault_are_kept(seed: int) -> None:
    check_engine(pretended, seed)


def test_a_script_plays_the_same_way_again() -> None:
    ends: list[dict[Attempt, Ended]] = []

    class Remembered(PretendedWorld):
        def restore(self) -> None:
            ends.append(dict(self.world.over))
            super().restore()

    for seed in (0, 1, 2, 0, 1, 2):
        check_engine(Remembered, seed)

    assert ends[:3] == ends[3:]
    assert all(ends)
