"""The page in a real browser: every plot is drawn, and nothing goes wrong on the way."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from interlane.traces.report.page import render
from interlane.traces.report.report import report_on
from interlane.traces.report.tables import TraceTables

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), "")

pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium here; `make test` installs it")


def opened(page: str, folder: Path) -> tuple[str, list[str]]:
    """Return what a page has become in a browser, and what it said on the console."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    words = [
        BROWSER,
        *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000"),
        *("--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, said


def test_every_plot_is_drawn_without_a_word_on_the_console(
    tables: TraceTables, tmp_path: Path
) -> None:
    report = report_on(tables)

    dom, said = opened(render(report), tmp_path)

    plots = sum(len(figure.plots) for figure in report.figures)
    assert said == []
    assert plots > 20
    assert len(re.findall(r'class="plot js-plotly-plot"', dom)) == plots
    # Three layers a plot, the first of which holds what was plotted.
    assert len(re.findall(r'<svg class="main-svg"', dom)) == 3 * plots
    assert len(re.findall(r'class="(?:trace scatter|trace bars)', dom)) >= plots


def test_a_script_that_fails_is_noticed(tables: TraceTables, tmp_path: Path) -> None:
    page = render(report_on(tables)).replace("\ndraw();", "\ndrew();")

    _, said = opened(page, tmp_path)

    assert any("drew is not defined" in line for line in said)
