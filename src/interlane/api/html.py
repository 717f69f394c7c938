"""Tables for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape

from interlane.usecases.simulate import COLUMNS, figure_text


def summary_table(title: str, summary: Mapping[str, object]) -> str:
    """Return the figures of one run."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(COLUMNS[figure])}</th>"
        f"<td style='text-align:right'>{_cell(figure, summary[figure])}</td></tr>"
        for figure in COLUMNS
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def compared_table(
    summaries: Sequence[Mapping[str, object]], leads: Mapping[str, Sequence[str]]
) -> str:
    """Return one row per policy; who leads in a column is bold."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("policy", *COLUMNS.values()))
    rows = []
    for summary in summaries:
        policy = str(summary["policy"])
        cells = [
            f"<b>{_cell(figure, summary[figure])}</b>"
            if policy in leads.get(figure, ())
            else _cell(figure, summary[figure])
            for figure in COLUMNS
        ]
        told = "".join(f"<td style='text-align:right'>{cell}</td>" for cell in cells)
        rows.append(f"<tr><td>{escape(policy)}</td>{told}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _cell(figure: str, value: object) -> str:
    return escape(figure_text(figure, value)) if isinstance(value, int | float) else "-"
