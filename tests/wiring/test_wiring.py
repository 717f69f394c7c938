from math import inf
from pathlib import Path

import numpy as np
import pytest

from interlane import wiring
from interlane.cli.up import UpOptions
from interlane.model import InvalidInput, Start, Submitted, UnknownName
from interlane.policy.base import TypeRule
from interlane.policy.catalogue import PLACERS, make_order, make_placer, placer_recipe
from interlane.policy.colocate.interference import SlowdownTarget
from interlane.policy.order import Fifo, PriorityWithAgeing, counts_priority
from interlane.policy.policy import Discipline
from interlane.testing.build import cluster, job
from interlane.traces.colocation import own
from interlane.traces.colocation.coruns import Corun, CoRuns, Way


def test_a_policy_is_made_of_its_words() -> None:
    words = wiring.PolicyWords(
        "priority:age_s=60:preemptive=true", "d-choices:choices=3", "easy"
    )

    choice = wiring.choice_of(words)

    assert choice.order == PriorityWithAgeing(age_s=60.0, preemptive=True)
    assert choice.placer.settings == {"choices": 3}
    assert choice.queue is Discipline.EASY
    assert choice.estimate == "duration"
    assert choice.name == "priority:age_s=60:preemptive=true(oracle)/d-choices/easy"


def test_parts_of_a_policy_that_are_left_out_come_from_the_base() -> None:
    base = wiring.PolicyWords("las", "pack", "strict", "user_dur", "any", 30.0)

    words = wiring.policy_words("placer=fgd, queue=easy", base)

    assert words == wiring.PolicyWords("las", "fgd", "easy", "user_dur", "any", 30.0)


@pytest.mark.parametrize("name", ["pai-pack", "pai-balance"])
def test_the_published_placers_keep_their_type_rule_unless_told(name: str) -> None:
    assert make_placer(name).types is TypeRule.V100_ONLY
    assert make_placer(name, types=TypeRule.ANY).types is TypeRule.ANY


def test_other_placers_bind_all_types_unless_told() -> None:
    simple = [name for name in PLACERS if not placer_recipe(name).needs_typical]

    for name in set(simple) - {"pai-pack", "pai-balance"}:
        assert make_placer(name).types is TypeRule.EXACT


def test_names_that_are_not_known_are_refused() -> None:
    with pytest.raises(UnknownName, match="order 'x'"):
        make_order("x")
    with pytest.raises(UnknownName, match="placer 'x'"):
        make_placer("x")


def test_other_packages_may_bring_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, "order.mine = interlane.policy.order:Fifo")
    monkeypatch.syspath_prepend(tmp_path)

    wiring.orders.cache_clear()
    try:
        assert isinstance(wiring.choice_of(wiring.PolicyWords("mine")).order, Fifo)
    finally:
        wiring.orders.cache_clear()


def test_a_package_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, "placer.broken = no_such_module:thing")
    monkeypatch.syspath_prepend(tmp_path)

    wiring.placers.cache_clear()
    try:
        with pytest.raises(InvalidInput, match=r"placer\.broken"):
            wiring.placers()
    finally:
        wiring.placers.cache_clear()


def _install(directory: Path, entry: str) -> None:
    """Lay out what an installed package leaves behind."""
    info = directory / "brings_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brings-policies\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(f"[interlane.policies]\n{entry}\n")


def test_easy_has_a_bound_and_other_queues_have_none() -> None:
    bounded = wiring.choice_of(wiring.PolicyWords(queue="easy:bound_s=1800"))

    assert (bounded.queue, bounded.passed_s_max) == (Discipline.EASY, 1_800.0)
    assert bounded.name.endswith("/easy:bound_s=1800")
    assert wiring.choice_of(wiring.PolicyWords(queue="easy")).passed_s_max == inf
    for word in ("skip:bound_s=1", "easy:bound=1", "easy:bound_s=-1", "easy:bound_s=x"):
        with pytest.raises(InvalidInput):
            wiring.choice_of(wiring.PolicyWords(queue=word))


def test_a_server_uses_idle_devices_first_and_lets_priorities_count_by_default() -> None:
    usual = UpOptions()
    words = {"order": usual.order, "placer": usual.placer, "queue": usual.queue}
    scheduler = wiring.live_scheduler_maker(words)(cluster(gpus=[2]), ())
    quarters = [job(name, gpus=1, gpu_milli=250) for name in "abc"]
    whole = [job(name, gpus=2, priority=at) for at, name in enumerate("xyz")]

    for one in quarters:
        scheduler.learn(Submitted(one), 0.0)
    starts = [one for one in scheduler.decide(0.0) if isinstance(one, Start)]
    for one in whole:
        scheduler.learn(Submitted(one), 0.0)
    scheduler.decide(0.0)

    used = [one.placement.spots[0].gpus for one in starts]
    assert sorted(used[:2]) == [(0,), (1,)]  # the third shares, as none is idle
    assert len(used) == 3
    assert list(scheduler.line(0.0)) == ["z", "y", "x"]
    assert counts_priority(scheduler.policy.order)


def test_pairs_are_fitted_to_what_a_machine_has_measured_unless_that_is_too_little(
    tmp_path: Path,
) -> None:
    names = ("train", "other", "function:f", "function:g")
    pairs = [(one, two, 0.7) for one in names for two in names if one != two]
    for known in (pairs[:3], pairs):
        runs = tuple(Corun("T4", *pair) for pair in known)
        values = np.linspace(0.1, 0.9, 8).reshape(1, 4, 2)
        way = {Way("side-by-side", "training"): runs}
        own.write(
            CoRuns("m", names, names, ("T4",), ("host_cpu", "memory"), values, way), tmp_path
        )
        found = wiring._fitted_pairs(tmp_path)
        if known is not pairs:
            assert found == {}

    table = found[SlowdownTarget.TRAINING]
    read = table.read(table.gpu("T4"), table.workload("train"), table.workload("function:f"))
    assert read.throughput == pytest.approx(0.7, abs=0.05)
