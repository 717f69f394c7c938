"""``interlane predict arrivals``: when functions will be asked, and what to keep warm."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.options import DataOption, ModelArgument, ModelOutOption, SkipOption
from interlane.cli.output import Output, OutputOption, emit, flat, grid, say
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.predict.arrivals.forecast import Told
    from interlane.predict.arrivals.judge import Trial
    from interlane.predict.arrivals.series import Arrivals
    from interlane.predict.arrivals.store import Forecaster

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
    from interlane.predict.arrivals.store import Model, make_forecaster, save

    forecaster = make_forecaster(model)
    name, arrivals = _read(requests, fmt, data, slot, least, skip_bad=skip_bad)
    _fit(forecaster, arrivals, model)
    account = {
        "trace": name,
        "functions": len(arrivals),
        "slots": sum(len(one) for one in arrivals),
        "requests": float(sum(one.seen.sum() for one in arrivals)),
    }
    digest = save(Model(forecaster, arrivals.slot_s, account), out)
    say(
        f"{out}: {model}, learned from {account['slots']:,} slots of {arrivals.slot_s:g} s of "
        f"{account['functions']:,} functions, sha256 {digest[:16]}"
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge rules and forecasts on the part of a trace that they have not seen.

    A slot with requests that finds its function cold counts as cold, a warm slot without any
    as wasted.  "Its" cold rate and waste are those of keeping warm for 10 slots.  The cost
    is wasted slots plus so many for each cold start, per slot.
    """
    from interlane.predict.arrivals.evaluate import rules
    from interlane.predict.arrivals.judge import Trial
    from interlane.predict.arrivals.store import make_forecaster

    forecasters = {name: make_forecaster(name) for name in dict.fromkeys(model or ["trees"])}
    name, arrivals = _read(requests, fmt, data, slot, least, skip_bad=skip_bad)
    trial = Trial(arrivals, known)
    found = {rule: one.figures() for rule, one in rules(trial).items()}
    for kind, forecaster in forecasters.items():
        found[kind] = _judged(forecaster, trial, kind)
    answer: dict[str, object] = {
        "trace": name,
        "slot_s": arrivals.slot_s,
        "functions": len(arrivals),
        "judged_functions": len(trial.judged),
        "judged_slots": len(trial.active),
        "never_asked": sum(not one.active.any() for one in arrivals),
        "policies": {kind: _short(figures) for kind, figures in found.items()},
    }
    rows = [
        [kind, *(flat(_cell(figures.get(figure))) for figure in HEADINGS)]
        for kind, figures in found.items()
    ]
    head = (
        f"{name}: {answer['judged_functions']} of {len(arrivals)} functions judged, "
        f"{answer['judged_slots']:,} slots of {arrivals.slot_s:g} s"
    )
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell for the slots after a trace which functions will be asked and should be warm."""
    from interlane.predict.arrivals.forecast import next_slots
    from interlane.predict.arrivals.store import load

    found = load(model)
    _, arrivals = _read(requests, fmt, data, found.slot_s, 0, skip_bad=skip_bad)
    told = next_slots(found.forecaster, arrivals, slots)

    def shown(one: "Told") -> dict[str, float | bool]:
        return {
            "chance": round(one.chance, 4),
            "count": round(one.count, 2),
            "warm": one.chance * (1 + weight) > 1,
        }

    functions = {
        coming[0].function: {**shown(coming[0]), "slots": list(map(shown, coming))}
        for coming in told
    }
    answer = {"model": found.name, "slot_s": found.slot_s, "weight": weight}
    rows = [
        [
            one.function,
            *([f"+{ahead}"] if slots > 1 else []),
            f"{one.chance:.4f}",
            f"{one.count:,.1f}",
            "warm" if shown(one)["warm"] else "-",
        ]
        for coming in told
        for ahead, one in enumerate(coming, 1)
    ]
    heads = ["function", *(["slot"] if slots > 1 else []), "chance", "count if asked", "keep"]
    emit({**answer, "functions": functions}, output, grid(heads, rows))


def _read(
    path: Path,
    fmt: str | None,
    data: Path | None,
    slot_s: float | None,
    least: int,
    *,
    skip_bad: bool,
) -> "tuple[str, Arrivals]":
    """Read requests and count them; say what was left out."""
    from interlane import wiring
    from interlane.sim.requests import arrivals_of
    from interlane.traces.requests import read_requests

    found = read_requests(wiring.path_of(path, data), fmt=fmt, skip_bad=skip_bad)
    if found.bad.count:
        first = found.bad.rows[0]
        say(f"{path}: {found.bad.count} bad rows left out, the first line {first.line}: "
            f"{first.what}")  # fmt: skip
    return found.name, arrivals_of(found, slot_s).busy(least)


def _fit(forecaster: "Forecaster", arrivals: "Arrivals", name: str) -> None:
    from interlane.predict.arrivals.lslstm import LsLstm

    if not isinstance(forecaster, LsLstm):
        forecaster.fit(arrivals)
        return
    with progress(f"training {name}", forecaster.epochs, "epochs") as tell:
        forecaster.fit(arrivals, tell)


def _judged(forecaster: "Forecaster", trial: "Trial", name: str) -> dict[str, float]:
    from interlane.predict.arrivals import evaluate
    from interlane.predict.arrivals.lslstm import LsLstm

    _fit(forecaster, trial.arrivals.known(trial.part), name)
    if isinstance(forecaster, LsLstm):
        told = evaluate.told_by_ls_lstm(forecaster, trial)[0]
    else:
        told = evaluate.chances_of_trees(forecaster, trial)
    return evaluate.scored(trial, told).figures()


def _short(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in figures.items()}


def _cell(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
