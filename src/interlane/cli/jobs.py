"""Jobs of the live machine: ``submit run ps describe wait logs cancel resolve``."""

import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from interlane.cli.beside import beside_told
from interlane.cli.client import ApiClient, Failure, ServerOptions, job_path
from interlane.cli.options import takes
from interlane.cli.output import (
    OutputFormat,
    OutputOption,
    RawOption,
    as_shown,
    emit,
    grid,
    lines,
    say,
)
from interlane.model.errors import InvalidInput, Unreachable

OPEN: Final = ("queued", "starting", "running", "stopping", "unknown")
NEVER_PLACED: Final = 7
TIMED_OUT: Final = 124
LOOK_FIRST_S: Final = 0.05
LOOK_AT_MOST_S: Final = 1.0
TAIL_BYTES: Final = 1 << 16
CHUNK_BYTES: Final = 1 << 20
SHOWN_MAX: Final = 10_000
_LEFT_OUT: Final = ("spec", "beside_functions")

LiveJob = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, as `ps` shows it.")]
FileOption = Annotated[
    Path, typer.Option("-f", "--file", metavar="FILE", help="Job file (YAML); - reads stdin.")
]


@takes(ServerOptions)
def submit(
    file: FileOption,
    *,
    key: Annotated[
        str | None,
        typer.Option(help="Sent again with the same key, a job is submitted only once."),
    ] = None,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Hand in a job; once this returns, it is stored."""
    made = handed_in(ApiClient(options), job_in(file), key)
    emit(made, output, f"{made['id']} {made['state']}")


@takes(ServerOptions)
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What to run, after --.")
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="Memory of each GPU, as in 4GB; shares the GPU.")
    ] = None,
    expected: Annotated[str | None, typer.Option(help="How long it runs, as in 2h.")] = None,
    options: ServerOptions,
) -> None:
    """Hand in a command, show what it prints, and leave with its exit code."""
    import shlex

    gpu: dict[str, object] = {"count": gpus} | ({"memory": memory} if memory else {})
    job: dict[str, object] = {
        "name": name or _name_for(command[0]),
        "resources": {"gpu": gpu},
        "run": command[0] if len(command) == 1 else shlex.join(command),
        "workdir": str(Path.cwd()),
    }
    if expected:
        job["time"] = {"expected": expected}
    client = ApiClient(options)
    made = handed_in(client, job, None)
    say(f"{made['id']} {made['state']}")
    try:
        ended = _followed(client, made["id"], 0, raw=True)  # it is one's own
    except KeyboardInterrupt:
        client.delete(job_path(made["id"]))
        say(f"{made['id']} cancelled")
        raise
    raise typer.Exit(_code_of(ended))


@takes(ServerOptions)
def ps(
    *,
    everything: Annotated[
        bool, typer.Option("-A", "--all", help="Also jobs that have ended.")
    ] = False,
    user: Annotated[str | None, typer.Option("-u", "--user", help="Only this user's.")] = None,
    most: Annotated[
        int, typer.Option("-n", min=1, max=SHOWN_MAX, help="At most so many.")
    ] = 1_000,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List jobs, the newest first."""
    states = None if everything else OPEN
    found = list(ApiClient(options).jobs(most, state=states, user=user))
    now_s = time.time()
    rows = [_row(job, now_s) for job in found]
    head = ("job", "state", "user", "devices", "waited s", "ran s", "reason")
    told = grid(head, rows, left=4) if rows else "No jobs."
    emit({"jobs": found}, output, told)


@takes(ServerOptions)
def describe(
    job: LiveJob, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Show everything about a job, and what happened to it."""
    client = ApiClient(options)
    found = client.get(job_path(job)).document()
    timeline = client.get(f"{job_path(job)}/timeline").document()["entries"]
    found.pop("guess", None)  # the name of its estimate in the version before
    answer = {**found, "timeline": timeline}
    begin_s = found["submitted_s"]
    told = [f"  {entry['at_s'] - begin_s:>10,.1f} s  {entry['kind']}" for entry in timeline]
    shown = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    beside = beside_told("functions", found["beside_functions"])
    emit(answer, output, "\n".join([*lines(shown), *beside, "timeline:", *told]))


@takes(ServerOptions)
def wait(
    job: LiveJob,
    *,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Give up after so long.")
    ] = None,
    options: ServerOptions,
) -> None:
    """Wait until a job has ended, and leave with its exit code."""
    client = ApiClient(options)
    end_s = None if timeout is None else time.monotonic() + timeout
    pause_s = LOOK_FIRST_S
    while (found := client.get(job_path(job)).document())["state"] in OPEN:
        if end_s is not None and time.monotonic() + pause_s > end_s:
            raise Failure(f"Job {job} is still {found['state']}.", TIMED_OUT)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
    say(f"{found['id']} {found['state']}")
    raise typer.Exit(_code_of(found))


@takes(ServerOptions)
def logs(
    job: LiveJob,
    *,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Not only the last {TAIL_BYTES >> 10} KiB.")
    ] = False,
    raw: RawOption = False,
    options: ServerOptions,
) -> None:
    """Print what a job printed."""
    client = ApiClient(options)
    begin = 0 if everything else -TAIL_BYTES
    if follow:
        _followed(client, job, begin, raw=raw)
        return
    while (after := _print_from(client, job, begin, raw=raw).next) != begin:
        begin = after


@takes(ServerOptions)
def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
    *,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Take jobs back: out of the queue, or with their signal and grace if they run."""
    client = ApiClient(options)
    found = [client.delete(job_path(job)).document() for job in jobs]
    emit({"jobs": found}, output, "\n".join(f"{job['id']} {job['state']}" for job in found))


# -- leaves ---------------------------------------------------------------------------


def job_in(file: Path) -> dict[str, Any]:
    """Return the job of a file."""
    said = document_in(file, "job")
    if "workdir" not in said:
        said["workdir"] = str(Path.cwd())
    return said


def document_in(file: Path, what: str) -> dict[str, Any]:
    """Return the fields of a file."""
    import yaml

    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file} is not YAML: {error}") from None
    if not isinstance(said, dict):
        raise InvalidInput(
            f"{file} holds no {what}; it must begin with fields such as name: ..."
        )
    return said


def handed_in(client: ApiClient, job: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Hand in a job and return it; an answer that was lost is asked for again."""
    from secrets import token_hex

    headers = {"Idempotency-Key": key or token_hex(16)}
    try:
        return client.post("/jobs", job, headers).document()
    except Unreachable:
        time.sleep(LOOK_AT_MOST_S)
        return client.post("/jobs", job, headers).document()


def _followed(client: ApiClient, job: str, begin: int, *, raw: bool) -> dict[str, Any]:
    """Print what a job prints until it has ended; return the job."""
    pause_s = LOOK_FIRST_S
    while True:
        read = _print_from(client, job, begin, raw=raw)
        if read.next == begin:
            if read.state not in OPEN:
                return client.get(job_path(job)).document()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
        else:
            begin, pause_s = read.next, LOOK_FIRST_S


@dataclass(frozen=True, slots=True)
class _Read:
    """How far a log was read, and where its job stood then."""

    next: int
    state: str


def _print_from(client: ApiClient, job: str, begin: int, *, raw: bool) -> _Read:
    answer = client.get(f"{job_path(job)}/log", offset=begin, limit=CHUNK_BYTES)
    if answer.body:
        sys.stdout.write(as_shown(answer.body.decode(errors="replace"), raw=raw))
        sys.stdout.flush()
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return _Read(int(headers["x-next-offset"]), headers["x-job-state"])


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


def device_told(job: dict[str, Any]) -> str:
    """Return why a job that runs has not got its device yet; empty if it has."""
    if job["device_state"] != "queued":
        return ""
    return f"waits on its device: {job['device_why']}"


def _row(job: dict[str, Any], now_s: float) -> tuple[str, ...]:
    is_waiting = job["state"] == "queued"
    end_s = job["ended_s"] or now_s
    started_s = None if is_waiting else job["started_s"]
    waited_s = (started_s or end_s) - job["submitted_s"]
    ran_s = None if started_s is None else end_s - started_s
    gpus = {gpu for spot in job["placement"] or () for gpu in spot["gpus"]}
    return (
        job["id"],
        job["state"],
        job["user"],
        ",".join(str(gpu) for gpu in sorted(gpus)) or "-",
        f"{max(0.0, waited_s):,.0f}",
        "-" if ran_s is None else f"{max(0.0, ran_s):,.0f}",
        job["reason"] or device_told(job) or "",
    )
