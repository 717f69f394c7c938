"""What is asked for, what a plan says, and how GPUs are named after those that are there."""

from dataclasses import replace
from itertools import permutations
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.mig.demand import (
    GpuOffer,
    LatencyRule,
    Service,
    SharedGpu,
    best_measurement,
    problem_of,
)
from interlane.mig.layouts import Rules
from interlane.mig.match import matched
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan, SolvedPlan, StopReason
from interlane.mig.profiles import ProfileKind, gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables.synthetic import Family, _row, drawn, family, table_of
from interlane.mig.workloads import SHAPES, drawn_services
from interlane.model import InvalidField, InvalidInput, UnknownName

A100, A30 = "A100-80GB", "A30-24GB"


def row(
    profile: str = "1g.10gb", rate: float = 10.0, ms: float = 20.0, **more: int
) -> Measurement:
    made = Measurement("net", A100, profile, 1, 1, rate, ms)
    return replace(made, **more)  # type: ignore[arg-type]


def service(name: str = "a", rate: float = 10.0, **more: object) -> Service:
    return replace(Service(name, "net", rate, 50.0), **more)  # type: ignore[arg-type]


TABLE = PerformanceTable([row(), row("2g.20gb", 25.0), row("7g.80gb", 99.0, 8.0)], "t")


# -- services, offers, latency ------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -1.0, inf, nan])
def test_rates_targets_and_prices_are_above_zero(wrong: float) -> None:
    with pytest.raises(InvalidField, match="rate_per_s of service a"):
        service(rate=wrong)
    with pytest.raises(InvalidField, match="latency_ms of service a"):
        service(latency_ms=wrong)
    with pytest.raises(InvalidField, match="price of A100-80GB"):
        GpuOffer(A100, wrong)
    with pytest.raises(InvalidField, match="throughput_per_s of net on A100-80GB"):
        row(rate=wrong)
    with pytest.raises(InvalidField, match="latency_ms of net"):
        row(ms=wrong)


def test_counts_have_a_least() -> None:
    assert service(min_replicas=1).min_replicas == 1
    assert GpuOffer(A100, limit=0, spare=0).limit == 0
    for make, field in (
        (lambda: service(min_replicas=0), "min_replicas of service a"),
        (lambda: GpuOffer(A100, limit=-1), "limit of A100-80GB"),
        (lambda: GpuOffer(A100, spare=-1), "spare of A100-80GB"),
        (lambda: row(batch=0), "batch of net"),
        (lambda: row(processes=0), "processes of net"),
    ):
        with pytest.raises(InvalidField, match=field):
            make()
    with pytest.raises(UnknownName):
        GpuOffer("Z9")


def test_a_batch_may_take_its_share_of_the_target_and_that_exactly_unless_strict() -> None:
    half, strict = LatencyRule(0.5), LatencyRule(0.5, strict=True)
    assert half.most_ms(service()) == 25.0
    assert [half.admits(ms, service()) for ms in (24.9, 25.0, 25.1)] == [True, True, False]
    assert [strict.admits(ms, service()) for ms in (24.9, 25.0)] == [True, False]
    for wrong in (0.0, 1.01, nan):
        with pytest.raises(InvalidField, match="latency_share"):
            LatencyRule(wrong)


def test_profiles_may_be_named_or_their_kinds() -> None:
    gpu = gpu_model(A100)
    plain, media = gpu.profile("1g.10gb"), gpu.profile("1g.10gb+me")
    assert service().may_use(media)
    assert service(profiles=("base",)).may_use(plain)
    assert not service(profiles=("base",)).may_use(media)
    assert service(profiles=("1g.10gb+me",)).may_use(media)


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([5.0, 10.0]), st.sampled_from([10.0, 25.0, 26.0]),
            st.sampled_from([1, 2, 3]),
        ),
        max_size=8,
    ),
    most=st.integers(1, 3),
    own=st.sampled_from([None, 1, 2]),
)  # fmt: skip
def test_the_best_measurement_is_the_fastest_that_is_allowed(
    rows: list[tuple[float, float, int]], most: int, own: int | None
) -> None:
    measured = [row(rate=rate, ms=ms, processes=count) for rate, ms, count in rows]
    found = best_measurement(measured, service(max_processes=own), LatencyRule(0.5), most)
    limit = min(most, own or most)
    fit = [one for one in measured if one.latency_ms <= 25.0 and one.processes <= limit]
    if not fit:
        assert found is None
        return
    assert found in fit
    for other in fit:
        # Faster, or as fast and quicker, or the same with fewer processes: none of these.
        better = (other.throughput_per_s, -other.latency_ms, -other.processes)
        assert better <= (found.throughput_per_s, -found.latency_ms, -found.processes)


