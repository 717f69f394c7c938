"""Jobs of the live machine: ``submit run wait cancel resolve``."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import ApiClient, Failure, ServerOptions, job_path
from interlane.cli.completion import LiveJob, LiveJobs, open_jobs
from interlane.cli.job_files import (
    FilesArgument,
    FilesOption,
    FoundJob,
    Overrides,
    after_named,
    changed,
    files_of,
    jobs_in,
)
from interlane.cli.job_output import LOOK_AT_MOST_S, LOOK_FIRST_S, followed
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, say
from interlane.cli.ps import OPEN, JobFilter, found_jobs
from interlane.cli.terminal import SHELL, attended, window
from interlane.model.errors import InvalidInput, Rejected, Unreachable

NEVER_PLACED: Final = 7
TIMED_OUT: Final = 124


@dataclass(frozen=True, slots=True)
class SubmitOptions(Overrides, ServerOptions):
    """What is changed in the files, and who takes the jobs."""


@takes(SubmitOptions)
def submit(
    files: FilesArgument = None,
    *,
    named: FilesOption = None,
    key: Annotated[
        str | None,
        typer.Option(help="Sent again with the same key, a job is submitted only once."),
    ] = None,
    options: SubmitOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Submit the jobs of files; once this returns, they are stored.

    A job may name another of the same command by its name in `after`.  Exit code 7 if one of
    them can never run here; the others are submitted all the same.

    Examples:
      interlane submit train.yaml
      interlane submit train.yaml --name trial --gpus 2 --env SEED=7 --set time.limit=2h
      interlane submit train.yaml --array 0-99%8
      interlane submit evaluate.yaml --after train-7
      interlane submit script.sh
    """
    found = [job for file in files_of(files, named) for job in jobs_in(file)]
    if key is not None and len(found) > 1:
        raise InvalidInput(f"--key is for one job, and there are {len(found)}; leave it out.")
    jobs = [replace(job, document=changed(job.document, options)) for job in found]
    made = list(_submitted(ApiClient(options), jobs, key, output))
    if output is not OutputFormat.TABLE:
        emit(made[0] if len(made) == 1 else {"jobs": made}, output)
    refused = [job for job in made if job["state"] == "refused"]
    if refused:
        raise Rejected(" ".join(f"{job['id']} is refused. {job['reason']}" for job in refused))


@takes(SubmitOptions)
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="What to run, after --; with --pty a shell if not given.",
            show_default=False,
        ),
    ] = None,
    *,
    memory: Annotated[
        str | None, typer.Option(help="Memory of each GPU, as in 4GB; shares the GPU.")
    ] = None,
    expected: Annotated[str | None, typer.Option(help="How long it runs, as in 2h.")] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where it runs.", show_default="this folder"),
    ] = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Return once it is submitted.")
    ] = False,
    pty: Annotated[
        bool, typer.Option("--pty", help="Be at its terminal; the job ends when you leave.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --pty: it runs on when you leave; see attach.")
    ] = False,
    options: SubmitOptions,
) -> None:
    """Run a command as a job, show what it prints, and leave with its exit code.

    Examples:
      interlane run -- python train.py
      interlane run --gpus 2 --env SEED=7 --set time.limit=2h -- python train.py
      interlane run --memory 4GB --detach -- ./nightly.sh
      interlane run --pty                           # a shell on a device
    """
    import shlex

    command = _command(command, pty=pty, keep=keep)
    gpu: dict[str, object] = {"count": 1} | ({"memory": memory} if memory else {})
    job: dict[str, object] = {
        "name": "shell" if command == [SHELL] else _name_for(command[0]),
        "resources": {"gpu": gpu},
        "run": command[0] if len(command) == 1 else shlex.join(command),
        "workdir": str((workdir or Path.cwd()).absolute()),
    }
    if expected:
        job["time"] = {"expected": expected}
    if pty:
        job["terminal"] = {**window(), "keep": keep}
        job["env"] = {"TERM": os.environ.get("TERM", "xterm")}
    client = ApiClient(options)
    made = handed_in(client, changed(job, options), None)
    if detach:
        emit(made, OutputFormat.TABLE, f"{made['id']} {made['state']}")
        return
    say(f"{made['id']} {made['state']}")
    try:
        if pty:
            raise typer.Exit(attended(client, made["id"]))
        ended = followed(client, made["id"], 0, raw=True)  # it is one's own
    except KeyboardInterrupt:
        with suppress(Failure):  # it may have ended with the line to its terminal
            client.delete(job_path(made["id"]))
        say(f"{made['id']} cancelled")
        raise
    raise typer.Exit(_code_of(ended))


def _command(command: list[str] | None, *, pty: bool, keep: bool) -> list[str]:
    """Return what is run: a shell at a terminal, if nothing was said."""
    if keep and not pty:
        raise InvalidInput("--keep is for --pty: other jobs run on in any case.")
    if command:
        return command
    if not pty:
        raise InvalidInput("There is no command; give one after --, or --pty for a shell.")
    return [SHELL]


