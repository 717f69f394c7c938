"""The checker finds each thing that is wrong with a plan, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from interlane.mig.check import PlanTerms, faults, layout_faults
from interlane.mig.demand import GpuOffer, LatencyRule, Service, SharedGpu
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan
from interlane.mig.table import Measurement

A100, A30 = "A100-80GB", "A30-24GB"


def served(profile: str, start: int, service: str = "a", rate: float = 10.0) -> Instance:
    return Instance(profile, start, service, 4, 1, rate, 20.0)


def measured(profile: str, rate: float = 10.0, model: str = "net") -> Measurement:
    return Measurement(model, A100, profile, 4, 1, rate, 20.0)


TERMS = PlanTerms(
    (Service("a", "net", 20.0, 50.0, min_replicas=2), Service("b", "net", 10.0, 50.0)),
    (GpuOffer(A100, limit=3, spare=1),),
    (measured("3g.40gb"), measured("2g.20gb"), measured("1g.10gb"), measured("4g.40gb")),
    LatencyRule(0.5),
)
GOOD = PartitionPlan(
    (
        GpuPlan("g0", A100, (served("3g.40gb", 0), served("3g.40gb", 4))),
        GpuPlan("g1", A100, (served("2g.20gb", 0, "b"),)),
        GpuPlan("g2", A100),
    )
)


def with_gpu(number: int, *instances: Instance) -> PartitionPlan:
    gpus = list(GOOD.gpus)
    gpus[number] = replace(gpus[number], instances=instances)
    return PartitionPlan(tuple(gpus))


def test_a_plan_that_keeps_to_all_terms_has_no_fault() -> None:
    assert faults(GOOD, TERMS) == []


B = served("2g.20gb", 0, "b")
A0, A1 = GOOD.gpus[0].instances

WRONG: dict[str, tuple[PartitionPlan, str]] = {
    "too little": (with_gpu(0, A0), "a gets 10 of 20 per second."),
    "too few replicas": (
        with_gpu(0, replace(A0, throughput_per_s=20.0)), "a has 1 of 2 replicas."),
    "not served at all": (with_gpu(1), "b gets 0 of 10 per second."),
    "a service nobody asked for": (
        with_gpu(1, B, served("1g.10gb", 2, "c")),
        "g1: 1g.10gb at 2 serves 'c', which nobody asked for."),
    "an idle slot": (
        with_gpu(1, B, served("1g.10gb", 2, "")),
        "g1: 1g.10gb at 2 serves '', which nobody asked for."),
    "never measured": (
        with_gpu(1, replace(B, batch=8)),
        "g1: 2g.20gb at 0 serves b at batch 8 with 1 processes, which was never measured."),
    "claims more": (
        with_gpu(1, replace(B, throughput_per_s=11.0)),
        "g1: 2g.20gb at 0 claims other figures than were measured."),
    "claims to be quicker": (
        with_gpu(1, replace(B, latency_ms=19.0)),
        "g1: 2g.20gb at 0 claims other figures than were measured."),
    "overlap": (
        with_gpu(1, B, served("1g.10gb", 1, "b")),
        "g1: 1g.10gb at 1 overlaps 2g.20gb at 0 in unit 1."),
    "a start that is none": (
        with_gpu(1, replace(B, start=1)),
        "g1: 2g.20gb at 1 breaks the rule of starts [0, 2, 4]."),
    "beyond the grid": (
        with_gpu(1, replace(B, start=7)), "g1: 2g.20gb at 7 leaves the grid of 8 units."),
    "a profile that is none": (
        with_gpu(1, B, served("5g.1gb", 0)), "g1: A100-80GB has no profile 5g.1gb."),
    "too many GPUs": (
        PartitionPlan((*GOOD.gpus, GpuPlan("g3", A100, (B,)))),
        "4 GPUs are A100-80GB, of which there are 3."),
    "no spare": (PartitionPlan(GOOD.gpus[:2]), "0 GPUs of A100-80GB are spare, not 1."),
    "a model nobody offered": (
        PartitionPlan((*GOOD.gpus[:2], GpuPlan("g2", A100), GpuPlan("x", A30))),
        "1 GPUs are A30-24GB, which nobody offered."),
    "a model that is none": (
        PartitionPlan((*GOOD.gpus, GpuPlan("x", "Z9"))), "x: there is no GPU model Z9."),
    "two of one name": (
        PartitionPlan((*GOOD.gpus[:2], GpuPlan("g1", A100))), "g1: 2 GPUs have this name."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_is_told_in_a_sentence(name: str) -> None:
    plan, sentence = WRONG[name]
    assert sentence in faults(plan, TERMS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda t: replace(t, latency=LatencyRule(0.399)),
            "20 ms is too slow for a, 19.95 ms.",
        ),
        (
            lambda t: replace(t, latency=LatencyRule(0.4, strict=True)),
            "20 ms is too slow for a",
        ),
        (
            lambda t: replace(t, services=(replace(t.services[0], profiles=("2g.20gb",)),)),
            "g0: 3g.40gb at 0: a may not use 3g.40gb.",
        ),
        (
            lambda t: replace(t, services=(replace(t.services[0], rate_per_s=20.001),)),
            "a gets 20",
        ),
        (
            lambda t: replace(t, pinned=(GpuPlan("g1", A100, (served("1g.10gb", 5, "b"),)),)),
            "g1: 1g.10gb at 5 was pinned and is gone.",
        ),
        (
            lambda t: replace(t, pinned=(GpuPlan("g9", A100, (B,)),)),
            "g9: 2g.20gb at 0 was pinned and is gone.",
        ),
        (
            lambda t: replace(t, pinned=(GpuPlan("g1", A30, (B,)),)),
            "g1: 2g.20gb at 0 was pinned and is gone.",
        ),
        (lambda t: replace(t, survive_gpu_loss=True), "a gets 0 of 20 per second without g0."),
    ],
)
def test_terms_that_a_sound_plan_does_not_keep_are_told(
    change: Callable[[PlanTerms], PlanTerms], sentence: str
) -> None:
    assert any(sentence in fault for fault in faults(GOOD, change(TERMS)))


def test_terms_that_are_met_exactly_are_kept() -> None:
    for terms in (
        replace(TERMS, latency=LatencyRule(0.4)),
        replace(
            TERMS, services=(replace(TERMS.services[0], profiles=("base",)), TERMS.services[1])
        ),
        replace(TERMS, pinned=(GpuPlan("g1", A100, (B,)),)),
        replace(TERMS, forbid_4g3g=True),
    ):
        assert faults(GOOD, terms) == []


def test_processes_are_limited_by_the_service_and_by_the_terms() -> None:
    two = replace(B, processes=2)
    plan = with_gpu(1, two)
    row = replace(measured("2g.20gb"), processes=2)
    known = replace(TERMS, measurements=(*TERMS.measurements, row))
    allowed = replace(known, max_processes=2)
    assert faults(plan, allowed) == []
    assert faults(plan, known) == ["g1: 2g.20gb at 0: 2 processes are more than 1."]
    shy = replace(TERMS.services[1], max_processes=1)
    strict = replace(allowed, services=(TERMS.services[0], shy))
    assert faults(plan, strict) == ["g1: 2g.20gb at 0: 2 processes are more than 1."]


def test_a_variant_counts_as_the_plain_profile_of_its_size() -> None:
    doubled = with_gpu(1, replace(B, profile="1g.20gb"))
    assert faults(doubled, TERMS) == []


def test_4g_beside_3g_is_forbidden_unless_both_were_pinned() -> None:
    four, three = served("4g.40gb", 0), served("3g.40gb", 4)
    plan = with_gpu(0, four, three)
    terms = replace(TERMS, forbid_4g3g=True)
    assert faults(plan, TERMS) == []
    assert faults(plan, terms) == ["g0: 4g stands beside 3g, which was forbidden."]
    one = replace(terms, pinned=(GpuPlan("g0", A100, (four,)),))
    assert faults(plan, one) == ["g0: 4g stands beside 3g, which was forbidden."]
    both = replace(terms, pinned=(GpuPlan("g0", A100, (four, three)),))
    assert faults(plan, both) == []


def test_what_is_pinned_need_not_have_been_measured() -> None:
    own = replace(B, batch=99, throughput_per_s=3.0)
    plan = with_gpu(1, B, replace(own, start=2))
    terms = replace(TERMS, pinned=(GpuPlan("g1", A100, (replace(own, start=2),)),))
    assert faults(plan, terms) == []


def test_counts_and_media_engines_are_limited() -> None:
    many = GpuPlan("g", A100, tuple(Instance("1g.10gb", start) for start in range(8)))
    assert "g: 8 x 1g.10gb are more than 7." in list(layout_faults(many))
    twice = GpuPlan("g", A100, (Instance("1g.10gb+me", 0), Instance("1g.10gb+me", 1)))
    assert "g: more than one instance has the media extension." in list(layout_faults(twice))
    once = GpuPlan("g", A100, (Instance("1g.10gb+me", 0), Instance("1g.10gb", 1)))
    assert list(layout_faults(once)) == []


def shared_by(*members: Member) -> PartitionPlan:
    return PartitionPlan(
        (GpuPlan("s", A100, members=members), *GOOD.gpus[:1], GpuPlan("g2", A100))
    )


def test_a_gpu_shared_whole_is_shared_as_was_predicted() -> None:
    b, a = Member("b", 10.0, 20.0), Member("a", 1.0, 20.0)
    terms = replace(TERMS, shared=(SharedGpu("both", A100, (b, a)),))
    assert faults(shared_by(b), terms) == []
    assert faults(shared_by(b, a), terms) == []
    for plan in (shared_by(replace(b, throughput_per_s=11.0)), shared_by(b, Member("c", 1, 1))):
        assert "s is shared by services for whom nothing was predicted." in faults(plan, terms)
    elsewhere = replace(terms, shared=(SharedGpu("both", A30, (b, a)),))
    assert faults(shared_by(b), elsewhere) == [
        "s is shared by services for whom nothing was predicted."
    ]
    slow = replace(terms, shared=(SharedGpu("s", A100, (replace(b, latency_ms=26.0),)),))
    assert faults(shared_by(replace(b, latency_ms=26.0)), slow) == [
        "s: 26 ms is too slow for b, 25 ms."
    ]
    cut = PartitionPlan(
        (replace(shared_by(b).gpus[0], instances=(served("1g.10gb", 0),)), *GOOD.gpus[::2])
    )
    assert "s is both cut into instances and shared whole." in faults(cut, terms)


def test_the_loss_of_every_gpu_is_tried_and_replicas_do_not_count_then() -> None:
    pair = (served("3g.40gb", 0), served("3g.40gb", 4))
    plan = PartitionPlan(
        (GpuPlan("g0", A100, pair), GpuPlan("g1", A100, pair), GpuPlan("g2", A100))
    )
    terms = replace(TERMS, survive_gpu_loss=True, services=TERMS.services[:1])
    assert faults(plan, terms) == []
    more = replace(terms, services=(replace(TERMS.services[0], rate_per_s=21.0),))
    assert faults(plan, more) == [
        f"a gets 20 of 21 per second without {name}." for name in ("g0", "g1")
    ]
