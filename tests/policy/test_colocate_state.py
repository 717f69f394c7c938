"""Functions beside training: the index of GPUs, what neighbours cost, and what is kept."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.functions.ledger import PlacedReplica
from interlane.model import Device, GpuRef, MachineId, Refusal
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import COLOCATORS, make_colocator
from interlane.policy.colocate.gpus import ColocatedGpu, Gpus, gpus_of
from interlane.policy.colocate.place import (
    Apart,
    Bounded,
    FunctionPlacement,
    Smore,
    expected_priority,
)
from interlane.policy.colocate.slowdown import SharingTables, Slowdown, Slowdowns
from interlane.predict.slowdown.multiway import Crowd, SuperAdditive, WeightedSum
from interlane.testing.build import machine
from interlane.testing.colocation import (
    OneMachineLedger,
    flat_slowdowns,
    flat_table,
    function,
    gpu_ref,
    gpus_with,
)

G0, G1 = gpu_ref(0), gpu_ref(1)
NAMES = ("calm", "touchy", "f", "g")
KEPT = {("touchy", "f"): 0.8, ("calm", "f"): 0.95, ("calm", "g"): 0.9, ("f", "calm"): 0.5}


def at(number: int, memory_mib: int, gpu_type: str = "T4") -> ColocatedGpu:
    return ColocatedGpu(gpu_ref(number), gpu_type, memory_mib)


# -- the index of GPUs --------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    changes=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 300)), max_size=20),
    wanted=st.integers(0, 300),
    most=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_draws_are_gpus_with_room_each_once_and_all_of_them_if_they_are_few(
    sizes: list[int], changes: list[tuple[int, int]], wanted: int, most: int, seed: int
) -> None:
    gpus = Gpus([at(n, size, "T4" if n % 3 else "V100") for n, size in enumerate(sizes)])
    for number, memory_mib in changes:
        gpu = gpus.order[number % len(sizes)]
        gpu.memory_mib, gpu.tokens_s = memory_mib, float(memory_mib % 2)
        gpus.place_in_index(gpu)
    needs = Function("f", "f", wanted, gpu_types=frozenset({"T4"}) if seed % 2 else frozenset())
    drawn = gpus.draw(needs, most, Random(seed))
    able = [
        gpu
        for gpu in gpus.order
        if gpu.memory_mib >= wanted and (seed % 2 == 0 or gpu.gpu_type == "T4")
    ]
    assert len(drawn) == len(set(map(id, drawn))) <= most
    assert {id(gpu) for gpu in drawn} <= {id(gpu) for gpu in able}
    # Only GPUs of the same power of two may be drawn in vain.
    sure = [gpu for gpu in able if gpu.memory_mib.bit_length() > wanted.bit_length()]
    close = [g for g in gpus.order if g.memory_mib.bit_length() == wanted.bit_length()]
    assert len(drawn) >= min(most, len(sure) + len(close)) - len(close)


def test_every_gpu_is_drawn_as_often_as_the_next() -> None:
    gpus, rng = Gpus([at(n, 100 * (1 + n)) for n in range(10)]), Random(0)
    counts = dict.fromkeys(range(10), 0)
    for _ in range(1_000):
        for gpu in gpus.draw(Function("f", "f", 0), 3, rng):
            counts[gpu.id.index] += 1
    # 300 draws each are expected; the standard deviation is 14.5.
    assert all(240 < count < 360 for count in counts.values())


@given(st.lists(st.integers(0, 7), max_size=12))
def test_gpus_that_are_gone_are_neither_drawn_nor_warm(gone: list[int]) -> None:
    gpus = Gpus([at(n, 64 if n % 2 else 200) for n in range(8)])
    for gpu in gpus.order:
        gpus.note_warm("f", gpu)
    left = set(range(8)) - set(gone)
    for number in set(gone):
        gpus.remove(gpus.by_id[gpu_ref(number)])
    assert len(gpus) == len(left)
    assert {gpu.id.index for gpu in gpus.draw(function(memory_mib=0), 99, Random(0))} == left
    assert [gpu.id.index for gpu in gpus.warm("f", 99)] == sorted(left)


def test_warm_gpus_are_remembered_by_workload_until_they_are_cold() -> None:
    gpus = Gpus([at(0, 1), at(1, 1), at(2, 1)])
    one, two, three = gpus.order
    for gpu in (two, one, three):
        gpus.note_warm("f", gpu)
    gpus.note_cold("f", one)
    gpus.note_cold("g", one)
    assert list(gpus.warm("f", 9)) == [two, three]
    assert list(gpus.warm("f", 1)) == [two]
    assert list(gpus.warm("g", 9)) == []
    assert [gpus.is_warm("f", gpu) for gpu in gpus.order] == [False, True, True]


def test_pools_and_lost_devices_lend_nothing() -> None:
    devices = [Device("T4", 100), Device("V100", 200, 0), Device("V100", 300)]
    mixed = machine("m", devices=devices)
    found = gpus_of([machine("p", gpus=2, pooled=True), mixed])
    assert [(gpu.id, gpu.gpu_type, gpu.memory_mib) for gpu in found] == [
        (GpuRef(MachineId("m"), 0), "T4", 100),
        (GpuRef(MachineId("m"), 2), "V100", 300),
    ]


# -- what training may still lose ---------------------------------------------------------


def test_tokens_are_earned_paid_and_capped() -> None:
    # A tenth of an hour may be lost: 9 % is earned as time passes, 36 s can be saved up.
    gpu = at(0, 0)
    assert gpu.settle(100.0, 0.1, 3_600.0) == pytest.approx(9.0)
    gpu.loss = 0.19  # 10 % more than is earned
    assert gpu.settle(150.0, 0.1, 3_600.0) == pytest.approx(9.0 - 5.0)
    assert gpu.settle(140.0, 0.1, 3_600.0) == pytest.approx(4.0)  # time does not run back
    gpu.loss = 0.0
    assert gpu.settle(10_000.0, 0.1, 3_600.0) == pytest.approx(36.0)


def test_forgiving_forgets_every_violation() -> None:
    gpu = replace(at(0, 0), misses=1, late={"f"}, is_trainer_late=True)
    gpu.forgive()
    assert (gpu.misses, gpu.late, gpu.is_trainer_late) == (0, set(), False)


# -- what neighbours cost -----------------------------------------------------------------


def one_by_one(
    slowdowns: Slowdowns,
    kept: dict[tuple[str, str], float],
    trainer: str | None,
    there: Sequence[Function],
) -> Slowdown:
    """What everybody suffers, by the definition: the last function is the newest."""

    def slowed(victim: str, others: Sequence[str]) -> float:
        costs = [1 / kept.get((victim, other), 1.0) - 1 for other in others]
        if len(there) == 1:  # what a pair does to each other is known without a rule
            return 1 + sum(costs)
        return slowdowns.rule.total(sum(costs), max(costs), len(costs))

    names = [one.workload for one in there]
    everybody = [*names, *([trainer] if trainer else [])]
    p99 = []
    for place, one in enumerate(there):
        others = [*everybody[:place], *everybody[place + 1 :]]
        p99.append((slowed(one.workload, others), one.p99_limit))
    training = slowed(trainer, names) if trainer else 1.0
    return Slowdown(training, max(slow / limit for slow, limit in p99), p99[-1][0])


@given(
    trainer=st.sampled_from(["calm", "touchy", None]),
    there=st.lists(
        st.tuples(st.sampled_from("fg"), st.sampled_from([1.5, 2.0])), min_size=1, max_size=4
    ),
    kept=st.fixed_dictionaries(
        {(one, other): st.sampled_from([1.0, 0.9, 0.7]) for one in NAMES for other in NAMES}
    ),
    measured=st.sampled_from([None, 1.5, 1.0]),
)
def test_a_slowdown_is_what_everybody_suffers_from_everybody_else(
    trainer: str | None,
    there: list[tuple[str, float]],
    kept: dict[tuple[str, str], float],
    measured: float | None,
) -> None:
    slowdowns = flat_slowdowns(NAMES, kept)
    if measured is not None:  # two neighbours cost more than their sum, or hardly anything
        for _ in range(20):
            slowdowns.rule.learn(Crowd((1.1, 1.1)), measured)
    functions = [
        Function(f"{n}", name, 0, p99_limit=limit) for n, (name, limit) in enumerate(there)
    ]
    found = slowdowns.slowdown("side-by-side", "T4", trainer, functions[:-1], functions[-1])
    expected = one_by_one(slowdowns, kept, trainer, functions)
    assert tuple(found) == pytest.approx(tuple(expected), rel=1e-4)


def test_nobody_knows_a_stranger_so_the_worst_tenth_of_all_pairs_is_expected() -> None:
    # Half of the nine pairs keep a half; b and a do not disturb each other.
    pairs = [("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")]
    slowdowns = flat_slowdowns(("a", "b", "c"), dict.fromkeys(pairs, 0.5))
    stranger = Function("x", "never seen", 0)
    found = slowdowns.slowdown("side-by-side", "T4", "a", (), stranger)
    assert found.training == pytest.approx(2.0, rel=1e-3)
    assert found.own == pytest.approx(2.0, rel=1e-3)
    known = Function("y", "b", 0)
    alone = slowdowns.slowdown("side-by-side", "T4", "a", (), known).training
    assert alone == pytest.approx(1.0, abs=1e-5)
    other = slowdowns.slowdown("side-by-side", "T4", "never seen", (), known)
    assert other.training == pytest.approx(2.0, rel=1e-3)
    beside = slowdowns.slowdown("side-by-side", "T4", None, [stranger], known)
    assert beside.own == pytest.approx(2.0, rel=1e-3)


def test_tables_are_read_anew_when_something_was_measured() -> None:
    table = flat_table(NAMES, {("calm", "f"): 0.5}, spread=0.1)
    slowdowns = Slowdowns({"lanes": SharingTables(table, table)})
    before = slowdowns.slowdown("lanes", "T4", "calm", (), function()).training
    for _ in range(50):
        table.measured(0, 0, 2, 1.0, 0.0)
    table.refresh(0)
    assert slowdowns.slowdown("lanes", "T4", "calm", (), function()).training == before
    slowdowns.forget()
    assert slowdowns.slowdown("lanes", "T4", "calm", (), function()).training < before


def test_estimated_counts_with_means_where_bounds_are_the_rule() -> None:
    # The mean is 0.8; the bound lies a spread of 0.3 lower, at 0.8 * exp(-0.3).
    slowdowns = flat_slowdowns(NAMES, {("touchy", "f"): 0.8}, spread=0.3)
    read = [
        slowdowns.slowdown(
            "side-by-side", "T4", "touchy", (), function(), estimated=estimated
        ).training
        for estimated in (True, False)
    ]
    assert read == pytest.approx([1.25, 1.25 * 2.718281828**0.3], rel=1e-4)


def test_a_measured_crowd_teaches_the_rule_by_pairwise_figures() -> None:
    slowdowns = flat_slowdowns(NAMES, {("calm", "f"): 0.8, ("calm", "g"): 0.5})
    weighted = WeightedSum()
    taught = Slowdowns(slowdowns.modes, weighted)
    taught.learn("side-by-side", "T4", "calm", ["f", "g"], 3.0)
    # Pairwise 1.25 and 2 sum to an excess of 1.25; a measured 3.0 is an excess of 2.0.
    expected = WeightedSum()
    expected.learn(Crowd((1.25, 2.0)), 3.0)
    assert weighted.weight == pytest.approx(expected.weight, rel=1e-4)
    assert 1.5 < weighted.weight <= 1.6


def test_colocators_are_made_by_name_with_the_numbers_they_decide_by() -> None:
    (bounded, bounds), (smore, estimates), (apart, _) = map(make_colocator, COLOCATORS)
    kinds = [type(bounded), type(smore), type(apart)]
    assert kinds == [Bounded, Smore, Apart] == list(COLOCATORS.values())
    assert (bounds.slowdowns.cautious, estimates.slowdowns.cautious) == (True, False)
    rules = [type(one.slowdowns.rule) for one in (bounds, estimates)]
    assert rules == [SuperAdditive, WeightedSum]
    with pytest.raises(Exception, match="colocator"):
        make_colocator("nobody")


# -- choosing -----------------------------------------------------------------------------


def test_priority_is_gain_over_the_mean_cost_beside_typical_training() -> None:
    slowdowns = flat_slowdowns(NAMES, {("calm", "f"): 0.8, ("touchy", "f"): 0.5})
    one = replace(function(), use=0.4)
    # Costs 0.25 and 1.0, on average 0.625; beside nobody the least that counts is 0.01.
    both = gpus_with(["calm", "touchy"])
    assert expected_priority(one, both, slowdowns) == pytest.approx(0.4 / 0.625, rel=1e-3)
    assert expected_priority(one, gpus_with([None]), slowdowns) == pytest.approx(40.0)
    # Of 24 GPUs every third is asked: 8 of them, all calm.
    many = gpus_with([*["calm", "touchy", "touchy"] * 8])
    assert expected_priority(one, many, slowdowns) == pytest.approx(0.4 / 0.25, rel=1e-3)
    for made in (Smore(slowdowns), Bounded(slowdowns)):
        assert made.priority(one, both) == pytest.approx(0.64, rel=1e-3)


@pytest.mark.parametrize(
    ("limit", "refused"), [(0.25, False), (0.249, True)], ids=["at the limit", "below"]
)
def test_smore_refuses_what_costs_more_than_the_limit(limit: float, *, refused: bool) -> None:
    slowdowns = flat_slowdowns(NAMES, {("touchy", "f"): 0.8}, cautious=False)
    smore = Smore(slowdowns, limit=limit + 1e-9)
    found = smore.place(function(), gpus_with(["touchy"]), 0, 0.0, Random(0))
    assert isinstance(found, Refusal) is refused


@pytest.mark.parametrize(("p99_limit", "refused"), [(2.001, False), (1.999, True)])
def test_a_function_is_not_placed_where_it_would_be_late_itself(
    p99_limit: float, *, refused: bool
) -> None:
    one = replace(function(), p99_limit=p99_limit)
    for made in (
        Smore(flat_slowdowns(NAMES, {("f", "calm"): 0.5}, cautious=False)),
        Bounded(flat_slowdowns(NAMES, {("f", "calm"): 0.5})),
    ):
        found = made.place(one, gpus_with(["calm"]), 0, 0.0, Random(0))
        assert isinstance(found, Refusal) is refused


def test_only_gpus_of_a_type_that_will_do_are_taken() -> None:
    gpus = gpus_with(["calm"])
    gpus.add(ColocatedGpu(G1, "V100", 1000))
    picky = replace(function(), gpu_types=frozenset({"V100"}))
    slowdowns = flat_slowdowns(NAMES, {})
    for made in (Smore(slowdowns), Bounded(slowdowns)):
        found = made.place(picky, gpus, 0, 0.0, Random(0))
        assert isinstance(found, FunctionPlacement)
        assert found.gpu.id == G1


@pytest.mark.parametrize(
    ("kept", "chosen"),
    [
        # A cold start counts 0.2: a warm GPU may cost up to 0.2 more, and no more than that.
        (0.86, 0),
        (0.80, 1),
    ],
)
def test_a_warm_gpu_is_worth_a_fifth(kept: float, chosen: int) -> None:
    gpus = gpus_with(["touchy", "calm"])
    gpus.note_warm("f", gpus.order[0])
    for gpu in gpus.order:
        gpu.tokens_s = 36.0
    slowdowns = flat_slowdowns(NAMES, {("touchy", "f"): kept})
    found = Bounded(slowdowns).place(function(), gpus, 0, 0.0, Random(0))
    assert isinstance(found, FunctionPlacement)
    assert found.gpu.id.index == chosen
    assert found.is_warm is (chosen == 0)


def test_functions_that_are_there_have_fixed_the_way_to_share() -> None:
    good, bad = flat_table(NAMES, {}), flat_table(NAMES, {("calm", "f"): 0.95})
    slowdowns = Slowdowns({"bad": SharingTables(bad, bad), "good": SharingTables(good, good)})
    gpus = gpus_with(["calm"])
    first = Bounded(slowdowns).place(function(), gpus, 0, 0.0, Random(0))
    assert isinstance(first, FunctionPlacement)
    assert first.mode == "good"
    gpus.order[0].functions, gpus.order[0].mode = [function(number=1)], "bad"
    second = Bounded(slowdowns).place(function(number=2), gpus, 0, 0.0, Random(0))
    assert isinstance(second, FunctionPlacement)
    assert second.mode == "bad"


def test_fewer_gpus_are_looked_at_the_more_functions_wait_but_never_fewer_than_eight() -> None:
    class Counting(Gpus):
        asked: list[int]

        def draw(self, function: Function, most: int, rng: Random) -> list[ColocatedGpu]:
            self.asked.append(most)
            return super().draw(function, most, rng)

    slowdowns = flat_slowdowns(NAMES, {("touchy", "f"): 0.5})
    gpus = Counting([ColocatedGpu(gpu_ref(n), "T4", 1000, trainer="touchy") for n in range(40)])
    looks = {}
    for waiting in (0, 3, 4, 8, 1_000):
        gpus.asked = []
        Bounded(slowdowns).place(function(), gpus, waiting, 0.0, Random(0))
        looks[waiting] = gpus.asked
    # 32 // (1 + waiting // 4), and once more 32 before it has to wait itself.
    assert looks == {0: [32, 32], 3: [32, 32], 4: [16, 32], 8: [10, 32], 1_000: [8, 32]}


# -- while functions come and go ----------------------------------------------------------


def ledger_with(kept: dict[tuple[str, str], float]) -> OneMachineLedger:
    return OneMachineLedger(flat_slowdowns(NAMES, kept))


def test_use_and_memory_follow_whoever_is_there() -> None:
    ledger = ledger_with({})
    gpu = ledger.gpus.by_id[G0]
    ledger.train(0, "calm", 300, 0.5, 0.0)
    one = ledger.put(replace(function(), use=0.2), 0.0)
    assert [gpu.memory_mib, gpu.use] == pytest.approx([600, 0.7])
    assert list(ledger.gpus.warm("f", 9)) == [gpu]
    ledger.end(0, 1.0)
    assert gpu.trainer is None
    assert [gpu.memory_mib, gpu.use] == pytest.approx([900, 0.2])
    ledger.drop(one, 2.0)
    assert [gpu.memory_mib, gpu.use, len(gpu.functions)] == pytest.approx([1000, 0, 0])
    assert list(ledger.gpus.warm("f", 9)) == []


def test_a_model_stays_warm_while_another_replica_is_there() -> None:
    ledger = ledger_with({})
    first, second = (ledger.put(function(number=number), 0.0) for number in (1, 2))
    ledger.drop(first, 1.0)
    assert len(list(ledger.gpus.warm("f", 9))) == 1
    ledger.drop(second, 2.0)
    assert list(ledger.gpus.warm("f", 9)) == []


def test_who_would_slow_a_new_training_job_most_is_not_borne() -> None:
    # Beside touchy, f costs 1 - 0.8 = 20 % of its time and g nothing: only f must go.
    ledger = ledger_with({("touchy", "f"): 0.8})
    f, g = (ledger.put(function(name), 0.0) for name in "fg")
    ledger.train(0, "touchy", 0, 0.5, 0.0)
    gpu = ledger.gpus.by_id[G0]
    assert not ledger.colocator.bears(gpu)
    assert ledger.worst(gpu) is f
    ledger.drop(f, 0.0)
    assert ledger.colocator.bears(gpu)
    assert ledger.on(gpu) == [g]
    assert [gpu.loss, gpu.tokens_s] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_the_loss_of_a_training_job_is_what_its_neighbours_cost_now() -> None:
    ledger = ledger_with({("calm", "f"): 0.95, ("calm", "g"): 0.97})
    ledger.train(0, "calm", 0, 0.5, 0.0)
    gpu, f = ledger.gpus.by_id[G0], ledger.put(function("f"), 0.0)
    assert gpu.loss == pytest.approx(0.05, abs=1e-4)
    ledger.put(function("g"), 0.0)
    # Slowdowns less 1 add up: 1/0.95 + 1/0.97 - 1 = 1.0836, a loss of 1 - 1/1.0836.
    assert gpu.loss == pytest.approx(1 - 1 / (1 / 0.95 + 1 / 0.97 - 1), abs=1e-4)
    ledger.drop(f, 1.0)
    assert gpu.loss == pytest.approx(0.03, abs=1e-4)


@pytest.mark.parametrize(
    ("reports", "gone_at"),
    [
        # Each report: how slow training and the function were (its limit is 2); the second
        # violation in a row takes the function away.  What was not measured says nothing.
        ([(None, 2.1), (None, 2.1)], 2),
        ([(None, 2.0), (None, 2.1), (None, 2.1)], 3),
        ([(None, 2.1), (None, 1.0), (None, 2.1)], None),
        ([(None, 2.1), (None, None), (None, 2.1)], 3),
        ([(None, 2.1), (1.0, None), (None, 2.1)], 3),
        ([(1.5, None), (1.0, None), (1.5, None)], None),
        ([(1.5, None), (None, 1.0), (1.5, None)], 3),
        ([(1.1, None), (1.1, None), (1.1, None)], None),
    ],
)
def test_a_function_goes_at_the_second_violation_in_a_row(
    reports: list[tuple[float | None, float | None]], gone_at: int | None
) -> None:
    ledger = ledger_with({})
    ledger.train(0, "calm", 0, 0.5, 0.0)
    one = ledger.put(function(), 0.0)
    found = None
    for number, (training, p99) in enumerate(reports, 1):
        measured = {} if p99 is None else {1: p99}
        worst = ledger.judge(G0, training, measured, 0.0)
        if worst is not None:
            assert worst is one
            found = number
            break
    assert found == gone_at


def test_a_training_job_earns_nothing_before_it_begins_and_what_is_left_counts_after() -> None:
    ledger = ledger_with({("touchy", "f"): 0.85})
    ledger.train(0, "touchy", 0, 0.5, 3_600.0)
    gpu = ledger.gpus.by_id[G0]
    assert (gpu.tokens_s, gpu.settled_s) == (0.0, 3_600.0)
    assert isinstance(ledger.put(function(), 3_600.0), Refusal)
    ledger.end(0, 7_200.0)
    assert (gpu.settled_s, gpu.loss) == (7_200.0, 0.0)
    # The index knows the GPU under what it has now: nothing stands in its place twice.
    assert ledger.gpus.draw(function(), 9, Random(0)) == [gpu]


def test_memory_that_is_free_again_is_found_again() -> None:
    ledger = ledger_with({})
    large, other = function(memory_mib=950), function(memory_mib=800, number=1)
    placed = ledger.put(large, 0.0)
    assert isinstance(ledger.put(other, 0.0), Refusal)
    ledger.drop(placed, 1.0)
    assert isinstance(ledger.put(other, 1.0), PlacedReplica)


def test_a_training_job_that_leaves_exactly_no_memory_crowds_nobody() -> None:
    ledger = ledger_with({})
    ledger.put(function(memory_mib=400), 0.0)
    ledger.train(0, "calm", 600, 0.5, 0.0)
    gpu = ledger.gpus.by_id[G0]
    assert gpu.memory_mib == 0
    assert not ledger.is_crowded(gpu)


def test_a_late_function_that_left_is_not_held_against_those_who_stay() -> None:
    ledger = ledger_with({})
    late, _ = (ledger.put(function(name), 0.0) for name in "fg")
    assert ledger.judge(G0, None, {1: 9.0}, 0.0) is None
    ledger.drop(late, 1.0)
    assert ledger.gpus.by_id[G0].late == set()
    assert ledger.judge(G0, None, {2: 1.0}, 2.0) is None
    assert ledger.gpus.by_id[G0].misses == 0


def test_a_gpu_without_functions_has_nobody_to_take_away() -> None:
    ledger = ledger_with({})
    assert ledger.judge(G0, 9.0, {}, 0.0) is None
    assert ledger.gpus.by_id[G0].misses == 0
