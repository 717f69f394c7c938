import numpy as np
import pytest

from interlane.functions.advise import LastSlotRule
from interlane.model.function import Function
from interlane.policy.colocate.place import Bounded
from interlane.policy.colocate.slowdown import Slowdowns
from interlane.predict.arrivals.series import Floats
from interlane.predict.slowdown.online import Online
from interlane.predict.slowdown.table import CellBasis
from interlane.sim.colocation import (
    ColocationScenario,
    ColocationWorld,
    Scheduling,
    Training,
    use_class,
)
from interlane.testing.colocation import flat_slowdowns

NAMES = ("train", "f")


class Kept:
    """Wants the same at all times."""

    def __init__(self, functions: int, *, replicas: float) -> None:
        self._wanted = np.full(functions, replicas)

    def wanted(self) -> Floats:
        return self._wanted

    def passed(self, counts: Floats, needs: Floats) -> None:
        pass


def scenario(truth: Slowdowns, *, replicas: int = 1, minutes: int = 60) -> ColocationScenario:
    """One GPU, one training job of half an hour that is there from the beginning."""
    return ColocationScenario(
        1,
        "T4",
        1000,
        (Training("train", 500, 0.5, 0, 1800.0),),
        (Function("f", "f", 100, use=0.2),),
        np.full((minutes, 1), float(replicas)),
        np.ones(1),
        (90.0,),
        truth,
    )


def reacting(
    slowdowns: Slowdowns, *, learner: Online | None = None, evicts: bool = False
) -> Scheduling:
    """Keep as many replicas as the last minute took."""
    return Scheduling(Bounded(slowdowns), slowdowns, LastSlotRule(1), learner, evicts)


def test_alone_training_takes_as_long_as_it_needs() -> None:
    found = ColocationWorld(scenario(flat_slowdowns(NAMES, {}))).play()
    assert found.trained == 1
    assert found.minutes == {"medium": 30, "no training": 30}
    assert found.use_of("medium") == pytest.approx(0.5)
    assert found.missed == 1.0


def test_a_function_beside_training_makes_the_gpu_busier_and_loads_first() -> None:
    slowdowns = flat_slowdowns(NAMES, {})
    found = ColocationWorld(scenario(slowdowns), reacting(slowdowns)).play()
    # A request called for it: both minutes in which it loads miss, half of the second works.
    assert found.minutes["medium"] == 31
    assert found.use_of("medium") == pytest.approx(0.5 + 0.2 * 29.5 / 31)
    assert (found.loading, found.unplaced, found.slow) == (2, 0, 0)
    assert found.missed == pytest.approx(2 / 60)


def test_a_replica_that_was_foreseen_misses_no_more_than_its_loading() -> None:
    slowdowns = flat_slowdowns(NAMES, {})
    foreseen = Kept(1, replicas=1.0)
    found = ColocationWorld(
        scenario(slowdowns), Scheduling(Bounded(slowdowns), slowdowns, foreseen)
    ).play()
    assert found.cold == 0
    # 90 s: a minute and a half.
    assert found.loading == pytest.approx(1.5)


def test_a_replica_that_nobody_asks_holds_its_place_and_does_no_work() -> None:
    slowdowns = flat_slowdowns(NAMES, {("train", "f"): 0.5})
    hoped = flat_slowdowns(NAMES, {})
    quiet = scenario(slowdowns, replicas=0)
    found = ColocationWorld(
        quiet, Scheduling(Bounded(hoped), hoped, Kept(1, replicas=1.0))
    ).play()
    assert found.idle == 60
    assert found.use_of("medium") == pytest.approx(0.5)
    assert found.trained == 1


def test_training_takes_longer_by_what_functions_cost() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.95})
    found = ColocationWorld(scenario(truth), reacting(truth)).play()
    # 30 minutes of work at 0.95 of the speed: 31.6.
    assert found.minutes["medium"] == 32
    assert found.job_hours_broken == 0


def test_a_promise_that_was_wrong_is_taken_back_after_two_measurements() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.5})
    hoped = flat_slowdowns(NAMES, {})
    trusting = ColocationWorld(scenario(truth), reacting(hoped)).play()
    watching = ColocationWorld(scenario(truth), reacting(hoped, evicts=True)).play()
    assert watching.evicted > 0
    assert watching.minutes["medium"] < trusting.minutes["medium"] == 60


def test_a_table_that_learns_does_not_repeat_the_mistake() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.5})
    hoped = flat_slowdowns(NAMES, {})
    learner = Online(hoped.modes["side-by-side"].training)
    ColocationWorld(scenario(truth), reacting(hoped, learner=learner, evicts=True)).play()
    learned = learner.table.read(0, 0, 1)
    assert learned.basis is CellBasis.MEASURED
    assert learned.throughput < 0.9


@pytest.mark.parametrize(
    ("use", "kind"), [(None, "no training"), (0.1, "light"), (0.5, "medium"), (0.9, "heavy")]
)
def test_training_is_told_apart_by_how_busy_it_keeps_a_gpu(
    use: float | None, kind: str
) -> None:
    assert use_class(use) == kind
