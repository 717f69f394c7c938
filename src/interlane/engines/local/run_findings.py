"""Folders of runs, compared with what is on record."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from interlane.engines.local import shim
from interlane.engines.local.claims import (
    digest_of,
    is_foreign,
    is_number,
    read_claim,
    run_name,
)
from interlane.live.port import Attempt
from interlane.live.store.record import JobRecord, UnreadableRecord


@dataclass(frozen=True, slots=True)
class RunFindings:
    """What is wrong with folders of runs, and what is worth knowing."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def look_through(runs: Path, records: Iterable[JobRecord]) -> RunFindings:
    """Compare every folder of runs with the record of its job."""
    known = {record.id: record for record in records}
    problems: list[str] = []
    remarks: list[str] = []
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        name = run_name(path.name)
        record = None if name is None else known.get(name.job_id)
        if isinstance(record, UnreadableRecord):
            continue
        if name is None or record is None or record.uid != name.uid:
            remarks.append(f"{path} belongs to no job on record.")
            continue
        for run in sorted(one for one in path.iterdir() if is_number(one.name)):
            problems += _wrong(run, record)
            if int(run.name) > record.attempt:
                remarks.append(f"{run} was begun after what is on record of {record.id}.")
    return RunFindings(tuple(problems), tuple(remarks))


def _wrong(run: Path, record: JobRecord) -> Iterator[str]:
    if not (run / shim.CLAIM).exists():
        return
    claim = read_claim(run)
    if claim is None:
        yield f"The claim in {run} cannot be read."
    elif is_foreign(
        claim, Attempt(record.id, int(run.name), record.uid), digest_of(record.job)
    ):
        yield f"The claim in {run} is of another job than {record.id}."
