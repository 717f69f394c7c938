from pathlib import Path

import pytest

from interlane.reproduce import mig_transition
from interlane.reproduce.base import Setting
from interlane.traces.data import data_dir


@pytest.mark.data
def test_most_instances_stay_and_nobody_is_interrupted() -> None:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    found = data_dir(None) or beside
    if not (found / "mig").is_dir():
        pytest.skip("needs the published measurements; set INTERLANE_DATA")

    rows = mig_transition._transition(Setting(found, seed=42), (("normal", 0.3),), seeds=1)

    assert [row for row in rows if row.fails] == []
    assert rows[-1].what.startswith("moments below a floor, of ")
    assert rows[-1].ours == 0
