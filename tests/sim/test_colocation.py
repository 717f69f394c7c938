import numpy as np
import pytest

from interlane.functions.advise import Advisor, LastSlotRule
from interlane.functions.scheduler import FunctionScheduler
from interlane.functions.watch import FunctionWatch
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import BOUNDED, SMORE, make_colocator
from interlane.policy.colocate.interference import SlowdownTarget
from interlane.policy.colocate.slowdown import Slowdowns
from interlane.predict.arrivals.live import RecordedForecasts
from interlane.predict.arrivals.series import Floats
from interlane.predict.slowdown.table import CellBasis, SlowdownTable
from interlane.sim.colocation import (
    MINUTE_S,
    ColocationScenario,
    ColocationWorld,
    Training,
    use_class,
)
from interlane.testing.colocation import flat_slowdowns, flat_table

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


def scheduler(
    table: SlowdownTable, advisor: Advisor | None = None, *, policy: str = BOUNDED
) -> FunctionScheduler:
    """Decide by a table; keep as many replicas as the last minute took unless told."""
    certain = RecordedForecasts(np.ones((1, 1)), np.ones((1, 1)))
    watch = FunctionWatch(("f",), certain, advisor or LastSlotRule(1), np.ones(1), np.ones(1))
    return FunctionScheduler(
        make_colocator(policy, dict.fromkeys(SlowdownTarget, table)),
        slot_s=MINUTE_S,
        make_watch=lambda *_: watch,
    )


def test_alone_training_takes_as_long_as_it_needs() -> None:
    found = ColocationWorld(scenario(flat_slowdowns(NAMES, {}))).play()
    assert found.trained == 1
    assert found.minutes == {"medium": 30, "no training": 30}
    assert found.use_of("medium") == pytest.approx(0.5)
    assert found.missed == 1.0


def test_a_function_beside_training_makes_the_gpu_busier_and_loads_first() -> None:
    truth = flat_slowdowns(NAMES, {})
    found = ColocationWorld(scenario(truth), scheduler(flat_table(NAMES, {}))).play()
    # A request called for it: both minutes in which it loads miss, half of the second works.
    assert found.minutes["medium"] == 31
    assert found.use_of("medium") == pytest.approx(0.5 + 0.2 * 29.5 / 31)
    assert (found.loading, found.unplaced, found.slow) == (2, 0, 0)
    assert found.missed == pytest.approx(2 / 60)


def test_a_replica_that_was_foreseen_misses_no_more_than_its_loading() -> None:
    truth = flat_slowdowns(NAMES, {})
    foreseen = scheduler(flat_table(NAMES, {}), Kept(1, replicas=1.0))
    found = ColocationWorld(scenario(truth), foreseen).play()
    assert found.cold == 0
    # 90 s: a minute and a half.
    assert found.loading == pytest.approx(1.5)


def test_a_replica_that_nobody_asks_holds_its_place_and_does_no_work() -> None:
    quiet = scenario(flat_slowdowns(NAMES, {("train", "f"): 0.5}), replicas=0)
    hoped = scheduler(flat_table(NAMES, {}), Kept(1, replicas=1.0))
    found = ColocationWorld(quiet, hoped).play()
    assert found.idle == 60
    assert found.use_of("medium") == pytest.approx(0.5)
    assert found.trained == 1


def test_training_takes_longer_by_what_functions_cost() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.95})
    told = scheduler(flat_table(NAMES, {("train", "f"): 0.95}))
    found = ColocationWorld(scenario(truth), told).play()
    # 30 minutes of work at 0.95 of the speed: 31.6.
    assert found.minutes["medium"] == 32
    assert found.job_hours_broken == 0


def test_a_promise_that_was_wrong_is_taken_back_after_two_measurements() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.5})
    trusting = scheduler(flat_table(NAMES, {}), policy=SMORE)
    trusted = ColocationWorld(scenario(truth), trusting).play()
    watched = ColocationWorld(scenario(truth), scheduler(flat_table(NAMES, {}))).play()
    assert watched.evicted > 0
    assert watched.minutes["medium"] < trusted.minutes["medium"] == 60


def test_a_scheduler_that_learns_does_not_repeat_the_mistake() -> None:
    truth = flat_slowdowns(NAMES, {("train", "f"): 0.5})
    table = flat_table(NAMES, {})
    ColocationWorld(scenario(truth), scheduler(table)).play()
    learned = table.read(0, 0, 1)
    assert learned.basis is CellBasis.MEASURED
    assert learned.throughput < 0.9


@pytest.mark.parametrize(
    ("use", "kind"), [(None, "no training"), (0.1, "light"), (0.5, "medium"), (0.9, "heavy")]
)
def test_training_is_told_apart_by_how_busy_it_keeps_a_gpu(
    use: float | None, kind: str
) -> None:
    assert use_class(use) == kind
