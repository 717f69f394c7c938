"""What policies are made of: type rules, stages, prices, typical demands, use, names."""

from dataclasses import replace
from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.view import LedgerView
from interlane.model import (
    Demand,
    InvalidField,
    InvalidInput,
    Job,
    Placement,
    Refusal,
    Request,
    Task,
    UnknownName,
)
from interlane.policy import catalogue, place, reserve
from interlane.policy.base import (
    BlendTerms,
    ClusterView,
    GangSpread,
    GpuChoice,
    PlacementRule,
    PlanStage,
    TypeRule,
    TypicalDemand,
)
from interlane.policy.performance import AsAsked, FromHistory, PastRun, asked_share, kind_of
from interlane.policy.place import RulePlacer
from interlane.policy.policy import Discipline
from interlane.policy.scores import Score
from interlane.policy.typical import typical_demands
from interlane.testing.build import cluster, demand, job, ledger_with, machine, task

V100, T4 = frozenset({"V100"}), frozenset({"T4"})
EVERY = frozenset({"V100", "T4", "MISC"})
TYPES = st.frozensets(st.sampled_from(sorted(EVERY)))


# -- whose types bind ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "named", "binding"),
    [
        (TypeRule.EXACT, {"T4"}, {"T4"}),
        (TypeRule.ANY, {"T4"}, set()),
        (TypeRule.V100_ONLY, {"T4"}, set()),
        (TypeRule.V100_ONLY, {"V100", "T4"}, {"V100", "T4"}),
    ],
)
def test_a_type_rule_says_whose_types_bind(
    rule: TypeRule, named: set[str], binding: set[str]
) -> None:
    assert rule.binding(demand(gpus=1, types=named)) == binding


@given(named=TYPES, types=TYPES, spared=TYPES, bare=st.booleans())
def test_a_stage_never_widens_what_a_task_names(
    named: frozenset[str], types: frozenset[str], spared: frozenset[str], *, bare: bool
) -> None:
    found = PlanStage(types, spared=spared).binding(named, EVERY, bare=bare)
    allowed = types if types and not bare else (EVERY - spared if spared else frozenset())
    if named:
        assert found <= named
        assert found == (named & allowed if named & allowed else named)
    else:
        assert found == allowed


def test_a_stage_may_last_no_time_but_not_less() -> None:
    assert PlanStage(timeout_s=0.0).timeout_s == 0.0
    assert PlanStage().timeout_s == inf
    for wrong in (-1e-9, nan):
        with pytest.raises(InvalidField, match="timeout_s"):
            PlanStage(timeout_s=wrong)


# -- prices -------------------------------------------------------------------------------


def test_prices_add_up_term_by_term() -> None:
    one = BlendTerms(1, 2, 3, 4, 5, 6.0, (("A", 1.0),), (("B", 2.0),))
    two = BlendTerms(10, 20, 30, 40, 50, 7.0, (("A", 10.0), ("C", 5.0)), (("B", 20.0),))
    assert one + two == BlendTerms(
        11, 22, 33, 44, 55, 7.0, (("A", 11.0), ("C", 5.0)), (("B", 22.0),)
    )


def test_the_cores_of_the_piece_that_matches_count() -> None:
    assert (
        BlendTerms(cores_per_gpu=9.0) + BlendTerms(match=1.0, cores_per_gpu=4.0)
    ).cores_per_gpu == 4.0
    assert (
        BlendTerms(match=1.0, cores_per_gpu=4.0) + BlendTerms(cores_per_gpu=9.0)
    ).cores_per_gpu == 4.0
    assert BlendTerms() == BlendTerms(0.0, 0.0, 0.0, 0.0, 0.0, 6.0, (), ())


def test_pieces_have_the_prices_that_their_pages_state() -> None:
    both = frozenset({"V100", "P100"})
    assert reserve.packing() == BlendTerms(tight=1_000.0, balance=1.0)
    assert reserve.filling() == BlendTerms(tight=1_800.0, fill=180.0)
    assert reserve.matching() == BlendTerms(match=2.0, cores_per_gpu=6.0)
    assert reserve.avoiding_contention() == BlendTerms(contention=20_000.0)
    assert reserve.keeping(both).dear == (("P100", 3_600.0), ("V100", 3_600.0))
    # Below an allocation of 0.65 strong machines cost less than nothing: -0.65 * 100,000.
    level = reserve.spreading(both, 0.65)
    assert level.level == (("P100", 100_000.0), ("V100", 100_000.0))
    assert level.dear == (("P100", -65_000.0), ("V100", -65_000.0))


