"""``interlane predict arrivals``: when functions will be asked, and what to keep warm."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.options import DataOption, ModelArgument, ModelOutOption, SkipOption
from interlane.cli.output import OutputFormat, OutputOption, emit, flat, grid, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.arrivals import ForecastSlot

app = typer.Typer(
    help="When functions will be asked: train, judge and apply forecasts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RequestsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="REQUESTS",
        help="When functions were asked: a CSV with a column timestamp and, if you have them, "
        "function and count; or a published trace.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="requests, azure2019, azure2021, servegen or genai; told from the file unless "
        "given.",
    ),
]
SlotOption = Annotated[
    float | None,
    typer.Option(
        "--slot",
        metavar="SECONDS",
        help="Width of the slots in which requests are counted.",
        show_default="the trace's own, else 60",
    ),
]
LeastOption = Annotated[
    int, typer.Option("--least", min=0, help="Leave out functions with fewer requests.")
]
ModelOption = Annotated[
    str, typer.Option("--model", help="trees (ours) or ls-lstm (SMore's; needs torch).")
]

HEADINGS: Final = {
    "cold_rate": "cold rate",
    "waste": "waste",
    "waste_at_its_cold_rate": "waste at its cold rate",
    "cold_rate_at_its_waste": "cold rate at its waste",
    "cost_at_2": "cost 2",
    "cost_at_10": "cost 10",
    "cost_at_30": "cost 30",
}
"""Figure -> its heading, in the order of the table."""


@app.command()
def train(
    requests: RequestsArgument,
    *,
    out: ModelOutOption,
    model: ModelOption = "trees",
    slot: SlotOption = None,
    least: LeastOption = 0,
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
) -> None:
    """Learn when the functions of a trace are asked, and write what was learned to a file."""
    from interlane.usecases import arrivals
    from interlane.usecases.traces import TraceFile

    found = arrivals.train(
        TraceFile(requests, fmt, skip_bad, data),
        out,
        model=model,
        counting=arrivals.Counting(slot, least),
        reporter=TERMINAL,
    )
    say(
        f"{out}: {model}, learned from {found.slots:,} slots of {found.slot_s:g} s of "
        f"{found.functions:,} functions, sha256 {found.sha256[:16]}"
    )


@app.command()
def evaluate(
    requests: RequestsArgument,
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="trees (ours), ls-lstm (SMore's; needs torch and minutes); repeatable. The "
            "rules that everybody knows are always shown beside.",
            show_default="trees",
        ),
    ] = None,
    known: Annotated[
        float,
        typer.Option(
            "--known", help="Part of each function's slots to learn from; the rest is judged."
        ),
    ] = 0.7,
    slot: SlotOption = None,
    least: LeastOption = 0,
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Judge rules and forecasts on the part of a trace that they have not seen.

    A slot with requests that finds its function cold counts as cold, a warm slot without any
    as wasted.  "Its" cold rate and waste are those of keeping warm for 10 slots.  The cost
    is wasted slots plus so many for each cold start, per slot.
    """
    from interlane.usecases import arrivals
    from interlane.usecases.traces import TraceFile

    found = arrivals.evaluate(
        TraceFile(requests, fmt, skip_bad, data),
        models=model or (),
        known=known,
        counting=arrivals.Counting(slot, least),
        reporter=TERMINAL,
    )
    rows = [
        [kind, *(flat(_cell(figures.get(figure))) for figure in HEADINGS)]
        for kind, figures in found.policies.items()
    ]
    head = (
        f"{found.trace}: {found.judged_functions} of {found.functions} functions judged, "
        f"{found.judged_slots:,} slots of {found.slot_s:g} s"
    )
    short = {kind: _short(figures) for kind, figures in found.policies.items()}
    answer = {**asdict(found), "policies": short}
    emit(answer, output, f"{head}\n\n{grid(['policy', *HEADINGS.values()], rows)}")


@app.command()
def forecast(
    requests: RequestsArgument,
    model: ModelArgument,
    *,
    weight: Annotated[
        float,
        typer.Option(
            "--weight", min=0.0, help="Idle slots that a cold start is worth: decides warm."
        ),
    ] = 10.0,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=10_000, help="Slots that are told.")
    ] = 1,
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Tell for the slots after a trace which functions will be asked and should be warm."""
    from interlane.usecases import arrivals
    from interlane.usecases.traces import TraceFile

    found = arrivals.forecast(
        TraceFile(requests, fmt, skip_bad, data),
        model,
        weight=weight,
        slots=slots,
        reporter=TERMINAL,
    )
    functions = {
        name: {**_slot(coming[0]), "slots": list(map(_slot, coming))}
        for name, coming in found.functions.items()
    }
    answer = {"model": found.model, "slot_s": found.slot_s, "weight": weight}
    rows = [
        [
            name,
            *([f"+{ahead}"] if slots > 1 else []),
            f"{one.chance:.4f}",
            f"{one.count:,.1f}",
            "warm" if one.is_warm else "-",
        ]
        for name, coming in found.functions.items()
        for ahead, one in enumerate(coming, 1)
    ]
    heads = ["function", *(["slot"] if slots > 1 else []), "chance", "count if asked", "keep"]
    emit({**answer, "functions": functions}, output, grid(heads, rows))


def _slot(one: "ForecastSlot") -> dict[str, float | bool]:
    return {
        "chance": round(one.chance, 4),
        "count": round(one.count, 2),
        "warm": one.is_warm,
    }


def _short(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in figures.items()}


def _cell(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
