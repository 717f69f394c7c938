"""Rows of machines and asks, against brute force and by hand."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlane import tables
from interlane.kernel.ledger import Ledger
from interlane.model import MILLI, Demand, Device
from interlane.policy import rows
from interlane.tables import compiled as in_tables
from interlane.testing.build import cluster, demand, ledger_with, machine
from interlane.testing.strategies import clusters, demands, ledgers


def entered(ledger: Ledger, needs: Demand, together: int = 1) -> int:
    """Enter an ask; return its number."""
    return ledger.add_ask(needs, needs.gpu_types, together)


def room(ledger: Ledger, at: int, ask: int) -> int:
    return int(rows.room_for(ledger.free, at, ledger.asks, ask))


def take(ledger: Ledger, at: int, ask: int, mask: int, instances: int = 1) -> None:
    in_tables.change(ledger.free, at, ledger.asks, ask, mask, instances)


def was_there(ledger: Ledger, at: int, ask: int, mask: int) -> bool:
    return bool(rows.was_there(ledger.free, at, ledger.asks, ask, mask))


def next_gpus(ledger: Ledger, at: int, ask: int) -> int:
    rng = np.zeros(1, np.uint64)
    return int(rows.choose_gpus(ledger.free, at, ledger.asks, ask, rows.TIGHTEST, rng))


# -- room ---------------------------------------------------------------------------------


def most_instances(shares: tuple[int, ...], each: int) -> int:
    """How many instances of ``each`` distinct GPUs fit, by trying all ways."""

    @cache
    def most(left: tuple[int, ...]) -> int:
        able = [gpu for gpu, count in enumerate(left) if count]
        found = 0
        for taken in combinations(able, each):
            fewer = tuple(count - (gpu in taken) for gpu, count in enumerate(left))
            found = max(found, 1 + most(tuple(sorted(fewer))))
        return found

    return most(tuple(sorted(shares)))


@given(
    used=st.lists(st.sampled_from([0, 300, 500, 750, 1000]), min_size=1, max_size=4),
    memory=st.sampled_from([0, 4_000, 8_000, 16_000]),
    gpus=st.integers(1, 4),
    milli=st.sampled_from([250, 334, 500, 1000]),
)
def test_room_is_what_trying_all_ways_to_seat_instances_finds(
    used: list[int], memory: int, gpus: int, milli: int
) -> None:
    taken = [[8_192 if milli else 0 for milli in used]]
    ledger = ledger_with(cluster(gpus=[len(used)]), [used], gpu_memory_used=taken)
    ask = entered(ledger, Demand(gpus, milli, memory))
    free_mib = [16_384 - (8_192 if milli else 0) for milli in used]
    shares = [
        min((MILLI - share) // milli, mib // memory if memory else 99)
        for share, mib in zip(used, free_mib, strict=True)
    ]
    assert room(ledger, 0, ask) == most_instances(tuple(shares), gpus)


@given(ledger=ledgers(most=2), needs=demands())
def test_as_many_instances_as_there_is_room_for_can_be_taken_and_no_more(
    ledger: Ledger, needs: Demand
) -> None:
    ask = entered(ledger, needs)
    before = ledger.free.copy()
    for at in range(ledger.height):
        count = room(ledger, at, ask)
        assume(count < 100)
        for left in range(count, 0, -1):
            assert room(ledger, at, ask) == left
            mask = next_gpus(ledger, at, ask)
            take(ledger, at, ask, mask)
            assert was_there(ledger, at, ask, mask)
            assert rows.is_sound(ledger.free, ledger.total, at)
        assert room(ledger, at, ask) == 0
    assert (ledger.free <= before)[:, : tables.KIND].all()


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        # Of 10 cores and 1,000 MiB: 3 times 3 cores, 2 times 400 MiB, the scarcer decides.
        (demand(cpus=3), 3),
        (demand(memory_mib=400), 2),
        (demand(cpus=3, memory_mib=400), 2),
        (demand(cpus=10), 1),
        (demand(cpus=10.001), 0),
        (demand(memory_mib=1_000), 1),
        (demand(memory_mib=1_001), 0),
        (demand(), tables.PLENTY),
    ],
)
def test_room_without_gpus_is_what_the_scarcest_allows(needs: Demand, fits: int) -> None:
    ledger = Ledger(cluster(machine("a", cpus=10, memory_mib=1_000)))
    assert room(ledger, 0, entered(ledger, needs)) == fits


def test_instances_that_stay_together_count_by_the_gang() -> None:
    ledger = Ledger(cluster(gpus=[7]))
    assert room(ledger, 0, entered(ledger, Demand(1), together=3)) == 2


def test_a_pool_has_room_by_the_sum_of_its_gpus() -> None:
    # 3 GPUs, 200 thousandths taken: 2,800 are left, for two pairs of 700 each.
    pooled = machine("pool", gpus=3, pooled=True)
    ledger = ledger_with(cluster(pooled), [[200]])
    assert room(ledger, 0, entered(ledger, Demand(2, 700))) == 2
    assert room(ledger, 0, entered(ledger, Demand(3, 1000))) == 0
    most = pooled.gpu_memory_mib
    assert room(ledger, 0, entered(ledger, Demand(1, 100, most))) == 28
    assert room(ledger, 0, entered(ledger, Demand(1, 100, most + 1))) == 0


def test_machines_that_are_down_tainted_or_of_another_type_have_no_room() -> None:
    tainted = machine("t", gpus=1, taints=[("dedicated", "lab")])
    ledger = Ledger(cluster(machine("a", gpus=1), tainted, machine("v", gpus=1, type="V100")))
    any_gpu, v100 = entered(ledger, Demand(1)), entered(ledger, demand(gpus=1, types=["V100"]))
    tolerant = entered(ledger, demand(gpus=1, tolerates=[("dedicated", "lab")]))
    assert [room(ledger, at, any_gpu) for at in range(3)] == [1, 0, 1]
    assert [room(ledger, at, v100) for at in range(3)] == [0, 0, 1]
    assert [room(ledger, at, tolerant) for at in range(3)] == [1, 1, 1]
    ledger.set_up(0, up=False)
    assert room(ledger, 0, any_gpu) == 0


def test_labels_and_taints_hold_for_every_machine_of_many() -> None:
    # Forty machines take two words of bits; those at 3, 35 and 39 are tainted.
    taint = ("dedicated", "lab")
    tainted = (3, 35, 39)
    on = [machine(f"m{n}", gpus=1, taints=[taint] if n in tainted else []) for n in range(40)]
    ledger = Ledger(cluster(*on))
    plain, tolerant = (
        entered(ledger, Demand(1)),
        entered(ledger, demand(gpus=1, tolerates=[taint])),
    )
    assert [n for n in range(40) if not room(ledger, n, plain)] == list(tainted)
    assert all(room(ledger, n, tolerant) for n in range(40))


def test_what_others_took_beyond_what_was_free_keeps_away_only_who_needs_it() -> None:
    ledger = Ledger(cluster(gpus=[1]))
    ledger.free[0, tables.CPU] = ledger.free[0, tables.MEMORY] = -5
    assert room(ledger, 0, entered(ledger, Demand(1))) == 1
    assert room(ledger, 0, entered(ledger, demand(gpus=1, cpus=1))) == 0
    assert room(ledger, 0, entered(ledger, demand(gpus=1, memory_mib=1))) == 0


# -- taking and giving back ---------------------------------------------------------------


@given(ledger=ledgers(), needs=demands(), instances=st.integers(1, 3), mask=st.integers(0, 15))
def test_what_is_taken_and_given_back_leaves_no_trace(
    ledger: Ledger, needs: Demand, instances: int, mask: int
) -> None:
    ask, before = entered(ledger, needs), ledger.free.copy()
    take(ledger, 0, ask, mask, instances)
    used = ledger.free[0, tables.CPU] != before[0, tables.CPU]
    assert bool(used) == (needs.cpu_milli > 0)
    take(ledger, 0, ask, mask, -instances)
    assert (ledger.free == before).all()


def test_each_thing_that_was_not_there_is_noticed() -> None:
    devices = [Device("T4", 16_384), Device("V100", 16_384)]
    on = cluster(machine("a", cpus=4, memory_mib=100, devices=devices))

    def lies(needs: Demand, mask: int) -> bool:
        ledger = Ledger(on)
        ask = entered(ledger, needs)
        take(ledger, 0, ask, mask)
        return not was_there(ledger, 0, ask, mask)

    fits = demand(gpus=1, cpus=4, memory_mib=100, gpu_memory_mib=16_384, types=["T4"])
    assert not lies(fits, 0b01)
    assert lies(fits, 0b10)  # that GPU is of another type
    assert lies(fits, 0b11)  # one GPU too many
    assert lies(fits, 0b00)  # and one too few
    assert lies(demand(gpus=2), 0b101)  # there is no third
    assert lies(demand(gpus=1, types=["A10"]), 0b01)
    assert lies(demand(cpus=4.001), 0)
    assert lies(demand(memory_mib=101), 0)
    assert lies(demand(cpus=1), 0b01)  # work without GPUs names none
    assert lies(demand(gpus=1, gpu_memory_mib=16_385), 0b01)


def test_the_same_gpu_twice_is_noticed() -> None:
    ledger = Ledger(cluster(gpus=[2]))
    ask = entered(ledger, Demand(1, 600))
    take(ledger, 0, ask, 0b01)
    assert was_there(ledger, 0, ask, 0b01)
    take(ledger, 0, ask, 0b01)
    assert not was_there(ledger, 0, ask, 0b01)
    assert was_there(ledger, 0, ask, 0b00) is False


def test_a_pool_gives_shares_without_naming_gpus() -> None:
    ledger = Ledger(cluster(machine("pool", gpus=2, pooled=True)))
    ask = entered(ledger, Demand(2, 1000))
    take(ledger, 0, ask, 0)
    assert was_there(ledger, 0, ask, 0)
    assert not was_there(ledger, 0, ask, 1)
    take(ledger, 0, ask, 0)
    assert not was_there(ledger, 0, ask, 0)


def test_a_row_is_sound_between_nothing_and_all_that_the_machine_has() -> None:
    ledger = Ledger(cluster(gpus=[2]))

    def is_sound() -> bool:
        return bool(rows.is_sound(ledger.free, ledger.total, 0))

    last_gpu_memory = tables.FREE + 2 * in_tables.slots_of(ledger.free) - 1
    for column in (tables.CPU, tables.MEMORY, tables.FREE, tables.FREE + 1, last_gpu_memory):
        had = int(ledger.free[0, column])
        for value, sound in (
            (had + 1, False),
            (had, True),
            (0, True),
            (-1, False),
            (had, True),
        ):
            ledger.free[0, column] = value
            assert is_sound() is sound, f"column {column} is {value}"
    ledger.free[0, tables.KIND + 3] = 7  # counts of what runs have no upper limit
    assert is_sound()
    ledger.free[0, tables.KIND + 3] = -1
    assert not is_sound()


@pytest.mark.parametrize(
    ("needs", "kind"),
    [(Demand(0), 9), (Demand(1, 999), 0), (Demand(4, 10), 0), (Demand(1), 1), (Demand(8), 8),
     (Demand(20), 8)],
)  # fmt: skip
def test_kinds_tell_shares_whole_gpus_and_none_apart(needs: Demand, kind: int) -> None:
    ledger = Ledger(cluster(gpus=[2]))
    ask = entered(ledger, needs)
    assert in_tables.kind_of(ledger.asks, ask) == kind
    take(ledger, 0, ask, 0, 3)
    counts = ledger.free[0, tables.KIND : tables.KIND + tables.KINDS].tolist()
    assert counts == [3 * (number == kind) for number in range(tables.KINDS)]


@given(ledger=ledgers(), needs=demands())
def test_wider_rows_hold_the_same_machines(ledger: Ledger, needs: Demand) -> None:
    ask, slots = entered(ledger, needs), int(in_tables.slots_of(ledger.free))
    wide = tables.widened(ledger.free, slots + 3)
    assert wide.shape[1] == tables.width(slots + 3)
    assert in_tables.slots_of(wide) == slots + 3
    for at in range(ledger.height):
        assert rows.room_for(wide, at, ledger.asks, ask) == room(ledger, at, ask)
        for group in range(3):
            old = ledger.free[at, tables.FREE + group * slots :][:slots]
            new = wide[at, tables.FREE + group * (slots + 3) :][: slots + 3]
            assert new.tolist() == [*old.tolist(), 0, 0, 0]


# -- in brief -----------------------------------------------------------------------------


@given(data=st.data(), needs=demands())
def test_the_brief_never_hides_a_machine_with_room(data: st.DataObject, needs: Demand) -> None:
    ledger = data.draw(ledgers(most=20))
    ask = entered(ledger, needs)
    wanted = rows.ask_in_brief(ledger.asks, ask)
    found, at, machines = [], 0, ledger.height
    while (at := int(rows.next_candidate(ledger.brief, machines, at, wanted))) < machines:
        found.append(at)
        at += 1
    with_room = [at for at in range(machines) if room(ledger, at, ask) > 0]
    assert {*with_room} <= {*found}
    assert found == [at for at in range(machines) if rows.may_fit(ledger.brief, at, wanted)]


def test_a_block_is_passed_only_if_none_of_its_machines_may_fit() -> None:
    # 40 machines are three blocks of 16, 16 and 8; only the last of each kind has room.
    on = cluster(gpus=[1] * 40)
    ledger = ledger_with(on, [[1000]] * 15 + [[0]] + [[1000]] * 23 + [[0]])
    wanted = rows.ask_in_brief(ledger.asks, entered(ledger, Demand(1)))
    seen = [int(rows.next_candidate(ledger.brief, 40, begin, wanted)) for begin in range(40)]
    assert seen == [15] * 16 + [39] * 24
    assert rows.next_candidate(ledger.brief, 40, 40, wanted) == 40
    assert rows.brief_width(40) == 43
    assert (rows.brief_width(16), rows.brief_width(17)) == (17, 19)


def test_only_machines_of_a_type_that_will_do_are_looked_at() -> None:
    types = ["T4", "V100", "T4", "A10", "V100"]
    on = cluster(*(machine(f"m{n}", gpus=1, type=one) for n, one in enumerate(types)))
    ledger = Ledger(on)
    wanted = rows.ask_in_brief(ledger.asks, entered(ledger, demand(gpus=1, types=["V100"])))
    seen = [int(rows.next_candidate(ledger.brief, 5, begin, wanted)) for begin in range(6)]
    assert seen == [1, 1, 4, 4, 4, 5]


def test_what_is_less_than_nothing_is_nothing_in_brief() -> None:
    ledger = Ledger(cluster(gpus=[2]))
    for column in (tables.FREE, tables.CPU, tables.MEMORY):
        ledger.free[0, column] = -7
    rows.summarise(ledger.free, ledger.total, 0, ledger.brief, ledger.shares)
    assert ledger.shares[0, :2].tolist() == [0, 1000]
    brief = ledger.brief[:, 0].tolist()
    assert (brief[tables.BRIEF_CPU], brief[tables.BRIEF_MEMORY]) == (0, 0)
    assert brief[tables.BRIEF_GPU] == 1000


def test_a_machine_that_is_down_may_not_even_fit_work_that_asks_for_nothing() -> None:
    ledger = ledger_with(cluster(gpus=[1, 1]), lost=[0])
    wanted = rows.ask_in_brief(ledger.asks, entered(ledger, demand()))
    assert rows.next_candidate(ledger.brief, 2, 0, wanted) == 1


@given(on=clusters(most=4))
def test_fullness_orders_machines_by_idle_gpus_then_by_free_cpu_and_memory(on: object) -> None:
    ledger = Ledger(on)  # type: ignore[arg-type]
    in_tables.change(ledger.free, 0, ledger.asks, entered(ledger, demand(cpus=1)), 0, 1)
    rows.summarise(ledger.free, ledger.total, 0, ledger.brief, ledger.shares)
    for at in range(ledger.height):
        idle = int(in_tables.free_milli(ledger.free, at))
        cpu = max(ledger.free[at, tables.CPU], 0) / ledger.total[at, tables.CPU]
        memory = ledger.free[at, tables.MEMORY] / ledger.total[at, tables.MEMORY]
        expected = idle * 2**20 + int((cpu + memory) * 2**18)
        assert rows.fullness(ledger.brief, at) == expected


def test_the_allocation_rate_is_the_mean_over_what_a_machine_has() -> None:
    # CPU 24 of 96 (1/4), memory none, GPUs 500 of 2,000 (1/4): a sixth.
    ledger = ledger_with(cluster(gpus=[2]), [[500, 0]], cpus_used=[24.0])
    assert rows.allocation(ledger.free, ledger.total, 0) == pytest.approx(1 / 6)
    nothing = np.zeros_like(ledger.total)
    assert rows.allocation(nothing, nothing, 0) == 0.0


# -- randomness ---------------------------------------------------------------------------


def splitmix64(state: int) -> tuple[int, int]:
    """The published generator (Steele, Lea and Flood, OOPSLA 2014), in plain integers."""
    wrap = 2**64 - 1
    state = mixed = (state + 0x9E3779B97F4A7C15) & wrap
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & wrap
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & wrap
    return state, mixed ^ (mixed >> 31)


@given(st.integers(0, 2**64 - 1))
def test_random_numbers_are_the_top_53_bits_of_splitmix64(seed: int) -> None:
    rng = np.array([seed], np.uint64)
    state = seed
    for _ in range(3):
        state, expected = splitmix64(state)
        assert rows.next_random(rng) == expected >> 11


def test_the_generator_gives_the_published_numbers() -> None:
    assert splitmix64(0)[1] == 0xE220A8397B1DCDAF