# -- plans --------------------------------------------------------------------------------


def weak() -> Job:
    return job(gpus=1, gpu_milli=399)


def strong() -> Job:
    return job(gpus=1, gpu_milli=400)


def test_reserving_sends_heavy_use_to_strong_types_and_all_else_elsewhere_first() -> None:
    plans = reserve.Reserving(V100, 60.0)
    assert plans.lent == frozenset()
    assert plans.stages(strong()) == (PlanStage(V100, 60.0, spared=V100), PlanStage())
    assert plans.stages(weak()) == (PlanStage(timeout_s=60.0, spared=V100), PlanStage())
    named = job("n", task(gpus=1, gpu_milli=1), task(gpus=1, gpu_milli=1, types=["V100"]))
    assert plans.stages(named)[0].types == V100


def test_lending_lets_others_borrow_at_once_or_after_a_while() -> None:
    at_once = reserve.Lending(V100, 60.0)
    later = replace(at_once, lend_after_s=30.0)
    assert at_once.lent == V100
    assert at_once.stages(weak()) == (PlanStage(lent=V100),)
    waits = PlanStage(timeout_s=30.0, spared=V100)
    assert later.stages(weak()) == (waits, PlanStage(lent=V100))
    for plans in (at_once, later):
        assert plans.stages(strong()) == (PlanStage(V100, 60.0, spared=V100), PlanStage())


def test_listed_plans_choose_their_list_by_use() -> None:
    plans = reserve.ListedPlans(((V100, 1.0),), ((T4, 2.0),))
    assert plans.stages(strong()) == (PlanStage(V100, 1.0), PlanStage())
    assert plans.stages(weak()) == (PlanStage(T4, 2.0), PlanStage())


def test_the_deployed_policies_are_put_together_from_these_pieces() -> None:
    packed, lent = reserve.reserve_and_pack("V100|P100", 5.0), reserve.reserve_and_lend()
    assert packed.rule == PlacementRule(Score.BLEND, terms=reserve.packing())
    assert packed.plans == reserve.Reserving(frozenset({"V100", "P100"}), 5.0, 0.4)
    both = frozenset({"V100", "V100M32"})
    assert lent.plans == reserve.Lending(both, 600.0, 0.4, AsAsked(), 0.0)
    assert dict(lent.rule.terms.dear) == dict.fromkeys(both, -65_000.0) | {"MISC": 7_200.0}
    assert lent.rule.terms.fill == 180.0
    assert lent.rule.terms.match == 2.0
    apart = reserve.uncontended()
    assert apart.plans is None
    assert (apart.rule.terms.contention, apart.rule.terms.match) == (20_000.0, 2.0)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, nan])
def test_shares_are_from_nothing_to_all(wrong: float) -> None:
    # All of LEVEL is the price at which strong machines are lent to the last.
    for share in (0.0, 1.0):
        dear = dict(reserve.reserve_and_lend(lend_to=share).rule.terms.dear)
        assert dear["V100"] == -100_000.0 * share
    with pytest.raises(InvalidField, match="lend_to"):
        reserve.reserve_and_lend(lend_to=wrong)
    with pytest.raises(InvalidField, match="strong"):
        reserve.reserve_and_pack(strong="")


def test_patience_may_be_nothing_but_not_less() -> None:
    plans = reserve.reserve_and_lend(patience_s=0.0, lend_after_s=0.0).plans
    assert isinstance(plans, reserve.Lending)
    assert (plans.patience_s, plans.lend_after_s) == (0.0, 0.0)
    with pytest.raises(InvalidField, match="patience_s"):
        reserve.reserve_and_lend(lend_after_s=-1.0)


# -- how much of a GPU a job uses ---------------------------------------------------------


def test_use_is_what_is_asked_for_and_a_tenth_of_that_where_cpus_decide() -> None:
    half = job(gpus=1, gpu_milli=500)
    assert AsAsked().gpu_use(half) == 0.5
    assert AsAsked().gpu_use(replace(half, family="ctr")) == pytest.approx(0.05)
    mixed = job("m", task(cpus=4), task(gpus=2, gpu_milli=300), task(gpus=1, gpu_milli=200))
    assert asked_share(mixed.request) == 0.3
    assert asked_share(job(cpus=1).request) == 0.0


