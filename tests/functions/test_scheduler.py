"""The function scheduler: what it does with what it is told, and what never happens."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.functions.advise import Hurdle
from interlane.functions.events import (
    CoRunsMeasured,
    DeviceJudged,
    DevicesChanged,
    DropReason,
    DropReplica,
    FunctionAction,
    FunctionDeployed,
    FunctionEvent,
    FunctionTimed,
    FunctionWithdrawn,
    Held,
    JobsHeld,
    LoadReplica,
    PairsFitted,
    QueueReplica,
    RefuseReplica,
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.ledger import ReplicaPhase
from interlane.functions.scheduler import PROBE_S, FunctionScheduler
from interlane.functions.watch import FunctionWatch, MakeWatch
from interlane.model import (
    Device,
    GpuRef,
    JobId,
    Machine,
    MachineId,
    Workload,
    WorkloadKind,
    with_devices,
)
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import (
    BOUNDED,
    COLOCATORS,
    NONE,
    SMORE,
    make_colocator,
)
from interlane.policy.colocate.interference import (
    ROWS_MAX,
    CoRunReading,
    InterferenceModel,
    SlowdownTarget,
)
from interlane.predict.arrivals.live import RecordedForecasts
from interlane.testing.colocation import flat_table

SLOT_S = 60.0
NAMES = ("a", "b", "c", "d")
G0, G1 = GpuRef(MachineId("m"), 0), GpuRef(MachineId("m"), 1)
TRAIN = Workload(WorkloadKind.JOB, "train")


def machine(*memory_mib: int) -> tuple[Machine, ...]:
    cards = (Device("T4", one) for one in memory_mib)
    return (with_devices(MachineId("m"), cards, cpu_milli=1, memory_mib=1),)


def function(name: str, memory_mib: int = 5) -> Function:
    return Function(name, name, memory_mib, 0.01, disk_load_s=20.0)


def foretold(*chances: Mapping[str, float]) -> MakeWatch:
    """Watch functions with these probabilities of one request, slot by slot."""

    def made(one: Function, keep_s: float | None, now_s: float) -> FunctionWatch:
        told = np.array([[slot.get(one.id, 0.0)] for slot in chances])
        forecast = RecordedForecasts(told, np.ones_like(told))
        weight, capacity = np.ones(1), np.ones(1)
        advisor = Hurdle(forecast, weight, capacity)
        return FunctionWatch((one.id,), forecast, advisor, weight, capacity)

    return made


class Told:
    """A scheduler, and what it has said; what it drops is gone only when that is told."""

    def __init__(
        self,
        *memory_mib: int,
        policy: str = BOUNDED,
        watch: MakeWatch | None = None,
        functions: tuple[str, ...] = NAMES,
    ) -> None:
        self.scheduler = FunctionScheduler(
            make_colocator(policy), slot_s=SLOT_S, make_watch=watch
        )
        self.now_s = 0.0
        self.tell(DevicesChanged(machine(*memory_mib)))
        for name in functions:
            self.tell(FunctionDeployed(function(name), replicas_max=3))

    def tell(self, event: FunctionEvent) -> tuple[FunctionAction, ...]:
        actions = self.scheduler.tell(event, self.now_s)
        self.scheduler.ledger.check()
        return actions

    def load(self, name: str) -> int:
        """Let a call bring a replica in, which is loaded then."""
        (action,) = self.tell(ReplicasNeeded({name: 1}))
        assert isinstance(action, LoadReplica)
        self.tell(ReplicasLoaded((action.replica,)))
        return action.replica

    def hold(self, memory_mib: int, gpu: GpuRef = G0) -> tuple[FunctionAction, ...]:
        job = Held(JobId("train-1"), TRAIN, memory_mib, 0.5)
        return self.tell(JobsHeld({gpu: (job,) if memory_mib else ()}))


def dropped(actions: tuple[FunctionAction, ...]) -> list[tuple[int, DropReason]]:
    return [(one.replica, one.why) for one in actions if isinstance(one, DropReplica)]


# -- who makes room -----------------------------------------------------------------------


def test_a_call_that_waits_brings_a_replica_in_where_there_is_room() -> None:
    one = Told(10, 10)

    actions = one.tell(ReplicasNeeded({"a": 1}))

    assert [(type(act), act.function) for act in actions] == [(LoadReplica, "a")]
    assert one.tell(ReplicasNeeded({"a": 0})) == ()


def test_the_idle_replica_of_least_worth_makes_room_and_the_other_comes_when_it_is_gone() -> (
    None
):
    one = Told(10, watch=foretold({"a": 0.3, "b": 0.2, "c": 0.25}))
    a, b = one.load("a"), one.load("b")

    first = one.tell(ReplicasNeeded({"c": 1}))
    again = one.tell(ReplicasNeeded({"c": 1}))
    then = one.tell(ReplicasEnded((b,)))

    assert dropped(first) == [(b, DropReason.ROOM)]
    assert again == ()
    assert [(type(act), act.function) for act in then] == [(LoadReplica, "c")]
    assert a in one.scheduler.ledger.replicas


def test_the_cheapest_set_is_on_one_device() -> None:
    # On the second device one of 10 MiB is worth less than two of 5 on the first.
    chances = {"a": 0.3, "b": 0.3, "c": 0.4, "d": 0.5}
    one = Told(10, 10, policy=NONE, watch=foretold(chances), functions=("a", "b"))
    a, b = one.load("a"), one.load("b")
    one.tell(FunctionDeployed(function("c", 10)))
    c = one.load("c")
    one.tell(FunctionDeployed(function("d", 10)))

    actions = one.tell(ReplicasNeeded({"d": 1}))

    assert dropped(actions) == [(c, DropReason.ROOM)]
    assert {a, b} <= one.scheduler.ledger.replicas.keys()


def test_nobody_leaves_in_vain_where_a_larger_one_is_enough() -> None:
    chances = {"a": 0.01, "b": 0.19, "c": 0.1}
    one = Told(12, policy=NONE, watch=foretold(chances), functions=())
    for name, size in (("a", 2), ("b", 10), ("c", 10)):
        one.tell(FunctionDeployed(function(name, size)))
    a, b = one.load("a"), one.load("b")

    actions = one.tell(ReplicasNeeded({"c": 1}))

    assert dropped(actions) == [(b, DropReason.ROOM)]
    assert a in one.scheduler.ledger.replicas


def test_a_busy_replica_never_makes_room_and_who_waits_in_vain_is_told() -> None:
    one = Told(10)
    busy = frozenset({one.load("a"), one.load("b")})
    one.tell(ReplicasObserved(busy))

    (refused,) = one.tell(ReplicasNeeded({"c": 1}))

    assert isinstance(refused, RefuseReplica)
    assert "memory" in refused.refusal.reason


@pytest.mark.parametrize(("held_mib", "said"), [(9, [RefuseReplica]), (1, [])])
def test_who_waits_is_refused_at_once_unless_those_who_leave_make_room(
    held_mib: int, said: list[type]
) -> None:
    one = Told(10)
    one.load("a")
    one.tell(FunctionWithdrawn("a"))
    one.hold(held_mib)
    one.tell(FunctionDeployed(function("e", 8)))

    assert [type(act) for act in one.tell(ReplicasNeeded({"e": 1}))] == said


# -- who waits ----------------------------------------------------------------------------


def test_calls_that_find_no_place_wait_and_get_one_when_a_job_has_ended() -> None:
    one = Told(10)
    one.hold(8)

    (queued,) = one.tell(ReplicasNeeded({"a": 1}, {"a": 30.0}))

    assert isinstance(queued, QueueReplica)
    assert "memory" in queued.refusal.reason
    assert one.tell(ReplicasNeeded({"a": 1}, {"a": 31.0})) == ()  # it was said already
    assert one.scheduler.queue() == ["a"]
    one.now_s = 20.0
    (loaded,) = one.hold(0)
    assert isinstance(loaded, LoadReplica)
    assert one.scheduler.queue() == []


def test_who_waits_is_refused_when_its_calls_have_given_up() -> None:
    one = Told(10)
    one.hold(8)
    one.tell(ReplicasNeeded({"a": 1}, {"a": 30.0}))
    one.now_s = 30.0

    (refused,) = one.tell(ReplicasObserved(frozenset()))

    assert isinstance(refused, RefuseReplica)
    assert one.hold(0) == ()  # nobody asks for it any more


def test_a_model_larger_than_any_device_is_refused_at_once() -> None:
    one = Told(10, 8)
    one.tell(FunctionDeployed(function("huge", 11)))

    (refused,) = one.tell(ReplicasNeeded({"huge": 1}, {"huge": 30.0}))

    assert isinstance(refused, RefuseReplica)


def test_those_who_wait_go_by_what_they_gain_over_what_they_cost() -> None:
    one = Told(10, functions=())
    for name, use in {"a": 0.1, "b": 0.3, "c": 0.2}.items():
        one.tell(FunctionDeployed(replace(function(name), use=use)))
    one.hold(8)
    for name in ("a", "b", "c"):
        one.tell(ReplicasNeeded({name: 1}, {name: 30.0}))
    assert one.scheduler.queue() == ["b", "c", "a"]

    loaded = one.hold(0)

    assert [act.function for act in loaded if isinstance(act, LoadReplica)] == ["b", "c"]
    assert one.scheduler.queue() == ["a"]


def test_an_idle_replica_makes_room_for_whoever_waits_as_soon_as_it_is_idle() -> None:
    one = Told(10)
    first, second = one.load("a"), one.load("b")
    one.tell(ReplicasObserved(frozenset({first, second})))
    (queued,) = one.tell(ReplicasNeeded({"c": 1}, {"c": 30.0}))
    assert isinstance(queued, QueueReplica)

    actions = one.tell(ReplicasObserved(frozenset({first})))

    assert dropped(actions) == [(second, DropReason.ROOM)]
    (loaded,) = one.tell(ReplicasEnded((second,)))
    assert isinstance(loaded, LoadReplica)


@pytest.mark.parametrize("policy", [BOUNDED, SMORE])
@pytest.mark.parametrize(("use", "kind"), [(0.5, LoadReplica), (0.6, RefuseReplica)])
def test_a_function_needs_compute_to_spare_as_well_as_memory(
    policy: str, use: float, kind: type
) -> None:
    one = Told(100, policy=policy, functions=())
    one.hold(10)  # it keeps half of the device busy
    one.tell(FunctionDeployed(replace(function("f"), use=use)))

    (action,) = one.tell(ReplicasNeeded({"f": 1}))

    assert type(action) is kind


# -- probes -------------------------------------------------------------------------------


def beside_a_job(watch: MakeWatch, *, policy: str = BOUNDED) -> tuple[Told, int]:
    """A function on the first device, and a job that has saved up on the second."""
    one = Told(10, 100, functions=("a",), policy=policy, watch=watch)
    (first,) = one.scheduler.ledger.replicas  # it was foreseen
    one.tell(ReplicasLoaded((first,)))
    one.hold(10, G1)
    one.now_s = 3_600.0
    return one, first


def test_an_idle_moment_measures_a_pair_that_nobody_knows_and_the_replica_goes_again() -> None:
    one, first = beside_a_job(foretold({"a": 0.9}))

    (probe,) = one.tell(SlotPassed({"a": 1.0}))

    assert isinstance(probe, LoadReplica)
    assert probe.gpu == G1
    one.tell(ReplicasLoaded((probe.replica,)))
    one.now_s += PROBE_S / 2
    assert one.tell(SlotPassed({"a": 1.0})) == ()
    one.tell(CoRunsMeasured((reading(1.02, "a"),)))
    one.now_s += PROBE_S
    assert dropped(one.tell(SlotPassed({"a": 1.0}))) == [(probe.replica, DropReason.SURPLUS)]
    assert first in one.scheduler.ledger.replicas
    one.tell(ReplicasEnded((probe.replica,)))
    one.now_s += PROBE_S
    assert one.tell(SlotPassed({"a": 1.0})) == ()  # it is known now


@pytest.mark.parametrize("policy", [SMORE, NONE])
def test_other_policies_measure_nothing_of_their_own_accord(policy: str) -> None:
    one, _ = beside_a_job(foretold({"a": 0.9}), policy=policy)

    assert one.tell(SlotPassed({"a": 1.0})) == ()


def test_a_pair_is_not_measured_at_the_cost_of_a_job_that_has_nothing_saved_up() -> None:
    one, _ = beside_a_job(foretold({"a": 0.9}))
    one.hold(0, G1)
    one.hold(11, G1)  # another job, which has just begun

    assert one.tell(SlotPassed({"a": 1.0})) == ()


def test_a_model_that_is_fitted_anew_says_what_is_thought_of_pairs_not_yet_measured() -> None:
    one = Told(10, functions=("a", "b"))
    one.hold(1)
    one.tell(CoRunsMeasured((reading(1.5, "a"),)))
    names = ("train", "a", "b")
    fitted = flat_table(names, {("train", "a"): 0.9, ("train", "b"): 0.8})

    one.tell(PairsFitted(dict.fromkeys(SlowdownTarget, fitted)))

    model = one.scheduler.model
    assert model.predicted(reading(1.0, "b")) == pytest.approx(1 / 0.8, rel=0.01)
    assert not model.is_due


# -- for how long -------------------------------------------------------------------------


def test_what_was_just_deployed_is_kept_for_a_while_but_leaves_for_a_call() -> None:
    none, soon = {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.9}
    one = Told(10, functions=("b",), watch=foretold(none, soon, soon))
    one.now_s = 10.0
    deployed = FunctionDeployed(function("a", 10), is_loaded=True, kept_until_s=40.0)
    (loaded,) = one.tell(deployed)
    assert isinstance(loaded, LoadReplica)
    one.tell(ReplicasLoaded((loaded.replica,)))

    assert one.tell(SlotPassed({})) == ()
    assert dropped(one.tell(ReplicasNeeded({"b": 1}))) == [(loaded.replica, DropReason.ROOM)]


def test_what_was_just_deployed_goes_when_its_time_is_over() -> None:
    one = Told(10, functions=())
    (loaded,) = one.tell(FunctionDeployed(function("a"), is_loaded=True, kept_until_s=40.0))
    assert isinstance(loaded, LoadReplica)
    one.tell(ReplicasLoaded((loaded.replica,)))

    assert one.tell(SlotPassed({})) == ()
    one.now_s = 41.0
    assert dropped(one.tell(SlotPassed({}))) == [(loaded.replica, DropReason.SURPLUS)]


# -- slots --------------------------------------------------------------------------------


def test_what_is_probable_is_loaded_ahead_and_what_is_not_parts() -> None:
    none = dict.fromkeys(NAMES, 0.0)
    one = Told(10, watch=foretold(none, {"a": 0.9, "b": 0.01, "c": 0.5}, {"c": 0.5}))

    first = one.tell(SlotPassed({}))
    loaded = {act.function: act.replica for act in first if isinstance(act, LoadReplica)}
    one.tell(ReplicasLoaded(tuple(loaded.values())))
    then = one.tell(SlotPassed({"a": 1.0}))

    assert loaded.keys() == {"a", "c"}
    assert dropped(then) == [(loaded["a"], DropReason.SURPLUS)]


def test_nobody_is_sent_away_ahead_of_time_for_a_small_gain() -> None:
    both = {"a": 0.5, "b": 0.5}
    one = Told(10, watch=foretold(both | {"c": 0.1}, both | {"c": 0.55}, both | {"c": 0.9}))
    warm = {act.replica for act in one.tell(SlotPassed({})) if isinstance(act, LoadReplica)}
    there = set(one.scheduler.ledger.replicas)
    one.tell(ReplicasLoaded(tuple(there)))

    assert warm <= there
    assert len(there) == 2
    large = one.tell(SlotPassed({"a": 1.0, "b": 1.0}))
    assert [why for _, why in dropped(large)] == [DropReason.ROOM]


def test_a_keep_alive_drops_after_its_time_and_loads_nothing_ahead() -> None:
    one = Told(10, functions=())
    one.tell(FunctionDeployed(function("a"), keep_s=2 * SLOT_S))
    replica = one.load("a")

    found = [one.tell(SlotPassed({"a": count})) for count in (1.0, 0.0, 0.0, 0.0)]

    assert found[:2] == [(), ()]
    assert dropped(found[2]) == [(replica, DropReason.SURPLUS)]
    assert found[3] == ()


@pytest.mark.parametrize("load_s", [0.1, 5.0])
def test_one_that_is_asked_no_more_is_let_go_and_one_that_always_is_stays(
    load_s: float,
) -> None:
    one = Told(10, functions=("a", "b"))
    for name in ("a", "b"):
        one.tell(FunctionTimed(name, load_s=load_s, service_s=0.01))
    a, b = one.load("a"), one.load("b")

    for _ in range(10):
        assert one.tell(SlotPassed({"a": 5.0, "b": 5.0})) == ()
    gone = [one.tell(SlotPassed({"b": 5.0})) for _ in range(40)]

    assert [entry for actions in gone for entry in dropped(actions)] == [
        (a, DropReason.SURPLUS)
    ]
    assert b in one.scheduler.ledger.replicas


def test_as_many_replicas_are_wanted_as_the_load_takes() -> None:
    one = Told(100, functions=("a",))
    one.tell(FunctionTimed("a", load_s=1.0, service_s=0.1))
    one.load("a")

    for _ in range(20):
        for action in one.tell(SlotPassed({"a": 1_500.0})):
            if isinstance(action, LoadReplica):
                one.tell(ReplicasLoaded((action.replica,)))

    assert len(one.scheduler.ledger.staying("a")) == 3


# -- jobs and devices ---------------------------------------------------------------------


def test_a_job_that_needs_the_memory_gets_it_and_idle_ones_leave_first() -> None:
    one = Told(15)
    a, b = one.load("a"), one.load("b")
    one.tell(ReplicasObserved(frozenset({a})))

    assert dropped(one.hold(8)) == [(b, DropReason.JOB)]
    assert dropped(one.hold(12)) == [(a, DropReason.JOB)]


def test_memory_of_who_leaves_is_given_again_only_when_it_is_gone() -> None:
    one = Told(10, functions=())
    one.tell(FunctionDeployed(function("a", 10)))
    a = one.load("a")
    one.hold(10)
    assert one.hold(0) == ()
    large = one.tell(FunctionDeployed(function("e", 10), is_loaded=True))

    then = one.tell(ReplicasEnded((a,)))

    assert large == ()
    assert LoadReplica("e", then[0].replica, G0) in then  # type: ignore[union-attr]


def test_who_leaves_counts_until_it_is_gone_so_that_none_has_more_than_it_may() -> None:
    one = Told(10, 10, functions=())
    one.tell(FunctionDeployed(function("a"), replicas_max=1))
    a = one.load("a")
    here = one.scheduler.ledger.replicas[a].gpu.id

    leaves = one.hold(10, here)
    gone = one.tell(ReplicasEnded((a,)))

    assert leaves == (DropReplica("a", a, DropReason.JOB),)
    assert [act.gpu for act in gone if isinstance(act, LoadReplica)] == [
        G1 if here == G0 else G0
    ]


def test_replicas_on_a_device_that_is_lost_leave_and_come_elsewhere() -> None:
    one = Told(10)
    a = one.load("a")

    actions = one.tell(DevicesChanged(machine(8, 10)))

    assert dropped(actions) == [(a, DropReason.JOB)]
    assert [act.gpu for act in actions if isinstance(act, LoadReplica)] == [G1]


def test_apart_functions_go_only_where_no_job_is_and_leave_for_one() -> None:
    one = Told(10, 10, policy=NONE)
    one.hold(1)
    (loaded,) = one.tell(ReplicasNeeded({"a": 1}))
    assert isinstance(loaded, LoadReplica)
    assert loaded.gpu == G1

    assert dropped(one.hold(1, G1)) == [(loaded.replica, DropReason.JOB)]


def test_a_function_that_has_changed_loses_its_old_replicas() -> None:
    one = Told(10)
    a = one.load("a")

    changed = one.tell(FunctionDeployed(function("a", 4), is_loaded=True))
    gone = one.tell(FunctionWithdrawn("a"))

    assert dropped(changed) == [(a, DropReason.WITHDRAWN)]
    assert [why for _, why in dropped(gone)] == [DropReason.WITHDRAWN]
    assert one.tell(ReplicasNeeded({"a": 1})) == ()


def test_who_breaks_a_promise_twice_in_a_row_must_go_and_comes_elsewhere() -> None:
    one = Told(10)
    one.hold(1)
    a = one.load("a")
    late = DeviceJudged(G0, None, {a: 9.0})

    assert one.tell(late) == ()
    assert dropped(one.tell(late)) == [(a, DropReason.BOUND)]


def test_what_fails_to_load_is_not_loaded_again_until_somebody_calls() -> None:
    one = Told(10)
    (load,) = one.tell(ReplicasNeeded({"a": 1}))
    assert isinstance(load, LoadReplica)

    assert one.tell(ReplicasEnded((load.replica,))) == ()
    assert isinstance(one.tell(ReplicasNeeded({"a": 1}))[0], LoadReplica)


# -- what is learned ----------------------------------------------------------------------


def reading(
    slowdown: float, *others: str, target: SlowdownTarget = SlowdownTarget.TRAINING
) -> CoRunReading:
    return CoRunReading("T4", target, "train", others, slowdown)


def test_how_several_add_up_is_learned_and_stays_learned() -> None:
    model = InterferenceModel()
    model.meet(["train"], ["f", "g"], ["T4"])
    both = [Function(name, name, 1) for name in "fg"]

    def told() -> float:
        return model.slowdowns.slowdown(
            "side-by-side", "T4", "train", both[:1], both[1]
        ).training

    before = told()
    for _ in range(20):
        model.learn([reading(1.6, "f", "g")], 0.0)
    learned = told()
    model.meet(["other"], ["h"])
    model.learn([reading(1.05, "h")], 1.0)

    assert before < 1.3 < 1.5 < learned
    assert told() == pytest.approx(learned, rel=0.02)


def test_tables_do_not_grow_without_bound_and_who_is_met_again_stays() -> None:
    model = InterferenceModel()
    model.meet(["train"], ["f"], ["T4"])
    for _ in range(5):
        model.learn([reading(1.5, "f")], 0.0)
    for number in range(ROWS_MAX):
        model.meet(functions=[f"new-{number}"])
        model.meet(["train"], ["f"])

    assert model.predicted(reading(1.0, "f")) == pytest.approx(1.5, rel=0.05)
    assert len(model.snapshot()["names"]) <= ROWS_MAX + 1
    assert "new-0" not in model.snapshot()["names"]
    model.learn([reading(1.5, "new-0")], 0.0)  # it is on no table, and nobody else's row

    successor = InterferenceModel()
    successor.restore(model.snapshot())
    assert successor.predicted(reading(1.0, "f")) == pytest.approx(1.5, rel=0.05)


def test_a_pair_moves_what_is_thought_of_others_beside_the_same_workloads() -> None:
    model = InterferenceModel()
    model.meet(["train"], ["f", "g"], ["T4"])
    before = model.predicted(reading(1.0, "g"))

    for _ in range(5):
        model.learn([reading(1.5, "f")], 0.0)

    assert model.predicted(reading(1.0, "f")) == pytest.approx(1.5, rel=0.05)
    assert model.predicted(reading(1.0, "g")) > before + 0.02


def test_a_pair_that_was_never_measured_here_is_what_a_trained_table_says_of_it() -> None:
    names = ("train", "f")
    table = flat_table(names, {("train", "f"): 0.8}, spread=0.2)
    model = InterferenceModel({SlowdownTarget.TRAINING: table})
    model.meet(["stranger"], ["g"], ["T4", "A100"])
    f, g = (Function(name, name, 1) for name in "fg")

    def bound(gpu_type: str, trainer: str, one: Function) -> float:
        return model.slowdowns.slowdown("side-by-side", gpu_type, trainer, (), one).training

    # The bound lies a spread of 0.2 below 0.8; strangers have the constant, another type the
    # worst of those that were trained.
    known = 1.25 * np.exp(0.2)
    assert model.predicted(reading(1.0, "f")) == pytest.approx(1.25, rel=1e-3)
    assert bound("T4", "train", f) == pytest.approx(known, rel=1e-3)
    assert bound("A100", "train", f) == pytest.approx(known, rel=1e-3)
    assert bound("T4", "stranger", g) == pytest.approx(np.exp(0.05) / 0.97, rel=1e-3)
    assert bound("T4", "train", g) == pytest.approx(np.exp(0.05) / 0.97, rel=1e-3)


def taught() -> Told:
    """Return a scheduler that has seen requests, pairs and several together."""
    one = Told(10, functions=("a", "b"))
    one.hold(1)
    for slot in range(60):
        one.now_s = SLOT_S * slot
        one.tell(SlotPassed({"a": float(slot % 6 == 0), "b": 3.0}))
        one.tell(CoRunsMeasured((reading(1.3, "a"), reading(1.9, "a", "b"))))
        one.scheduler.ranking.parted("a")
    return one


def test_what_was_learned_comes_back() -> None:
    one = taught()
    kept = one.scheduler.snapshot(one.now_s)

    again = Told(10, functions=())
    assert again.scheduler.restore(kept) == []
    again.now_s = one.now_s
    again.hold(1)
    for name in ("a", "b"):
        again.tell(FunctionDeployed(function(name), replicas_max=3))

    for name in ("a", "b"):
        assert again.scheduler.band(name) == one.scheduler.band(name)
        assert again.scheduler.worth(name) == pytest.approx(one.scheduler.worth(name))
    for others in (("a",), ("b",)):
        pair = reading(1.0, *others)
        told = [each.scheduler.model.predicted(pair) for each in (one, again)]
        assert told[0] == pytest.approx(told[1], rel=0.01)
    rule, same = (each.scheduler.model.slowdowns.rule for each in (one, again))
    assert np.array_equal(rule.snapshot(), same.snapshot())


def test_what_is_damaged_or_of_another_kind_begins_anew() -> None:
    kept = taught().scheduler.snapshot(0.0)
    kept["a"] = {name: array.ravel()[1:] for name, array in kept["a"].items()}
    kept[""] = {name: array for name, array in kept[""].items() if "seen" not in name}

    again = Told(10, functions=())
    (said,) = again.scheduler.restore(kept)
    again.tell(FunctionDeployed(function("a"), replicas_max=3))

    assert "begins anew" in said
    assert again.scheduler.band("a").chance < 0.5


# -- whatever happens ---------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["need", "need", "load", "end", "busy", "slot", "jobs", "devices", "deploy",
             "withdraw", "judge", "measure", "time"]
        ),
        st.integers(0, 3),
        st.integers(0, 12),
    ),
    max_size=60,
)  # fmt: skip


REPLICAS_MAX = 2
FREELY = (DropReason.ROOM, DropReason.SURPLUS)
"""Why none but an idle replica is ever dropped."""


class Anything:
    """An engine that does what it is told, when it likes."""

    def __init__(self, policy: str) -> None:
        self.scheduler = FunctionScheduler(make_colocator(policy), slot_s=SLOT_S)
        self.alive: dict[int, LoadReplica] = {}
        self.sizes: dict[int, int] = {}
        self.log: list[tuple[float, FunctionEvent, tuple[FunctionAction, ...]]] = []
        self.jobs: dict[GpuRef, int] = {}
        self.memory = {G0: 20, G1: 10}
        self.functions: dict[str, int] = {}
        self.old: set[int] = set()
        """Replicas of functions that were deployed anew or withdrawn since."""

    def tell(self, event: FunctionEvent, now_s: float) -> None:
        ledger = self.scheduler.ledger
        if isinstance(event, FunctionDeployed | FunctionWithdrawn):
            name = event.name if isinstance(event, FunctionWithdrawn) else event.function.id
            self.old |= {one.replica for one in self.alive.values() if one.function == name}
        phases = {number: one.phase for number, one in ledger.replicas.items()}
        actions = self.scheduler.tell(event, now_s)
        self.log.append((now_s, event, actions))
        ledger.check()
        for action in actions:
            if isinstance(action, LoadReplica):
                self.alive[action.replica] = action
                self.sizes[action.replica] = self.functions[action.function]
                self._check_room(action.gpu)
                self._check_count(action.function)
                assert ledger.gpus.by_id[action.gpu].use <= 1.001
            elif isinstance(action, DropReplica) and action.why in FREELY:
                assert phases[action.replica] is ReplicaPhase.IDLE

    def _check_room(self, gpu: GpuRef) -> None:
        used = sum(self.sizes[one.replica] for one in self.alive.values() if one.gpu == gpu)
        assert used + self.jobs.get(gpu, 0) <= self.memory[gpu]

    def _check_count(self, name: str) -> None:
        alive = {one.replica for one in self.alive.values() if one.function == name}
        assert len(alive - self.old) <= REPLICAS_MAX

    def step(self, what: str, number: int, amount: int, now_s: float) -> None:
        name = NAMES[number]
        gpu = (G0, G1)[number % 2]
        alive = sorted(self.alive)
        if what == "need":
            until_s = {name: now_s + amount} if amount % 3 else {}
            self.tell(ReplicasNeeded({name: 1 + amount % 2}, until_s), now_s)
        elif what == "load":
            self.tell(ReplicasLoaded(tuple(alive[number:])), now_s)
        elif what == "end" and alive:
            gone = alive[amount % len(alive)]
            del self.alive[gone]
            self.tell(ReplicasEnded((gone,)), now_s)
        elif what == "busy":
            busy = frozenset(one for one in alive if (one + amount) % 2)
            self.tell(ReplicasObserved(busy, frozenset({name})), now_s)
        elif what == "slot":
            self.tell(SlotPassed({name: float(amount)}), now_s)
        elif what == "jobs":
            held = Held(JobId(f"j-{amount}"), TRAIN, amount, 0.5)
            self.jobs[gpu] = amount
            self.tell(JobsHeld({gpu: (held,) if amount else ()}), now_s)
        else:
            self._step(what, name, gpu, amount, now_s)

    def _step(self, what: str, name: str, gpu: GpuRef, amount: int, now_s: float) -> None:
        if what == "devices":
            self.memory[G1] = 10 + amount % 2
            if amount % 2 != (len(self.jobs) % 2):
                self.jobs.pop(G1, None)
            self.tell(DevicesChanged(machine(20, self.memory[G1])), now_s)
            self.jobs = {
                ref: sum(one.memory_mib for one in held)
                for ref, held in self.scheduler.ledger.held.items()
            }
        elif what == "deploy":
            self.functions[name] = 1 + amount
            deployed = FunctionDeployed(
                replace(function(name, 1 + amount), use=amount % 4 / 8),
                REPLICAS_MAX,
                is_loaded=True,
                kept_until_s=now_s + 3,
            )
            self.tell(deployed, now_s)
        elif what == "withdraw":
            self.tell(FunctionWithdrawn(name), now_s)
        elif what == "judge":
            self.tell(DeviceJudged(gpu, 1 + amount / 6, dict.fromkeys(self.alive, 1.0)), now_s)
        elif what == "measure":
            self.tell(CoRunsMeasured((reading(1 + amount / 6, name),)), now_s)
        elif what == "time":
            self.tell(FunctionTimed(name, float(amount), 0.1, 2.0), now_s)


@pytest.mark.parametrize("policy", COLOCATORS)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_whatever_is_told_capacity_balances_and_nobody_waits_for_ever_or_is_cut_short(
    policy: str, steps: list[tuple[str, int, int]]
) -> None:
    one = Anything(policy)
    one.tell(DevicesChanged(machine(20, 10)), 0.0)
    for now_s, step in enumerate(steps):
        one.step(*step, float(now_s))
    one.tell(SlotPassed({}), len(steps) + 13.0)
    assert one.scheduler.queue() == []  # nobody waits for longer than their calls do

    fresh = FunctionScheduler(make_colocator(policy), slot_s=SLOT_S)
    assert [fresh.tell(event, now_s) for now_s, event, _ in one.log] == [
        actions for _, _, actions in one.log
    ]
