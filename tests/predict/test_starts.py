"""Bands of start times hold as often as they say, however wrong the plays are."""

from random import Random

import pytest

from interlane.model import JobId
from interlane.predict.starts import Calibrated, StartBand

JOBS = 4_000


def shares_by_edge(factor: float, spread: float) -> tuple[float, float, float]:
    """Let plays be wrong by a factor; return how many start by P50, by P90 and in the band."""
    rng, bands = Random(1), Calibrated()
    by_p50 = by_p90 = inside = 0
    for number in range(JOBS):
        plays = sorted(600 * rng.lognormvariate(0, 0.3) for _ in range(32))
        start_s = 600 * factor * rng.lognormvariate(0, spread)
        band = bands.band(plays, 0.0)
        bands.note(JobId(str(number)), plays, 0.0)
        bands.started(JobId(str(number)), start_s)
        by_p50 += start_s <= band.p50_s
        by_p90 += start_s <= band.p90_s
        inside += band.low_s <= start_s <= band.high_s
    return by_p50 / JOBS, by_p90 / JOBS, inside / JOBS


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("spread", [0.1, 0.6, 1.5])
def test_edges_are_passed_as_often_as_they_say(factor: float, spread: float) -> None:
    by_p50, by_p90, inside = shares_by_edge(factor, spread)

    assert by_p50 == pytest.approx(0.5, abs=0.03)
    assert by_p90 == pytest.approx(0.9, abs=0.03)
    assert inside == pytest.approx(0.9, abs=0.04)


def test_the_edges_of_a_band_are_in_order_and_never_in_the_past() -> None:
    bands, rng = Calibrated(), Random(2)
    for number in range(500):
        job_id = JobId(str(number))
        bands.note(job_id, [100.0 + number], 100.0)
        bands.started(job_id, 100.0 + rng.expovariate(1e-3))
        band = bands.band([100.0, 150.0, 900.0], 100.0)
        assert 100.0 <= band.low_s <= band.p50_s <= band.p90_s <= band.high_s


def test_the_first_band_told_of_a_job_counts_and_a_job_that_ended_does_not() -> None:
    bands, other = Calibrated(), Calibrated()
    bands.note(JobId("a"), [10.0], 0.0)
    bands.note(JobId("a"), [9_999.0], 0.0)
    bands.note(JobId("b"), [10.0], 0.0)
    other.note(JobId("a"), [10.0], 0.0)

    bands.forget(JobId("b"))
    bands.started(JobId("b"), 5.0)
    for one in (bands, other):
        one.started(JobId("a"), 5_000.0)

    assert bands.awaited == ()
    assert bands.band([60.0], 0.0) == other.band([60.0], 0.0) != first_band()


def bands_after(*, started: int, waiting: int, told_at_s: float) -> Calibrated:
    """Return bands that saw jobs start as told, after 100 s, and others that still wait."""
    bands = Calibrated()
    for number in range(started):
        bands.note(JobId(f"s{number}"), [100.0], 0.0)
        bands.started(JobId(f"s{number}"), 100.0)
    for number in range(waiting):
        bands.note(JobId(f"w{number}"), [told_at_s + 100.0], told_at_s)
    return bands


def test_those_who_wait_for_long_move_bands_before_they_start() -> None:
    # Forty started as they were told; ten were told the same, and have waited ten times that.
    slower = bands_after(started=40, waiting=10, told_at_s=0.0).band([1_100.0], 1_000.0)
    steady = bands_after(started=40, waiting=0, told_at_s=0.0).band([1_100.0], 1_000.0)

    assert steady.high_s == pytest.approx(1_100.0)
    assert slower.high_s == pytest.approx(2_000.0)
    assert slower.low_s == steady.low_s


def test_those_who_came_a_moment_ago_change_nothing() -> None:
    newcomers = bands_after(started=40, waiting=10, told_at_s=990.0).band([1_100.0], 1_000.0)
    nobody = bands_after(started=40, waiting=0, told_at_s=0.0).band([1_100.0], 1_000.0)

    assert newcomers == nobody


def first_band() -> StartBand:
    return Calibrated().band([60.0], 0.0)