def test_means_are_drawn_towards_what_is_wider_by_two_runs() -> None:
    # Overall (0.9 + 0.3 + 0.3) / 3 = 0.5.  The kind ctr: (0.9 + 2 * 0.5) / 3 = 0.6333.
    # Program p of that kind: (0.9 + 2 * 0.6333) / 3 = 0.7222.
    runs = [
        PastRun("p", "ctr", 1, 1.0, 0.9),
        PastRun("", "nmt", 1, 1.0, 0.3),
        PastRun("q", "nmt", 1, 1.0, 0.3),
    ]
    model = FromHistory.fit(runs)
    one = replace(job(gpus=1), family="ctr")
    assert model.overall == pytest.approx(0.5)
    assert model.gpu_use(one) == pytest.approx((0.9 + 2 * 0.5) / 3)
    assert model.gpu_use(replace(one, program="p")) == pytest.approx(
        (0.9 + 2 * (0.9 + 1.0) / 3) / 3
    )
    assert "" not in model.by_program
    assert FromHistory.fit([]).gpu_use(one) == 0.0


def test_kinds_are_told_apart_by_family_parallelism_and_share_in_bands() -> None:
    # Instances by powers of two up to 128, shares to the nearest quarter.
    assert kind_of("a", 1, 1.0) == ("a", 1, 4)
    assert kind_of("a", 3, 0.3) == kind_of("a", 2, 0.2) == ("a", 2, 1)
    assert kind_of("a", 4, 0.3) == ("a", 3, 1)
    assert kind_of("a", 128, 0.1) == kind_of("a", 9_999, 0.1) == ("a", 8, 0)
    assert kind_of("a", 127, 0.1) == ("a", 7, 0)


@given(st.lists(st.tuples(st.sampled_from("pq"), st.floats(0, 1)), min_size=1))
def test_expected_use_lies_within_what_was_ever_used(runs: list[tuple[str, float]]) -> None:
    model = FromHistory.fit(PastRun(name, "x", 1, 1.0, used) for name, used in runs)
    used = [one for _, one in runs]
    expected = model.gpu_use(replace(job(gpus=1), program="p", family="x"))
    assert min(used) - 1e-9 <= expected <= max(used) + 1e-9


# -- typical demands ----------------------------------------------------------------------


def test_typical_demands_are_told_apart_by_the_types_that_bind() -> None:
    counts = [
        (Request((Task(demand(gpus=1, types=["T4"])),)), 3),
        (Request((Task(demand(gpus=1, types=["V100"]), 2),)), 3),
    ]
    # 3 instances of T4 and 2 * 3 of V100: weights 1/3 and 2/3, the larger first.
    exact = typical_demands(counts)
    assert [one.demand.gpu_types for one in exact] == [V100, T4]
    assert [one.weight for one in exact] == pytest.approx([2 / 3, 1 / 3])
    assert typical_demands(counts, TypeRule.ANY) == (TypicalDemand(Demand(1), 1.0),)
    by_v100 = typical_demands(counts, TypeRule.V100_ONLY)
    assert [one.demand.gpu_types for one in by_v100] == [V100, frozenset()]


# -- the catalogue ------------------------------------------------------------------------


class Elsewhere:
    """Somebody's placer, which no rule expresses; it holds jobs to no type."""

    types = TypeRule.ANY

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        return view.why_not(job)


def test_a_placer_without_a_rule_keeps_its_own_type_rule() -> None:
    known = {"elsewhere": Elsewhere}
    assert catalogue.placer_recipe("elsewhere", None, known).make().types is TypeRule.ANY
    same = catalogue.placer_recipe("elsewhere", TypeRule.ANY, known).make()
    assert same.types is TypeRule.ANY
    with pytest.raises(InvalidInput, match="leave --gpu-types out"):
        catalogue.placer_recipe("elsewhere", TypeRule.EXACT, known).make()


def test_a_type_rule_given_beside_the_placer_replaces_its_own() -> None:
    made = catalogue.make_placer("pai-pack", types=TypeRule.EXACT)
    assert isinstance(made, RulePlacer)
    assert made.rule == PlacementRule(Score.FIRST, GangSpread.SWEEP, types=TypeRule.EXACT)


