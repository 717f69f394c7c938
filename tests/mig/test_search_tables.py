"""The inner loops of tree search and breeding, against loops that anybody can check."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from interlane.mig import compiled
from interlane.mig.compiled import FULL, NOBODY, CoveringTables, Memo
from interlane.mig.covering import covering_of
from interlane.mig.demand import GpuOffer, Service
from interlane.mig.deployment import Board, Watch
from interlane.mig.greedy import greedy_cover
from interlane.mig.plan import Effort
from interlane.testing.mig import asked, small_demands

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]
SERVICES, BLOCKS, WIDTH = 3, 2, 3


@dataclass
class Case:
    """Tables of a few set-ups, and how far services are."""

    tables: CoveringTables
    left: Floats
    weight: Floats
    set_ups: Whole
    given: Whole

    def block(self, gpu: int, at: int) -> int:
        return int(self.tables.slots[self.set_ups[gpu], at])

    def share(self, service: int, block: int) -> float:
        return float(self.tables.share[service, block])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw set-ups of up to three slots, and GPUs that are filled with anybody or nobody."""
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=WIDTH), min_size=1,
                         max_size=3))  # fmt: skip
    slots = np.full((len(rows), WIDTH), NOBODY, np.int64)
    for number, row in enumerate(rows):
        slots[number, : len(row)] = sorted(row)
    shares = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0])
    share = np.array([[draw(shares) for _ in range(BLOCKS)] for _ in range(SERVICES)])
    groups = np.array([draw(st.integers(0, 1)) for _ in rows], np.int64)
    price = np.array([draw(st.sampled_from([1.0, 2.0])) for _ in rows])
    worth = np.array([draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in range(SERVICES)])
    tables = CoveringTables(slots, groups, price, share, worth, np.array([1.0, 0.25]))
    gpus = draw(st.integers(1, 4))
    set_ups = np.array([draw(st.integers(0, len(rows) - 1)) for _ in range(gpus)], np.int64)
    given = np.full((gpus, WIDTH), NOBODY, np.int64)
    for gpu, at in np.ndindex(*given.shape):
        if slots[set_ups[gpu], at] != NOBODY:
            given[gpu, at] = draw(st.integers(NOBODY, SERVICES - 1))
    left = np.array([draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])) for _ in range(SERVICES)])
    return Case(tables, left, worth.copy(), set_ups, given)


def rng(seed: int = 0) -> NDArray[np.uint64]:
    return np.array([seed], np.uint64)


# -- filling one GPU --------------------------------------------------------------------------


@given(case=cases())
def test_every_slot_goes_to_whoever_gains_most_and_the_first_of_equals(case: Case) -> None:
    left, given_ = case.left.copy(), np.empty(WIDTH, np.int64)
    value = compiled.fill(case.tables, 0, case.weight, left, given_)
    misses, total = case.left.tolist(), 0.0
    for at in range(WIDTH):
        block = int(case.tables.slots[0, at])
        gains = [
            case.weight[one] * min(case.share(one, block), misses[one]) if block >= 0 else 0.0
            for one in range(SERVICES)
        ]
        best = max(gains)
        expected = gains.index(best) if best > 0 else NOBODY
        assert given_[at] == expected
        if expected != NOBODY:
            misses[expected] -= min(case.share(expected, block), misses[expected])
            total += best
    assert value == pytest.approx(total)
    assert left == pytest.approx(misses)


@given(case=cases())
def test_a_filled_gpu_is_worth_what_it_gives_of_what_is_missing(case: Case) -> None:
    left = case.left.copy()
    value = compiled.value_of(case.tables, case.set_ups[0], case.given[0], case.weight, left)
    misses, total = case.left.tolist(), 0.0
    for at, service in enumerate(case.given[0].tolist()):
        if service != NOBODY:
            gain = min(case.share(service, case.block(0, at)), misses[service])
            misses[service] -= gain
            total += float(case.weight[service]) * gain
    assert value == pytest.approx(total)
    assert left == pytest.approx(misses)


