"""Questions to the live machine: ``eta`` and ``plan``."""

from typing import Any, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions, job_path
from interlane.cli.jobs import NEVER_PLACED, FileOption, LiveJob, device_told, job_in
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit

NOT_NOW: Final = 6
_EXIT: Final = {"starts now": 0, "waits": NOT_NOW, "never": NEVER_PLACED}


@takes(ServerOptions)
def eta(
    job: LiveJob, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Say when a job is likely to start, by playing what is known forward."""
    found = ApiClient(options).get(f"{job_path(job)}/eta").document()
    emit(found, output, _eta_told(found))


@takes(ServerOptions)
def plan(
    file: FileOption, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Say whether a job would start now, where and beside whom; changes nothing.

    Exit code 0 if it would, 6 if it would wait, 7 if it could never run.
    """
    found = ApiClient(options).post("/plan", job_in(file)).document()
    emit(found, output, _plan_told(found))
    raise typer.Exit(_EXIT[found["answer"]])


def why_told(found: dict[str, Any]) -> str:
    """Return why a job waits, as people read it."""
    moment = f"Job {found['id']}"
    if found["state"] != "queued":
        because = f": {found['reason']}" if found["reason"] else "."
        waits = device_told(found)
        return f"{moment} is {found['state']}{f', {waits}' if waits else because}"
    first = ", ".join(found["ahead"])
    more = " ..." if found["ahead_count"] > len(found["ahead"]) else ""
    ahead = (
        f"Ahead of it: {found['ahead_count']} ({first}{more})." if first else "It goes first."
    )
    return f"{moment} waits.\n{found['tier']}: {found['why']} {found['remedy']}\n{ahead}"


def _eta_told(found: dict[str, Any]) -> str:
    if found["state"] != "queued":
        return f"Job {found['id']} is {found['state']}; it does not wait."
    if found["p50_s"] is None:
        return f"Job {found['id']} waits; nothing that is known would let it start."
    low_s, p50_s, p90_s, high_s = (
        max(0.0, found[name] - found["now_s"]) for name in ("low_s", "p50_s", "p90_s", "high_s")
    )
    return (
        f"Job {found['id']} starts in {p50_s:,.0f} s as likely as not, and in {p90_s:,.0f} s "
        f"nine times in ten; hardly before {low_s:,.0f} s or after {high_s:,.0f} s.\n"
        f"This rests on: {found['because']}."
    )


def _plan_told(found: dict[str, Any]) -> str:
    if found["answer"] != "starts now":
        word = "would wait" if found["answer"] == "waits" else "can never run here"
        return f"It {word}.\n{found['tier']}: {found['why']} {found['remedy']}"
    gpus = ", ".join(
        f"{spot['machine']} GPU {'/'.join(map(str, spot['gpus'])) or '-'}"
        for spot in found["placement"]
    )
    beside = f", beside {', '.join(found['beside'])}" if found["beside"] else ", alone"
    told = f"It would start now on {gpus}{beside}."
    if not found["beside"] or found["slowdown"] is None:
        return told
    theirs = ", ".join(
        f"{job} to {slower:.2f}" for job, slower in found["beside_slowdown"].items()
    )
    return (
        f"{told}\nPredicted slowdown while all of them train: {found['slowdown']:.2f}; "
        f"it slows {theirs}."
    )
