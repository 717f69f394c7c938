import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.cli.compare import LEGEND
from interlane.cli.output import grid
from interlane.cli.reproduce import filled
from interlane.policy.catalogue import ORDERS, PLACERS, QUEUES

Call = Callable[..., Any]


PAIR = ("--policy", "order=fifo,placer=first-fit", "--policy", "order=srtf")


def test_compare_gives_the_same_on_one_core_and_on_two(
    call: Call, trace: Path, lab: Path
) -> None:
    words = ("compare", trace, "--cluster", lab, *PAIR, "-o", "json")

    answers = [json.loads(call(*words, "--processes", n).out) for n in (1, 2)]
    for answer in answers:
        for run in answer["runs"]:
            del run["cpu_s"], run["load_s"], run["compile_s"]

    assert answers[0] == answers[1]
    names = [run["policy"] for run in answers[0]["runs"]]
    assert names == ["fifo/first-fit/skip", "srtf(oracle)/pack/skip"]
    assert answers[0]["leads"]["mean_jct_s"] == ["srtf(oracle)/pack/skip"]


def test_compare_marks_who_leads_in_each_column_and_calls_nobody_best(
    call: Call, trace: Path, lab: Path
) -> None:
    said = call("compare", trace, "--cluster", lab, *PAIR, "--processes", 1)

    head, fifo, srtf, legend = said.out.splitlines()
    assert head.startswith("policy")
    assert (fifo.count("*133"), srtf.count("*97")) == (0, 1)
    assert legend == LEGEND
    assert "\x1b" not in said.out


def test_compare_has_policies_of_its_own(call: Call, trace: Path, lab: Path) -> None:
    said = call("compare", trace, "--cluster", lab, "--processes", 1, "-o", "json")

    assert len({run["policy"] for run in json.loads(said.out)["runs"]}) == 6


def test_policies_are_listed_with_a_sentence_each(call: Call) -> None:
    known = json.loads(call("policies", "-o", "json").out)

    assert set(known["orders"]) >= set(ORDERS)
    assert set(known["placers"]) >= set(PLACERS)
    assert set(known["queues"]) == set(QUEUES)
    assert all(about.endswith(".") for names in known.values() for about in names.values())
    assert "fgd" in call("policies").out


def test_reproductions_are_listed(call: Call) -> None:
    listed = json.loads(call("reproduce", "--list", "-o", "json").out)

    assert {"pai-fifo-1000", "pai-sjf"} <= set(listed)
    assert "pai-sjf" in call("reproduce", "--list").out
    assert call("reproduce", "--list", "pai-sjf").out.startswith("pai-sjf: ")
    assert call("reproduce", "pai-sjf", "--list").out.startswith("pai-sjf: ")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--list"], ["--list="]),
        (["--list", "-o", "json"], ["--list=", "-o", "json"]),
        (["name", "--list", "other"], ["name", "--list", "other"]),
        ([], []),
    ],
)
def test_list_may_stand_alone(given: list[str], meant: list[str]) -> None:
    assert filled(given) == meant


def test_the_version_is_printed(call: Call) -> None:
    assert call("version").out.count(".") == 2


def test_help_is_shown_when_nothing_is_asked(call: Call) -> None:
    said = call()

    assert "Usage" in said.err + said.out


def test_a_grid_aligns_words_left_and_numbers_right() -> None:
    assert grid(["what", "n"], [["a", "10"], ["bcdef", "7"]]) == (
        "what    n\na      10\nbcdef   7"
    )


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from interlane import cli\n"
        "for words in (['--help'], ['simulate', '--help'], ['reproduce', '--help']):\n"
        "    cli.run(words)\n"
        "heavy = {'numpy', 'polars', 'numba', 'yaml', 'rich', 'interlane.model.nouns'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert b"--cluster" in done.stdout


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -m interlane policies | true; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, text=True)

    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "1")