@given(case=cases())
def test_a_gpu_that_is_taken_is_counted_and_its_surplus_told(case: Case) -> None:
    left, given_, free = case.left.copy(), case.given[0].copy(), np.array([5, 5], np.int64)
    over = compiled.take(case.tables, case.set_ups[0], given_, left, free)
    misses, surplus = case.left.tolist(), 0.0
    for at, service in enumerate(case.given[0].tolist()):
        if service == NOBODY or misses[service] <= 0:
            assert given_[at] == NOBODY
            continue
        assert given_[at] == service
        misses[service] -= case.share(service, case.block(0, at))
        if misses[service] < 1e-9:
            surplus -= misses[service] * float(case.tables.worth[service])
            misses[service] = 0.0
    assert over == pytest.approx(surplus)
    assert left == pytest.approx(misses)
    group = case.tables.group[case.set_ups[0]]
    assert free.tolist() == [5 - (number == group) for number in (0, 1)]


# -- whole deployments ------------------------------------------------------------------------


@given(case=cases())
def test_what_is_served_and_what_is_empty_add_up_slot_by_slot(case: Case) -> None:
    served, room = [0.0] * SERVICES, [0.0] * len(case.set_ups)
    for gpu, at in np.ndindex(*case.given.shape):
        service = int(case.given[gpu, at])
        block = case.block(gpu, at)
        if service != NOBODY:
            served[service] += case.share(service, block)
        elif block != NOBODY:
            room[gpu] += float(case.tables.block_worth[block])
    assert compiled.served(case.tables, case.set_ups, case.given) == pytest.approx(served)
    assert compiled.room(case.tables, case.set_ups, case.given) == pytest.approx(room)


@given(case=cases())
def test_trimming_empties_only_what_nobody_needs_and_all_of_that(case: Case) -> None:
    before = compiled.served(case.tables, case.set_ups, case.given)
    trimmed = case.given.copy()
    compiled.trim(case.tables, case.set_ups, trimmed, np.arange(len(case.set_ups)))
    after = compiled.served(case.tables, case.set_ups, trimmed)
    for service in range(SERVICES):
        # Who was served still is; who was not loses nothing.
        whole = before[service] >= 1 - 1e-9
        assert after[service] >= 1 - 1e-6 if whole else after[service] == before[service]
    for gpu, at in np.ndindex(*trimmed.shape):
        service = int(trimmed[gpu, at])
        assert service in (NOBODY, case.given[gpu, at])
        if service != NOBODY:
            assert after[service] - case.share(service, case.block(gpu, at)) < 1 - 1e-9


def test_trimming_goes_by_the_order_of_gpus() -> None:
    # Two GPUs of one slot each serve service 0 wholly: the first in the order is emptied.
    tables = CoveringTables(
        np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1), np.ones((1, 1)),
        np.ones(1), np.ones(1),
    )  # fmt: skip
    for order in ([0, 1], [1, 0]):
        given_ = np.zeros((2, 1), np.int64)
        compiled.trim(tables, np.zeros(2, np.int64), given_, np.array(order))
        assert given_[order[0], 0] == NOBODY
        assert given_[order[1], 0] == 0


@given(case=cases(), seed=st.integers(0, 99))
def test_swaps_move_services_between_slots_of_one_kind_only(case: Case, seed: int) -> None:
    swapped = case.given.copy()
    compiled.swap(case.tables, case.set_ups, swapped, 8, rng(seed))

    def held(given_: Whole) -> list[tuple[int, int]]:
        return sorted(
            (case.block(gpu, at), int(service))
            for (gpu, at), service in np.ndenumerate(given_)
            if case.block(gpu, at) != NOBODY
        )

    assert held(swapped) == held(case.given)
    for (gpu, at), service in np.ndenumerate(swapped):
        if case.block(gpu, at) == NOBODY:
            assert service == NOBODY


