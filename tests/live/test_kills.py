"""Whoever is killed at any moment, nothing is lost, faked, run twice or left behind."""

import pytest

from interlane.model.lifecycle import JobState
from interlane.testing.kill_work import Asked, Excuses, KeptJob, RanLine, judged
from interlane.testing.kills import kill_round

KILLS = 7
NO_EXCUSES = Excuses(frozenset(), ())
DONE = KeptJob(JobState.SUCCEEDED, 1)
START, END = RanLine("start", "a-1", 1, 10.0), RanLine("end", "a-1", 1, 11.0)
ACKNOWLEDGED = Asked({"a-1"}, 9.0)


def test_kills_lose_nothing_and_run_nothing_twice(url: str) -> None:
    report = kill_round(KILLS, url=None if url.startswith("sqlite") else url)

    assert report.faults == []
    assert report.work.acknowledged > 0
    assert sum(report.kills.values()) == KILLS


def test_what_went_well_is_not_complained_of() -> None:
    found = judged([ACKNOWLEDGED], [START, END], {"a-1": DONE}, NO_EXCUSES)

    assert (found.acknowledged, found.lost, found.twice, found.faked) == (1, (), (), ())


@pytest.mark.parametrize(
    ("asked", "ran", "kept", "fault"),
    [
        (ACKNOWLEDGED, [START, END], {}, "lost"),
        (ACKNOWLEDGED, [START, END], {"a-1": KeptJob(JobState.FAILED, 1)}, "lost"),
        (ACKNOWLEDGED, [START, START, END], {"a-1": DONE}, "twice"),
        (
            ACKNOWLEDGED,
            [START, END, RanLine("start", "a-1", 2, 12.0), RanLine("end", "a-1", 2, 13.0)],
            {"a-1": KeptJob(JobState.SUCCEEDED, 2)},
            "twice",
        ),
        (
            ACKNOWLEDGED,
            [START, RanLine("overlap", "a-1", 2, 0.0), END],
            {"a-1": DONE},
            "twice",
        ),
        (Asked({"a-1", "a-2"}, 9.0), [START, END], {"a-1": DONE, "a-2": DONE}, "twice"),
        (ACKNOWLEDGED, [START], {"a-1": DONE}, "faked"),
        (ACKNOWLEDGED, [], {"a-1": DONE}, "faked"),
        (Asked({"a-1"}, 1.0, 2.0), [START, END], {"a-1": DONE}, "uncancelled"),
        (
            ACKNOWLEDGED,
            [START, RanLine("clash", "a-1", 0, 10.5), END],
            {"a-1": DONE},
            "clashes",
        ),
    ],
)
def test_a_promise_that_was_broken_is_noticed(
    asked: Asked, ran: list[RanLine], kept: dict[str, KeptJob], fault: str
) -> None:
    found = judged([asked], ran, kept, NO_EXCUSES)

    assert "a-1" in getattr(found, fault)


def test_only_what_an_old_copy_cannot_know_may_be_forgotten() -> None:
    excuses = Excuses(frozenset(), ((5.0, 20.0),))

    assert judged([ACKNOWLEDGED], [START, END], {}, excuses).lost == ()
    assert judged([Asked({"a-1"}, 4.0)], [START, END], {}, excuses).lost == ("a-1",)


SECOND = [RanLine("start", "a-1", 2, 22.0), RanLine("end", "a-1", 2, 23.0)]


def test_an_old_copy_is_no_reason_to_run_a_job_again_that_was_stopped_for_good() -> None:
    excuses = Excuses(frozenset(), ((5.0, 20.0),))
    kept = {"a-1": KeptJob(JobState.SUCCEEDED, 2)}

    found = judged([Asked({"a-1"}, 9.0, 10.5)], [START, *SECOND], kept, excuses)

    assert found.twice == ("a-1",)
    assert found.uncancelled == ("a-1",)


def test_an_old_copy_may_forget_the_cancel_of_a_job_that_had_not_begun() -> None:
    excuses = Excuses(frozenset(), ((5.0, 20.0),))
    kept = {"a-1": KeptJob(JobState.SUCCEEDED, 2)}

    assert judged([Asked({"a-1"}, 9.0, 10.5)], SECOND, kept, excuses).uncancelled == ()
    assert judged([Asked({"a-1"}, 9.0, 10.5)], SECOND, kept, NO_EXCUSES).uncancelled == ("a-1",)


def test_a_second_attempt_is_right_where_the_shim_of_the_first_was_killed() -> None:
    ran = [START, RanLine("start", "a-1", 2, 12.0), RanLine("end", "a-1", 2, 13.0)]
    excuses = Excuses(frozenset({("a-1", 1)}), ())

    assert (
        judged([ACKNOWLEDGED], ran, {"a-1": KeptJob(JobState.SUCCEEDED, 2)}, excuses).twice
        == ()
    )
