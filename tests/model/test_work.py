"""Work: what is lost of an attempt when its machine goes."""

import pytest

from interlane.testing.build import job


@pytest.mark.parametrize(
    ("checkpoint_s", "ran_s", "lost_s"),
    [(0.0, 90.0, 90.0), (60.0, 90.0, 30.0), (60.0, 59.0, 59.0), (60.0, 120.0, 0.0)],
)
def test_an_attempt_loses_what_it_has_done_since_its_last_checkpoint(
    checkpoint_s: float, ran_s: float, lost_s: float
) -> None:
    assert job(checkpoint_s=checkpoint_s).unsaved_s(ran_s) == lost_s
