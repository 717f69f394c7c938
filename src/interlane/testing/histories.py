"""Stores with a long history, made quickly: what a server has after months of work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlane.live.files.job import Origin, job_of, read_spec, request_of
from interlane.live.store.record import JobRecord, after
from interlane.live.store.store import Store
from interlane.model import (
    Finished,
    JobId,
    LogEntry,
    Logged,
    MachineId,
    Placement,
    Spot,
    Start,
    Started,
    Submitted,
)
from interlane.testing.live import this_machine

TOGETHER = 1_000
"""Jobs of one commit."""


def fill(folder: Path, jobs: int, begin_s: float, every_s: float = 10.0) -> None:
    """Store jobs that have ended, one after another, in a state folder."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(f"sqlite:///{folder / 'state.db'}")
    store.begin_epoch()
    entries: list[LogEntry] = []
    records: list[JobRecord] = []
    for serial in range(1, jobs + 1):
        mine = list(_life(serial, begin_s + serial * every_s))
        entries += mine
        record = None
        for entry in mine:
            record = after(record, entry)
        assert record is not None
        records.append(record)
        if len(records) == TOGETHER or serial == jobs:
            store.commit(entries, records)
            entries, records = [], []
    store.close()


def _life(serial: int, at_s: float) -> Iterator[LogEntry]:
    """Yield the entries of a job that runs for six seconds."""
    spec = read_spec(
        {
            "name": f"job{serial % 50}",
            "run": f"python train{serial % 200}.py --epochs 3",
            "resources": {"gpu": {"count": 1}, "cpu": 2, "memory": "4GiB"},
        }
    )
    origin = Origin(serial, "ann" if serial % 3 else "bob", at_s)
    request = request_of(spec, this_machine(4))
    job = job_of(JobId(f"{spec.name}-{serial}"), spec, origin, request, 60.0)
    place = Placement((Spot(MachineId("here"), (serial % 4,)),))
    first = {"spec": spec.document, "low_s": 30.0, "high_s": 90.0}
    told: tuple[tuple[Logged, dict[str, Any]], ...] = (
        (Submitted(job), first),
        (Start(job.id, place), {}),
        (Started(job.id, place), {}),
        (Finished(job.id), {"exit_code": 0}),
    )
    for at, (what, detail) in enumerate(told):
        seq = 4 * serial - 3 + at
        yield LogEntry(seq, at_s + 2.0 * at, what, detail, seq)
