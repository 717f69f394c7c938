"""Functions beside the jobs of a simulated run: what is asked, who serves, who is slower."""

import numpy as np
import pytest

from interlane.functions.watch import Forecast
from interlane.model import Cluster, Job, Machine
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import BOUNDED, COLOCATORS, NONE, SMORE
from interlane.sim.engine import Simulator
from interlane.sim.function_figures import FunctionFigures
from interlane.sim.function_load import (
    FunctionLoad,
    LoadWish,
    PlayedFunction,
    load_of,
)
from interlane.sim.function_setting import FunctionSetting
from interlane.sim.true_slowdown import TrueSlowdowns
from interlane.testing.arrivals import arrivals
from interlane.testing.build import job, machine, make
from interlane.traces.function_profiles import FunctionProfile

CARD_MIB = 16_000


def truth(excess: float = 0.0, *, memory: float = 0.25) -> TrueSlowdowns:
    """A job and a function that slow each other down by this share."""
    return TrueSlowdowns(
        "made",
        ("train", "serve"),
        ((0.0, excess), (excess, 0.0)),
        (0.5, 0.2),
        (memory, 0.1),
        (0,),
        (1,),
    )


def machines(gpus: int = 1, count: int = 1) -> tuple[Machine, ...]:
    return tuple(machine(f"m{one}", gpus=gpus, gpu_memory_mib=CARD_MIB) for one in range(count))


def ends_s(engine: Simulator) -> float:
    return float(engine.log.columns()[0].max())


def load(*counts: float, service_s: float = 1.0, load_s: float = 5.0) -> FunctionLoad:
    """One function with so many requests in each minute."""
    function = Function("f", "serve", 1_000, 0.2, disk_load_s=load_s)
    played = PlayedFunction(function, service_s)
    asked = np.array([[one] for one in counts])
    return FunctionLoad("made", (played,), 60.0, asked, np.zeros((0, 1)))


def played(
    what: FunctionLoad,
    world: TrueSlowdowns,
    jobs: list[tuple[Job, float]],
    *,
    colocate: str = BOUNDED,
    there: tuple[Machine, ...] | None = None,
) -> tuple[Simulator, FunctionFigures]:
    there = there or machines()
    alone = [one for one, _ in jobs]
    setting = FunctionSetting(what, world)
    functions = setting.world(colocate, Forecast.TREES, None, there, alone)
    scheduler = make(Cluster("lab", there))
    engine = Simulator(
        scheduler, alone, [true_s for _, true_s in jobs], functions=functions, paranoid=True
    )
    engine.run()
    return engine, functions.figures


SOON = (job("first", gpus=1), 10.0)
"""A job that is over before anything else happens."""


def test_every_request_is_answered_and_the_first_waits_for_its_replica() -> None:
    _, found = played(load(10, 10, 10), truth(), [SOON])

    said = found.summary()
    assert (said["requests"], said["deadline_misses"]) == (30, 0)
    assert 0 < found.cold < 30
    assert found.loads >= 1
    assert said["p50_latency_s"] == pytest.approx(1.0, abs=2.0)
    slowest_s = said["p99_latency_s"]
    assert isinstance(slowest_s, float)
    assert slowest_s > 5.0  # the one for which a replica was loaded


def test_a_job_takes_longer_by_what_functions_truly_cost_it() -> None:
    busy = load(*[50.0] * 60)

    engine, found = played(busy, truth(0.05), [(job("a", gpus=1), 1800.0)])
    alone, undisturbed = played(busy, truth(0.0), [(job("a", gpus=1), 1800.0)])

    assert ends_s(alone) == pytest.approx(1800.0)
    # Busy for some 50 s of each minute, beside a job that loses a twentieth meanwhile.
    assert 1.02 < found.slowdown < 1.05
    assert ends_s(engine) == pytest.approx(1800 * found.slowdown, rel=0.02)
    assert undisturbed.slowdown == 1.0


def test_a_job_that_needs_the_memory_gets_it_and_functions_go() -> None:
    late = job("late", gpus=1, at=600.0, gpu_memory_mib=CARD_MIB)
    _, found = played(load(*[20.0] * 30), truth(), [SOON, (late, 900.0)])

    assert found.evicted > 0
    assert found.missed > 0


def test_policies_that_keep_apart_leave_functions_without_a_place_beside_a_job() -> None:
    jobs = [(job("a", gpus=1), 3600.0)]
    _, apart = played(load(*[20.0] * 30), truth(), jobs, colocate=NONE)
    _, beside = played(load(*[20.0] * 30), truth(), jobs, colocate=SMORE)

    assert (apart.late, apart.loads) == (1.0, 0)
    assert beside.late < 0.1


@pytest.mark.parametrize("colocate", COLOCATORS)
def test_the_same_seed_gives_the_same_figures(colocate: str) -> None:
    jobs = [(job(f"j{one}", gpus=1, at=100.0 * one), 700.0) for one in range(6)]
    what = load(*np.random.default_rng(1).poisson(30, 40).astype(float))

    first, again = (
        played(what, truth(0.03), jobs, colocate=colocate, there=machines(2))[1].summary()
        for _ in range(2)
    )

    assert first == again


def test_more_requests_than_are_played_one_by_one_come_in_groups() -> None:
    many = load(1000, 0, 500)
    few = FunctionLoad("few", many.functions, 60.0, many.counts, many.known, groups_max=10)

    one_by_one, together = many.groups(), few.groups()

    assert len(one_by_one) == 1500
    assert len(together) <= 12
    assert sum(together.weight) == 1500
    assert together.at_s == sorted(together.at_s)


def test_functions_watched_in_other_weeks_keep_their_time_of_day() -> None:
    day = [float(slot == 20) for slot in range(144)]
    long = arrivals(day * 3, day * 1)  # slots of ten minutes

    found = load_of("made", long, {}, truth(), Cluster("lab", machines()), LoadWish())

    assert found.counts.shape == (144, 2)
    assert np.flatnonzero(found.counts[:, 0]) == [20]
    assert len(found.known) == 288


def test_requests_take_what_keeps_the_stated_replicas_busy_unless_a_profile_says() -> None:
    two = arrivals([600.0] * 144, [60.0] * 144)
    cluster = Cluster("lab", machines(8))

    found = load_of("made", two, {}, truth(), cluster, LoadWish(replicas=0.5))
    told = {"f1": FunctionProfile(service_s=0.25, memory_mib=123, deadline_s=9.0)}
    named = load_of("made", two, told, truth(), cluster, LoadWish(replicas=0.5))

    busy = sum(
        one.service_s * rate for one, rate in zip(found.functions, (1.0, 0.1), strict=True)
    )
    assert busy == pytest.approx(4.0)
    assert named.functions[1].service_s == 0.25
    assert (named.functions[1].function.memory_mib, named.functions[1].deadline_s) == (123, 9.0)