# -- problems -----------------------------------------------------------------------------


def test_a_problem_knows_the_best_of_each_place() -> None:
    found = problem_of([service()], [GpuOffer(A100, 2.0, spare=3)], TABLE)
    assert set(found.serving) == {
        ("a", A100, name) for name in ("1g.10gb", "2g.20gb", "7g.80gb")
    }
    assert found.serving["a", A100, "2g.20gb"].throughput_per_s == 25.0
    assert (found.prices, found.spare_cost) == ({A100: 2.0}, 6.0)
    assert found.notes == (
        "t has no row of net on A100-80GB 3g.40gb, 4g.40gb; service a is not placed there.",
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("ab", "services a, b are not placed there."),
        ("abc", "services a, b, c are not placed there."),
        ("abcde", "services a, b, c and 2 more are not placed there."),
    ],
)
def test_services_that_miss_the_same_rows_are_told_together(names: str, told: str) -> None:
    found = problem_of([service(name) for name in names], [GpuOffer(A100)], TABLE)
    assert len(found.notes) == 1
    assert found.notes[0].endswith(told)


def test_a_variant_that_was_not_measured_is_known_by_the_plain_profile() -> None:
    rules = Rules(frozenset({ProfileKind.BASE, ProfileKind.DOUBLE_MEMORY}))
    found = problem_of([service()], [GpuOffer(A100)], TABLE, rules=rules)
    assert found.serving["a", A100, "1g.20gb"] == found.serving["a", A100, "1g.10gb"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"services": []}, "There is no service to plan for"),
        ({"offers": []}, "There is no GPU model to plan with"),
        ({"services": [service(), service()]}, "Service a is named twice"),
        ({"offers": [GpuOffer(A100)] * 2}, "GPU model A100-80GB is named twice"),
        ({"max_processes": 0}, "max_processes is 0, but it must be 1 to 48"),
        ({"max_processes": 49}, "max_processes is 49"),
        (
            {"services": [service(profiles=("media-all",))]},
            "may use media-all, and A100-80GB offers none of these",
        ),
        ({"offers": [GpuOffer(A30)]}, "t has no row of net on A30-24GB; .* plan for A100-80GB"),
        (
            {"services": [service(latency_ms=7.0)]},
            r"a batch may take 7 ms, and the quickest of net takes 8 ms \(7g.80gb, batch 1\)",
        ),
        (
            {"shared": [SharedGpu("s", A30, (Member("a", 1, 1),))]},
            "GPU model of shared GPU s",
        ),
        ({"shared": [SharedGpu("s", A100, ())]}, "Shared GPU s has no members"),
        (
            {"shared": [SharedGpu("s", A100, (Member("a", 1, 1), Member("a", 2, 1)))]},
            "Member of shared GPU s a is named twice",
        ),
        (
            {"shared": [SharedGpu("s", A100, (Member("b", 1, 1),))]},
            "service of b on shared GPU s",
        ),
        (
            {"shared": [SharedGpu("s", A100, (Member("a", 0.0, 1),))]},
            "throughput_per_s of a on shared GPU s",
        ),
        (
            {"shared": [SharedGpu("s", A100, (Member("a", 1, 51.0),))]},
            "latency_ms of a on shared GPU s is 51.0, but the service's target leaves 50",
        ),
        ({"pinned": [GpuPlan("p", A30)]}, "GPU model of pinned GPU p"),
        ({"pinned": [GpuPlan("p", A100)] * 2}, "Pinned GPU p is named twice"),
        (
            {"pinned": [GpuPlan("p", A100, (Instance("2g.20gb", 1),))]},
            "Pinned GPU p is impossible on A100-80GB: start",
        ),
        (
            {"pinned": [GpuPlan("p", A100, (Instance("2g.20gb", 0, "b"),))]},
            "service pinned on p",
        ),
        (
            {"pinned": [GpuPlan("p", A100)], "offers": [GpuOffer(A100, limit=2, spare=2)]},
            "limit of A100-80GB is 2, but 1 pinned and 2 spare GPUs need more",
        ),
    ],
)
def test_what_no_plan_could_ever_serve_is_refused(
    more: dict[str, object], sentence: str
) -> None:
    asked: dict[str, object] = {"services": [service()], "offers": [GpuOffer(A100)]} | more
    with pytest.raises(InvalidInput, match=sentence):
        problem_of(table=TABLE, **asked)  # type: ignore[arg-type]


