"""Render a report as one HTML page that needs nothing else: no network, no other file.

Whatever comes from the trace is escaped: as HTML in the text, and once more in what plotly
draws, because plotly reads a little HTML in labels.  The page forbids itself to load anything
(Content-Security-Policy), so that a hostile name could not call home even if it got through.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from interlane.model import InvalidInput
from interlane.traces.report.figure import Number, Plot, ReportFigure
from interlane.traces.report.quality import QualityFinding
from interlane.traces.report.report import Report

COLOURS: Final = ("#2a6fdb", "#e07a2f", "#2f9e63", "#b3449a", "#8a8f98", "#c9a227")

POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)

_STYLE: Final = """
:root { color-scheme: light dark; --back: #ffffff; --card: #f6f7f9; --text: #1c2024;
  --soft: #5b6470; --line: #d9dde3; --warn: #b4540a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1d2126;
  --text: #e6e8eb; --soft: #9aa4b0; --line: #343a42; --warn: #f0a35e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .3rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem; margin: 1rem 0; }
nav { font-size: .9rem; } nav a { color: inherit; margin-right: .8rem; white-space: nowrap;
  display: inline-block; }
p.missing, .soft { color: var(--soft); font-size: .9rem; } .warn { color: var(--warn); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
  gap: .5rem; }
.plot { height: 20rem; min-width: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; color: var(--soft); margin-top: .5rem; }
"""

_SCRIPT: Final = """
const plots = JSON.parse(document.getElementById('plots').textContent);
const dark = window.matchMedia('(prefers-color-scheme: dark)');
function draw() {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue('--text').trim();
  const line = style.getPropertyValue('--line').trim();
  for (const [id, plot] of Object.entries(plots)) {
    const layout = structuredClone(plot.layout);
    layout.font = {color: text, size: 12};
    for (const axis of [layout.xaxis, layout.yaxis]) {
      axis.gridcolor = line; axis.zerolinecolor = line;
    }
    Plotly.react(id, plot.data, layout, {responsive: true, displaylogo: false,
      displayModeBar: false});
  }
}
draw();
dark.addEventListener('change', draw);
"""


def render(report: Report) -> str:
    """Return the page."""
    name = str(report.trace["name"])
    plots = {
        f"{figure.key}-{place}": _plotted(plot)
        for figure in report.figures
        for place, plot in enumerate(figure.plots)
    }
    body = [
        f"<h1>Workload report: {escape(name)}</h1>",
        _sizes(report),
        _navigation(report.figures),
        _quality(report.quality),
        *(_section(figure) for figure in report.figures),
        f'<script type="application/json" id="plots">{_embedded(plots)}</script>',
        f"<script>{_plotly()}</script>",
        f"<script>{_SCRIPT}</script>",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Workload report: {escape(name)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InvalidInput(
            "The page needs plotly, which is not installed; install interlane[report], or "
            "write only the numbers with --json."
        ) from None
    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _embedded(value: object) -> str:
    """Return JSON that cannot end the script it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sizes(report: Report) -> str:
    counts = [
        f"{value:,} {name}"
        for name, value in report.trace.items()
        if isinstance(value, int) and value
    ]
    return f'<p class="soft">{escape(", ".join(counts))}</p>'


def _navigation(figures: Iterable[ReportFigure]) -> str:
    links = [f'<a href="#{figure.key}">{escape(figure.title)}</a>' for figure in figures]
    return f'<nav><a href="#quality">Data quality</a>{"".join(links)}</nav>'


def _quality(findings: Sequence[QualityFinding]) -> str:
    if not findings:
        text = (
            "<p>Every row could be read, every key joins, and no time contradicts another.</p>"
        )
        return f'<section id="quality"><h2>Data quality</h2>{text}</section>'
    rows = "".join(
        f"<tr><td>{escape(one.table)}</td><td>{escape(one.what)}</td>"
        f'<td class="n">{one.rows:,}</td><td class="n">{one.of:,}</td>'
        f"<td>{escape(one.example)}</td></tr>"
        for one in findings
    )
    head = (
        '<tr><th>table</th><th>what is wrong</th><th class="n">rows</th>'
        '<th class="n">of</th><th>seen</th></tr>'
    )
    return (
        f'<section id="quality"><h2 class="warn">Data quality: {len(findings)} findings</h2>'
        "<p>Damaged rows are left out of the figures; all else is used as far as it goes.</p>"
        f'<div class="wide"><table>{head}{rows}</table></div></section>'
    )


def _section(figure: ReportFigure) -> str:
    plots = "".join(
        f'<div class="plot" id="{figure.key}-{place}"></div>'
        for place in range(len(figure.plots))
    )
    missing = (
        f'<p class="missing">Missing in this trace: {escape(", ".join(figure.missing))}.</p>'
        if figure.missing and figure.numbers
        else ""
    )
    return (
        f'<section id="{figure.key}"><h2>{escape(figure.title)}</h2>'
        f"<p>{escape(figure.sentence)}</p>{missing}"
        f'<div class="plots">{plots}</div>{_table(figure)}</section>'
    )


def _table(figure: ReportFigure) -> str:
    if not figure.numbers:
        return ""
    rows = "".join(_row(name, number) for name, number in figure.numbers.items())
    head = (
        '<tr><th>number</th><th class="n">this trace</th><th class="n">paper</th><th></th></tr>'
    )
    return (
        f"<details><summary>{len(figure.numbers)} numbers</summary>"
        f'<div class="wide"><table>{head}{rows}</table></div></details>'
    )


def _row(name: str, number: Number) -> str:
    paper = "" if number.paper is None else f"{number.paper_says} {number.paper:,.6g}".strip()
    value = "none" if number.value is None else f"{number.value:,.4g}"
    if number.value is not None and abs(number.value) >= 1000:
        value = f"{number.value:,.0f}"
    return (
        f'<tr><td>{escape(name)}</td><td class="n">{value}</td>'
        f'<td class="n">{escape(paper)}</td><td>{escape(number.unit)}</td></tr>'
    )


def _plotted(plot: Plot) -> dict[str, object]:
    """Return a plot as plotly takes it."""
    data: list[dict[str, object]] = []
    for place, curve in enumerate(plot.curves):
        colour = COLOURS[place % len(COLOURS)]
        drawn: dict[str, object] = {
            "name": escape(curve.name),
            "x": [escape(x) if isinstance(x, str) else x for x in curve.x],
            "y": list(curve.y),
        }
        if plot.bars:
            drawn |= {"type": "bar", "marker": {"color": colour}}
        else:
            drawn |= {"type": "scatter", "mode": "lines", "line": {"color": colour, "width": 2}}
        data.append(drawn)
    return {"data": data, "layout": _layout(plot)}


def _layout(plot: Plot) -> dict[str, object]:
    x_axis: dict[str, object] = {"title": {"text": escape(plot.x_title)}, "automargin": True}
    y_axis: dict[str, object] = {"title": {"text": escape(plot.y_title)}, "automargin": True}
    if plot.x_log:
        x_axis["type"] = "log"
    elif plot.bars:
        x_axis["type"] = "category"
    if plot.y_log:
        y_axis["type"] = "log"
    else:
        y_axis["rangemode"] = "tozero"
    return {
        "xaxis": x_axis,
        "yaxis": y_axis,
        "margin": {"l": 50, "r": 10, "t": 10, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": len(plot.curves) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "barmode": "group",
    }
