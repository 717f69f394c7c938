"""Reserving against balancing: what the rows say, and what is known beforehand."""

from dataclasses import replace

import pytest

from interlane.reproduce import pai_reserve
from interlane.reproduce.base import Setting, figure
from interlane.reproduce.catalogue import REPRODUCTIONS
from interlane.reproduce.pai_reserve import BALANCED, COMPOSED, RESERVED, ReserveFigures
from interlane.testing.build import job
from interlane.traces.jobs import jobs_of
from interlane.traces.synth_pai.jobs import Drawn, draw_trace
from interlane.traces.synth_pai.plan import Scope

BEFORE = ReserveFigures(1000.0, 2000.0, 93.0, 49.0, 0.06, 5000.0, 0)
AFTER = ReserveFigures(500.0, 600.0, 91.5, 58.0, 0.10, 4500.0, 0)
BEST = ReserveFigures(400.0, 100.0, 97.0, 99.0, 0.05, 4400.0, 7)


def verdicts(**found: ReserveFigures) -> dict[str, bool | None]:
    given = {BALANCED: BEFORE, RESERVED: AFTER, COMPOSED: BEST}
    names = {"reserved": RESERVED, "composed": COMPOSED}
    rows = pai_reserve._rows(given | {names[one]: found[one] for one in found})
    return {row.what: row.holds for row in rows if row.holds is not None}


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw_trace(Scope(pai_reserve.HISTORY_DAYS + 0.25, 0.05, 7))


def test_all_rows_hold_where_reserving_helps_and_composing_helps_more() -> None:
    assert all(verdicts().values())


def test_a_gain_below_the_published_one_does_not_hold() -> None:
    said = verdicts(reserved=replace(AFTER, wait_s=560.0, strong_wait_s=641.0))

    assert not said["mean wait down, all tasks, %"]
    assert not said["mean wait down, V100 tasks, %"]


@pytest.mark.parametrize(
    ("field", "value"), [("wait_s", 500.0), ("strong_wait_s", 600.0), ("imbalance", 0.06)]
)
def test_the_composed_policy_must_beat_the_better_of_both(field: str, value: float) -> None:
    said = verdicts(composed=replace(BEST, **{field: value}))  # type: ignore[arg-type]

    assert list(said.values()).count(False) == 1


def test_what_is_shown_beside_the_paper_names_its_readings() -> None:
    rows = pai_reserve._told(BALANCED, BEFORE)

    assert figure("balance: no wait, V100, %", 49.0, 49.0) in rows


def test_only_jobs_after_the_history_are_played(drawn: Drawn) -> None:
    later = pai_reserve._after_history(drawn.trace)

    assert 0 < later.jobs < drawn.trace.jobs
    assert 0 <= later.frame["submit_s"].min() <= later.frame["submit_s"].max() <= 21_600  # type: ignore[operator]


def test_programs_that_used_much_before_are_expected_to_again(drawn: Drawn) -> None:
    model = pai_reserve._history(drawn.trace, drawn.gpu_used)

    assert 0.0 < model.overall < 1.0
    assert max(total / runs for total, runs in model.by_program.values()) > 0.5
    assert model.gpu_use(job(gpus=1)) <= 1.0


def test_drawn_jobs_name_types_only_where_they_insist(drawn: Drawn) -> None:
    jobs, true_s = jobs_of(drawn.trace, estimate=None)
    named = [any(task.demand.gpu_types for task in each.request.tasks) for each in jobs]

    assert 0.03 < sum(named) / len(named) < 0.2
    assert len(true_s) == len(jobs) == len(drawn.gpu_used)
    assert all(length_s > 0 for length_s in true_s)


def test_every_variant_names_seeds_and_how_many_machines() -> None:
    entry = REPRODUCTIONS["pai-reserve"]
    played = {
        choice: [one.title for one in pai_reserve.loads(Setting(None, 42, choice=choice))]
        for choice in (None, *entry.variants)
    }

    assert not entry.needs_data
    assert played[None] == [
        "61 days, 0.25 of the machines, seed 42",
        "7 days, 0.25 of the machines, seed 43",
        "7 days, 0.25 of the machines, seed 44",
        "at the published load, 3 days, 0.25 of the machines, seed 42",
    ]
    assert played["full"] == ["61 days, 1 of the machines, seed 42"]
    assert [title.split(",")[0] for title in played["small"][:-1]] == ["7 days"] * 3


def test_runs_say_the_same_alone_and_side_by_side() -> None:
    runs = [(pai_reserve.PlayedLoad(0.02, 7, 0.05), name) for name in (BALANCED, COMPOSED)]
    told: list[int] = []

    def play(processes: int) -> list[ReserveFigures]:
        setting = Setting(None, 7, processes, lambda done, total, what: told.append(done))
        return pai_reserve._play_all(setting, runs)

    assert play(1) == play(2)
    assert max(told) > 0
