"""What sweeps decide: which trials are run, which go on, which are stopped, which is best."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlane.sweep.decide import (
    SILENT_MAX,
    RunState,
    SweepDecision,
    TrialRun,
    best_run,
    decide,
    entrants,
    is_silent,
)
from interlane.sweep.definition import Sweep, sweep_of

Board = dict[tuple[int, int], TrialRun]

VALUES = st.one_of(
    st.integers(-5, 5).map(float), st.sampled_from([float("nan"), float("inf"), float("-inf")])
)


def sweep(trials: int, run: str = "train {n}", **more: Any) -> Sweep:  # noqa: ANN401
    said = {"n": list(range(trials))}
    return sweep_of({"name": "s", "job": {"run": run}, "set": said, "metric": "loss", **more})


def in_rounds(trials: int, halving: str = "1..9") -> Sweep:
    return sweep(trials, "train {n} {budget}", halving=halving)


def run(trial: int, state: RunState, reports: Sequence[float] = (), rung: int = 0) -> TrialRun:
    return TrialRun(trial, rung, state, tuple(reports), f"j{trial}")


def better(reached: dict[int, float], trial: int) -> int:
    """Return how many have done better than a trial, the lower number first among equals."""

    def rank(one: int) -> tuple[float, int]:
        value = reached[one]
        finite = value == value and abs(value) < float("inf")
        return (value if finite else float("inf")), one

    return sum(rank(other) < rank(trial) for other in reached)


# -- a grid ---------------------------------------------------------------------------


def test_every_trial_is_run_once_and_none_is_stopped() -> None:
    board: Board = {(1, 0): run(1, RunState.RUNNING, [5.0])}

    assert decide(sweep(3), board) == SweepDecision(submit=((0, 0), (2, 0)))


def test_the_best_is_the_last_value_of_those_that_ended() -> None:
    runs = [
        run(0, RunState.ENDED, [1.0, 5.0]),
        run(1, RunState.ENDED, [9.0, 4.0]),
        run(2, RunState.STOPPED, [0.0]),
        run(3, RunState.ENDED, [float("nan")]),
        run(4, RunState.RUNNING, [0.0]),
    ]

    assert best_run(sweep(5), runs) == runs[1]
    assert best_run(sweep(5, goal="max"), runs) == runs[0]
    assert best_run(sweep(5), runs[2:]) is None


def test_a_metric_that_is_never_printed_ends_the_sweep() -> None:
    silent = [run(one, RunState.ENDED) for one in range(SILENT_MAX)]
    board: Board = {(one.trial, 0): one for one in silent}
    board[50, 0] = run(50, RunState.RUNNING)

    assert decide(sweep(100), board) == SweepDecision(stop=((50, 0),))
    assert not is_silent(silent[1:])
    board[51, 0] = run(51, RunState.RUNNING, [1.0])
    assert decide(sweep(100), board).stop == ()


# -- while they run -------------------------------------------------------------------


@given(st.data(), st.integers(1, 30))
def test_a_trial_that_is_stopped_is_not_among_the_best_at_its_rung_whatever_follows(
    data: st.DataObject, trials: int
) -> None:
    told = sweep(trials, halving="1..9:3")
    assert told.halving is not None
    reports = [data.draw(st.lists(VALUES, max_size=9)) for _ in range(trials)]
    seen = [data.draw(st.integers(0, len(one))) for one in reports]
    board: Board = {
        (one, 0): run(one, RunState.RUNNING, reports[one][: seen[one]]) for one in range(trials)
    }

    stopped = decide(told, board).stop

    for trial, _ in stopped:
        out = False
        for rung, budget in enumerate(told.halving.budgets[:-1]):
            if seen[trial] >= budget:
                kept = told.halving.kept(trials, rung)
                at_the_end = {
                    one: reports[one][budget - 1]
                    for one in range(trials)
                    if len(reports[one]) >= budget
                    and ((one, 0) not in stopped or seen[one] >= budget)
                }
                out |= better(at_the_end, trial) >= kept
        assert out


@given(st.lists(VALUES, min_size=1, max_size=30), st.randoms())
def test_at_equal_budgets_the_order_of_reports_makes_no_difference(
    values: list[float],
    rng: Any,  # noqa: ANN401
) -> None:
    told = sweep(len(values), halving="1..9:3")
    order = list(range(len(values)))
    rng.shuffle(order)
    board: Board = {(one, 0): run(one, RunState.RUNNING) for one in order}
    stopped: set[tuple[int, int]] = set()
    for trial in order:
        # One that is told to stop goes on until it has reported, which jobs that run may.
        board[trial, 0] = run(trial, RunState.RUNNING, [values[trial]])
        stopped |= set(decide(told, board).stop)

    assert told.halving is not None
    kept = told.halving.kept(len(values), 0)
    reached = dict(enumerate(values))
    assert stopped == {(one, 0) for one in reached if better(reached, one) >= kept}


# -- in rounds ------------------------------------------------------------------------


@given(st.data(), st.integers(1, 30))
def test_rounds_give_each_budget_to_the_best_whatever_the_order_and_to_no_more(
    data: st.DataObject, trials: int
) -> None:
    told = in_rounds(trials)
    assert told.halving is not None
    values = [[data.draw(VALUES) for _ in range(told.rounds)] for _ in range(trials)]
    fails = [data.draw(st.sampled_from([0, 0, 0, 1])) for _ in range(trials)]
    board: Board = {}
    while due := decide(told, board).submit:
        before = entrants(told, board)
        for trial, rung in due:
            board[trial, rung] = run(trial, RunState.RUNNING, rung=rung)
        still = [at for at, one in board.items() if one.state.is_open]
        trial, rung = still[data.draw(st.integers(0, len(still) - 1))]
        state = RunState.FAILED if fails[trial] and rung == 1 else RunState.ENDED
        board[trial, rung] = run(trial, state, [values[trial][rung]], rung)
        for earlier, later in zip(before, entrants(told, board), strict=True):
            assert set(earlier) <= set(later), "who has a budget keeps it"
        if decide(told, board).submit == ():
            for at in [at for at, one in board.items() if one.state.is_open]:
                state = RunState.FAILED if fails[at[0]] and at[1] == 1 else RunState.ENDED
                board[at] = run(at[0], state, [values[at[0]][at[1]]], at[1])

    assert not any(one.state.is_open for one in board.values())
    assert set(board) == expected(told, values, fails)


def expected(told: Sweep, values: list[list[float]], fails: list[int]) -> set[tuple[int, int]]:
    """Return who gets which budget, when all of a rung have reported before the next begins."""
    assert told.halving is not None
    members, found = list(range(len(values))), set()
    for rung in range(told.rounds):
        found |= {(one, rung) for one in members}
        reached = {
            one: values[one][rung]
            for one in members
            if abs(values[one][rung]) < float("inf") and not (fails[one] and rung == 1)
        }
        kept = told.halving.kept(len(values), rung)
        members = [one for one in reached if better(reached, one) < kept]
    return found


def test_a_trial_goes_on_before_the_others_have_reported_if_that_is_certain() -> None:
    told = in_rounds(9)  # a third goes on
    board: Board = {(one, 0): run(one, RunState.RUNNING) for one in range(9)}
    for one in range(7):
        board[one, 0] = run(one, RunState.ENDED, [float(one)])

    assert decide(told, board).submit == ((0, 1),)


def test_the_best_is_sought_among_those_with_the_largest_budget() -> None:
    runs = [run(0, RunState.ENDED, [0.1]), run(1, RunState.ENDED, [5.0], rung=1)]

    assert best_run(in_rounds(9), runs) == runs[1]
