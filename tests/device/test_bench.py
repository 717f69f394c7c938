from pathlib import Path

import pytest

import interlane
from interlane.device.bench.figures import Bench, BenchFigure, hand_overs, lateness
from interlane.device.bench.stage import staged

# Asked, begun, ended.
A = [(0, 0, 10), (11, 30, 40)]
B = [(5, 14, 25), (60, 60, 70)]


def test_a_hand_over_lasts_from_the_end_of_one_turn_to_the_beginning_of_the_next() -> None:
    # A ends at 10 while B waits since 5; B ends at 25 while A waits since 11; at 60 nobody gave
    # anything up.
    assert list(hand_overs(A, B)) == [4, 5]


def test_lateness_counts_from_the_end_of_the_iteration_that_was_under_way() -> None:
    low = [(0, 0, 30), (30, 30, 60), (62, 70, 100)]
    high = [(10, 33, 35), (80, 101, 103), (105, 105, 106)]

    assert list(lateness(low, high)) == [3, 1]


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (BenchFigure("most", "us", 200.0, samples=[100.0, 150.0, 900.0]), True),
        (BenchFigure("most", "us", 200.0, samples=[100.0, 250.0, 900.0]), False),
        (BenchFigure("least", "x", 20.0, is_least=True, samples=[10.0, 25.0, 30.0]), True),
        (BenchFigure("least", "x", 20.0, is_least=True, samples=[10.0, 15.0, 30.0]), False),
        (BenchFigure("no bound", "us", samples=[1.0]), True),
    ],
)
def test_the_median_is_held_to_the_bound(figure: BenchFigure, holds: bool) -> None:  # noqa: FBT001
    assert figure.holds is holds


def test_a_round_measures_every_figure_with_real_processes() -> None:
    bench = Bench()
    told: list[int] = []

    with staged() as stage:
        bench.run(stage, rounds=1, tell=told.append, stretches=1)

    assert told == [1]
    assert all(figure.samples for figure in bench.figures)
    # Those that hold by far, however busy the machine is.
    assert bench.restart.holds
    assert bench.fork_server.median > 5


def test_jobs_find_their_modules_however_the_bench_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = Path(interlane.__file__).parents[1]
    monkeypatch.chdir(sources.parent)
    monkeypatch.setenv("PYTHONPATH", sources.name)

    with staged() as stage:
        assert stage.run("calibrate", iteration_ms=1.0) >= 1
