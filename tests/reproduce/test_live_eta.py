"""How a live queue is judged; the queue itself is run by `make evidence`."""

from dataclasses import replace

import pytest

from interlane.reproduce.live_eta import QueueOutcome, ToldBand, rows_of

TOLD = ToldBand(0.0, 50.0, 90.0, 100.0, is_young=False)
KNOWN = {"low_s": 1.0, "high_s": 9.0, "basis": "no run at all, so that the band is wide"}
WHY = "run time from nothing; 0 starts were compared so far, so that bands are wide"


def found(inside: int, of: int = 100) -> QueueOutcome:
    """Return a queue in which so many jobs start inside their bands, the rest later."""
    told = {str(number): TOLD for number in range(of)}
    starts_s = {job: 60.0 if number < inside else 101.0 for number, job in enumerate(told)}
    return QueueOutcome(told, starts_s, KNOWN, KNOWN, WHY)


def failed(queue: QueueOutcome) -> list[str]:
    return [row.what for row in rows_of(queue) if row.fails]


@pytest.mark.parametrize(
    ("inside", "holds"), [(79, False), (80, True), (95, True), (96, False)]
)
def test_bands_must_hold_for_80_to_95_of_100(inside: int, holds: bool) -> None:  # noqa: FBT001
    assert (failed(found(inside)) == []) is holds


def test_what_a_young_server_says_is_not_judged_by_whether_it_holds() -> None:
    queue = found(90)
    missed = {f"y{number}": replace(TOLD, is_young=True) for number in range(50)}
    late_s = dict.fromkeys(missed, 999.0)

    assert (
        failed(replace(queue, told=queue.told | missed, started_s=queue.started_s | late_s))
        == []
    )


def test_a_young_server_must_not_promise_to_the_second() -> None:
    narrow = {"low_s": 58.34, "high_s": 58.87, "basis": "its user's runs"}

    assert failed(replace(found(90), young=narrow)) == [
        "a young server gives a wide band, and says why"
    ]
    assert len(failed(replace(found(90), strange=narrow))) == 1


def test_a_queue_in_which_nobody_waits_shows_nothing() -> None:
    assert any("had to wait" in what for what in failed(found(9, of=10)))
