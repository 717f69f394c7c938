"""A week of start times is judged by how often they held."""

import pytest

from interlane.reproduce.eta_simulated import Coverage, rows_of


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (Coverage(100, 0.5, 0.9, 0.9), [True, True, True, True]),
        (Coverage(10, 0.5, 0.9, 0.9), [False, True, True, True]),
        (Coverage(100, 0.2, 0.9, 0.9), [True, False, True, True]),
        (Coverage(100, 0.5, 0.79, 0.96), [True, True, False, False]),
    ],
)
def test_bands_that_are_too_narrow_or_too_wide_do_not_hold(
    found: Coverage, holds: list[bool]
) -> None:
    assert [row.holds for row in rows_of("fifo/skip", found)] == holds
