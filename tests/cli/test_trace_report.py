"""``interlane trace report`` from files to page, JSON and table."""

import json
from pathlib import Path

from .conftest import Call


def test_the_table_shows_our_number_beside_the_papers(call: Call, trace: Path) -> None:
    said = call("trace", "report", trace)

    assert said.code == 0
    rows = {tuple(line.split()[:2]): line.split() for line in said.out.splitlines()}
    # Two instances ask for two GPUs, one for half of one; the paper's median is 0.5.
    assert rows["requests", "gpu_p50"] == ["requests", "gpu_p50", "GPUs", "2", "0.5"]
    assert rows["not", "told"][-1] == "cpu_bottleneck"


def test_page_and_json_hold_the_same_numbers(call: Call, trace: Path, tmp_path: Path) -> None:
    page, numbers = tmp_path / "report.html", tmp_path / "report.json"

    said = call("trace", "report", trace, "--out", page, "--json", numbers, "-o", "json")

    assert said.code == 0
    assert json.loads(said.out) == json.loads(numbers.read_text())
    told = json.loads(said.out)
    assert set(told) == {"trace", "figures", "quality"}
    assert told["trace"]["jobs"] == 3
    text = page.read_text()
    for figure in told["figures"]:
        assert f'id="{figure["key"]}"' in text
        assert set(figure) == {"key", "title", "sentence", "numbers", "missing"}


def test_a_cluster_tells_the_machines(call: Call, trace: Path, lab: Path) -> None:
    without = json.loads(call("trace", "report", trace, "-o", "json").out)
    within = json.loads(call("trace", "report", trace, "--cluster", lab, "-o", "json").out)

    def cpus(told: dict[str, list[dict[str, object]]]) -> object:
        (figure,) = [one for one in told["figures"] if one["key"] == "cpu_per_gpu"]
        return figure["numbers"]

    assert "machines_all" not in str(cpus(without))
    # 16 CPUs for 2 GPUs.
    assert "'machines_all': {'value': 8.0" in str(cpus(within))


def test_a_path_that_leads_nowhere_is_one_sentence(call: Call, tmp_path: Path) -> None:
    assert "there is no such file" in call("trace", "report", tmp_path / "no.csv").error
    assert "no pai_task_table.csv" in call("trace", "report", tmp_path).error


def test_a_page_that_cannot_be_written_is_one_sentence(
    call: Call, trace: Path, tmp_path: Path
) -> None:
    error = call("trace", "report", trace, "--out", tmp_path / "no" / "report.html").error

    assert "No such file or directory" in error
