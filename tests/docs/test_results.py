"""What README says is what the entries last gave."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from interlane.reproduce.catalogue import REPRODUCTIONS

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "docs" / "results"
WAITING = frozenset(
    {
        *("live-prewarm", "pai-reserve", "pai-sjf-paper", "share-beside"),
        *("smore-prewarm", "smore-utilisation"),
    }
)
"""Entries without a stored run: `interlane reproduce NAME --report docs/results` makes one."""
BASES = ("real trace", "public measurements", "this machine", "drawn", "fitted")


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rows_of_readme() -> list[list[str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("docs/generate.py: results -->")[2].partition("<!-- end -->")[0]
    lines = [line for line in table.strip().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


STORED_NAMES = sorted(set(REPRODUCTIONS) - WAITING)


def test_every_entry_has_a_stored_run_or_is_known_to_wait_for_one() -> None:
    missing = {name for name in REPRODUCTIONS if not (STORED / f"{name}.json").exists()}

    assert missing == WAITING


@pytest.mark.parametrize("name", STORED_NAMES)
def test_the_last_run_of_every_entry_is_stored(name: str) -> None:
    found = stored(name)

    assert found["name"] == name
    assert re.fullmatch(r"[0-9a-f]{12}\+?", found["commit"])
    assert date.fromisoformat(found["date"]) >= date(2026, 1, 1)
    assert found["held"] <= found["checked"]
    assert found["checked"] == sum(row["kind"] == "checked" for row in found["rows"])
    assert {row["kind"] for row in found["rows"]} <= {"checked", "figure", "calibrated"}


@pytest.mark.parametrize("name", STORED_NAMES)
def test_no_stored_run_fails_without_an_excuse_that_has_a_range(name: str) -> None:
    for row in stored(name)["rows"]:
        if row.get("holds") is False:
            assert row["excuse"]["low"] <= row["ours"] <= row["excuse"]["high"], row
        if row["kind"] == "checked":
            assert row["if_not"], row
        if row["kind"] == "calibrated":
            assert row["constant"], row


def test_readme_shows_real_traces_first_and_fitted_results_last() -> None:
    bases = [row[1] for row in rows_of_readme()]

    assert bases == sorted(bases, key=BASES.index)
    assert bases[0] == "real trace"
    assert {"drawn", "fitted"} < set(bases)


def test_readme_says_what_reserving_gives_at_the_published_load_beside_the_contended() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"published load by (\S+) % \(V100 tasks: (\S+) %\)", text)

    assert said is not None
    if "pai-reserve" in WAITING:
        page = " ".join((STORED / "pai-reserve.md").read_text(encoding="utf-8").split())
        told = rf"At the published load.*by {said[1]} % and that of V100 tasks by {said[2]} %"
        assert re.search(told, page)
        return
    ours = {
        row["what"].partition("seed 42: ")[2]: row["ours"]
        for row in stored("pai-reserve")["rows"]
    }
    for tasks, told in (("all", said[1]), ("V100", said[2])):
        assert ours[f"reserving: mean wait down, {tasks} tasks, %"] == float(told)


def test_readme_says_that_the_published_program_was_run_on_our_file() -> None:
    (sjf,) = [row for row in rows_of_readme() if row[-1] == "`interlane reproduce pai-sjf`"]

    assert "published *program*" in sjf[0]
    assert sjf[1] == "drawn"


def test_at_least_six_entries_on_real_traces_say_what_they_teach() -> None:
    taught = [
        name
        for name, entry in REPRODUCTIONS.items()
        if entry.teaches and entry.basis.value == "real trace"
    ]

    assert len(taught) >= 6
