"""What a plan can be asked beside throughput and latency."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.mig.check import PlanTerms, faults
from interlane.mig.demand import GpuOffer, LatencyRule, Service, SharedGpu, problem_of
from interlane.mig.layouts import Rules, maximal_layouts
from interlane.mig.optimise import optimise
from interlane.mig.plan import (
    Effort,
    GpuPlan,
    Instance,
    Member,
    PartitionPlan,
    SolvedPlan,
    StopReason,
)
from interlane.mig.profiles import ProfileKind
from interlane.mig.table import Measurement, PerformanceTable
from interlane.model import InvalidInput
from interlane.testing.mig import asked, small_demands, table_of

A100, A30 = "A100-80GB", "A30-24GB"
ONE_G, SEVEN_G = "1g.10gb", "7g.80gb"
Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]
PLANNERS = ["columns", "program", "greedy"]


def service(rate: float, *, name: str = "a", **more: Any) -> Service:  # noqa: ANN401 - fields of each type
    return replace(Service(name, name, rate, 100.0), **more)


def by_slices(*names: str, gpu: str = A100) -> dict[tuple[str, str, str], float]:
    """Ten a second a compute slice, on every base profile."""
    from interlane.mig.profiles import gpu_model

    return {
        (name, gpu, profile.name): 10.0 * profile.compute_slices
        for name in names
        for profile in gpu_model(gpu).of_kinds({ProfileKind.BASE})
    }


# -- replicas, limits, spares ---------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_service_gets_its_replicas_though_one_would_do(planner: str) -> None:
    problem, terms = asked([service(5, min_replicas=9)], [GpuOffer(A100)], by_slices("a"))

    outcome = optimise(problem, planner)

    # Seven 1g fit a GPU, so that nine replicas need two.
    assert (outcome.cost, faults(outcome.plan, terms)) == (2, [])
    assert sum(len(gpu.instances) for gpu in outcome.plan.gpus) >= 9


@pytest.mark.parametrize("planner", PLANNERS)
def test_spare_gpus_are_kept_empty_and_paid_for(planner: str) -> None:
    problem, terms = asked([service(70)], [GpuOffer(A100, spare=2)], by_slices("a"))

    outcome = optimise(problem, planner)

    assert [gpu.is_spare for gpu in outcome.plan.gpus] == [False, True, True]
    assert (outcome.cost, outcome.lower_bound) == (3, 3)
    assert faults(outcome.plan, terms) == []


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_cheap_gpus_are_used_up_before_the_dear_ones(planner: str) -> None:
    rates = {**by_slices("a"), **by_slices("a", gpu=A30)}
    offers = [GpuOffer(A100), GpuOffer(A30, price=0.25, limit=2)]
    problem, terms = asked([service(150)], offers, rates)

    outcome = optimise(problem, planner)

    # Two A30 give 80; the other 70 take one A100.
    assert outcome.plan.counts() == {A30: 2, A100: 1}
    assert outcome.cost == 1.5
    assert outcome.lower_bound == (1.5 if planner != "greedy" else 1.0)
    assert faults(outcome.plan, terms) == []


@pytest.mark.parametrize("planner", PLANNERS)
def test_too_few_gpus_are_refused_and_never_exceeded(planner: str) -> None:
    problem, _ = asked([service(500)], [GpuOffer(A100, limit=3)], by_slices("a"))

    with pytest.raises(InvalidInput, match="within the limit of 3 A100-80GB; raise a limit"):
        optimise(problem, planner)


# -- pinned instances -----------------------------------------------------------------


def pinned(*instances: Instance, name: str = "old") -> GpuPlan:
    return GpuPlan(name, A100, instances)


@pytest.mark.parametrize("planner", PLANNERS)
def test_pinned_instances_stay_and_the_rest_of_their_gpu_is_used(planner: str) -> None:
    # The pinned 3g serves 30 of 60; beside it there is room for a 4g.
    held = pinned(Instance("3g.40gb", 4, "a", 1, 1, 30.0, 10.0))
    services, offers, table = [service(60)], [GpuOffer(A100)], table_of(by_slices("a"))
    problem = problem_of(services, offers, table, pinned=[held])
    terms = PlanTerms(services, offers, list(table), LatencyRule(), pinned=[held])

    outcome = optimise(problem, planner)

    (gpu,) = outcome.plan.gpus
    assert gpu.id == "old"
    assert held.instances[0] in gpu.instances
    assert (outcome.cost, outcome.lower_bound, faults(outcome.plan, terms)) == (1, 1, [])


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_pinned_gpu_that_is_of_no_use_is_paid_for_all_the_same(planner: str) -> None:
    held = pinned(Instance(SEVEN_G, 0))
    services, offers, table = [service(60)], [GpuOffer(A100)], table_of(by_slices("a"))

    outcome = optimise(problem_of(services, offers, table, pinned=[held]), planner)

    assert (outcome.cost, outcome.lower_bound) == (2, 2)


@given(data=st.data())
@settings(max_examples=30)
def test_with_pins_the_exact_plans_agree_and_keep_them(data: st.DataObject) -> None:
    services, _, rates = data.draw(small_demands(gpus=(A100,), services=2))
    layout = data.draw(st.sampled_from(maximal_layouts(A100)))
    kept = data.draw(st.sets(st.sampled_from(layout), min_size=1))
    held = pinned(*(Instance(slot.profile, slot.start) for slot in sorted(kept)))
    offers, table = [GpuOffer(A100)], table_of(rates)
    problem = problem_of(services, offers, table, pinned=[held])
    terms = PlanTerms(services, offers, list(table), LatencyRule(), pinned=[held])

    outcomes = [optimise(problem, name) for name in ("columns", "program")]

    assert [faults(outcome.plan, terms) for outcome in outcomes] == [[], []]
    assert outcomes[0].cost == outcomes[1].cost
    assert all(outcome.is_optimal for outcome in outcomes)


def test_pins_that_cannot_be_are_refused() -> None:
    held = pinned(Instance("3g.40gb", 0), Instance("4g.40gb", 0))

    with pytest.raises(InvalidInput, match="Pinned GPU old is impossible on A100-80GB: overl"):
        problem_of([service(5)], [GpuOffer(A100)], table_of(by_slices("a")), pinned=[held])


# -- MIG and sharing in one plan ------------------------------------------------------


def with_sharing(rate: float) -> SolvedPlan:
    both = SharedGpu("both", A100, (Member("a", 100.0, 20.0), Member("b", 90.0, 20.0)))
    services = [service(rate), service(rate, name="b")]
    offers, table = [GpuOffer(A100)], table_of(by_slices("a", "b"))
    problem = problem_of(services, offers, table, shared=[both])
    terms = PlanTerms(services, offers, list(table), LatencyRule(), shared=[both])
    outcome = optimise(problem)
    assert faults(outcome.plan, terms) == []
    assert outcome.is_optimal
    return outcome


def test_a_gpu_shared_whole_is_taken_where_it_beats_slices() -> None:
    # Slices give 70 a GPU in all, the shared GPU 100 and 90.
    outcome = with_sharing(90)

    (gpu,) = outcome.plan.gpus
    assert [member.service for member in gpu.members] == ["a", "b"]


def test_slices_and_sharing_are_mixed_where_that_is_best() -> None:
    # One shared GPU leaves 30 and 40 to slices: one GPU, where another shared one would do too.
    outcome = with_sharing(130)

    assert outcome.cost == 2
    assert any(gpu.members for gpu in outcome.plan.gpus)


def test_a_shared_gpu_that_breaks_a_target_is_refused() -> None:
    slow = SharedGpu("slow", A100, (Member("a", 100.0, 120.0),))

    with pytest.raises(InvalidInput, match="latency_ms of a on shared GPU slow is 120"):
        problem_of([service(5)], [GpuOffer(A100)], table_of(by_slices("a")), shared=[slow])


# -- loss of a GPU --------------------------------------------------------------------


@pytest.mark.parametrize("planner", ["columns", "greedy"])
@given(demand=small_demands(gpus=(A100,), services=3))
@settings(max_examples=25)
def test_a_plan_that_survives_needs_no_gpu_in_particular(planner: str, demand: Demand) -> None:
    problem, terms = asked(*demand, survive_gpu_loss=True)

    outcome = optimise(problem, planner)

    assert faults(outcome.plan, terms) == []
    # What is left after a loss serves everybody, so it is a plan that needs no replicas.
    left = [replace(one, min_replicas=1) for one in problem.services]
    plain = optimise(replace(problem, services=tuple(left), survive_gpu_loss=False))
    assert outcome.cost >= plain.cost + 1
    if planner == "columns":
        assert outcome.lower_bound >= plain.cost + 1
    assert outcome.cost >= outcome.lower_bound


def test_the_checker_sees_a_plan_that_does_not_survive() -> None:
    problem, terms = asked([service(50)], [GpuOffer(A100)], by_slices("a"))
    plan = optimise(problem).plan

    found = faults(plan, replace(terms, survive_gpu_loss=True))

    assert found == ["a gets 0 of 50 per second without gpu-0."]


# -- variants, processes, time --------------------------------------------------------


def test_a_model_too_large_for_1g_takes_the_one_with_double_memory() -> None:
    rates = {("a", A100, "1g.20gb"): 10.0, ("a", A100, SEVEN_G): 30.0}
    kinds = Rules(frozenset({ProfileKind.BASE, ProfileKind.DOUBLE_MEMORY}))
    problem, terms = asked([service(40)], [GpuOffer(A100)], rates, rules=kinds)

    outcome = optimise(problem)

    (gpu,) = outcome.plan.gpus
    assert [one.profile for one in gpu.instances] == ["1g.20gb"] * 4
    assert faults(outcome.plan, terms) == []


def test_a_media_service_gets_the_one_instance_with_media_engines() -> None:
    rates = by_slices("a", "b")
    services = [service(5, profiles=("media",)), service(60, name="b")]
    kinds = Rules(frozenset({ProfileKind.BASE, ProfileKind.MEDIA}))
    problem, terms = asked(services, [GpuOffer(A100)], rates, rules=kinds)

    outcome = optimise(problem)

    (gpu,) = outcome.plan.gpus
    assert [one.profile for one in gpu.instances if one.service == "a"] == ["1g.10gb+me"]
    assert faults(outcome.plan, terms) == []


def test_processes_inside_a_slice_raise_its_throughput_within_the_target() -> None:
    table = PerformanceTable(
        Measurement("a", A100, ONE_G, 1, processes, rate, latency_ms)
        for processes, rate, latency_ms in ((1, 10.0, 50.0), (2, 18.0, 80.0), (3, 25.0, 120.0))
    )
    problem = problem_of([service(126)], [GpuOffer(A100)], table, max_processes=3)

    # Three processes break the target of 100 ms; two give 18 a slice, seven slices a GPU.
    assert problem.serving["a", A100, ONE_G].processes == 2
    assert optimise(problem).cost == 1


def test_a_clock_that_has_run_out_gives_the_greedy_plan_and_a_bound_that_holds() -> None:
    problem, terms = asked(
        [service(133), service(61, name="b"), service(47, name="c")],
        [GpuOffer(A100)],
        by_slices("a", "b", "c"),
    )
    ticks = iter(range(10**6))

    outcome = optimise(problem, "columns", Effort(1.0, clock=lambda: float(next(ticks))))

    assert faults(outcome.plan, terms) == []
    assert outcome.lower_bound <= optimise(problem).cost <= outcome.cost
    assert outcome.stopped in (StopReason.TIME, StopReason.OPTIMAL)


# -- the checker can fail -------------------------------------------------------------


def broken(plan: PartitionPlan, **changes: Any) -> PartitionPlan:  # noqa: ANN401 - as above
    """Change the first instance of a plan."""
    gpu = plan.gpus[0]
    first = replace(gpu.instances[0], **changes)
    return PartitionPlan((replace(gpu, instances=(first, *gpu.instances[1:])), *plan.gpus[1:]))


FAULTS = {
    "overlaps": {"profile": "4g.40gb", "start": 0},
    "breaks the rule of starts": {"start": 7},
    "has no profile 9g": {"profile": "9g"},
    "claims other figures than were measured": {"throughput_per_s": 99.0},
    "which was never measured": {"batch": 64},
    "which nobody asked for": {"service": "z"},
    "a gets": {"service": "b"},
}


@pytest.mark.parametrize(("sentence", "changes"), FAULTS.items())
def test_a_plan_that_was_tampered_with_is_caught(
    sentence: str, changes: dict[str, object]
) -> None:
    rates = {("a", A100, ONE_G): 10.0, ("b", A100, ONE_G): 10.0}
    problem, terms = asked(
        [service(40), service(30, name="b")], [GpuOffer(A100, limit=1)], rates
    )
    plan = optimise(problem).plan
    assert faults(plan, terms) == []

    found = faults(broken(plan, **changes), terms)

    assert any(sentence in fault for fault in found), found


def test_terms_that_a_plan_does_not_keep_are_named() -> None:
    problem, terms = asked([service(95)], [GpuOffer(A100)], by_slices("a"))
    plan = optimise(problem).plan
    held = pinned(Instance(ONE_G, 6, "a", 1, 1, 10.0, 10.0))

    cases = {
        "of which there are 1": replace(terms, offers=[GpuOffer(A100, limit=1)]),
        "are spare, not 1": replace(terms, offers=[GpuOffer(A100, spare=1)]),
        "which nobody offered": replace(terms, offers=[GpuOffer(A30)]),
        "was pinned and is gone": replace(terms, pinned=[held]),
        "is too slow for a": replace(terms, latency=LatencyRule(0.05)),
        "of 99 replicas": replace(terms, services=[service(95, min_replicas=99)]),
        "may not use": replace(terms, services=[service(95, profiles=("media",))]),
    }
    for sentence, other in cases.items():
        assert any(sentence in fault for fault in faults(plan, other)), sentence


def test_services_that_miss_the_same_rows_share_one_note() -> None:
    row = Measurement("m", A100, SEVEN_G, 1, 1, 50.0, 10.0)
    services = [replace(service(5, name=name), model="m") for name in "abcde"]

    problem = problem_of(services, [GpuOffer(A100)], PerformanceTable([row], "t.csv"))

    assert problem.notes == (
        "t.csv has no row of m on A100-80GB 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb; "
        "services a, b, c and 2 more are not placed there.",
    )
