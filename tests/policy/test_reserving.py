"""Reserving, its pieces, and the model of who deserves a strong GPU."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.view import LedgerView
from interlane.model import InvalidField, Placement
from interlane.policy import contention, reserve
from interlane.policy.base import BlendTerms, PlacementRule, PlanStage
from interlane.policy.performance import FromHistory, PastRun
from interlane.policy.place import RulePlacer
from interlane.policy.scores import Score
from interlane.testing.build import cluster, job, ledger_with, machine

V100 = frozenset({"V100"})


def chosen(terms: BlendTerms, asked: object, *machines: object, **used: object) -> str:
    """Return the machine that a blend of prices takes for a job."""
    ledger = ledger_with(cluster(*machines), **used)  # type: ignore[arg-type]
    placer = RulePlacer("blend", PlacementRule(Score.BLEND, terms=terms))
    placement = placer.place(asked, LedgerView(ledger), Random(0))  # type: ignore[arg-type]
    assert isinstance(placement, Placement)
    return str(placement.spots[0].machine)


def test_packing_takes_the_tightest_gpu_and_then_the_least_allocated_machine() -> None:
    pair = machine("a", gpus=2), machine("b", gpus=2)
    half = job(gpus=1, gpu_milli=500)

    assert chosen(reserve.packing(), half, *pair, used=[[0, 0], [500, 0]]) == "b"
    assert chosen(reserve.packing(), job(gpus=1), *pair, used=[[1000, 0], [0, 0]]) == "b"


def test_work_that_needs_many_cpus_goes_where_it_strands_no_gpu() -> None:
    eight = machine("eight", gpus=8, cpus=96)
    rich = machine("rich", gpus=2, cpus=96)

    terms = reserve.matching(cores_per_gpu=12)

    assert chosen(terms, job(cpus=48), eight, rich) == "rich"


def test_matching_leaves_work_that_brings_its_share_of_cpus_alone() -> None:
    eight = machine("eight", gpus=8, cpus=96)
    rich = machine("rich", gpus=2, cpus=96)

    assert chosen(reserve.matching(12), job(gpus=1, cpus=12), eight, rich) == "eight"


def test_contention_is_avoided_where_cpus_are_scarce() -> None:
    pair = machine("busy", gpus=2, cpus=48), machine("idle", gpus=2, cpus=48)
    terms = reserve.avoiding_contention()

    assert chosen(terms, job(gpus=1, cpus=4), *pair, cpus_used=[40]) == "idle"


def test_strong_machines_are_kept_unless_no_other_has_room() -> None:
    pair = machine("strong", gpus=1, type="V100"), machine("weak", gpus=1)
    terms = reserve.filling() + reserve.keeping(V100)

    assert chosen(terms, job(gpus=1), *pair) == "weak"
    assert chosen(terms, job(gpus=1), *pair, used=[[0], [1000]]) == "strong"


def test_spreading_holds_on_the_types_that_it_names_only() -> None:
    terms = reserve.filling() + reserve.spreading(V100)
    strong = [machine(name, gpus=2, type="V100") for name in "ab"]
    weak = [machine(name, gpus=2) for name in "cd"]

    assert chosen(terms, job(gpus=1), *strong, used=[[1000, 0], [0, 0]]) == "b"
    assert chosen(terms, job(gpus=1), *weak, used=[[0, 0], [1000, 0]]) == "d"


def test_strong_machines_are_lent_up_to_a_level_before_others_are_used() -> None:
    pair = machine("strong", gpus=4, type="V100"), machine("weak", gpus=2)
    terms = reserve.filling() + reserve.spreading(V100, up_to=0.3)

    # A strong machine with two of four GPUs taken is allocated to a sixth, with all of its
    # CPUs taken as well to a half.
    assert chosen(terms, job(gpus=1), *pair, used=[[1000, 1000, 0, 0], [0, 0]]) == "strong"
    busy = {"used": [[1000, 1000, 0, 0], [0, 0]], "cpus_used": [95]}
    assert chosen(terms, job(gpus=1), *pair, **busy) == "weak"


def test_pieces_add_up_whatever_their_order() -> None:
    one, two = reserve.packing() + reserve.keeping(V100), reserve.matching(9)

    assert one + two == two + one
    assert (reserve.keeping(V100) + reserve.keeping(V100)).dear == (("V100", 2 * reserve.KEPT),)


@pytest.mark.parametrize(("idle", "steps_per_s"), contention.STEPS_PER_S)
def test_the_slow_down_meets_the_published_points(idle: int, steps_per_s: float) -> None:
    assert contention.slowdown(idle / 48) == pytest.approx(4.40 / steps_per_s - 1)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_idle_cores_never_slow_down(one: float, two: float) -> None:
    less, more = sorted((one, two))

    assert 0 <= contention.slowdown(more) <= contention.slowdown(less) <= 0.24


def test_what_a_program_used_before_counts_more_with_every_run() -> None:
    others = [PastRun(f"p{n}", "", 1, 1.0, 0.1) for n in range(50)]
    runs = [PastRun("mine", "", 1, 1.0, 0.9)] * 8
    mine = replace(job(gpus=1), program="mine")

    few = FromHistory.fit([*others, *runs[:1]]).gpu_use(mine)
    many = FromHistory.fit([*others, *runs]).gpu_use(mine)

    assert 0.1 < few < many < 0.9


def test_a_new_program_is_expected_to_be_like_its_kind() -> None:
    runs = [PastRun("", "ctr", 1, 1.0, 0.05)] * 40 + [PastRun("", "bert", 1, 1.0, 0.8)] * 40
    model = FromHistory.fit(runs)

    assert model.gpu_use(replace(job(gpus=1), family="ctr")) < 0.1
    assert model.gpu_use(replace(job(gpus=1), family="bert")) > 0.7
    assert model.gpu_use(job(cpus=4)) == 0.0


def test_a_list_of_types_with_time_outs_is_tried_in_order() -> None:
    minute = tuple((frozenset({name}), 60.0) for name in ("MISC", "T4"))
    plans = reserve.ListedPlans(strong_first=((V100, 300.0),), weak_first=minute)

    assert plans.stages(job(gpus=1)) == (PlanStage(V100, 300.0), PlanStage())
    assert [stage.types for stage in plans.stages(job(gpus=1, gpu_milli=100))] == [
        frozenset({"MISC"}), frozenset({"T4"}), frozenset(),
    ]  # fmt: skip


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidField, match="strong"):
        reserve.reserve_and_pack(strong="|")
    with pytest.raises(InvalidField, match="patience_s"):
        reserve.reserve_and_lend(patience_s=-1.0)
    with pytest.raises(InvalidField, match="lend_to"):
        reserve.reserve_and_lend(lend_to=1.5)
    with pytest.raises(InvalidField, match="timeout_s"):
        PlanStage(timeout_s=-1.0)
