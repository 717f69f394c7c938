"""``interlane ps``: jobs in a list, with what they ask for, why they wait and until when."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.listing import (
    CLEAR,
    ListColumn,
    ListFormat,
    Listing,
    ListOption,
    NoHeadersOption,
    Row,
    state_told,
)
from interlane.cli.moments import NONE, length, soon
from interlane.cli.options import takes
from interlane.cli.output import harmless
from interlane.model.errors import InvalidInput

OPEN: Final = ("held", "queued", "starting", "running", "stopping", "unknown")
ENDED: Final = ("succeeded", "failed", "cancelled", "refused")
SHOWN_MAX: Final = 10_000


class StateFilter(StrEnum):
    """States of jobs that can be asked for."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True)  # without slots, so that a command can have other options, too
class JobFilter:
    """Which jobs are meant."""

    user: Annotated[str | None, typer.Option("-u", "--user", help="Only this user's.")] = None
    name: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Only of such a name, as in 'train*'.")
    ] = None
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None
    status: Annotated[
        list[StateFilter] | None,
        typer.Option("-s", "--status", help="Only in this state; repeatable."),
    ] = None

    def means(self, job: Row) -> bool:
        """Tell whether a job is meant, by what the server does not filter."""
        has_name = self.name is None or fnmatchcase(job["name"], self.name)
        return has_name and self.queue in (None, job["queue"])

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for."""
        return any((self.user, self.name, self.queue, self.status))


@dataclass(frozen=True, slots=True)
class PsOptions(JobFilter, ServerOptions):
    """Which jobs are listed, and whose server is asked."""


def found_jobs(
    client: ApiClient, wanted: JobFilter, states: tuple[str, ...] | None, **query: object
) -> Iterator[dict[str, Any]]:
    """Yield the jobs that a filter means, the newest first."""
    among = tuple(one.value for one in wanted.status) if wanted.status else states
    for job in client.pages(sys.maxsize, state=among, user=wanted.user, **query):
        if wanted.means(job):
            yield job


class SortBy(StrEnum):
    """By what jobs are sorted."""

    NEWEST = "newest"
    OLDEST = "oldest"
    QUEUE = "line"
    NAME = "name"
    USER = "user"
    STATE = "state"
    PRIORITY = "priority"
    WAITED = "waited"
    RAN = "ran"


@takes(PsOptions)
def ps(
    *,
    everything: Annotated[
        bool, typer.Option("-A", "--all", help="Also jobs that have ended.")
    ] = False,
    most: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=SHOWN_MAX, help="At most so many.")
    ] = 1_000,
    sort: Annotated[
        SortBy, typer.Option("--sort", help="By what; 'line' is who goes first.")
    ] = SortBy.NEWEST,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Show it again every two seconds.")
    ] = False,
    no_headers: NoHeadersOption = False,
    options: PsOptions,
    output: ListOption = ListFormat.TABLE,
) -> None:
    """List jobs: what they ask for, why they wait and when they are likely to start.

    Examples:
      interlane ps
      interlane ps --user ann --status queued --sort line
      interlane ps -A --name 'train*' -o wide
      interlane cancel $(interlane ps --status queued -o name)
    """
    _must_be_folder(options.state)
    client = ApiClient(options)
    is_told = output is not ListFormat.NAME
    while True:
        states = None if everything else OPEN
        asked = found_jobs(client, options, states, **({"why": True} if is_told else {}))
        now_s = time.time()
        rows = sorted(islice(asked, most), key=_KEYS[sort](now_s))
        listing = Listing("jobs", _columns(now_s), rows, "No jobs.")
        if not watch or not sys.stdout.isatty():
            listing.show(output, no_headers=no_headers)
            return
        shown = listing.table(output is ListFormat.WIDE, no_headers=no_headers)
        typer.echo(f"{CLEAR}{harmless(shown)}")
        time.sleep(2.0)


def _must_be_folder(state: Path | None) -> None:
    """Help those who ask for a state of jobs, as elsewhere, and name the server's folder."""
    is_status = str(state) in {one.value for one in StateFilter}
    if state is not None and is_status and not state.is_dir():
        raise InvalidInput(
            f"--state names the server's folder; for jobs that are {state}, say "
            f"'--status {state}'."
        )


