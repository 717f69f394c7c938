from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interlane.mig.check import PlanTerms, faults
from interlane.mig.demand import GpuOffer, Problem, Service
from interlane.mig.layouts import maximal_layouts
from interlane.mig.optimise import optimise
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.transition import replay
from interlane.mig.transition.documents import read_transition, transition_document
from interlane.mig.transition.exchange import exchange_and_compact
from interlane.mig.transition.joint import joint_plan, kept_of
from interlane.mig.transition.order import ordered
from interlane.mig.transition.present import floors_of, present
from interlane.mig.transition.steps import (
    Action,
    StepKind,
    Transition,
    TransitionStep,
    Verb,
    after_step,
    content_of,
    waves,
)
from interlane.model import InvalidInput
from interlane.testing.mig import asked, small_changes

A30 = "A30-24GB"
Change = tuple[Problem, Problem, PlanTerms]


def way_between(
    before: Problem, after: Problem, *, slack: int = 1, seed: int = 0
) -> Transition:
    current = present(optimise(before).plan, after)
    target = joint_plan(after, current, slack=slack).plan
    return ordered(current, target, floors_of(current, after), after, seed=seed)


def verified(way: Transition, problem: Problem, seed: int = 0) -> list[replay.Verified]:
    actions = replay.actions_of(transition_document(way, problem))
    return [
        replay.faults_in_order(way.current, actions, way.floors),
        replay.faults_at_once(way.current, actions, way.floors, Random(seed)),
    ]


def content(plan: PartitionPlan) -> set[tuple[str, str, int, str]]:
    return {(gpu.id, one.profile, one.start, one.service) for gpu, one in plan.instances}


# -- where to go ----------------------------------------------------------------------


@given(change=small_changes(), slack=st.sampled_from([0, 1]))
@settings(max_examples=40, deadline=None)
def test_the_joint_plan_is_valid_and_costs_no_more_than_it_may(
    change: Change, slack: int
) -> None:
    before, after, terms = change
    current = optimise(before).plan

    found = joint_plan(after, current, slack=slack)

    assert faults(found.plan, terms) == []
    dearest = max(after.prices.values())
    assert found.plan.cost(after.prices) <= found.optimum.cost + slack * dearest + 1e-6
    assert found.kept == kept_of(found.plan, current) <= found.most_kept <= found.running


@given(change=small_changes())
@settings(max_examples=25, deadline=None)
def test_nothing_moves_when_the_demand_stays(change: Change) -> None:
    before, _, _ = change
    current = optimise(before).plan

    found = joint_plan(before, current, slack=0)

    assert found.kept == found.running
    assert ordered(current, found.plan, floors_of(current, before), before).kept == found.kept


def test_more_instances_stay_than_in_the_cheapest_plan_matched() -> None:
    # One A30 with four 1g.  The demand halves; two of the four must do, and they stay.
    rates = {("a", A30, "1g.6gb"): 1.0, ("a", A30, "4g.24gb"): 4.0}
    before, _ = asked([Service("a", "a", 4, 100.0)], [GpuOffer(A30)], rates)
    current = PartitionPlan((GpuPlan("gpu-0", A30, tuple(_one("a", n) for n in range(4))),))

    found = joint_plan(before, current, slack=0)

    assert (found.kept, found.running) == (4, 4)


def _one(service: str, start: int) -> Instance:
    return Instance("1g.6gb", start, service, 1, 1, 1.0, 10.0)


