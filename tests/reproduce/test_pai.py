import json
from pathlib import Path

import pytest

from interlane import cli
from interlane.reproduce.catalogue import REPRODUCTIONS
from interlane.reproduce.pai import REAL_JOBS, REAL_STARTS
from interlane.traces.data import data_dir

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def data() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    found = data_dir(None) or beside
    if not (found / "pai-v2020").is_dir():
        pytest.skip("needs the published traces; set INTERLANE_DATA")
    return found


@pytest.mark.parametrize("name", ["pai-fifo-1000", "pai-sjf"])
def test_every_row_holds(name: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["reproduce", name, "--data", str(data), "--processes", "1", "-o", "json"])

    answer = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in answer["rows"]} == {"checked"}
    assert [row for row in answer["rows"] if not row["holds"]] == []
    assert all(row["if_not"] for row in answer["rows"])
    assert answer["held"] == answer["checked"] == len(answer["rows"])
    assert (code, answer["name"], answer["seed"]) == (0, name, REPRODUCTIONS[name].seed)


def test_a_row_that_does_not_hold_is_exit_code_1(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (REAL_JOBS, REAL_STARTS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((data / name).read_bytes())
    starts = tmp_path / REAL_STARTS
    # Job 4 starts at 0 in the original; claim that it started a second later.
    starts.write_text(starts.read_text().replace("\n4,1,0,80,0,80\n", "\n4,1,0,80,1,81\n"))

    code = cli.run(["reproduce", "pai-fifo-1000", "--data", str(tmp_path)])

    out = capsys.readouterr().out
    assert code == 1
    assert "NO" in out
    assert out.startswith("4 of 5 checked rows hold.")
    assert "jobs that start in the published second: The kernel would place gangs" in out
