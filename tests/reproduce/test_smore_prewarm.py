from pathlib import Path

import pytest

from interlane.reproduce import smore_prewarm
from interlane.reproduce.base import Setting
from interlane.traces.data import data_dir


@pytest.mark.data
@pytest.mark.parametrize("name", smore_prewarm.BARS)
def test_a_keep_alive_comes_to_what_was_measured_before_anything_was_built(name: str) -> None:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    data = data_dir(None) or beside
    if not (data / "servegen-arrivals").is_dir():
        pytest.skip("needs the published traces; set INTERLANE_DATA")

    rules = next(smore_prewarm._parts(name, Setting(data, seed=42)))

    (held,) = [row for row in rules if row.published is not None]
    assert held.holds, held
