"""The notebook of the examples runs from its first cell to its last, and shows something."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _shown(cell: str, names: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever a cell ends in
    """Run a cell as a notebook does; return what its last line comes to."""
    body = ast.parse(cell)
    end = body.body[-1]
    last = end if isinstance(end, ast.Expr) else None
    body.body = body.body[: len(body.body) - (last is not None)]
    exec(compile(body, "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_every_cell_runs_and_its_end_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jobs.csv", "lab.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "interlane.ipynb").read_text())
    names: dict[str, Any] = {"__name__": "__main__"}

    shown = [
        _shown(cell["source"], names)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]

    ends = [one for one in shown if one is not None]
    assert [type(one).__name__ for one in ends] == [
        "Simulation", "DataFrame", "Figure", "Comparison", "Figure", "DataFrame",
    ]  # fmt: skip
    assert all(one._repr_html_() for one in ends)
    assert ends[-1]["policy"].to_list() == ["fifo/pack/skip", "fifo/roomiest/skip"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])  # nothing that goes stale
