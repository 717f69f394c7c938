"""``interlane explain`` and ``interlane timeline``: one job, live or of a simulated run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli.client import ApiClient, ServerOption, ServerOptions, StateOption, job_path
from interlane.cli.options import RunOptions, TraceOption, run_in, takes
from interlane.cli.output import OutputFormat, OutputOption, emit
from interlane.cli.progress import TERMINAL
from interlane.cli.questions import why_told
from interlane.model.errors import InvalidInput

if TYPE_CHECKING:
    from interlane.usecases.simulate import Explained

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
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say why a job waits: the refusal that decided, and who goes first.

    Asks the live server; with --trace and --at, a simulated run at a moment.
    """
    if (trace is None) != (at is None):
        raise InvalidInput("--trace and --at go together; give both or neither.")
    if trace is None or at is None:
        found = ApiClient(ServerOptions(server, state)).get(f"{job_path(job)}/why").document()
        emit(found, output, why_told(found))
    else:
        _explain_simulated(job, trace, at, options, output)


def _explain_simulated(
    job: str, trace: Path, at: float, options: RunOptions, output: OutputFormat
) -> None:
    from interlane.usecases import simulate

    found = simulate.explain(run_in(options, trace), job, at, reporter=TERMINAL)
    answer = {"job": job, "at_s": at, "policy": found.policy, **_events(found)}
    emit(answer, output, _told(job, at, found))


def _events(explained: "Explained") -> dict[str, object]:
    found = explained.status
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


def _told(job: str, at_s: float, explained: "Explained") -> str:
    found = explained.status
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
            return f"{moment} waits, {since}.\n{found.refusal}\n{_queue_told(found.ahead)}"


def _lacking_told(lacking: int) -> str:
    if not lacking:
        return ""
    lacks = f"{lacking} more instance{'s' * (lacking != 1)}"
    return f"\nIt could use {lacks} and gets them when there is room that nobody waits for."


def _queue_told(ahead: Sequence[str]) -> str:
    first = ", ".join(ahead[:AHEAD_SHOWN])
    more = " ..." if len(ahead) > AHEAD_SHOWN else ""
    return f"Ahead of it: {len(ahead)} ({first}{more})." if ahead else "It goes first."


@takes(RunOptions)
def timeline(
    job: JobArgument,
    *,
    trace: TraceOption,
    options: RunOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Tell one job's life: submitted, waited, started where, grew, stopped, finished."""
    from dataclasses import asdict

    from interlane.usecases import simulate

    found = simulate.timeline(run_in(options, trace), job, reporter=TERMINAL)
    answer = {
        "job": job,
        "policy": found.policy,
        "moments": [asdict(moment) for moment in found.moments],
        **found.totals,
    }
    told = [f"{moment.at_s:>12,.0f} s  {moment.what}" for moment in found.moments]
    told.append(
        f"{found.totals['total_s']:>12,.0f} s  in all: waited {found.totals['waited_s']:,.0f} "
        f"s, ran {found.totals['ran_s']:,.0f} s"
    )
    emit(answer, output, "\n".join(told))
