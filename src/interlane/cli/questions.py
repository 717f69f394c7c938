"""Questions to the live machine: ``plan``, and why a job waits."""

from typing import Any, Final

import typer

from interlane.cli.client import ApiClient
from interlane.cli.job_files import FilesArgument, FilesOption, changed, files_of, one_job
from interlane.cli.jobs import NEVER_PLACED, SubmitOptions
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit
from interlane.cli.ps import device_told

NOT_NOW: Final = 6
_EXIT: Final = {"starts now": 0, "waits": NOT_NOW, "never": NEVER_PLACED}


@takes(SubmitOptions)
def plan(
    files: FilesArgument = None,
    *,
    named: FilesOption = None,
    options: SubmitOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say whether a job would start now, where and beside whom; changes nothing.

    Exit code 0 if it would, 6 if it would wait, 7 if it could never run.

    Examples:
      interlane plan train.yaml
      interlane plan train.yaml --gpus 2
    """
    job = changed(one_job(files_of(files, named)).document, options)
    found = ApiClient(options).post("/plan", job).document()
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
