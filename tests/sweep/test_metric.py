"""What is read as a metric, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.sweep.metric import REPORTS_MAX, MetricReader


def read(text: str, metric: str = "loss") -> list[float]:
    reader = MetricReader(metric)
    reader.read(text.encode(), is_last=True)
    return reader.reports


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("loss=0.25", [0.25]),
        ("epoch 3: loss: 1e-3, acc 0.9", [0.001]),
        ('{"epoch": 3, "loss": -0.5}', [-0.5]),
        ("loss 12", [12.0]),
        ("Loss = 0.3.", [0.3]),
        ("loss=.5", [0.5]),
        ("accuracy 93%", []),
        ("val_loss=0.1", []),
        ("val/loss=0.1", []),
        ("losses=0.1", []),
        ("loss=low", []),
        ("loss=0.1x", []),
        ("bar 10%\rloss=1\rloss=2\n", [1.0, 2.0]),
        ("val_loss=0.1 loss=0.2", [0.2]),
    ],
)
def test_a_line_with_the_metric_is_one_report(line: str, found: list[float]) -> None:
    assert read(line) == found


def test_a_value_that_is_no_number_is_a_report() -> None:
    assert str(read("loss=nan\nloss=-inf")) == "[nan, -inf]"


def test_a_metric_may_have_marks_in_its_name() -> None:
    assert read("val/acc.top-1=0.5", "val/acc.top-1") == [0.5]


@given(st.lists(st.integers(0, 30)))
def test_how_output_is_cut_makes_no_difference(cuts: list[int]) -> None:
    text = "loss=1\nx\nloss=2.5\r\nloss=3"
    reader = MetricReader("loss")
    at = 0
    for size in cuts:
        reader.read(text[at : at + size].encode())
        at += size
    reader.read(text[at:].encode(), is_last=True)

    assert reader.reports == [1.0, 2.5, 3.0]


def test_a_program_that_prints_for_ever_takes_no_more_memory() -> None:
    reader = MetricReader("loss")
    for at in range(REPORTS_MAX + 5):
        reader.read(f"loss={at}\n".encode())

    assert len(reader.reports) == REPORTS_MAX
    assert reader.reports[-1] == REPORTS_MAX + 4
