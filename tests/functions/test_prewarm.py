import numpy as np
import pytest

from interlane.functions.advise import LastSlotRule, Peak
from interlane.functions.catalogue import advisors
from interlane.functions.costs import Costs, Prices, horizon, is_worth_it, within
from interlane.functions.portfolio import Portfolio
from interlane.functions.rank import Foreseen, Frequent, GreedyDual, Hazard, Ranking, Recent
from interlane.functions.replay import PORTFOLIO, cold_share, costs, groups_of
from interlane.functions.watch import FunctionWatch
from interlane.model import InvalidField
from interlane.predict.arrivals.live import OnlineForecaster, RecordedForecasts, Trees
from interlane.testing.arrivals import arrivals, habits

TRACE = habits(6, seed=2)


def foretold(*chances: list[float]) -> RecordedForecasts:
    """Return a forecast of these probabilities, a list a slot, and of one request each."""
    told = np.array(chances)
    return RecordedForecasts(told, np.ones_like(told))


def test_a_replica_is_loaded_when_that_costs_less_than_a_probable_cold_start() -> None:
    # 0.3 x 10 = 3 is more than 0.7 x 2 + 1, and 0.2 x 10 = 2 is less than 0.8 x 2 + 1.
    at_stake = Costs(cold=10.0, idle=2.0, load=1.0)

    assert is_worth_it(0.3, at_stake, is_loaded=False)
    assert not is_worth_it(0.2, at_stake, is_loaded=False)
    assert is_worth_it(0.2, at_stake, is_loaded=True)


def test_loading_begins_as_many_slots_ahead_as_it_takes() -> None:
    assert [horizon(load_s, 60.0) for load_s in (0.0, 59.0, 60.0, 61.0)] == [1, 1, 1, 2]
    assert within(0.5, 2) == 0.75


def test_prices_must_be_above_zero() -> None:
    with pytest.raises(InvalidField, match="waiting"):
        Prices(waiting=0.0)


def test_a_portfolio_changes_to_what_has_cost_less() -> None:
    one = Portfolio({"last": LastSlotRule(1), "peak": Peak(1, 3)}, np.array([10.0]))

    followed = []
    for need in (4.0, 0.0, 4.0, 0.0, 4.0, 0.0):
        followed.append(float(one.wanted()[0]))
        one.passed(np.array([need]), np.array([need]))

    # The first leads; the other is heard as soon as it has cost no more.
    assert followed[:2] == [0.0, 4.0]
    assert followed[2] < 2.0
    assert followed[-1] == 4.0
    assert one.shares[1] > 0.99


def test_a_portfolio_remembers_over_a_long_rest_who_was_right() -> None:
    one = Portfolio({"last": LastSlotRule(1), "none": LastSlotRule(1, 0.0)}, np.array([2.0]))

    for need in (4.0, 0.0, 0.0) * 5 + (0.0,) * 5_000:
        one.wanted()
        one.passed(np.array([need]), np.array([need]))

    assert one.shares[1] > 0.99


def test_a_ranking_that_has_seen_the_slot_goes_by_what_is_told_of_the_next() -> None:
    ahead, behind = (Hazard(is_ahead=is_ahead) for is_ahead in (True, False))
    for one in (ahead, behind):
        one.asked("a")

    # Who was just asked is thought to be asked again, unless more is known.
    assert ahead.worth("a", 0.1) < ahead.worth("b", 0.6)
    assert behind.worth("a", 0.1) > behind.worth("b", 0.6)


def test_who_is_asked_often_is_worth_more_the_longer_functions_stay() -> None:
    one = Hazard()
    for _ in range(10):
        one.asked("often")
        one.passed({"often"}, {"often": 0.1, "never": 0.1})
    assert one.worth("often", 0.1) == one.worth("never", 0.1)

    for _ in range(20):
        one.passed((), {"often": 0.1, "never": 0.1})
        one.parted("never")

    assert one.worth("often", 0.1) > one.worth("never", 0.1) + 0.1
    again = Hazard()
    again.restore(one.snapshot())
    assert again.worth("often", 0.1) == one.worth("often", 0.1)


def test_a_portfolio_costs_hardly_more_than_its_best_advisor() -> None:
    trees = Trees()
    trees.chance.rounds = trees.size.rounds = 10
    trees.fit(TRACE.known(0.7))

    found = costs(
        TRACE,
        0.7,
        10.0,
        {
            "trees": lambda g: OnlineForecaster(
                trees, functions=len(g.names), slot_s=g.slot_s, slot=g.first
            )
        },
    )

    best = min(cost.mean() for name, cost in found.items() if name != PORTFOLIO)
    assert found[PORTFOLIO].mean() < 1.15 * best
    assert set(found) > {"trees", "keep-alive 10", "last x 1.5", "lsth"}


def test_advice_for_a_slot_is_given_before_it() -> None:
    (group,) = groups_of(arrivals([5.0, 0.0, 5.0, 5.0]), 0.5)
    rule, ones = LastSlotRule(1), np.ones(1)
    watch = FunctionWatch(group.names, foretold([0.0]), rule, ones, group.capacity)

    wanted = []
    for counts in group.counts:
        wanted.append(float(watch.wanted[0]))
        watch.passed(counts)

    # A replica serves a fifth of the mean load of 5: five are needed when there is any.
    assert wanted == [0.0, 5.0, 0.0, 5.0]


def test_everybody_has_an_opinion_before_anything_has_happened() -> None:
    everybody = advisors(
        {"told": foretold([0.0, 1.0])}, weight=np.ones(2), capacity=np.ones(2), slot_s=60.0
    )

    said = [one.wanted() for one in everybody.values()]

    assert all(one.shape == (2,) and (one >= 0).all() for one in said)


@pytest.mark.parametrize("together", [False, True])
def test_who_knows_the_future_is_cold_least_often_with_few_places(*, together: bool) -> None:
    (group,) = groups_of(TRACE, 0.5)
    count = len(group.names)
    live = OnlineForecaster(Trees(), functions=count, slot_s=group.slot_s, slot=group.first)
    rankings: dict[str, Ranking] = {
        "belady": Foreseen(group.names, group.counts),
        "hazard": Hazard(),
        "lru": Recent(),
        "lfu": Frequent(),
        "gdsf": GreedyDual(),
    }

    cold = {
        name: cold_share(group, 2, one, live if name == "hazard" else None, together=together)
        for name, one in rankings.items()
    }

    assert cold["belady"] == min(cold.values())
    assert 0 < cold["belady"] < max(cold.values()) < 1


def test_who_is_asked_together_does_not_make_room_for_another() -> None:
    # Both functions are asked in every slot: in turn, each sends the other away.
    (group,) = groups_of(arrivals([1.0] * 10, [1.0] * 10), 0.5)

    assert cold_share(group, 1, Recent()) == 1.0
    assert cold_share(group, 1, Recent(), together=True) == 0.5
