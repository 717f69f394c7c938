"""Property tests draw the same cases every time, alone or after any others."""

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, str]]:
    """Return the cases of a property test, in order."""
    cases: list[tuple[int, str]] = []

    @settings(max_examples=1_000)
    @given(st.integers(), st.text())
    def draw(number: int, word: str) -> None:
        cases.append((number, word))

    draw()
    return cases


def test_cases_do_not_depend_on_what_other_tests_have_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    constants = [f"N{n}, W{n} = {n * 1_000_003}, 'word {n}'" for n in range(200, 400)]
    (tmp_path / "imported_later.py").write_text("\n".join(constants))
    monkeypatch.syspath_prepend(tmp_path)

    assert importlib.import_module("imported_later").W300 == "word 300"

    assert len(before) == 1_000
    assert drawn() == before