@given(change=small_changes(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_pinned_or_frozen_stays_whatever_it_costs(
    change: Change, data: st.DataObject
) -> None:
    before, after, _ = change
    current = optimise(before).plan
    gpu = data.draw(st.sampled_from(current.gpus))
    one = data.draw(st.sampled_from(gpu.instances))
    pinned = replace(after, pinned=(replace(gpu, instances=(one,)),))

    frozen = joint_plan(after, current, frozen=[gpu.id]).plan
    held = joint_plan(pinned, current).plan

    assert [found for found in frozen.gpus if found.id == gpu.id] == [gpu]
    assert [one in found.instances for found in held.gpus if found.id == gpu.id] == [True]


def test_a_frozen_gpu_stays_exactly_as_it_is() -> None:
    rates = {("a", A30, "1g.6gb"): 1.0, ("b", A30, "1g.6gb"): 1.0}
    services = [Service("a", "a", 1, 100.0), Service("b", "b", 4, 100.0)]
    after, _ = asked(services, [GpuOffer(A30)], rates)
    broken = GpuPlan("bad", A30, (_one("a", 2),))
    current = PartitionPlan((broken, GpuPlan("good", A30, (_one("b", 0),))))

    found = joint_plan(after, current, slack=0, frozen=["bad"])

    assert [gpu for gpu in found.plan.gpus if gpu.id == "bad"] == [broken]
    assert found.plan.throughputs() == {"a": 1.0, "b": 4.0}


# -- the way --------------------------------------------------------------------------


@given(change=small_changes(), slack=st.sampled_from([0, 1]), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_no_service_falls_below_its_floor_on_any_way(
    change: Change, slack: int, seed: int
) -> None:
    before, after, terms = change

    way = way_between(before, after, slack=slack, seed=seed)

    for seen in verified(way, after, seed):
        assert seen.faults == ()
        assert seen.end == content(way.target)
    assert faults(way.target, terms) == []


@given(change=small_changes(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_way_back_to_the_letter_exists_from_every_moment(change: Change, seed: int) -> None:
    before, after, _ = change
    way = way_between(before, after)
    moments = [way.current]
    for _, step in way.steps:
        moments.append(after_step(moments[-1], step))
    here = moments[seed % len(moments)]

    back = ordered(here, way.current, way.floors, after, exact=True)

    assert content(back.target) == content(way.current)
    for seen in verified(back, after, seed):
        assert seen.faults == ()
        assert seen.end == content(way.current)


def swap() -> tuple[Transition, Problem]:
    """Return the way on which two services that fill a GPU change places to the letter."""
    rates = {("a", A30, "2g.12gb"): 1.0, ("b", A30, "2g.12gb"): 1.0}
    services = [Service("a", "a", 1, 100.0), Service("b", "b", 1, 100.0)]
    problem, _ = asked(services, [GpuOffer(A30)], rates)
    half = Instance("2g.12gb", 0, "", 1, 1, 1.0, 10.0)
    current = _halves(replace(half, service="a"), replace(half, service="b"))
    target = _halves(replace(half, service="b"), replace(half, service="a"))
    return ordered(current, target, {"a": 1.0, "b": 1.0}, problem, exact=True), problem


def test_services_that_swap_places_on_a_full_gpu_need_a_borrowed_one() -> None:
    way, problem = swap()

    assert way.borrowed == ("gpu-1",)
    assert all(seen.faults == () for seen in verified(way, problem))
    assert way.counts()["migrate"] >= 1
    assert way.peak_gpus == 2


def _halves(left: Instance, right: Instance) -> PartitionPlan:
    return PartitionPlan((GpuPlan("gpu-0", A30, (left, replace(right, start=2))),))


@given(change=small_changes())
@settings(max_examples=25, deadline=None)
def test_a_transition_is_read_as_it_was_written(change: Change) -> None:
    before, after, _ = change
    way = way_between(before, after)

    read, problem, name = read_transition(document := transition_document(way, after), "t.json")

    assert (read.actions, read.floors, read.borrowed) == (way.actions, way.floors, way.borrowed)
    assert content_of(read.target) == content_of(way.target)
    assert dict(problem.serving) == dict(after.serving)
    assert name == document["id"]


@given(change=small_changes())
@settings(max_examples=25, deadline=None)
def test_actions_of_one_wave_are_on_different_gpus(change: Change) -> None:
    way = way_between(change[0], change[1])

    listed = waves(way.actions)

    assert sorted(number for wave in listed for number in wave) == [*range(len(way.actions))]
    for wave in listed:
        gpus = [gpu for number in wave for gpu in way.actions[number].gpus]
        assert len(gpus) == len({*gpus})


# -- the verifier is not blind ---------------------------------------------------------


def test_the_verifier_sees_a_service_below_its_floor() -> None:
    way, problem = swap()
    dear = replace(way, floors={name: floor * 1.01 for name, floor in way.floors.items()})

    assert "below its floor" in verified(dear, problem)[0].faults[0]


@pytest.mark.parametrize("seed", range(5))
def test_the_verifier_sees_what_happens_when_nobody_waits(seed: int) -> None:
    way, problem = swap()
    hasty = replace(way, actions=tuple(replace(one, after=()) for one in way.actions))

    assert verified(hasty, problem, seed)[1].faults


def test_the_verifier_sees_a_busy_slot_destroyed() -> None:
    way, problem = swap()
    slot = TransitionStep(Verb.DESTROY, "gpu-0", A30, Instance("2g.12gb", 0))
    rash = replace(way, actions=(Action(StepKind.REPARTITION, (slot,)),))

    assert verified(rash, problem)[0].faults[0] == (
        "Impossible to destroy 2g.12gb@0 on gpu-0: it is busy with a."
    )


# -- what runs now --------------------------------------------------------------------


def test_a_service_that_the_demand_does_not_know_is_refused_unless_it_retires() -> None:
    problem, _ = asked(
        [Service("a", "a", 1, 100.0)], [GpuOffer(A30)], {("a", A30, "1g.6gb"): 1.0}
    )
    current = PartitionPlan(
        (GpuPlan("gpu-0", A30, (Instance("1g.6gb", 0, "old"), _one("a", 1))),)
    )

    with pytest.raises(InvalidInput, match="serves 'old' in"):
        present(current, problem)

    there = present(current, problem, ["old"])
    way = ordered(there, joint_plan(problem, there).plan, floors_of(there, problem), problem)
    assert [str(one) for one in way.actions] == [
        "delete old in 1g.6gb@0 on gpu-0",
        "repartition gpu-0: 1g.6gb@0 -> nothing",
    ]


def test_an_instance_without_figures_is_taken_to_run_at_its_best() -> None:
    problem, _ = asked(
        [Service("a", "a", 1, 100.0)], [GpuOffer(A30)], {("a", A30, "1g.6gb"): 1.5}
    )

    there = present(
        PartitionPlan((GpuPlan("gpu-0", A30, (Instance("1g.6gb", 0, "a"),)),)), problem
    )

    assert there.throughputs() == {"a": 1.5}
    assert floors_of(there, problem) == {"a": 1.0}
    assert floors_of(there, problem, {"a": 0.5}) == {"a": 0.5}


# -- the baseline ---------------------------------------------------------------------


@given(change=small_changes(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_exchange_and_compact_interrupts_nobody_either(change: Change, seed: int) -> None:
    before, after, terms = change
    current = present(optimise(before).plan, after)

    way = exchange_and_compact(current, optimise(after).plan, floors_of(current, after), after)

    for seen in verified(way, after, seed):
        assert seen.faults == ()
        assert seen.end == content(way.target)
    assert faults(way.target, terms) == []


# -- by trying everything -------------------------------------------------------------

Gains = tuple[tuple[float, int], ...]
"""Throughput and replicas of each service."""


def most_kept_by_trying(problem: Problem, current: PartitionPlan, gpus: int) -> int:
    """Return the most instances that any plan of so many GPUs keeps, by making them all."""
    services = problem.services
    nothing: Gains = tuple((0.0, 0) for _ in services)
    found: dict[tuple[Gains, int], int] = {(nothing, 0): 0}
    places: list[GpuPlan | None] = [*current.gpus, *[None] * max(0, gpus - len(current.gpus))]
    for gpu in places:
        longer = dict(found)
        for (gains, used), kept in found.items():
            for more, stay in _uses(problem, gpu).items() if used < gpus else ():
                total = tuple(
                    (min(a + c, s.rate_per_s), min(b + d, s.min_replicas))
                    for (a, b), (c, d), s in zip(gains, more, services, strict=True)
                )
                key = (total, used + 1)
                longer[key] = max(longer.get(key, 0), kept + stay)
        found = longer
    enough = tuple((s.rate_per_s, s.min_replicas) for s in services)
    return max(kept for (gains, _), kept in found.items() if gains == enough)


def _uses(problem: Problem, gpu: GpuPlan | None) -> dict[Gains, int]:
    """Return what one GPU can give, each with the most instances that stay meanwhile."""
    there = set() if gpu is None else {(one.slot, one.service) for one in gpu.instances}
    found: dict[Gains, int] = {}
    names = [service.name for service in problem.services]
    for layout in maximal_layouts(A30):
        for chosen in product(("", *names), repeat=len(layout)):
            filled = [
                (slot, name)
                for slot, name in zip(layout, chosen, strict=True)
                if (name, A30, slot.profile) in problem.serving
            ]
            gives = tuple(
                (
                    sum(
                        problem.serving[name, A30, slot.profile].throughput_per_s
                        for slot, who in filled
                        if who == name
                    ),
                    sum(who == name for _, who in filled),
                )
                for name in names
            )
            stay = sum(place in there for place in filled)
            found[gives] = max(found.get(gives, 0), stay)
    return found


@given(change=small_changes(services=2, gpus=(A30,)), slack=st.sampled_from([0, 1]))
@settings(max_examples=30, deadline=None)
def test_no_plan_that_exists_keeps_more(change: Change, slack: int) -> None:
    before, after, _ = change
    current = optimise(before).plan
    found = joint_plan(after, current, slack=slack)
    gpus = len(found.optimum.plan.gpus) + slack
    assume(gpus <= 3)
    assume(len(current.gpus) <= 4)

    most = most_kept_by_trying(after, current, gpus)

    assert found.kept == found.most_kept == most
