"""Keeping away from scarce CPUs: what the rows say."""

from dataclasses import replace

from interlane.reproduce.pai_contention import ContentionFigures, rows_of

PACKED = ContentionFigures(4000.0, 50.0, 12.0)
BETTER = ContentionFigures(3700.0, 100.0, 2.0)


def test_all_rows_hold_where_jobs_end_sooner_though_they_wait_longer() -> None:
    assert not any(row.fails for row in rows_of(7, PACKED, BETTER))


def test_less_contention_that_does_not_pay_fails() -> None:
    rows = rows_of(7, PACKED, replace(BETTER, completion_s=4100.0))

    assert [row.what for row in rows if row.fails] == [
        "the placer's own curve, seed 7: mean completion, s"
    ]
