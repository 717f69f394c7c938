"""``interlane compare``: play one trace under several policies, on all cores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.live_trace import DaysOption, FromLiveOption, MaybeTrace, played
from interlane.cli.options import ProcessesOption, RunOptions, run_in, takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, strong
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.simulate import ComparedOften, ComparedPolicies

LEGEND: Final = "* leads in this one run; --seeds 10 tells whether by more than luck"


@takes(RunOptions)
def compare(
    trace: MaybeTrace = None,
    *,
    from_live: FromLiveOption = False,
    days: DaysOption = 7.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTS",
            help="A policy, as in 'order=sjf,placer=fgd,queue=easy,estimate=group_dur' or "
            "'order=fifo,elastic=0.5'; parts left out come from --order, --placer and so on; "
            "repeatable.",
            show_default="six from plain to clever",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Play so many draws of the trace and show 95 % intervals; a policy is marked "
            "best only where its paired differences from all others are clear.",
        ),
    ] = 1,
    options: RunOptions,
    processes: ProcessesOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Play a trace under several policies and mark who leads in each figure.

    One run is one draw: who leads is called best only where --seeds shows that it is more
    than luck.
    """
    from interlane.usecases import simulate

    with played(trace, options, from_live=from_live, days=days) as (path, settings):
        run = run_in(settings, path)
        if seeds > 1:
            told = simulate.compare_often(
                run, seeds, policy or (), processes, reporter=TERMINAL
            )
            emit(told.document, output, _often(told))
            return
        found = simulate.compare(run, policy or (), processes, reporter=TERMINAL)
    show(found, output)


def _often(told: "ComparedOften") -> str:
    """Lay means and half-widths out, one row per policy."""
    from interlane.usecases.simulate import COLUMNS, FUNCTION_COLUMNS, figure_text

    names = {**COLUMNS, **FUNCTION_COLUMNS}
    head = ["policy", *(names[figure] for figure in told.figures)]
    rows = []
    for number, policy in enumerate(told.policies):
        cells = []
        for figure, each in told.figures.items():
            found = each[number].interval
            mean, half = figure_text(figure, found.mean), figure_text(figure, found.half_width)
            text = f"{mean} ± {half}"
            is_best = told.winners[figure] == number
            cells.append(strong(f"*{text}") if is_best else text)
        rows.append([policy, *cells])
    said = f"{told.seeds} draws of the trace, mean and 95 % interval"
    return grid(head, rows) + f"\n{said}; * best of its column beyond doubt (paired, p < 0.05)"


def show(found: "ComparedPolicies", output: OutputFormat) -> None:
    """Print policies side by side."""
    emit(found.document, output, _table(found.runs, found.winners))


def _table(runs: Sequence[dict[str, object]], winners: dict[str, list[int]]) -> str:
    from interlane.usecases.simulate import columns_of

    columns = columns_of(runs[0])
    head = ["policy", *columns.values()]
    rows = []
    for number, run in enumerate(runs):
        cells = [
            _cell(figure, run[figure], is_best=number in winners.get(figure, ()))
            for figure in columns
        ]
        rows.append([str(run["policy"]), *cells])
    return grid(head, rows) + f"\n{LEGEND}"


def _cell(figure: str, value: object, *, is_best: bool) -> str:
    from interlane.usecases.simulate import figure_text

    text = figure_text(figure, value) if isinstance(value, int | float) else "-"
    return strong(f"*{text}") if is_best else text