@pytest.mark.parametrize(
    ("name", "settings", "field", "value"),
    [
        ("sjf-aged", {"patience": "3"}, "patience", 3.0),
        ("priority", {"preemptive": "TRUE"}, "preemptive", True),
        ("priority", {"preemptive": "false", "age_s": 9}, "preemptive", False),
        ("fair", {"by": "queue"}, "by", "queue"),
    ],
)
def test_settings_come_in_the_type_of_their_default(
    name: str, settings: dict[str, str], field: str, value: object
) -> None:
    made = getattr(catalogue.make_order(name, **settings), field)  # type: ignore[arg-type]
    assert (made, type(made)) == (value, type(value))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"patience": "soon"}, "patience of sjf-aged is .soon., but it must be a number"),
        ({"patience": "inf"}, "it must be a number"),
        ({"patience": "nan"}, "it must be a number"),
        ({"haste": 1}, "setting of sjf-aged"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        catalogue.make_order("sjf-aged", **settings)  # type: ignore[arg-type]


def test_numbers_and_switches_are_not_mixed_up() -> None:
    with pytest.raises(InvalidField, match="it must be true or false"):
        catalogue.make_order("priority", preemptive="yes")
    with pytest.raises(InvalidField, match="it must be a whole number"):
        catalogue.placer_recipe("d-choices", choices="two")
    # Typical demands come from the workload; nobody sets them.
    with pytest.raises(UnknownName):
        catalogue.placer_recipe("fgd", typical="any")


def test_names_that_are_not_known_are_refused() -> None:
    with pytest.raises(UnknownName, match="order"):
        catalogue.make_order("lifo")
    with pytest.raises(UnknownName, match="placer"):
        catalogue.make_placer("nowhere")


def test_only_estimating_orders_and_reservations_need_estimates() -> None:
    needs = {
        name for name in catalogue.ORDERS if catalogue.needs_estimate(name, Discipline.SKIP)
    }
    assert needs == {"sjf", "sjf-aged", "srtf", "hrrn"}
    assert catalogue.needs_estimate("fifo", Discipline.EASY)
    assert not catalogue.needs_estimate("fifo", Discipline.STRICT)


def test_descriptions_are_first_paragraphs() -> None:
    def documented() -> None:
        """Take the first
        of all.

        More.
        """

    assert catalogue.describe(documented) == "Take the first of all."
    assert catalogue.describe(lambda: None) == "No description."


def test_only_placers_that_look_ahead_want_typical_demands() -> None:
    wants = {name for name in catalogue.PLACERS if catalogue.placer_recipe(name).needs_typical}
    assert wants == {"fgd", "lookahead"}
    for name in wants:
        with pytest.raises(InvalidField, match="it needs at least one kind"):
            catalogue.make_placer(name)


# -- built-in placers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (place.first_fit(), PlacementRule(Score.FIRST)),
        (place.pack(), PlacementRule(Score.PACK)),
        (place.balance(), PlacementRule(Score.BALANCE, gpu_choice=GpuChoice.EMPTIEST)),
        (place.random(), PlacementRule(Score.RANDOM, GangSpread.SAMPLE, GpuChoice.DRAWN)),
        (place.d_choices(), PlacementRule(Score.PACK, GangSpread.SAMPLE, choices=2)),
        (
            place.pai_balance(),
            PlacementRule(Score.PAI_BALANCE, GangSpread.SWEEP, types=TypeRule.V100_ONLY),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, RulePlacer) else "",
)
def test_a_placer_is_a_name_for_a_rule(made: RulePlacer, rule: PlacementRule) -> None:
    assert (rule.choices == 1) is (made.name != "d-choices")
    assert made.rule == rule
    assert made.types is rule.types


def test_only_placers_that_sample_draw_random_numbers() -> None:
    view = LedgerView(ledger_with(cluster(gpus=[2, 2])))
    for placer, draws in ((place.pack(), False), (place.random(), True)):
        rng = Random(3)
        placer.place(job(gpus=1), view, rng)
        assert (rng.getstate() != Random(3).getstate()) is draws


def test_more_choices_find_the_fuller_machine_more_often() -> None:
    ledger = ledger_with(cluster(*(machine(f"m{n}", gpus=1) for n in range(8))), [[500]])
    half = job(gpus=1, gpu_milli=500)

    def hits(choices: int) -> int:
        placer, rng, view = place.d_choices(choices), Random(0), LedgerView(ledger)
        found = [placer.place(half, view, rng) for _ in range(200)]
        return sum(isinstance(one, Placement) and one.machines == ("m0",) for one in found)

    # One draw of eight machines hits it once in eight times (25 of 200), eight draws always
    # unless machines are drawn twice: then with 1 - (7/8)^8 = 0.66.
    one, eight = hits(1), hits(8)
    assert 10 <= one <= 45
    assert eight > 110
    with pytest.raises(InvalidField, match="choices is 0"):
        place.d_choices(0)
