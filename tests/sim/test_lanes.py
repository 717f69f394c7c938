"""Devices with lanes in virtual time."""

from random import Random

import pytest

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.domain import Domain
from interlane.lanes.memory import Budget
from interlane.lanes.order import ORDERS, make_order
from interlane.lanes.quantum import TurnRule
from interlane.lanes.sharing import (
    FilledSlowDown,
    Overlap,
    OverlapIfItPays,
    Serialise,
    Sharing,
)
from interlane.model import InvalidField, JobId, Tier
from interlane.sim.lanes import LaneJob, LaneOutcome, LaneRun, Physics, play

SMALL = MemoryDemand(1, 2)
CROWDED = Physics(switch_s=0.001, contention=0.45)
"""Two jobs that each fill the device take 1.45 times as long side by side as in turns."""


def job(
    name: str,
    *,
    at: float = 0,
    iterations: int = 10,
    each_s: float = 1.0,
    needs: MemoryDemand = SMALL,
    says: MemoryDemand | None = SMALL,
    filled: float = 1.0,
    startup_s: float = 0.0,
) -> LaneJob:
    total_s = iterations * each_s
    return LaneJob(
        JobId(name), at, iterations, each_s, needs, startup_s, filled, 0, says, total_s
    )


def device(order: str = "fifo", sharing: Sharing | None = None, capacity: int = 100) -> Domain:
    turns = TurnRule(switch_cost_s=0.02)  # a quantum of 1 s
    return Domain(
        Budget(capacity), make_order(order), sharing=sharing or Serialise(), turns=turns
    )


def ends(run: LaneRun) -> dict[str, float]:
    return {
        one.job.id: round(one.finished_s, 6)
        for one in run.outcomes
        if one.finished_s is not None
    }


def makespan_s(run: LaneRun) -> float:
    return max(ends(run).values())


def test_a_shorter_job_interrupts_a_longer_one_at_its_next_boundary() -> None:
    # Asked 2.5 s into iterations of 1 s, the long job stops at 3; the short one takes 2.
    run = play([job("long"), job("short", at=2.5, iterations=2)], [device("srtf")])

    assert ends(run) == {"short": 5.0, "long": 12.0}
    assert run.switches == 2


def test_switches_cost_time() -> None:
    run = play(
        [job("long"), job("short", at=2.5, iterations=2)], [device("srtf")], Physics(0.25)
    )

    assert ends(run) == {"short": 5.25, "long": 12.5}


def test_jobs_that_half_fill_a_device_do_not_slow_each_other_down() -> None:
    jobs = [job("a", filled=0.5), job("b", filled=0.5)]

    assert ends(play(jobs, [device("pack", Overlap())])) == {"a": 10.0, "b": 10.0}


def test_jobs_that_fill_a_device_slow_each_other_down_while_they_overlap() -> None:
    # Until 20 both run at half speed: a's 10 are done, b has 5 of its 15 left.
    jobs = [job("a"), job("b", iterations=15)]

    assert ends(play(jobs, [device("pack", Overlap())])) == {"a": 20.0, "b": 25.0}


def test_start_ups_hide_behind_the_iterations_of_others() -> None:
    jobs = [job("a", startup_s=5), job("b", startup_s=5)]

    assert makespan_s(play(jobs, [device()])) == 25.0
    alone = [job(name, startup_s=5, says=None, needs=MemoryDemand(100, 0)) for name in "ab"]
    assert makespan_s(play(alone, [device()])) == 30.0


def test_a_job_of_unknown_needs_has_the_device_alone_until_it_is_measured() -> None:
    run = play([job("unknown", says=None), job("b")], [device("rr")])

    by_name = {one.job.id: one for one in run.outcomes}
    assert by_name[JobId("b")].admitted_s == 1.0


def test_a_job_that_needs_more_than_it_said_is_held_to_what_there_is() -> None:
    liar = job("liar", needs=MemoryDemand(90, 90))

    run = play([liar, job("b")], [device("rr")])

    assert [one.confined for one in run.outcomes] == [True, False]


def test_a_job_that_never_fits_is_refused_and_the_others_run() -> None:
    run = play([job("huge", says=MemoryDemand(99, 99)), job("b")], [device()])

    huge, other = run.outcomes
    assert huge.refusal is not None
    assert huge.refusal.tier is Tier.NEVER_FITS
    assert other.finished_s == 10.0