def test_the_demo_compares_six_policies_on_a_day(call: Call) -> None:
    said = call("demo", "--simulated", "--processes", 1, "-o", "json")

    answer = json.loads(said.out)
    waits_s = {run["policy"]: run["mean_wait_s"] for run in answer["runs"]}
    assert len(waits_s) == 6
    assert min(waits_s.values()) < waits_s["fifo/first-fit/strict"]
    assert "What to see" in said.err
    # Rounding once made the kernel ask for the same step in rank for ever on this trace.
    assert next(run for run in answer["runs"] if run["order"] == "las")["preemptions"] > 0


def test_compare_over_seeds_marks_nobody_whose_lead_is_luck(
    call: Call, trace: Path, lab: Path
) -> None:
    words = ("compare", trace, "--cluster", lab, *PAIR, "--seeds", 4, "--processes", 1)

    answer = json.loads(call(*words, "-o", "json").out)

    assert answer["seeds"] == 4
    first, second = answer["runs"]
    assert {"mean", "low", "high"} <= set(first["mean_jct_s"])
    assert first["mean_jct_s"]["low"] <= first["mean_jct_s"]["high"]
    # One of the two is told beside the other, with how likely so large a lead is by chance.
    others = [run["mean_jct_s"] for run in (first, second) if "p_value" in run["mean_jct_s"]]
    assert len(others) <= 1
    for one in others:
        clear = answer["best"]["mean_jct_s"] is not None
        assert clear == (one["p_value"] < 0.05)
    assert "4 draws of the trace" in call(*words).out


def test_all_results_are_reproduced_into_one_page_and_one_file(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "interlane.reproduce."
    few = {
        "salus-inference": (f"{where}salus", "INFERENCE"),
        "sharing-classes": (f"{where}real_sharing", "SHARING_CLASSES"),
    }
    monkeypatch.setattr("interlane.reproduce.catalogue._WHERE", few)
    nowhere = tmp_path / "nothing"
    nowhere.mkdir()

    said = call("reproduce", "--all", "--report", tmp_path, "--data", nowhere)

    first = said.out.splitlines()[0]
    assert first.startswith("6 of 6 checked rows of 2 entries hold. Not run: sharing-classes")
    assert said.code == 1
    page = (tmp_path / "report.html").read_text()
    assert page.index("6 of 6 checked rows") < page.index("salus-inference")
    report = json.loads((tmp_path / "report.json").read_text())
    assert next(iter(report)) == "summary"
    kinds = {row["kind"] for row in report["entries"][0]["rows"]}
    assert kinds == {"checked", "figure"}
    stored = json.loads((tmp_path / "salus-inference.json").read_text())
    assert {"commit", "date", "rows"} <= set(stored)


def test_results_go_on_where_they_ended_and_run_again_what_has_changed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "interlane.reproduce."
    few = {
        "salus-inference": (f"{where}salus", "INFERENCE"),
        "salus-hpo": (f"{where}salus", "TUNING"),
    }
    monkeypatch.setattr("interlane.reproduce.catalogue._WHERE", few)
    words = ("reproduce", "--all", "--report", tmp_path, "--resume")
    call("reproduce", "salus-inference", "--report", tmp_path)

    said = call(*words)

    assert "1 of 2, salus-inference: 6 of 6 checked rows hold" in said.err
    assert "Kept, run at" in said.err
    assert "2 of 2, salus-hpo: 4 of 4 checked rows hold" in said.err
    assert said.err.count("Kept") == 1
    path = tmp_path / "salus-hpo.json"
    path.write_text(path.read_text().replace('"code": "', '"code": "other-'))

    said = call(*words)

    assert "before its code changed; run again" in said.err
    assert said.err.count("Kept") == 1
    assert said.out.startswith("10 of 10 checked rows of 2 entries hold.")


def test_resuming_needs_a_folder_of_results(call: Call) -> None:
    said = call("reproduce", "--all", "--resume")

    assert said.code == 2
    assert "--report DIR" in said.err
