"""Sweeps in a real browser: the list, the curves and the best of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from interlane.live.auth import Role

from .conftest import Machine, Open


def swept(machine: Machine, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "interlane", "sweep", "--name", name, *words]
    env = {
        **os.environ,
        "INTERLANE_SERVER": machine.url,
        "INTERLANE_TOKEN": machine.tokens[Role.USER],
    }
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_sweep_is_listed_and_its_best_curve_is_marked(
    machine: Machine, open_page: Open, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nfor e in range(4):\n"
        "    print('loss', (float(sys.argv[1]) - 3) ** 2 + 1 / (e + 1))\n"
    )
    words = ("--set", "lr=1..4", "--gpus", "0.25", "--metric", "loss", "-o", "json")
    done = swept(machine, "shown", *words, "--", sys.executable, str(script), "{lr}")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["best"]["job"]

    page = open_page("/sweeps", Role.VIEWER)
    row = page.get_by_role("row", name="shown")
    expect(row).to_contain_text("4 of 4")
    expect(row).to_contain_text("lr=3")
    row.get_by_role("link", name="shown").click()

    expect(page.get_by_role("heading", name="shown", level=1)).to_be_visible()
    curves = page.get_by_role("img", name="loss of every trial over its reports")
    expect(curves.locator("path.line.faint")).to_have_count(3)
    expect(curves.locator("path.line.first")).to_have_count(1)
    expect(page.get_by_text("trial 2, the best")).to_be_visible()
    expect(page.get_by_role("link", name=best).first).to_be_visible()


def test_a_sweep_that_nobody_began_is_told_of(machine: Machine) -> None:
    with machine.browserlike(Role.VIEWER) as viewer:
        answer = viewer.get("/sweeps/none")

    assert answer.status_code == 404
    assert "There is no sweep" in answer.text