def test_swaps_do_move() -> None:
    tables = CoveringTables(
        np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1), np.ones((2, 1)),
        np.ones(2), np.ones(1),
    )  # fmt: skip
    moved = []
    for seed in range(20):
        given_ = np.array([[0], [1]])
        compiled.swap(tables, np.zeros(2, np.int64), given_, 1, rng(seed))
        moved.append(given_.ravel().tolist())
    assert [0, 1] in moved
    assert [1, 0] in moved


@given(case=cases())
def test_the_value_of_gpus_is_their_price_less_room_plus_what_is_missing(case: Case) -> None:
    count = len(case.set_ups)
    found = compiled.value_after(case.tables, case.set_ups, case.given, count, case.left, 100.0)
    price = case.tables.price[case.set_ups].sum()
    room = compiled.room(case.tables, case.set_ups, case.given).sum()
    missing = sum(
        100.0 * (1 + left * worth)
        for left, worth in zip(case.left, case.tables.worth, strict=True)
        if left > 0
    )
    assert found == pytest.approx(price - room + missing)


@given(case=cases())
def test_candidates_are_the_fillings_that_are_worth_anything(case: Case) -> None:
    count = len(case.tables.price)
    set_ups, values = np.empty(count, np.int64), np.empty(count)
    given_ = np.empty((count, WIDTH), np.int64)
    free = np.array([1, 0], np.int64)
    found = compiled.candidates(
        case.tables, case.weight, case.left, free, set_ups, given_, values
    )
    expected = []
    for set_up in range(count):
        one = np.empty(WIDTH, np.int64)
        value = compiled.fill(case.tables, set_up, case.weight, case.left.copy(), one)
        if case.tables.group[set_up] == 0 and value > 0:
            expected.append((set_up, value / case.tables.price[set_up], one.tolist()))
    assert [
        (int(set_ups[at]), values[at], given_[at].tolist()) for at in range(found)
    ] == expected


# -- roll-outs ---------------------------------------------------------------------------------


NOTHING = Memo(np.zeros(0, np.int64), np.zeros((0, WIDTH), np.int64), 0)


@given(case=cases(), seed=st.integers(0, 999), urgent=st.booleans())
def test_a_roll_out_serves_all_that_can_be_served_with_the_gpus_there_are(
    case: Case, seed: int, *, urgent: bool
) -> None:
    left, free = case.left.copy(), np.array([3, 50], np.int64)
    set_ups, given_ = np.empty(60, np.int64), np.empty((60, WIDTH), np.int64)
    steps, over = compiled.roll_out(
        case.tables, NOTHING, case.weight, urgent, 0.1, rng(seed), left, free, set_ups, given_
    )
    served = compiled.served(case.tables, set_ups[:steps], given_[:steps])
    assert left == pytest.approx(np.maximum(case.left - served, 0), abs=1e-6)
    surplus = np.maximum(served - case.left, 0) @ case.tables.worth
    assert over == pytest.approx(surplus, abs=1e-6)
    used = np.bincount(case.tables.group[set_ups[:steps]], minlength=2)
    assert free.tolist() == (np.array([3, 50]) - used).tolist()
    assert free.min() >= 0
    # It ends only when nobody misses anything that GPUs which are left could give.
    able = [
        case.share(service, block) > 0 and left[service] > 0
        for number in range(len(case.tables.price))
        if free[case.tables.group[number]] > 0
        for block in case.tables.slots[number]
        if block != NOBODY
        for service in range(SERVICES)
    ]
    assert not any(able)


