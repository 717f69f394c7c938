"""Sizes that nobody measured, between those that somebody did."""

import pytest

from interlane.mig.interpolation import completed
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables import own


def row(profile: str, rate: float, batch: int = 4, gpu: str = "A100-40GB") -> Measurement:
    return Measurement("bert", gpu, profile, batch, 1, rate, 1e3 * batch / rate)


def test_sizes_between_two_that_were_measured_lie_on_the_line_between_them() -> None:
    found = completed([row("1g.5gb", 100.0), row("7g.40gb", 400.0)])

    between = {one.profile: one for one in found if one.interpolated}
    assert {name: one.throughput_per_s for name, one in between.items()} == pytest.approx(
        {"2g.10gb": 150.0, "3g.20gb": 200.0, "4g.20gb": 250.0}
    )
    assert between["3g.20gb"].latency_ms == pytest.approx(20.0)


def test_by_sms_where_they_are_known() -> None:
    found = completed(
        [
            row("1g.10gb", 16.0, gpu="H100-80GB-SXM5"),
            row("7g.80gb", 132.0, gpu="H100-80GB-SXM5"),
        ]
    )

    rates = {one.profile: one.throughput_per_s for one in found}
    assert rates["3g.40gb"] == pytest.approx(60.0)  # of 132 SMs, not three sevenths


def test_nothing_is_concluded_beyond_what_was_measured() -> None:
    found = completed(
        [row("2g.10gb", 100.0), row("3g.20gb", 130.0), row("7g.40gb", 1.0, batch=8)]
    )

    assert not [one for one in found if one.interpolated]


def test_a_size_that_is_measured_later_takes_the_place_of_the_interpolated_one() -> None:
    first = completed([row("1g.5gb", 100.0), row("3g.20gb", 200.0)])

    again = completed([*first, row("2g.10gb", 190.0)])

    assert [
        (one.profile, one.throughput_per_s) for one in again if one.profile == "2g.10gb"
    ] == [("2g.10gb", 190.0)]


def test_a_table_keeps_what_is_interpolated() -> None:
    rows = completed([row("1g.5gb", 100.0), row("3g.20gb", 200.0)])

    lines = list(own.write(PerformanceTable(rows)))
    back = own.read(lines, "table")

    assert lines[0].endswith(",source")
    assert {one.profile: one.interpolated for one in back} == {
        "1g.5gb": False,
        "2g.10gb": True,
        "3g.20gb": False,
    }
    plain = list(own.write(PerformanceTable(rows[:1])))
    assert plain[0] == ",".join(own.COLUMNS)
