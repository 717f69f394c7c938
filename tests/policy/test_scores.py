"""Every scoring rule against a twin in plain Python, which looks at all machines in turn.

Compiled rules look at integer tables, skip machines by their brief and remember scores; the
twins read the published formulas.  Both must name the same machine, and the same GPU.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import floor
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.kernel.view import LedgerView
from interlane.model import MILLI, Demand, Device, Machine, Placement, Request, Task
from interlane.policy import contention, reserve
from interlane.policy.base import BlendTerms, GpuChoice, PlacementRule, TypicalDemand
from interlane.policy.place import RulePlacer
from interlane.policy.scores import ARRIVALS, Score, Table, Weights, hole_losses
from interlane.testing.build import cluster, demand, job, ledger_with, machine
from interlane.testing.strategies import demands, ledgers

TYPICAL = (
    TypicalDemand(Demand(1, 500, cpu_milli=4_000), 0.4),
    TypicalDemand(Demand(1, 1000, cpu_milli=8_000), 0.25),
    TypicalDemand(Demand(1, 300), 0.1),
    TypicalDemand(Demand(2, 1000, cpu_milli=2_000, gpu_types=frozenset({"V100"})), 0.15),
    TypicalDemand(Demand(0, cpu_milli=2_000), 0.1),
)


# -- what twins look at -------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """One machine and what is free on it."""

    number: int
    machine: Machine
    cpu_milli: int
    memory_mib: int
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]
    has: tuple[int, ...]

    @property
    def idle(self) -> int:
        return sum(self.gpus)

    def is_of(self, gpu: int, types: Iterable[str]) -> bool:
        pooled = self.machine.pooled
        kind = self.machine.gpu_type if pooled else self.machine.device(gpu).type
        return not types or kind in {*types, Ledger.wildcard}

    def admitted(self, needs: Demand) -> list[int]:
        """GPUs that have the type, share and memory for an instance."""
        return [
            gpu
            for gpu, (free, memory) in enumerate(zip(self.gpus, self.gpu_memory, strict=True))
            if free >= needs.gpu_milli
            and (memory >= needs.gpu_memory_mib or not needs.gpu_memory_mib)
            and self.is_of(gpu, needs.gpu_types)
        ]

    def taking(self, needs: Demand, gpus: tuple[int, ...]) -> "Sight":
        """The machine after an instance has taken some of its GPUs."""
        left = list(self.gpus)
        for gpu in gpus:
            left[gpu] -= needs.gpu_milli
        if self.machine.pooled:
            left[0] -= needs.gpu_milli_total
        return replace(self, cpu_milli=self.cpu_milli - needs.cpu_milli, gpus=tuple(left))

    def allocation(self) -> float:
        rates = [
            (total - free) / total
            for total, free in (
                (self.machine.cpu_milli, self.cpu_milli),
                (self.machine.memory_mib, self.memory_mib),
                (sum(self.has), self.idle),
            )
            if total
        ]
        return sum(rates) / len(rates) if rates else 0.0


def sight(ledger: Ledger, number: int) -> Sight:
    on, free = ledger.machine(number), LedgerView(ledger).free(number)
    each = [on.device(gpu).compute_milli for gpu in range(on.gpus)]
    has = (on.gpu_milli,) if on.pooled else tuple(each)
    return Sight(
        number, on, free.cpu_milli, free.memory_mib, free.gpu_milli, free.gpu_memory_mib, has
    )


Twin = Callable[[Sight, Demand], float | tuple[float, ...]]
"""The larger wins, the first machine on ties."""


def pack(at: Sight, needs: Demand) -> tuple[float, ...]:
    left = 0
    if needs.gpus == 1 and not at.machine.pooled:
        left = min(
            (at.gpus[gpu] - needs.gpu_milli for gpu in at.admitted(needs)), default=MILLI
        )
    cpu = at.cpu_milli / max(at.machine.cpu_milli, 1)
    memory = at.memory_mib / max(at.machine.memory_mib, 1)
    return -left, -at.idle, -int((cpu + memory) * 2**18)


def dot_product(at: Sight, needs: Demand) -> float:
    cpu = at.cpu_milli / 128_000 * needs.cpu_milli / 128_000
    gpu = at.idle / 8_000 * needs.gpus * needs.gpu_milli / 8_000
    return floor(100 * (1 - (cpu + gpu) / 2))


def best_fit(at: Sight, needs: Demand) -> float:
    cpu = (at.cpu_milli - needs.cpu_milli) / 128_000
    gpu = (at.idle - needs.gpus * needs.gpu_milli) / 8_000
    return floor(100 * (1 - 0.5 * cpu - 0.5 * gpu))


def pai_balance(at: Sight, needs: Demand) -> float:
    cpu = (at.machine.cpu_milli - at.cpu_milli) / at.machine.cpu_milli
    if not sum(at.has):
        return -round(100 * cpu)
    return -round(100 * ((sum(at.has) - at.idle) / sum(at.has) + cpu) / 2)


def gpu_packing(at: Sight, needs: Demand) -> float:
    if not needs.gpus:
        return 0
    used = [gpu for gpu, free in enumerate(at.gpus) if free != at.has[gpu]]
    if not used:
        return 33 - len(at.gpus)
    shared = [at.gpus[gpu] for gpu in at.admitted(needs) if gpu in used]
    if needs.gpus == 1 and shared:
        return max(50, 100 - floor(min(shared) / 100))
    return max(33, 50 - needs.gpus)


SIMPLE: dict[Score, Twin] = {
    Score.FIRST: lambda at, needs: 0,
    Score.PACK: pack,
    Score.BALANCE: lambda at, needs: -at.allocation(),
    Score.DOT_PRODUCT: dot_product,
    Score.BEST_FIT: best_fit,
    Score.PAI_BALANCE: pai_balance,
    Score.GPU_PACKING: gpu_packing,
}


@st.composite
def contests(draw: st.DrawFn) -> tuple[Ledger, Demand]:
    """Draw machines that nearly all have room, so that scores decide rather than room."""
    if draw(st.integers(0, 3)) == 0:
        return draw(ledgers()), draw(demands())
    shares, hosts, used, cpus = st.sampled_from([0, 0, 100, 300, 500, 700]), [], [], []
    for number in range(draw(st.integers(2, 5))):
        gpus = draw(st.sampled_from([2, 3, 4]))
        kind, pooled = (
            draw(st.sampled_from(["T4", "V100", "V100"])),
            draw(st.integers(0, 7)) == 0,
        )
        cores = draw(st.sampled_from([16, 32, 96]))
        if draw(st.integers(0, 3)) == 0 and not pooled:
            devices = [
                Device(draw(st.sampled_from(["T4", "V100"])), 16_384) for _ in range(gpus)
            ]
            hosts.append(machine(f"m{number}", devices=devices, cpus=cores))
        else:
            hosts.append(machine(f"m{number}", gpus=gpus, type=kind, cpus=cores, pooled=pooled))
        used.append([draw(shares) for _ in range(1 if pooled else gpus)])
        cpus.append(draw(st.sampled_from([0.0, 2.0, 8.0, 12.0])))
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2]))
    milli = draw(st.sampled_from([100, 200, 300, 500])) if gpus else 1000
    needs = Demand(gpus, milli, cpu_milli=draw(st.sampled_from([500, 2_000, 4_000])))
    return ledger_with(cluster(*hosts), used, cpus_used=cpus), needs


def chosen(
    ledger: Ledger, needs: Demand, rule: PlacementRule
) -> tuple[int, tuple[int, ...]] | None:
    """The machine and GPUs that a compiled rule takes for one instance."""
    asked = replace(job(), request=Request((Task(needs),)))
    found = RulePlacer("", rule).place(asked, LedgerView(ledger), Random(0))
    if not isinstance(found, Placement):
        return None
    (spot,) = found.spots
    return ledger.number(spot.machine), spot.gpus


def best(ledger: Ledger, needs: Demand, twin: Twin) -> int:
    """The machine that a twin takes, of those with room."""
    able = LedgerView(ledger).candidates(Task(needs))
    return max(able, key=lambda number: (twin(sight(ledger, number), needs), -number))


@pytest.mark.parametrize("score", SIMPLE, ids=lambda score: score.name.lower())
@settings(max_examples=40)
@given(contest=contests())
def test_a_rule_takes_the_machine_that_its_formula_names(
    score: Score, contest: tuple[Ledger, Demand]
) -> None:
    ledger, needs = contest
    found = chosen(ledger, needs, PlacementRule(score))
    assert found is None or found[0] == best(ledger, needs, SIMPLE[score])


# -- which GPU of the machine -------------------------------------------------------------


@pytest.mark.parametrize("choice", GpuChoice, ids=lambda choice: choice.name.lower())
@settings(max_examples=30)
@given(ledger=ledgers(pools=False), milli=st.sampled_from([100, 250, 500, 1000]))
def test_one_gpu_is_picked_as_the_choice_says(
    choice: GpuChoice, ledger: Ledger, milli: int
) -> None:
    needs = Demand(1, milli, 1_024)
    found = chosen(ledger, needs, PlacementRule(Score.FIRST, gpu_choice=choice))
    if found is None:
        return
    at = sight(ledger, found[0])
    able = at.admitted(needs)
    expected = {
        GpuChoice.TIGHTEST: [min(able, key=lambda gpu: at.gpus[gpu])],
        GpuChoice.LOWEST: able[:1],
        GpuChoice.EMPTIEST: [max(able, key=lambda gpu: at.gpus[gpu])],
        GpuChoice.DRAWN: able,
    }
    (gpu,) = found[1]
    assert gpu in expected[choice]


def test_a_drawn_gpu_is_each_of_those_with_room_as_often_as_the_next() -> None:
    ledger = ledger_with(cluster(gpus=[4]), [[0, 900, 0, 0]])
    placer = RulePlacer("", replace(place_random().rule, choices=1))
    counts = [0] * 4
    draws = Random(1)
    for _ in range(600):
        found = placer.place(job(gpus=1, gpu_milli=500), LedgerView(ledger), draws)
        assert isinstance(found, Placement)
        counts[found.spots[0].gpus[0]] += 1
    # 200 each are expected of three GPUs; the standard deviation is 11.5.
    assert counts[1] == 0
    assert all(150 < count < 250 for gpu, count in enumerate(counts) if gpu != 1)


def place_random() -> RulePlacer:
    from interlane.policy.place import random

    return random()


def test_shares_of_several_gpus_come_from_those_with_most_to_share() -> None:
    # A share of 300 fits 3, 1, 2 and 3 times: two such shares take the first and the last GPU.
    ledger = ledger_with(cluster(gpus=[4]), [[0, 600, 300, 100]])
    assert chosen(ledger, Demand(2, 300), PlacementRule(Score.FIRST)) == (0, (0, 3))


def test_whole_gpus_are_the_lowest_that_are_free() -> None:
    ledger = ledger_with(cluster(gpus=[4]), [[0, 1, 0, 0]])
    assert chosen(ledger, Demand(2), PlacementRule(Score.FIRST)) == (0, (0, 2))


# -- clustering ---------------------------------------------------------------------------


def test_clustering_takes_machines_of_the_kind_then_mixed_then_idle_then_others() -> None:
    # Machine by machine: only others (0), nothing (25), both (50), only the same kind (75);
    # and up to 25 for what is taken of 8 GPUs: a half of one is 25 * 7.5/8, rounded down.
    used = [[1000, 0], [0, 0], [500, 1000, 0], [500, 0]]
    on = cluster(gpus=[2, 2, 3, 2])
    rule, half = PlacementRule(Score.GPU_CLUSTERING), Demand(1, 500)
    order = []
    full = [[1000] * 2, [1000] * 2, [1000] * 3, [1000] * 2]
    for _ in range(4):
        found = chosen(ledger_with(on, used), half, rule)
        assert found is not None
        order.append(found[0])
        used[found[0]] = full[found[0]]
    assert order == [3, 2, 1, 0]


def test_clustering_counts_kinds_by_whole_gpus_and_leaves_work_without_gpus_alone() -> None:
    ledger = Ledger(cluster(gpus=[4, 4, 4]))
    view, rule = LedgerView(ledger), PlacementRule(Score.GPU_CLUSTERING)
    pair = replace(job(), request=Request((Task(Demand(2)),)))
    first = view.choose(replace(job(gpus=1)), rule)
    assert isinstance(first, Placement)
    shape = view.shape(job(gpus=1).request, rule.types)
    assert ledger.hold(ledger.to_rows(first, shape.profiles))
    # A pair avoids the machine with a single one; the next single one comes back to it.
    found = view.choose(pair, rule)
    assert isinstance(found, Placement)
    assert ledger.number(found.spots[0].machine) == 1
    again = view.choose(job("b", gpus=1), rule)
    assert isinstance(again, Placement)
    assert ledger.number(again.spots[0].machine) == 0
    bare = view.choose(job("c", cpus=1), rule)
    assert isinstance(bare, Placement)
    assert ledger.number(bare.spots[0].machine) == 0


# -- fragments ----------------------------------------------------------------------------


def unusable(at: Sight, kind: Demand) -> int:
    """Idle share that a kind cannot use, whose CPU the machine has."""
    if not any(at.is_of(gpu, kind.gpu_types) for gpu in range(len(at.gpus))):
        return at.idle
    if at.machine.pooled:
        return at.idle if at.idle < kind.gpus * kind.gpu_milli else 0
    able = [
        gpu
        for gpu, free in enumerate(at.gpus)
        if free >= kind.gpu_milli and at.is_of(gpu, kind.gpu_types)
    ]
    return at.idle - sum(at.gpus[gpu] for gpu in able) if len(able) >= kind.gpus else at.idle


def fragments(at: Sight) -> float:
    lost = 0.0
    for kind in TYPICAL:
        able = kind.demand.gpus and at.cpu_milli >= kind.demand.cpu_milli
        lost += kind.weight * (unusable(at, kind.demand) if able else at.idle)
    return lost


def ways(at: Sight, needs: Demand) -> list[tuple[int, ...]]:
    """The choices of GPUs that a rule which picks them itself compares."""
    if not needs.gpus or at.machine.pooled:
        return [()]
    if needs.gpus == 1:
        return [(gpu,) for gpu in at.admitted(needs)]
    return [tuple(at.admitted(needs)[: needs.gpus])]


def fgd(at: Sight, needs: Demand, gpus: tuple[int, ...]) -> float:
    gain = fragments(at) - fragments(at.taking(needs, gpus))
    return float(np.floor(100 / (1 + np.exp(-gain / 1000))))


@given(contest=contests())
def test_fgd_takes_the_place_where_fragments_grow_the_least(
    contest: tuple[Ledger, Demand],
) -> None:
    ledger, needs = contest
    found = chosen(ledger, needs, PlacementRule(Score.FGD, typical=TYPICAL))
    if found is None:
        return
    number = best(
        ledger, needs, lambda at, needs: max(fgd(at, needs, way) for way in ways(at, needs))
    )
    assert found[0] == number
    if needs.gpus == 1 and not ledger.machine(number).pooled:
        at = sight(ledger, number)
        assert found[1] == max(ways(at, needs), key=lambda way: fgd(at, needs, way))


# -- lookahead ----------------------------------------------------------------------------


def used_of_hole(kinds: list[tuple[int, float]], arrivals: int) -> list[float]:
    """What of every hole is used, by trying how the best of the next arrivals may fall out."""
    total = sum(weight for _, weight in kinds)
    used = [0.0]
    for hole in range(1, MILLI + 1):
        values = sorted(
            ((m + used[hole - m], weight / total) for m, weight in kinds if m <= hole),
            reverse=True,
        )
        # The best of n arrivals is the value v with probability P(all <= v) - P(all < v).
        expected, above = 0.0, 0.0
        for value, chance in values:
            expected += value * (
                (1 - above) ** arrivals - max(0.0, 1 - above - chance) ** arrivals
            )
            above += chance
        used.append(expected)
    return used


def typical_table(kinds: list[tuple[int, float]]) -> tuple[Table, Weights]:
    table = np.array([[1, milli, 0, -1] for milli, _ in kinds], np.int64)
    return table, np.array([weight for _, weight in kinds])


@pytest.mark.parametrize("arrivals", [1, 3, ARRIVALS])
def test_a_hole_waits_for_the_best_of_its_arrivals(arrivals: int) -> None:
    kinds = [(470, 0.3), (530, 0.2), (650, 0.4), (1000, 0.1)]
    losses = hole_losses(*typical_table(kinds), float(arrivals))
    used = used_of_hole(kinds, arrivals)
    assert losses == pytest.approx([hole - used[hole] for hole in range(MILLI + 1)])


def test_a_hole_that_nobody_fits_is_lost_and_one_that_is_filled_exactly_is_not() -> None:
    # One kind of 400: holes below lose all, 400 and 800 nothing, 900 the last hundred.
    losses = hole_losses(*typical_table([(400, 1.0)]), 1.0)
    assert [losses[hole] for hole in (0, 399, 400, 799, 800, 900)] == [0, 399, 0, 399, 0, 100]


def test_demands_without_gpus_fill_no_hole() -> None:
    table = np.array([[0, 1000, 0, -1], [1, 250, 0, -1]], np.int64)
    assert hole_losses(table, np.array([0.9, 0.1]), 1.0)[250] == 0


HOLES = [
    hole - used
    for hole, used in enumerate(
        used_of_hole(
            [(kind.demand.gpu_milli, kind.weight) for kind in TYPICAL if kind.demand.gpus],
            ARRIVALS,
        )
    )
]


def out_of_reach(at: Sight) -> float:
    """Idle share that typical demands cannot use, as far as the machine's CPU lasts."""
    lost = 0.0
    for kind in TYPICAL:
        needs = kind.demand
        if not needs.gpus or not at.idle:
            continue
        able = [
            gpu
            for gpu, free in enumerate(at.gpus)
            if free >= needs.gpu_milli and at.is_of(gpu, needs.gpu_types)
        ]
        usable = float(sum(at.gpus[gpu] for gpu in able))
        fitting = at.idle // needs.gpu_milli if at.machine.pooled else len(able)
        if not any(at.is_of(gpu, needs.gpu_types) for gpu in range(len(at.gpus))):
            fitting = 0
        if at.cpu_milli < needs.cpu_milli or fitting < needs.gpus:
            usable = 0.0
        elif needs.cpu_milli:
            lasts = at.cpu_milli / needs.cpu_milli * needs.gpus * needs.gpu_milli
            usable = min(usable, lasts)
        lost += kind.weight * (at.idle - usable)
    return lost