@takes(ServerOptions)
def wait(
    jobs: Annotated[
        list[str],
        typer.Argument(metavar="JOB...", help="Ids of jobs.", autocompletion=open_jobs),
    ],
    *,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Give up after so long.")
    ] = None,
    options: ServerOptions,
) -> None:
    """Wait until jobs have ended, and leave with the first exit code that is not 0.

    Examples:
      interlane wait train-7
      interlane wait $(interlane ps --name 'trial*' -o name) --timeout 3600
    """
    client = ApiClient(options)
    end_s = None if timeout is None else time.monotonic() + timeout
    codes = [_code_of(_awaited(client, job, end_s)) for job in jobs]
    raise typer.Exit(next((code for code in codes if code), 0))


def _awaited(client: ApiClient, job: str, end_s: float | None) -> dict[str, Any]:
    """Return a job once it has ended."""
    pause_s = LOOK_FIRST_S
    while (found := client.get(job_path(job)).document())["state"] in OPEN:
        if end_s is not None and time.monotonic() + pause_s > end_s:
            raise Failure(f"Job {job} is still {found['state']}.", TIMED_OUT)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
    say(f"{found['id']} {found['state']}")
    return found


@dataclass(frozen=True, slots=True)
class CancelOptions(JobFilter, ServerOptions):
    """Which jobs are cancelled, and whose server is asked."""


@takes(CancelOptions)
def cancel(
    jobs: LiveJobs = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All of your own that have not ended.")
    ] = False,
    options: CancelOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Cancel jobs: out of the queue at once, or with their signal and grace if they run.

    Examples:
      interlane cancel train-7 train-8
      interlane cancel --name 'trial*' --status queued
      interlane cancel --user ann
    """
    if bool(jobs) == (everything or options.is_set):
        raise InvalidInput("Name jobs, or say which: --all, --name, --user, --queue, --status.")
    client = ApiClient(options)
    chosen = list(jobs or _chosen(client, options))
    found = [client.delete(job_path(job)).document() for job in chosen]
    told = "\n".join(f"{job['id']} {job['state']}" for job in found)
    emit({"jobs": found}, output, told or "No jobs.")


def _chosen(client: ApiClient, wanted: JobFilter) -> Iterator[str]:
    """Yield the ids of the jobs that are meant: one's own, unless another user is named."""
    me = wanted.user or client.get("/whoami").document()["name"]
    for job in found_jobs(client, replace(wanted, user=me), OPEN):
        yield job["id"]


# -- leaves ---------------------------------------------------------------------------


def _submitted(
    client: ApiClient, jobs: Sequence[FoundJob], key: str | None, output: OutputFormat
) -> Iterator[dict[str, Any]]:
    """Submit jobs one by one, and show each at once; name the file of one that is wrong."""
    ids: dict[str, str] = {}
    for job in jobs:
        if job.ignored:
            say(f"{job.where}: {', '.join(job.ignored)} means nothing here and is left out.")
        try:
            made = handed_in(client, after_named(job.document, ids), key)
        except Failure as error:
            raise Failure(f"{job.where}: {error}", error.exit_code) from None
        ids[made["name"]] = made["id"]
        for note in made.get("notes", ()):
            say(f"{made['id']}: {note}")
        if output is OutputFormat.TABLE:
            emit(made, output, f"{made['id']} {made['state']}{_array_told(made)}")
        yield made


def _array_told(job: dict[str, Any]) -> str:
    count, (name, _, first) = job["array_count"], job["id"].rpartition("-")
    return f" (array of {count}, to {name}-{int(first) + count - 1})" if count else ""


def handed_in(client: ApiClient, job: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Hand in a job and return it; an answer that was lost is asked for again."""
    from secrets import token_hex

    headers = {"Idempotency-Key": key or token_hex(16)}
    try:
        return client.post("/jobs", job, headers).document()
    except Unreachable:
        time.sleep(LOOK_AT_MOST_S)
        return client.post("/jobs", job, headers).document()


def _code_of(job: dict[str, Any]) -> int:
    """Return the exit code that tells how a job ended: its own where it has one."""
    if job["state"] == "refused":
        say(f"interlane: {job['reason']}")
        return NEVER_PLACED
    if job["exit_code"] is not None:
        return int(job["exit_code"])
    return 0 if job["state"] == "succeeded" else 1


class Decision(StrEnum):
    """What has become of a job of which the server cannot tell."""

    REQUEUE = "requeue"
    FAIL = "fail"


@takes(ServerOptions)
def resolve(
    job: LiveJob,
    how: Annotated[
        Decision,
        typer.Argument(help="requeue if its attempt is over and it may run again, else fail."),
    ],
    *,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Decide about an unknown job, which another server began and may run still.

    Look on that server's host first: whoever requeues a job that runs there runs it twice.
    """
    path = f"{job_path(job)}/resolution/{how.value}"
    found = ApiClient(options).put(path).document()
    emit(found, output, f"{found['id']} is {found['state']}")


def _name_for(word: str) -> str:
    """Return a job name for a command."""
    import re

    stem = Path(word.split()[0]).name.lower() if word.split() else ""
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:40] or "job"