def test_a_service_that_only_a_shared_gpu_serves_is_served() -> None:
    slow = service(latency_ms=7.0)
    shared = SharedGpu("s", A100, (Member("a", 5.0, 6.0),))
    assert problem_of([slow], [GpuOffer(A100)], TABLE, shared=[shared]).serving == {}
    exact = [GpuPlan("p", A100)]
    full = [GpuOffer(A100, limit=3, spare=2)]
    assert problem_of([service()], full, TABLE, pinned=exact).pinned == tuple(exact)


# -- plans and outcomes -------------------------------------------------------------------


def test_a_plan_adds_up_what_its_gpus_give() -> None:
    one = Instance("1g.10gb", 2, "a", 1, 1, 10.0)
    cut = GpuPlan("g", A100, (Instance("2g.20gb", 0), one, replace(one, start=3, service="b")))
    shared = GpuPlan("h", A30, members=(Member("a", 5.0, 1.0),))
    plan = PartitionPlan((cut, shared, GpuPlan("i", A30)))
    assert plan.throughputs() == {"a": 15.0, "b": 10.0}
    assert plan.counts() == {A100: 1, A30: 2}
    assert plan.cost({A100: 3.0, A30: 0.5}) == 4.0
    assert [gpu.is_spare for gpu in plan.gpus] == [False, False, True]
    assert [str(slot) for slot in cut.layout] == ["2g.20gb@0", "1g.10gb@2", "1g.10gb@3"]


def test_an_outcome_says_whether_fewer_gpus_would_do() -> None:
    plan = PartitionPlan((GpuPlan("g", A100), GpuPlan("h", A100)))
    sure = SolvedPlan("x", plan, 2.0, 2.0 - 1e-7, StopReason.OPTIMAL)
    assert (sure.is_optimal, sure.told) == (True, "2 A100-80GB, proven optimal")
    open_ = replace(sure, cost=4.0, lower_bound=3.0, stopped=StopReason.TIME)
    assert open_.gap == 1.0
    assert open_.told == (
        "2 A100-80GB, cost 4, at most 1 (25.0%) above the optimum: nothing below 3 exists; "
        "stopped: time limit"
    )
    assert replace(sure, lower_bound=9.0).gap == 0.0
    assert not replace(sure, lower_bound=2.0 - 2e-6).is_optimal


# -- names --------------------------------------------------------------------------------


SLOTS = [Instance("1g.6gb", start, name) for start in range(2) for name in ("a", "b")]


@st.composite
def some_gpus(draw: st.DrawFn, prefix: str) -> PartitionPlan:
    gpus = []
    for number in range(draw(st.integers(0, 3))):
        held = [
            draw(st.sampled_from([None, *SLOTS[:2]])),
            draw(st.sampled_from([None, *SLOTS[2:]])),
        ]
        model = draw(st.sampled_from([A30, A30, A100]))
        gpus.append(GpuPlan(f"{prefix}{number}", model, tuple(one for one in held if one)))
    return PartitionPlan(tuple(gpus))


@given(plan=some_gpus("new"), current=some_gpus("old"))
def test_gpus_are_named_after_those_like_them_and_none_is_lost(
    plan: PartitionPlan, current: PartitionPlan
) -> None:
    found = matched(plan, current)
    there = {gpu.id: gpu for gpu in current.gpus}

    def contents(gpus: tuple[GpuPlan, ...]) -> list[tuple[str, tuple[Instance, ...]]]:
        return sorted(((gpu.model, gpu.instances) for gpu in gpus), key=repr)

    assert contents(found.plan.gpus) == contents(plan.gpus)
    assert len({gpu.id for gpu in found.plan.gpus}) == len(plan.gpus)

    def kept(gpus: tuple[GpuPlan, ...]) -> int:
        return sum(
            len({*gpu.instances} & {*there[gpu.id].instances})
            for gpu in gpus
            if gpu.id in there and there[gpu.id].model == gpu.model
        )

    assert found.kept == kept(found.plan.gpus)
    assert found.running == sum(len(gpu.instances) for gpu in current.gpus)
    # Greed is worth at least half of the best way to name them.
    slots = [*there, *(f"x{number}" for number in range(len(plan.gpus)))]
    best = max(
        kept(tuple(replace(gpu, id=name) for gpu, name in zip(plan.gpus, names, strict=True)))
        for names in permutations(slots, len(plan.gpus))
    )
    assert best / 2 <= found.kept <= best


