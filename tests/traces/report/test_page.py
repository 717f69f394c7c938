"""The page stands alone, and nothing that a trace says can act in it."""

import json
import re
from html.parser import HTMLParser

import plotly.graph_objects as go  # type: ignore[import-untyped, unused-ignore]

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure
from interlane.traces.report.page import render
from interlane.traces.report.quality import QualityFinding
from interlane.traces.report.report import Report, report_on
from interlane.traces.report.tables import TraceTables

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"
VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Collects what a page would load, and checks that its tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data"):
                self.loads.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def plots_of(text: str) -> dict[str, dict[str, object]]:
    found = re.search(r'id="plots">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    plots: dict[str, dict[str, object]] = json.loads(found[1])
    return plots


def test_the_page_loads_nothing_and_every_link_leads_into_it(tables: TraceTables) -> None:
    page = Page(render(report_on(tables)))

    assert page.handlers == []
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.loads)
    assert page.scripts == 3


def test_every_plot_is_one_that_plotly_accepts_and_has_a_place(tables: TraceTables) -> None:
    text = render(report_on(tables))

    plots = plots_of(text)

    assert set(plots) <= set(Page(text).ids)
    assert len(plots) > 15
    for plot in plots.values():
        go.Figure(plot)


def test_every_sentence_and_number_is_on_the_page(tables: TraceTables) -> None:
    report = report_on(tables)

    text = " ".join(Page(render(report)).text)

    for figure in report.figures:
        assert figure.sentence in text
        assert all(name in text for name in figure.numbers)


def test_a_hostile_name_stays_a_name() -> None:
    plot = Plot("x", "y", (PlotCurve(HOSTILE, [HOSTILE], [1.0]),), bars=True)
    figure = ReportFigure(
        "k", HOSTILE, HOSTILE, {HOSTILE: Number(1.0, HOSTILE)}, (plot,), (HOSTILE,)
    )
    report = Report(
        {"name": HOSTILE}, (figure,), (QualityFinding(HOSTILE, HOSTILE, 1, 1, HOSTILE),)
    )

    text = render(report)
    page = Page(text)

    assert page.scripts == 3
    assert page.handlers == []
    assert all(link.startswith("#") for link in page.loads)
    assert HOSTILE in " ".join(page.text)
    # Plotly reads tags in labels, so that it must get none.
    (drawn,) = plots_of(text).values()
    assert "<" not in json.dumps(drawn)
