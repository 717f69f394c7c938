"""The suite of engines is only as good as the faults it finds: each planted one must fall."""

from collections.abc import Callable
from random import Random

import pytest

from interlane.testing.conformance import ContractBroken, EngineWorld, check_engine
from interlane.testing.faulty_engines import FAULTY_ENGINES

SEEDS = 60
"""Scripts within which a fault must have been found; most fall in the first few."""


def play_all(make: Callable[[Random], EngineWorld]) -> None:
    for seed in range(SEEDS):
        check_engine(make, seed)


@pytest.mark.parametrize("fault", FAULTY_ENGINES)
def test_every_planted_engine_is_caught_for_what_it_does(fault: str) -> None:
    planted = FAULTY_ENGINES[fault]

    with pytest.raises(ContractBroken) as caught:
        play_all(planted.make)

    assert caught.value.clause in planted.clauses, caught.value
