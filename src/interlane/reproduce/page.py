"""One page and one JSON file about all entries; the first line says what holds."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from interlane.reproduce.base import Kind, Row
from interlane.reproduce.result import Result, summary
from interlane.reproduce.stored import together

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem; color: #1c2530; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dde3ea;
  vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.no { background: #fbe3e4; } .excused { background: #fff4d6; } .figure, .calibrated
  { color: #5c6875; }
p.teaches { border-left: 3px solid #7aa6c9; padding-left: .8rem; }
"""


def write_report(results: Sequence[Result], folder: Path) -> Path:
    """Write ``report.html`` and ``report.json`` and return where the page is."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(together(results), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(f"{text}\n", encoding="utf-8")
    path = folder / "report.html"
    path.write_text("\n".join(_page(results)), encoding="utf-8")
    return path


def _page(results: Sequence[Result]) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f"<title>{escape(summary(results))}</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{escape(summary(results))}</h1>"
    yield (
        "<p>A <b>checked</b> row could fail; a <b>figure</b> is shown and never counted; a "
        "<b>calibrated</b> row is near because a constant was set from what was published.</p>"
    )
    yield "<table><tr><th>entry</th><th>rests on</th><th>holds</th><th>seconds</th></tr>"
    for one in results:
        link = f'<a href="#{one.entry.name}">{one.entry.name}</a>'
        yield (
            f"<tr{_marked('no' if one.fails else '')}><td>{link}</td>"
            f"<td>{escape(one.entry.basis.value)}</td><td>{escape(one.verdict)}</td>"
            f'<td class="number">{one.took_s:,.0f}</td></tr>'
        )
    yield "</table>"
    for one in results:
        yield from _entry(one)
    yield "</body></html>"


def _entry(result: Result) -> Iterator[str]:
    entry = result.entry
    yield f'<h2 id="{entry.name}">{entry.name}: {escape(result.verdict)}</h2>'
    yield f"<p>{escape(entry.claim)}</p>"
    if entry.teaches:
        yield f'<p class="teaches">{escape(entry.teaches)}</p>'
    if not result.rows:
        return
    heads = ("what", "kind", "rests on", "holds", "ours", "published", "note")
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for row in result.rows:
        yield _line(row, result)
    yield "</table>"


def _line(row: Row, result: Result) -> str:
    basis = row.basis or result.entry.basis
    words = (row.what, row.kind.value, basis.value, _holds(row))
    told = "".join(f"<td>{escape(word)}</td>" for word in words)
    numbers = "".join(
        f'<td class="number">{escape(_shown(one))}</td>' for one in (row.ours, row.published)
    )
    return (
        f"<tr{_marked(_class(row))}>{told}{numbers}<td>{escape(_note(row, result))}</td></tr>"
    )


def _holds(row: Row) -> str:
    if row.holds is None:
        return "-"
    return "excused" if row.is_excused else "yes" if row.holds else "no"


def _class(row: Row) -> str:
    if row.holds is False:
        return "excused" if row.is_excused else "no"
    return "" if row.kind is Kind.CHECKED else row.kind.value


def _note(row: Row, result: Result) -> str:
    if row.is_excused and row.excuse is not None:
        return f"{row.excuse.why} (known: {row.excuse.low:g} to {row.excuse.high:g})"
    if row.kind is Kind.CALIBRATED:
        return f"set by {row.constant}"
    if row.kind is Kind.CHECKED:
        return f"if not: {row.if_not or result.entry.if_not}"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _marked(name: str) -> str:
    return f' class="{name}"' if name else ""
