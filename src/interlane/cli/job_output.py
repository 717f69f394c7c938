"""``interlane logs``: what jobs printed, and what they print while they run."""

import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import Answer, ApiClient, ServerOptions, job_path
from interlane.cli.completion import LiveJob
from interlane.cli.options import takes
from interlane.cli.output import RawOption, as_shown
from interlane.cli.ps import OPEN

LOOK_FIRST_S: Final = 0.05
LOOK_AT_MOST_S: Final = 1.0
TAIL_BYTES: Final = 1 << 16
CHUNK_BYTES: Final = 1 << 20


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
    tail: Annotated[
        int | None,
        typer.Option("-n", "--tail", metavar="LINES", min=0, help="Only so many last lines."),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of this attempt.", show_default="the last"),
    ] = None,
    raw: RawOption = False,
    options: ServerOptions,
) -> None:
    """Print what a job printed.

    Examples:
      interlane logs train-7 -f
      interlane logs train-7 -n 20
    """
    client = ApiClient(options)
    begin = 0 if everything else -TAIL_BYTES
    if tail is not None:
        begin = _print_tail(client, job, tail, raw=raw, attempt=attempt)
    if follow:
        followed(client, job, begin, raw=raw, attempt=attempt)
        return
    while (after := _print_from(client, job, begin, raw=raw, attempt=attempt).next) != begin:
        begin = after


def followed(
    client: ApiClient, job: str, begin: int, *, raw: bool, attempt: int | None = None
) -> dict[str, Any]:
    """Print what a job prints until it has ended; return the job."""
    pause_s = LOOK_FIRST_S
    while True:
        read = _print_from(client, job, begin, raw=raw, attempt=attempt)
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


def _print_tail(
    client: ApiClient, job: str, lines: int, *, raw: bool, attempt: int | None
) -> int:
    """Print the last lines; return where to go on."""
    query = {"offset": -TAIL_BYTES, "limit": CHUNK_BYTES, "attempt": attempt}
    answer = client.get(f"{job_path(job)}/log", **query)
    kept = answer.body.splitlines(keepends=True)[-lines:] if lines else []
    sys.stdout.write(as_shown(b"".join(kept).decode(errors="replace"), raw=raw))
    return _read_to(answer).next


def _print_from(
    client: ApiClient, job: str, begin: int, *, raw: bool, attempt: int | None
) -> _Read:
    query = {"offset": begin, "limit": CHUNK_BYTES, "attempt": attempt}
    answer = client.get(f"{job_path(job)}/log", **query)
    if answer.body:
        sys.stdout.write(as_shown(answer.body.decode(errors="replace"), raw=raw))
        sys.stdout.flush()
    return _read_to(answer)


def _read_to(answer: Answer) -> _Read:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return _Read(int(headers["x-next-offset"]), headers["x-job-state"])