def test_without_noise_the_gpu_that_is_worth_most_for_its_price_is_taken() -> None:
    # Set-up 0 gives 1 for 2, set-up 1 gives 0.5 for 0.8: 0.5 and 0.625 a unit of price.
    tables = CoveringTables(
        np.array([[0], [1]]), np.zeros(2, np.int64), np.array([2.0, 0.8]),
        np.array([[1.0, 0.5]]), np.ones(1), np.ones(2),
    )  # fmt: skip
    set_ups, given_ = np.empty(9, np.int64), np.empty((9, 1), np.int64)
    steps, over = compiled.roll_out(
        tables, NOTHING, np.ones(1), False, 0.0, rng(), np.ones(1), np.array([9]), set_ups,
        given_,
    )  # fmt: skip
    assert set_ups[:steps].tolist() == [1, 1]
    assert over == pytest.approx(0.0)


def test_a_roll_out_that_cannot_be_written_down_says_so() -> None:
    tables = CoveringTables(
        np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1), np.full((1, 1), 0.1),
        np.ones(1), np.ones(1),
    )  # fmt: skip
    args = np.ones(1), np.array([99]), np.empty(4, np.int64), np.empty((4, 1), np.int64)
    steps, _ = compiled.roll_out(tables, NOTHING, np.ones(1), False, 0.0, rng(), *args)
    assert steps == FULL
    left, free, set_ups, given_ = args
    left[:] = 1.0
    found = compiled.best_roll_out(tables, NOTHING, 3, 10.0, rng(), left, free, set_ups, given_)
    assert found == (FULL, np.inf, np.inf, False)


@given(case=cases(), seed=st.integers(0, 99))
def test_the_best_of_several_roll_outs_is_written_down_with_its_value(
    case: Case, seed: int
) -> None:
    free = np.array([9, 9], np.int64)
    set_ups, given_ = np.empty(60, np.int64), np.empty((60, WIDTH), np.int64)
    before = case.left.copy()
    count, value, mean, serves = compiled.best_roll_out(
        case.tables, NOTHING, 6, 100.0, rng(seed), case.left, free, set_ups, given_
    )
    assert (case.left == before).all()
    assert free.tolist() == [9, 9]
    assert value <= mean + 1e-9
    served = compiled.served(case.tables, set_ups[:count], given_[:count])
    left = np.maximum(before - served, 0.0)
    left[left < 1e-9] = 0.0
    assert serves == (not left.any())
    over = np.maximum(served - before, 0.0) @ case.tables.worth
    after = compiled.value_after(case.tables, set_ups, given_, count, left, 100.0)
    assert value == pytest.approx(after - 0.25 * over, abs=1e-6)


def test_remembered_gpus_are_tried_again_if_they_are_worth_something() -> None:
    # Filled by greed, both slots go to service 0, which weighs more; a remembered GPU mixes.
    tables = CoveringTables(
        np.array([[0, 0]]), np.zeros(1, np.int64), np.ones(1), np.array([[0.5], [0.5]]),
        np.ones(2), np.ones(1),
    )  # fmt: skip
    memo = Memo(np.zeros(1, np.int64), np.array([[0, 1]]), 1)
    mixed = 0
    for seed in range(30):
        set_ups, given_ = np.empty(9, np.int64), np.empty((9, 2), np.int64)
        compiled.roll_out(
            tables, memo, np.array([2.0, 1.0]), False, 0.0, rng(seed), np.ones(2),
            np.array([9]), set_ups, given_,
        )  # fmt: skip
        mixed += given_[0].tolist() == [0, 1]
    # Every other step looks at what is remembered.
    assert 8 <= mixed <= 22


def test_of_remembered_gpus_the_one_that_is_worth_most_for_its_price_is_taken() -> None:
    # All serve half of the need, for 2, 1 and 1; the first of equals wins, and what is worth
    # nothing any more, or not there, is passed.
    tables = CoveringTables(
        np.array([[0], [0], [0]]), np.array([0, 0, 1]), np.array([2.0, 1.0, 1.0]),
        np.array([[0.5], [0.5]]), np.ones(2), np.ones(1),
    )  # fmt: skip
    memo = Memo(np.array([0, 2, 1, 1]), np.array([[0], [0], [0], [1]]), 4)

    def best(left: list[float], free: list[int]) -> tuple[int, list[int]]:
        given_ = np.full(1, NOBODY)
        args = np.array(left), np.array(free), 0.0, rng(), given_, np.empty(2)
        return int(compiled._best_known(tables, memo, np.ones(2), *args)), given_.tolist()

    assert best([1.0, 1.0], [9, 9]) == (2, [0])
    assert best([1.0, 1.0], [9, 0]) == (1, [0])
    assert best([0.0, 1.0], [9, 9]) == (1, [1])
    assert best([0.0, 0.0], [9, 9]) == (NOBODY, [NOBODY])


