"""``interlane simulate``: play one trace under one policy."""

from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.live_trace import DaysOption, FromLiveOption, MaybeTrace, played
from interlane.cli.options import RunOptions, run_in, takes
from interlane.cli.output import OutputFormat, OutputOption, emit, say
from interlane.cli.progress import TERMINAL


@takes(RunOptions)
def simulate(
    trace: MaybeTrace = None,
    *,
    from_live: FromLiveOption = False,
    days: DaysOption = 7.0,
    options: RunOptions,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the event log to this .parquet.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Play a trace on a cluster under one policy and print the figures."""
    from interlane.usecases.simulate import simulate as play

    with played(trace, options, from_live=from_live, days=days) as (path, settings):
        result = play(run_in(settings, path), log, reporter=TERMINAL)
    if log is not None:
        say(f"{log}: {result.events} events")
    if result.refused:
        say(f"refused: {result.refused}, the first {result.first_refused}")
    emit(result.summary, output)