def test_jobs_spread_over_the_devices_of_a_cluster() -> None:
    run = play([job(name) for name in "abcd"], [device(), device()])

    assert sorted(one.device for one in run.outcomes) == [0, 0, 1, 1]
    assert makespan_s(run) == 20.0


def test_requests_are_served_as_they_come() -> None:
    # One of 1 s at 0, 0.5 and 10: the second waits for half a second.
    server = LaneJob(JobId("m"), 0, 3, 1.0, SMALL, says=SMALL, requests_s=(0.0, 0.5, 10.0))

    (outcome,) = play([server], [device("fair")]).outcomes

    assert outcome.latencies_s == [1.0, 1.5, 1.0]


def served(seed: int, order: str, sharing: Sharing, physics: Physics) -> LaneRun:
    return play(mixed(seed), [device(order, sharing)], physics)


def mixed(seed: int) -> list[LaneJob]:
    rng = Random(seed)
    return [
        job(
            f"j{number}",
            at=rng.uniform(0, 20),
            iterations=rng.randint(5, 60),
            filled=rng.choice([0.25, 0.5, 1.0, 1.0]),
        )
        for number in range(8)
    ]


def pays(jobs: list[LaneJob], physics: Physics) -> Sharing:
    filled = {one.id: one.filled for one in jobs}
    return OverlapIfItPays(FilledSlowDown(filled, physics.contention))


@pytest.mark.parametrize("filled", [1.0, 0.5])
def test_the_choice_is_as_good_as_the_better_fixed_rule_for_a_pair(filled: float) -> None:
    jobs = [job("a", filled=filled), job("b", filled=filled)]

    overlap_s, serial_s, choice_s = (
        makespan_s(play(jobs, [device("pack", sharing)], CROWDED))
        for sharing in (Overlap(), Serialise(), pays(jobs, CROWDED))
    )

    assert choice_s == min(overlap_s, serial_s)
    assert overlap_s != serial_s


def test_the_choice_beats_both_fixed_rules_on_total_time_over_mixed_jobs() -> None:
    total_s = {"overlap": 0.0, "serial": 0.0, "choice": 0.0}
    for seed in range(12):
        jobs = mixed(seed)
        total_s["overlap"] += makespan_s(served(seed, "pack", Overlap(), CROWDED))
        total_s["serial"] += makespan_s(served(seed, "pack", Serialise(), CROWDED))
        total_s["choice"] += makespan_s(served(seed, "pack", pays(jobs, CROWDED), CROWDED))

    assert total_s["choice"] < 0.95 * min(total_s["overlap"], total_s["serial"])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_under_every_order_all_work_is_done_and_no_device_time_is_lost(
    order: str, seed: int
) -> None:
    run = served(seed, order, Serialise(), Physics())

    assert all(one.finished_s is not None for one in run.outcomes)
    worked_s = sum(one.job.device_s for one in run.outcomes)
    assert run.busy_s == pytest.approx(worked_s)
    assert sum(one.device_s for one in run.outcomes) == pytest.approx(run.busy_s)


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_jobs_give_the_same_run(order: str) -> None:
    def turns(run: LaneRun) -> list[tuple[float | None, int]]:
        return [(one.finished_s, one.turns) for one in run.outcomes]

    assert turns(served(1, order, Overlap(), CROWDED)) == turns(
        served(1, order, Overlap(), CROWDED)
    )


def test_an_outcome_without_an_end_has_no_times() -> None:
    assert LaneOutcome(job("a"), 0).completion_s is None
    assert LaneOutcome(job("a"), 0).waited_s is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("iterations", 0), ("iteration_s", 0.0), ("submitted_s", -1.0), ("filled", 1.5)],
)
def test_a_job_that_cannot_be_is_bad_input(field: str, value: float) -> None:
    fields = {
        "submitted_s": 0.0,
        "iterations": 1,
        "iteration_s": 1.0,
        "filled": 1.0,
        field: value,
    }

    with pytest.raises(InvalidField, match=field):
        LaneJob(JobId("a"), needs=SMALL, **fields)  # type: ignore[arg-type]  # by name
