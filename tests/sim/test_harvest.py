import numpy as np
import pytest

from interlane.model.function import Function
from interlane.policy.colocate.place import Bounded
from interlane.policy.colocate.slowdown import Tolls
from interlane.predict.degradation.online import Online
from interlane.predict.degradation.table import Basis
from interlane.sim.harvest import Scenario, Training, World, use_class
from interlane.testing.harvest import flat_tolls

NAMES = ("train", "f")


def scenario(truth: Tolls, *, replicas: int = 1, minutes: int = 60) -> Scenario:
    """One GPU, one training job of half an hour that is there from the beginning."""
    return Scenario(
        1,
        "T4",
        1000,
        (Training("train", 500, 0.5, 0, 1800.0),),
        (Function("f", "f", 100, use=0.2),),
        np.full((minutes, 1), replicas),
        (90.0,),
        truth,
    )


def test_alone_training_takes_as_long_as_it_needs() -> None:
    found = World(scenario(flat_tolls(NAMES, {}))).play()
    assert found.trained == 1
    assert found.minutes == {"medium": 30, "no training": 30}
    assert found.use_of("medium") == pytest.approx(0.5)
    assert found.missed == 1.0


def test_a_function_beside_training_makes_the_gpu_busier_and_loads_first() -> None:
    tolls = flat_tolls(NAMES, {})
    found = World(scenario(tolls), Bounded(tolls), tolls).play()
    assert found.use_of("medium") == pytest.approx(0.7)
    # 90 s of loading are two minutes in which it was not ready at the beginning.
    assert (found.loading, found.unplaced, found.slow) == (2, 0, 0)
    assert found.missed == pytest.approx(2 / 60)


def test_training_takes_longer_by_what_functions_cost() -> None:
    truth = flat_tolls(NAMES, {("train", "f"): 0.95})
    found = World(scenario(truth), Bounded(truth), truth).play()
    # 30 minutes of work at 0.95 of the speed: 31.6.
    assert found.minutes["medium"] == 32
    assert found.job_hours_broken == 0


def test_a_promise_that_was_wrong_is_taken_back_after_two_measurements() -> None:
    truth = flat_tolls(NAMES, {("train", "f"): 0.5})
    hoped = flat_tolls(NAMES, {})
    trusting = World(scenario(truth), Bounded(hoped), hoped).play()
    watching = World(scenario(truth), Bounded(hoped), hoped, evicts=True).play()
    assert watching.evicted > 0
    assert watching.minutes["medium"] < trusting.minutes["medium"] == 60


def test_a_table_that_learns_does_not_repeat_the_mistake() -> None:
    truth = flat_tolls(NAMES, {("train", "f"): 0.5})
    hoped = flat_tolls(NAMES, {})
    learner = Online(hoped.modes["side-by-side"].training)
    world = World(scenario(truth), Bounded(hoped), hoped, online=learner, evicts=True)
    world.play()
    learned = learner.table.read(0, 0, 1)
    assert learned.basis is Basis.MEASURED
    assert learned.retained < 0.9


@pytest.mark.parametrize(
    ("use", "kind"), [(None, "no training"), (0.1, "light"), (0.5, "medium"), (0.9, "heavy")]
)
def test_training_is_told_apart_by_how_busy_it_keeps_a_gpu(
    use: float | None, kind: str
) -> None:
    assert use_class(use) == kind
