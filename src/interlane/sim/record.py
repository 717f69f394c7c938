"""The event log as a Parquet file, and back.

======================  ======================  ===========================================
column                  type                    meaning
======================  ======================  ===========================================
``at_s``                float                   when, in seconds of the trace
``event``                text                    what: submitted, started, grown, preempted,
                                                finished, refused, cancelled, job_lost,
                                                machine_lost, machine_returned,
                                                machine_joined, machine_changed,
                                                machine_drained, machine_undrained,
                                                machine_left, occupied
``job_id``              text                    whom, for events about jobs
``machine_id``          text                    which, for events about machines
``machines``            list of text            where a job started or grew, one entry a
                                                spot
``gpus``                list of lists of whole  numbers of the GPUs each instance of a spot
                        numbers                 uses; empty on pooled machines
``instances``           list of whole numbers   instances on each spot
``tasks``               list of whole numbers   number of the task of each spot
``in_favour_of``        text                    for whom a job was preempted
``tier``                text                    how fundamental a refusal is
``reason``, ``remedy``  text                    why, and what would change it; why a job was
                                                thrown back
``event``               text                    what happened to a machine, as an entry of a
                                                cluster file's ``events``, in JSON
======================  ======================  ===========================================

Columns that an event does not need are null.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from interlane.metrics.log import EventLog, LogEvent, LogLine
from interlane.model import (
    Cluster,
    InvalidField,
    InvalidFile,
    Job,
    MachineId,
    Placement,
    Refusal,
    Spot,
    Tier,
)
from interlane.traces.machine_events import TimedEvent, event_entry, events_of

SCHEMA: Final = pl.Schema(
    {
        "at_s": pl.Float64(),
        "fact": pl.String(),
        "job_id": pl.String(),
        "machine_id": pl.String(),
        "machines": pl.List(pl.String()),
        "gpus": pl.List(pl.List(pl.Int64())),
        "instances": pl.List(pl.Int64()),
        "tasks": pl.List(pl.Int64()),
        "in_favour_of": pl.String(),
        "tier": pl.String(),
        "reason": pl.String(),
        "remedy": pl.String(),
        "event": pl.String(),
    }
)
"""Columns of the file."""


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before a long run and not after it."""
    if path.suffix != ".parquet":
        raise InvalidField("log", str(path), "the event log is Parquet: end it in .parquet")
    if not path.parent.is_dir():
        raise InvalidFile(str(path), "its directory is not there; make it first.")
    if path.is_dir():
        raise InvalidFile(str(path), "this is a directory; name a file.")


def write_log(log: EventLog, path: Path) -> None:
    """Write the log."""
    check_target(path)
    columns = zip(*(_row(log, line) for line in log.lines()), strict=True)
    data = dict(zip(SCHEMA, map(list, columns), strict=True)) if len(log) else {}
    try:
        pl.DataFrame(data, schema=SCHEMA).write_parquet(path)
    except OSError as error:
        raise InvalidFile(str(path), f"the log cannot be written ({error.strerror}).") from None


def read_log(path: Path, cluster: Cluster, jobs: Sequence[Job]) -> EventLog:
    """Read a log of these jobs on this cluster."""
    frame = _frame(path)
    numbers: dict[str, int] = {job.id: number for number, job in enumerate(jobs)}
    of_machines = [json.loads(text) for text in frame["event"].drop_nulls()]
    events = iter(events_of(str(path), cluster, of_machines))
    log = EventLog(cluster, jobs)
    try:
        for row in frame.iter_rows(named=True):
            if row["event"] is not None:
                log.add_machine(row["at_s"], next(events).event)
            else:
                _append(log, row, numbers)
    except KeyError as error:
        raise InvalidFile(
            str(path),
            f"the log names {error.args[0]!r}, which the trace and cluster do not; give the "
            "ones it was recorded with.",
        ) from None
    return log


def _frame(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
    except FileNotFoundError:
        raise InvalidFile(str(path), "there is no such file; check the path.") from None
    except (pl.exceptions.PolarsError, OSError):
        raise InvalidFile(str(path), "this is not a Parquet file; record it again.") from None
    missing = [name for name in SCHEMA if name not in frame.columns]
    if missing:
        raise InvalidFile(str(path), f"this is not an event log: it has no {missing[0]!r}.")
    return frame.select(SCHEMA.names())


def _row(log: EventLog, line: LogLine) -> tuple[object, ...]:
    event = line.event
    job = None if event else log.jobs[line.subject].id
    machine = event.machine_id if event else None
    spots = _spots(line.placement)
    favoured = None if line.in_favour_of is None else log.jobs[line.in_favour_of].id
    told = None if event is None else json.dumps(event_entry(TimedEvent(line.at_s, event)))
    what = line.kind.name.lower()
    return line.at_s, what, job, machine, *spots, favoured, *_why(log, line), told


def _why(log: EventLog, line: LogLine) -> tuple[str | None, str | None, str | None]:
    """Return the tier, the reason and the remedy of a line that has them."""
    if line.kind is not LogEvent.REFUSED:
        return None, line.why, None
    refusal = log.refusals[line.subject]
    return refusal.tier.label, refusal.reason, refusal.remedy


def _spots(placement: Placement | None) -> Iterable[list[Any] | None]:
    if placement is None:
        return (None,) * 4
    spots = placement.spots
    return (
        [spot.machine for spot in spots],
        [list(spot.gpus) for spot in spots],
        [spot.instances for spot in spots],
        [spot.task for spot in spots],
    )


def _append(log: EventLog, row: dict[str, Any], jobs: dict[str, int]) -> None:
    event = LogEvent[row["fact"].upper()]
    number = jobs[row["job_id"]]
    if event is LogEvent.STARTED:
        log.add_start(row["at_s"], number, _placement(row))
        return
    if event is LogEvent.GROWN:
        log.add_growth(row["at_s"], number, _placement(row))
        return
    if event is LogEvent.PREEMPTED:
        log.add_preemption(row["at_s"], number, jobs[row["in_favour_of"]])
        return
    if event is LogEvent.JOB_LOST:
        log.add_loss(row["at_s"], number, row["reason"])
        return
    log.add(row["at_s"], event, number)
    if event is LogEvent.REFUSED:
        tier = Tier[row["tier"].upper().replace(" ", "_")]
        log.refusals[number] = Refusal(tier, row["reason"], row["remedy"])


def _placement(row: dict[str, Any]) -> Placement:
    spots = zip(row["machines"], row["gpus"], row["instances"], row["tasks"], strict=True)
    return Placement(
        tuple(
            Spot(MachineId(machine), tuple(gpus), instances, task)
            for machine, gpus, instances, task in spots
        )
    )