def lookahead(at: Sight, needs: Demand, gpus: tuple[int, ...]) -> float:
    tilt = 2_000 * (at.number * 0.6180339887498949 % 1)
    then = at.taking(needs, gpus)
    holes = sum(HOLES[then.gpus[gpu]] - HOLES[at.gpus[gpu]] for gpu in gpus)
    return out_of_reach(at) - tilt - out_of_reach(then) - 20 * holes


def several(at: Sight, needs: Demand) -> list[tuple[int, ...]]:
    """As ``ways``; shares of several GPUs are those with most to share."""
    if needs.gpus > 1 and needs.gpu_milli < MILLI and not at.machine.pooled:
        able = sorted(at.admitted(needs), key=lambda gpu: -shares(at, gpu, needs))
        return [tuple(sorted(able[: needs.gpus]))]
    return ways(at, needs)


def shares(at: Sight, gpu: int, needs: Demand) -> int:
    count = at.gpus[gpu] // needs.gpu_milli
    memory = needs.gpu_memory_mib
    return min(count, at.gpu_memory[gpu] // memory) if memory else count


@given(contest=contests())
def test_lookahead_takes_the_place_with_the_highest_score(
    contest: tuple[Ledger, Demand],
) -> None:
    ledger, needs = contest
    found = chosen(ledger, needs, PlacementRule(Score.LOOKAHEAD, typical=TYPICAL))
    if found is None:
        return

    def value(number: int) -> float:
        at = sight(ledger, number)
        return max(lookahead(at, needs, way) for way in several(at, needs))

    most = max(value(number) for number in LedgerView(ledger).candidates(Task(needs)))
    assert value(found[0]) == pytest.approx(most, abs=1e-6)
    if needs.gpus == 1 and found[1]:
        at = sight(ledger, found[0])
        assert lookahead(at, needs, found[1]) == pytest.approx(most, abs=1e-6)


# -- blends -------------------------------------------------------------------------------


def price(terms: BlendTerms, at: Sight, needs: Demand) -> float:
    """The sum that ``BlendTerms`` describes."""
    kind = at.machine.gpu_type
    level = dict(terms.level).get(kind, 0.0)
    total = dict(terms.dear).get(kind, 0.0)
    if level:
        total += level * at.allocation()
    else:
        left = -pack(at, needs)[0]
        total += terms.balance * at.allocation() + terms.tight * left / MILLI
        total += terms.fill * at.idle / max(sum(at.has), 1)
    cpu_after = at.cpu_milli - needs.cpu_milli
    if terms.match:
        idle_after = at.idle - needs.gpus * needs.gpu_milli
        stranded = max(0.0, idle_after - cpu_after / terms.cores_per_gpu)
        stranded -= max(0.0, at.idle - at.cpu_milli / terms.cores_per_gpu)
        total += terms.match * stranded / MILLI
    if terms.contention:
        total += terms.contention * contention.slowdown(cpu_after / at.machine.cpu_milli)
    return total


V100 = frozenset({"V100"})
BLENDS = {
    "packing": reserve.packing(),
    "filling and matching": reserve.filling() + reserve.matching(3.0),
    "avoiding contention": reserve.filling() + reserve.avoiding_contention(),
    "keeping": reserve.packing() + reserve.keeping(V100),
    "spreading": reserve.filling() + reserve.spreading(V100, 0.4) + reserve.matching(),
}


@pytest.mark.parametrize("name", BLENDS)
@settings(max_examples=30)
@given(contest=contests())
def test_a_blend_takes_a_machine_of_the_lowest_price(
    name: str, contest: tuple[Ledger, Demand]
) -> None:
    ledger, needs = contest
    found = chosen(ledger, needs, PlacementRule(Score.BLEND, terms=BLENDS[name]))
    if found is None:
        return
    prices = {
        number: price(BLENDS[name], sight(ledger, number), needs)
        for number in LedgerView(ledger).candidates(Task(needs))
    }
    assert prices[found[0]] == pytest.approx(min(prices.values()), abs=1e-6)


# -- what formulas come to, by hand -------------------------------------------------------


def test_pai_balance_rounds_to_whole_percent_half_to_even() -> None:
    # CPU alone: 0.5 % and 1.5 % of machines without GPUs are 0 and 2; 0.4 % beats neither.
    on = cluster(*(machine(name, cpus=100) for name in "abc"))
    ledger = ledger_with(on, cpus_used=[0.5, 0.4, 1.5])
    assert chosen(ledger, demand(cpus=1), PlacementRule(Score.PAI_BALANCE)) == (0, ())


def test_two_gpus_of_different_types_are_two_ways_even_with_the_same_share_left() -> None:
    # Only the second GPU is of a type that the kind accepts: FGD keeps it free.
    devices = [Device("V100", 16_384), Device("T4", 16_384)]
    typical = (TypicalDemand(Demand(1, 1000, gpu_types=V100), 1.0),)
    ledger = ledger_with(cluster(machine("a", devices=devices)))
    rule = PlacementRule(Score.FGD, typical=typical)
    assert chosen(ledger, Demand(1, 500), rule) == (0, (1,))


def test_balance_is_the_mean_of_what_a_machine_has() -> None:
    # a: CPU a half, no GPUs, memory 0: 1/4.  b: GPU all of one of two, CPU and memory 0: 1/6.
    on = cluster(machine("a", cpus=10), machine("b", gpus=2, cpus=10))
    ledger = ledger_with(on, [[], [1000, 0]], cpus_used=[5.0])
    at = [sight(ledger, number) for number in (0, 1)]
    assert [one.allocation() for one in at] == [fmean([0.5, 0]), fmean([0, 0, 0.5])]
    assert chosen(ledger, demand(cpus=1), PlacementRule(Score.BALANCE)) == (1, ())
