"""What somebody suffers beside others, as pages show it."""

from interlane.live.functions.colocation import ComparedSlowdown
from interlane.pages.devices import beside_table


def test_what_was_measured_is_shown_beside_what_was_predicted() -> None:
    one = ComparedSlowdown("here/0", ("train-1", "<b>"), 1.6, 1.2, 1.03, 2.0, at_s=0.0)

    shown = beside_table([one], "jobs")

    for cell in ("train-1, &lt;b&gt;", "here/0", "1.03 x", "1.60 x", "2.00 x"):
        assert f">{cell}</td>" in shown


def test_where_nothing_was_measured_nothing_is_shown() -> None:
    assert beside_table([], "functions") == ""
