"""``interlane simulate``: play one trace under one policy."""

from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.live_trace import DaysOption, FromLiveOption, MaybeTrace, played
from interlane.cli.options import RunOptions, experiments_in, takes
from interlane.cli.output import Output, OutputOption, emit, say
from interlane.cli.progress import progress


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
    output: OutputOption = Output.TABLE,
) -> None:
    """Play a trace on a cluster under one policy and print the figures."""
    from interlane.sim.experiment import run
    from interlane.sim.record import check_target, write_log

    if log is not None:
        check_target(log)
    with played(trace, options, from_live=from_live, days=days) as (path, settings):
        (experiment,) = experiments_in(settings, path)
    with progress(experiment.choice.name, experiment.jobs) as tell:
        result = run(experiment, tell)
    if log is not None:
        write_log(result.log, log)
        say(f"{log}: {len(result.log)} events")
    if result.refused:
        number, refusal = next(iter(result.log.refusals.items()))
        say(f"refused: {result.refused}, the first {result.log.jobs[number].id}: {refusal}")
    emit(result.summary, output)
