"""Fragments: one formula for placers, which look ahead, and for figures, which look back."""

import numpy as np
import pytest

from interlane.metrics.fragments import fragments, lost_to
from interlane.model import Demand, Device, MachineId, with_devices
from interlane.tables import CPU, FREE, Table, TypeBits, machine_row, typical_rows

HALF = Demand(1, 500)
PAIR = Demand(2, 1000)


def idle_machine(*types: str) -> tuple[Table, TypeBits]:
    bits = TypeBits()
    bits.add(["MIXED", *types])
    one = with_devices(MachineId("m"), [Device(kind) for kind in types], cpu_milli=8_000)
    return machine_row(one, bits.bit, 4)[np.newaxis], bits


def lost(free: Table, bits: TypeBits, demand: Demand) -> int:
    idle = int(np.maximum(free[0, FREE : FREE + 4], 0).sum())
    typical = typical_rows([demand], bits.mask)
    return int(lost_to(free, 0, idle, free[0, CPU], typical, 0))


@pytest.mark.parametrize("types", [("V100", "V100"), ("V100", "T4")])
def test_what_others_took_beyond_what_was_free_is_no_fragment(types: tuple[str, str]) -> None:
    free, bits = idle_machine(*types)
    free[0, FREE : FREE + 2] = 600, -200

    assert lost(free, bits, HALF) == 0
    assert lost(free, bits, PAIR) == 600


def test_gpus_of_another_type_are_lost_to_a_kind_that_names_its_own() -> None:
    free, bits = idle_machine("V100", "T4")

    assert lost(free, bits, Demand(1, 500, gpu_types=frozenset({"T4"}))) == 1000
    assert lost(free, bits, Demand(1, 500, gpu_types=frozenset({"P100"}))) == 2000


def test_a_kind_whose_cpu_is_not_there_loses_all() -> None:
    free, bits = idle_machine("V100")

    assert lost(free, bits, Demand(1, 500, cpu_milli=9_000)) == 1000


def test_fragments_weigh_what_is_lost_to_each_kind() -> None:
    free, bits = idle_machine("V100", "V100")
    free[0, FREE] = 300
    typical, weights = typical_rows([HALF, PAIR], bits.mask), np.array([0.75, 0.25])

    assert fragments(free, 0, 8_000, typical, weights) == 0.75 * 300 + 0.25 * 1300
