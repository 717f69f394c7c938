"""``interlane explain`` and ``interlane story``: one job, live or of a simulated run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.client import Client, ServerOption, ServerOptions, StateOption, job_path
from interlane.cli.options import RunOptions, TraceOption, experiments_in, takes
from interlane.cli.output import Output, OutputOption, emit
from interlane.cli.progress import progress
from interlane.cli.questions import why_told
from interlane.model.errors import InvalidInput

if TYPE_CHECKING:
    from interlane.sim.explain import Standing

AHEAD_SHOWN: Final = 10

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id in the trace.")]


@takes(RunOptions)
def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    *,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="TRACE", help="Ask about a simulated run of it."),
    ] = None,
    at: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When, in the trace's time.")
    ] = None,
    server: ServerOption = None,
    state: StateOption = None,
    options: RunOptions,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a job waits: the refusal that decided, and who goes first.

    Asks the live server; with --trace and --at, a simulated run at a moment.
    """
    if (trace is None) != (at is None):
        raise InvalidInput("--trace and --at go together; give both or neither.")
    if trace is None or at is None:
        found = Client(ServerOptions(server, state)).get(f"{job_path(job)}/why").document()
        emit(found, output, why_told(found))
    else:
        _explain_simulated(job, trace, at, options, output)


def _explain_simulated(
    job: str, trace: Path, at: float, options: RunOptions, output: Output
) -> None:
    from math import isfinite

    from interlane.model import InvalidField
    from interlane.sim.explain import standing

    if not isfinite(at):
        raise InvalidField("at", at, "it must be a number of seconds")
    (experiment,) = experiments_in(options, trace)
    with progress(experiment.choice.name, experiment.jobs) as tell:
        found = standing(experiment, job, at, tell)
    answer = {"job": job, "at_s": at, "policy": experiment.choice.name, **_facts(found)}
    emit(answer, output, _told(job, at, found))


def _facts(found: "Standing") -> dict[str, object]:
    refusal, placement = found.refusal, found.placement
    return {
        "state": found.state,
        "since_s": found.since_s,
        "tier": refusal.tier.label if refusal else None,
        "reason": refusal.reason if refusal else None,
        "remedy": refusal.remedy if refusal else None,
        "blocked_by": refusal.blocked_by if refusal else None,
        "ahead_count": len(found.ahead),
        "ahead": list(found.ahead[:AHEAD_SHOWN]),
        "machines": list(placement.machines) if placement else [],
        "lacking": found.lacking,
    }


def _told(job: str, at_s: float, found: "Standing") -> str:
    moment = f"At {at_s:,.0f} s job {job}"
    since = f"since {found.since_s:,.0f} s"
    match found.state:
        case "to come":
            return f"{moment} has not been submitted yet; it will be at {found.since_s:,.0f} s."
        case "finished":
            return f"{moment} has finished, {since}."
        case "running":
            assert found.placement is not None
            where = ", ".join(found.placement.machines)
            return f"{moment} runs, {since}, on {where}.{_lacking_told(found.lacking)}"
        case "refused":
            return f"{moment} is refused, {since}: {found.refusal}"
        case _:
            return f"{moment} waits, {since}.\n{found.refusal}\n{_queue_told(found)}"


def _lacking_told(lacking: int) -> str:
    if not lacking:
        return ""
    lacks = f"{lacking} more instance{'s' * (lacking != 1)}"
    return f"\nIt could use {lacks} and gets them when there is room that nobody waits for."


def _queue_told(found: "Standing") -> str:
    ahead = ", ".join(found.ahead[:AHEAD_SHOWN])
    more = " ..." if len(found.ahead) > AHEAD_SHOWN else ""
    return f"Ahead of it: {len(found.ahead)} ({ahead}{more})." if ahead else "It goes first."


@takes(RunOptions)
def story(
    job: JobArgument,
    *,
    trace: TraceOption,
    options: RunOptions,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell one job's life: submitted, waited, started where, grew, stopped, finished."""
    from dataclasses import asdict

    from interlane.metrics import story as stories
    from interlane.sim.experiment import engine_for, jobs_in, play
    from interlane.sim.explain import number_of

    (experiment,) = experiments_in(options, trace)
    jobs, true_s = jobs_in(experiment)
    number = number_of(jobs, job)
    with progress(experiment.choice.name, experiment.jobs) as tell:
        log = play(engine_for(experiment, jobs, true_s), progress=tell)
    moments, totals = stories.story(log, number), stories.totals(log, number)
    answer = {
        "job": job,
        "policy": experiment.choice.name,
        "moments": [asdict(moment) for moment in moments],
        **totals,
    }
    told = [f"{moment.at_s:>12,.0f} s  {moment.what}" for moment in moments]
    told.append(
        f"{totals['total_s']:>12,.0f} s  in all: waited {totals['waited_s']:,.0f} s, "
        f"ran {totals['ran_s']:,.0f} s"
    )
    emit(answer, output, "\n".join(told))