def test_draws_are_splitmix64_as_parts_of_one() -> None:
    wrap, state, roll = 2**64 - 1, 5, rng(5)
    for _ in range(4):
        state = mixed = (state + 0x9E3779B97F4A7C15) & wrap
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & wrap
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & wrap
        mixed ^= mixed >> 31
        assert compiled.uniform(roll) == (mixed >> 11) / 2**53


def test_draws_are_even_over_the_unit_interval() -> None:
    roll = rng(5)
    drawn = [compiled.uniform(roll) for _ in range(2_000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.02)
    assert np.var(drawn) == pytest.approx(1 / 12, abs=0.01)


# -- boards ------------------------------------------------------------------------------------


Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]


@given(demand=small_demands())
def test_a_board_holds_a_covering_and_its_deployments_cost_what_covers_cost(
    demand: Demand,
) -> None:
    covering = covering_of(asked(*demand)[0])
    board, cover = Board(covering), greedy_cover(covering)
    assert cover is not None
    found = board.from_cover(cover)
    assert found.serves
    again = board.cover(found)
    assert (again.gets <= cover.gets).all()
    assert found.cost == pytest.approx(covering.prices @ again.used)
    assert found.cost <= covering.prices @ cover.used + 1e-9
    room = compiled.room(board.tables, found.set_ups, found.given).sum()
    surplus = compiled.served(board.tables, found.set_ups, found.given) - board.all_left
    over = np.maximum(surplus, 0.0) @ board.tables.worth
    assert found.value == pytest.approx(found.cost - room - 0.25 * over)
    free = board.free_beside(found.set_ups)
    used = np.bincount(board.tables.group[found.set_ups], minlength=len(free))
    assert (board.all_free - free == used).all()
    # Blocks of a set-up come slot by slot, the dearest first.
    for number, slots in enumerate(board.tables.slots.tolist()):
        blocks = [block for block in slots if block != NOBODY]
        counts = [blocks.count(block) for block in range(len(covering.blocks))]
        assert counts == covering.supply[number].tolist()
        worth = [float(board.tables.block_worth[block]) for block in blocks]
        assert worth == sorted(worth, reverse=True)


def test_a_deployment_that_misses_something_is_dear() -> None:
    problem, _ = asked(
        [Service("a", "a", 10, 100.0)],
        [GpuOffer("A30-24GB", limit=3)],
        {("a", "A30-24GB", "4g.24gb"): 4},
    )
    board = Board(covering_of(problem))
    assert board.all_free.tolist() == [3]
    none = np.zeros(0, np.int64), np.zeros((0, board.width), np.int64)
    empty = board.deployment(*none)
    assert (empty.serves, empty.cost, empty.left.tolist()) == (False, 0.0, [1.0])
    # Ten times the dearest GPU, for one service that misses all of its need, and its worth.
    assert empty.value == pytest.approx(10 * (1 + float(board.tables.worth[0])))


def test_a_watch_is_over_when_its_time_is_up_and_never_without_a_limit() -> None:
    now = [100.0]
    watch = Watch(Effort(5.0, clock=lambda: now[0]))
    endless = Watch(Effort(clock=lambda: now[0]))
    seen = []
    for now_s in (100.0, 104.9, 105.0, 1e9):
        now[0] = now_s
        seen.append((watch.is_over, endless.is_over))
    assert seen == [(False, False), (False, False), (True, False), (True, False)]
