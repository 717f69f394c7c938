import json
from pathlib import Path

import pytest

from interlane import cli
from interlane.reproduce import mig
from interlane.reproduce.base import Setting
from interlane.traces.data import data_dir


@pytest.fixture(scope="module")
def data() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    found = data_dir(None) or beside
    if not (found / "mig").is_dir():
        pytest.skip("needs the published measurements; set INTERLANE_DATA")
    return found


@pytest.mark.data
def test_parvagpus_scenarios_take_no_more_gpus_than_they_should(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["reproduce", "mig-parvagpu", "--data", str(data), "-o", "json"])

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    gpus = [row for row in rows if "to be at most" in row["what"]]
    assert [row["ours"] for row in gpus] == [2, 3, 5, 7, 12, 15]
    assert [row["published"] for row in gpus] == [2, 3, 5, 7, 13, 16]


def test_heuristics_are_compared_without_any_data() -> None:
    setting = Setting(None, seed=0, choice="synthetic")

    rows = mig._heuristics(setting, sizes=(20,), seeds=(0,), slow=())

    by_name = {row.what: row for row in rows}
    assert by_name["faults that the checker finds in all plans"].ours == 0
    assert by_name["largest distance from its bound, GPUs (at most 1)"].ours == 0
    assert "greedy" in str(by_name["20 GPUs, normal, seed 0"].ours)
