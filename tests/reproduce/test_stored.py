"""Runs that are kept: what they say when they are read again, and when they are out of date."""

import ast
import json
from pathlib import Path

import pytest

from interlane.reproduce import source, stored
from interlane.reproduce.base import (
    Basis,
    Excuse,
    Kind,
    Reproduction,
    Row,
    Setting,
    calibrated,
    checked,
    figure,
)
from interlane.reproduce.catalogue import REPRODUCTIONS, where
from interlane.reproduce.result import Result, run, run_or_say

ROWS = [
    checked("a", 1.5, 2, holds=True, if_not="a would be wrong"),
    checked("b", 7.0, "< 3", holds=False, excuse=Excuse("known", 6.0, 8.0)),
    checked("c", 9, None, holds=False),
    figure("d", "2 to 3", 4),
    calibrated("e", 5, 5, near=True, constant="E"),
    Row("f", 1, 2, Kind.CALIBRATED, holds=False, constant="F", decides=False),
]


def an_entry(name: str = "salus-inference") -> Reproduction:
    return Reproduction(
        name, "a claim", "all", lambda setting: list(ROWS), basis=Basis.DRAWN, teaches="much"
    )


def ran(name: str = "salus-inference") -> Result:
    return run(an_entry(name), Setting(None, 3))


def test_a_run_that_is_kept_says_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    result = ran()
    stored.store(result, tmp_path)

    found = stored.read(tmp_path, "salus-inference")

    assert found is not None
    again = stored.restored(found, result.entry)
    assert again.document() == result.document()
    assert again.verdict == result.verdict
    assert [row.fails for row in again.rows] == [row.fails for row in result.rows]


def test_nothing_is_left_of_a_run_that_was_not_written_whole(tmp_path: Path) -> None:
    stored.store(ran(), tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["salus-inference.json"]


def test_a_variant_does_not_take_the_place_of_the_entry(tmp_path: Path) -> None:
    result = run(an_entry(), Setting(None, 3, choice="real"))

    assert stored.store(result, tmp_path).name == "salus-inference-real.json"
    assert stored.read(tmp_path, "salus-inference") is None


def test_entries_that_cost_little_come_first_and_those_that_never_ran_last(
    tmp_path: Path,
) -> None:
    for name, took_s in (("pai-sjf", 100.0), ("fgd-openb", 5.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"took_s": took_s}))

    assert stored.cheapest_first(["pai-figures", "pai-sjf", "fgd-openb"], tmp_path) == [
        "fgd-openb",
        "pai-sjf",
        "pai-figures",
    ]


@pytest.mark.parametrize("kind", [AssertionError, ValueError, OSError])
def test_an_entry_that_cannot_run_says_why_and_others_go_on(kind: type[Exception]) -> None:
    def broken(setting: Setting) -> list[Row]:
        raise kind("a job has no end")

    result = run_or_say(Reproduction("x", "a", "b", broken), Setting(None, 1))

    assert result.fails
    assert "a job has no end" in result.verdict


# -- out of date ----------------------------------------------------------------------------

MODULE = '''
"""Rows."""
from interlane.reproduce.base import checked
from interlane.reproduce.other import bar

LIMIT = 3
UNUSED = 1


def _run(setting):
    """Return rows."""
    return [checked("a", bar(), LIMIT, bar() < LIMIT)]


def _alone():
    return 5


ENTRY = Reproduction("an-entry", _run)
'''
OTHER = """
def bar():
    from interlane.reproduce.third import twice

    return twice(4)


def unused():
    return 0
"""
THIRD = "def twice(number):\n    return 2 * number\n"


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return module -> its source, which fingerprints are taken of."""
    texts = {"module": MODULE, "other": OTHER, "third": THIRD}
    monkeypatch.setattr(source, "where", lambda name: ("interlane.reproduce.module", "ENTRY"))
    monkeypatch.setattr(source, "_tree", lambda module: ast.parse(texts[module]))
    return texts


def code() -> str:
    source._definitions.cache_clear()
    source._imported.cache_clear()
    try:
        return source.fingerprint("an-entry")
    finally:
        source._definitions.cache_clear()
        source._imported.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("module", "LIMIT = 3", "LIMIT = 4"),
        ("module", "bar() < LIMIT", "bar() > LIMIT"),
        ("module", '"an-entry"', '"an-entry", "another claim"'),
        ("other", "twice(4)", "twice(5)"),
        ("third", "2 * number", "number + number"),
    ],
)
def test_a_run_is_out_of_date_when_what_made_it_has_changed(
    sources: dict[str, str], module: str, old: str, new: str
) -> None:
    before = code()

    sources[module] = sources[module].replace(old, new)

    assert code() != before


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("module", '"""Return rows."""', '"""Return all rows."""'),
        ("module", "LIMIT = 3", "# Three is enough.\nLIMIT = (\n    3\n)"),
        ("module", "UNUSED = 1", "UNUSED = 2"),
        ("module", "return 5", "return 6"),
        ("other", "return 0", "return 1"),
    ],
)
def test_a_run_is_not_out_of_date_for_words_or_for_what_it_does_not_use(
    sources: dict[str, str], module: str, old: str, new: str
) -> None:
    before = code()

    sources[module] = sources[module].replace(old, new)

    assert code() == before


def test_a_run_of_the_code_that_is_there_is_not_stale() -> None:
    document = {**stored.stored(ran("fgd-openb"))}

    assert not stored.is_stale(document)
    assert stored.is_stale({**document, "code": "0123456789abcdef"})
    assert stored.is_stale({key: document[key] for key in document if key != "code"})


def test_every_entry_has_a_fingerprint_of_its_own_code() -> None:
    names = {name: where(name)[0].rpartition(".")[2] for name in REPRODUCTIONS}
    for name, module in names.items():
        reached = source._reached((module, where(name)[1]))
        assert any(one[0] == module and one[1].startswith("_") for one in reached), name
    assert len({source.fingerprint(name) for name in REPRODUCTIONS}) == len(names)