# -- columns --------------------------------------------------------------------------


def waited_s(job: Row, now_s: float) -> float:
    """Return how long a job has waited for its present or last start."""
    end_s = job["ended_s"] or now_s
    is_waiting = job["state"] in ("queued", "held")
    started_s = None if is_waiting else job["started_s"]
    return max(0.0, float((started_s or end_s) - job["submitted_s"]))


def reason_told(job: Row, *, whole: bool = False) -> str:
    """Return why a job stands where it does; in a few words, unless all is wanted."""
    waiting = job.get("waiting")
    if job["state"] == "queued" and waiting is not None and waiting["tier"] is not None:
        behind = f" behind {waiting['blocked_by']}" if waiting["blocked_by"] else ""
        short = f"{waiting['tier']}{behind}"
        return f"{short}: {waiting['why']}" if whole else short
    return str(job["reason"] or device_told(job))


def device_told(job: Row) -> str:
    """Return why a job that runs has not got its device yet; empty if it has."""
    if job["device_state"] != "queued":
        return ""
    return f"waits on its device: {job['device_why']}"


def devices_told(job: Row) -> str:
    """Return on which devices a job is."""
    spots = job["placement"] or ()
    machines = {spot["machine"] for spot in spots}
    if len(machines) > 1:
        return ",".join(f"{one['machine']}:{'/'.join(map(str, one['gpus']))}" for one in spots)
    gpus = {gpu for spot in spots for gpu in spot["gpus"]}
    return ",".join(str(gpu) for gpu in sorted(gpus)) or NONE


def _ran_s(job: Row) -> float | None:
    return job["ran_s"] if job["ran_s"] or job["state"] in ("running", "stopping") else None


def _start_s(job: Row) -> float | None:
    waiting = job.get("waiting")
    return None if waiting is None else waiting["start_p50_s"]


def _columns(now_s: float) -> tuple[ListColumn, ...]:
    def plain(head: str, key: str, **how: bool) -> ListColumn:
        return ListColumn(head, lambda job: str(job[key]), lambda job: job[key], **how)

    def spans(head: str, of: Callable[[Row], float | None]) -> ListColumn:
        return ListColumn(head, lambda job: length(of(job)), of, is_right=True)

    return (
        plain("job", "id"),
        ListColumn("state", lambda job: state_told(job["state"]), lambda job: job["state"]),
        plain("user", "user"),
        plain("queue", "queue", is_wide=True),
        ListColumn(
            "prio", lambda job: str(job["priority"]), lambda job: job["priority"], is_right=True
        ),
        plain("request", "request"),
        ListColumn("devices", devices_told, devices_told),
        spans("waited", lambda job: waited_s(job, now_s)),
        spans("ran", _ran_s),
        ListColumn(
            "starts in", lambda job: soon(_start_s(job), now_s), _start_s, is_right=True
        ),
        ListColumn("reason", reason_told, lambda job: reason_told(job, whole=True)),
        ListColumn("details", _details, lambda job: job["exit_code"], is_wide=True),
    )


def _details(job: Row) -> str:
    return reason_told(job, whole=True) if job["state"] == "queued" else ""


_Key = Callable[[Mapping[str, Any]], Any]

_KEYS: Final[Mapping[SortBy, Callable[[float], _Key]]] = {
    SortBy.NEWEST: lambda now_s: lambda job: -job["submitted_s"],
    SortBy.OLDEST: lambda now_s: lambda job: job["submitted_s"],
    SortBy.QUEUE: lambda now_s: _place_in_line,
    SortBy.NAME: lambda now_s: lambda job: job["name"],
    SortBy.USER: lambda now_s: lambda job: job["user"],
    SortBy.STATE: lambda now_s: lambda job: [*OPEN, *ENDED].index(job["state"]),
    SortBy.PRIORITY: lambda now_s: lambda job: -job["priority"],
    SortBy.WAITED: lambda now_s: lambda job: -waited_s(job, now_s),
    SortBy.RAN: lambda now_s: lambda job: -job["ran_s"],
}


def _place_in_line(job: Row) -> tuple[bool, float]:
    """Return a key by which those stand first that go first."""
    place = (job.get("waiting") or {}).get("position")
    return place is None, place or job["submitted_s"]