def test_pinned_gpus_keep_their_names_and_new_ones_take_free_ones() -> None:
    one, two = SLOTS[0], SLOTS[2]
    plan = PartitionPlan(
        (GpuPlan("x", A30, (one,)), GpuPlan("p", A30, (two,)), GpuPlan("y", A30, (two,)))
    )
    current = PartitionPlan((GpuPlan("p", A30, (two,)), GpuPlan("gpu-0", A30, (one,))))
    found = matched(plan, current, pinned=["p"])
    assert [(gpu.id, gpu.instances) for gpu in found.plan.gpus] == [
        ("p", (two,)), ("gpu-0", (one,)), ("gpu-1", (two,)),
    ]  # fmt: skip
    assert (found.kept, found.running) == (2, 2)


# -- synthetic tables and workloads -------------------------------------------------------


def test_a_synthetic_row_follows_its_formula() -> None:
    gpu = gpu_model(A100)
    profile = gpu.profile("3g.40gb")
    one = Family("x", "", 7.0, 14.0, 1.6, 900, 24)
    # 42 SMs and four of eight memory units: a request is busy 14/42 + 1.6/4 ms.
    assert profile.sm == 42
    busy_ms = 8 * (14 / 42 + 1.6 / 4)
    alone = _row(one, gpu, profile, 8, 1)
    assert alone.latency_ms == pytest.approx(7 + busy_ms, abs=1e-3)
    assert alone.throughput_per_s == pytest.approx(8 / (7 + busy_ms) * 1e3, abs=1e-2)
    three = _row(one, gpu, profile, 8, 3)
    # Three take turns: no sooner than three times the work.
    assert three.latency_ms == pytest.approx(max(7 + busy_ms, 3 * busy_ms), abs=1e-3)
    assert three.throughput_per_s == pytest.approx(24 / three.latency_ms * 1e3, abs=1e-1)


def test_rows_end_where_memory_does() -> None:
    # 1g.10gb has 9,856 MiB or so: a batch fits if processes * (weights + batch * request) do.
    one = Family("x", "", 1.0, 1.0, 1.0, 3_000, 1_000)
    table = table_of([one], [A100])
    memory = gpu_model(A100).profile("1g.10gb").memory_mib
    rows = {(r.batch, r.processes) for r in table.measured("x", A100, "1g.10gb")}
    assert rows == {
        (batch, count)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128)
        for count in (1, 2, 3)
        if count * (3_000 + batch * 1_000) <= memory
    }
    assert family("synth-bert").launch_ms == 21.0
    with pytest.raises(UnknownName, match="synthetic model"):
        family("synth-nothing")


def test_drawn_families_are_like_the_built_in_ones_and_have_names_of_their_own() -> None:
    made = drawn(30, 3)
    assert len({one.name for one in made}) == 30
    for one in made:
        base = family(one.name.rpartition("-")[0])
        assert (one.weights_mib, one.request_mib) == (base.weights_mib, base.request_mib)
        assert 0.2 < one.launch_ms / base.launch_ms < 5
    assert drawn(30, 3) == made != drawn(30, 4)


@pytest.mark.parametrize("shape", SHAPES)
def test_drawn_services_would_fill_the_gpus_on_their_best_profiles(shape: str) -> None:
    table = table_of([family("synth-resnet"), family("synth-bert")], [A100])
    found = drawn_services(table, gpu=A100, count=6, gpus=10, shape=shape, seed=2)
    assert [one.name for one in found] == [f"s{number}" for number in range(6)]
    gpu = gpu_model(A100)
    needed = 0.0
    for one in found:
        per_slice = []
        for profile in gpu.of_kinds({ProfileKind.BASE}):
            best = best_measurement(
                table.rows(one.model, gpu, profile), one, LatencyRule(0.5), 1
            )
            if best is not None:
                per_slice.append(best.throughput_per_s / profile.compute_slices)
        needed += one.rate_per_s / max(per_slice) / gpu.compute_slices
        assert 10**1.2 <= one.latency_ms <= 10**2.7
    assert needed == pytest.approx(9.7, rel=1e-3)
    with pytest.raises(UnknownName, match="shape of demand"):
        drawn_services(table, gpu=A100, count=1, gpus=1, shape="square")
