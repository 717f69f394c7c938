"""How many replicas are wanted: by forecasts that begin with nothing, or by a keep-alive."""

import pytest

from interlane.functions.pool import LoadReplica
from interlane.live.functions.warmth import WarmStatus, Warmth

SLOT_S = 10.0
DEVICE_MIB = 10_000


def played(counts: list[int], keep_s: float | None = None, load_s: float = 1.0) -> list[int]:
    """Return the replicas that a function has at the beginning of every slot but the first."""
    warmth = Warmth(SLOT_S)
    warmth.watch("f", keep_s, 0.0)
    replicas, found = 0, []
    for count in counts:
        replicas = max(replicas, int(count > 0))
        status = WarmStatus("f", 500, load_s, 0.01, 1, replicas, 0, 0)
        actions = warmth.prewarmer([status], DEVICE_MIB).slot_passed({"f": float(count)})
        replicas += sum(1 if isinstance(action, LoadReplica) else -1 for action in actions)
        found.append(replicas)
    return found


def cold(counts: list[int], replicas: list[int]) -> int:
    """Return how many slots with requests began without a replica, but for the first."""
    pairs = zip(counts[1:], replicas, strict=False)
    return sum(count > 0 and not there for count, there in pairs)


def test_a_function_that_is_always_asked_stays_warm() -> None:
    assert played([5] * 20) == [1] * 20


@pytest.mark.parametrize("load_s", [0.1, 1.0, 5.0])
def test_one_that_is_asked_no_more_is_let_go(load_s: float) -> None:
    assert played([5] * 10 + [0] * 40, load_s=load_s)[-1] == 0


def test_one_that_is_asked_by_the_clock_is_loaded_ahead() -> None:
    counts = [5, 0, 0, 0, 0, 0] * 20

    replicas = played(counts)

    assert cold(counts[60:], replicas[60:]) == 0
    assert sum(replicas[60:]) <= 0.5 * 60


def test_as_many_replicas_are_wanted_as_the_load_takes() -> None:
    assert played([2_500] * 20)[-1] == 3


def test_a_keep_alive_loads_nothing_ahead() -> None:
    counts = [1, 0, 0, 0, 0, 0] * 5

    replicas = played(counts, keep_s=2 * SLOT_S)

    assert replicas == [1, 1, 0, 0, 0, 0] * 5


def test_functions_come_and_go() -> None:
    warmth = Warmth(SLOT_S)
    warmth.watch("a", None, 0.0)
    warmth.watch("b", 60.0, 0.0)
    two = [WarmStatus(name, 500, 1.0, None, 1, 0, 0, 0) for name in "ab"]
    warmth.prewarmer(two, DEVICE_MIB).slot_passed({"a": 3.0})

    warmth.forget("a")
    left = warmth.prewarmer(two[1:], DEVICE_MIB)
    left.slot_passed({})

    assert left.names == ("b",)
    assert warmth.band("b").chance < 0.5
