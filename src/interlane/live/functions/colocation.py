"""What jobs hold of devices, and what they and functions suffer from each other there.

The function scheduler decides; this is what it is told.  A job that is exclusive, or bears less
slowdown than functions may cause, has no neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Final

from interlane.functions.events import CoRunsMeasured, DeviceJudged, FunctionEvent, Held
from interlane.functions.ledger import DeviceLedger, PlacedReplica
from interlane.live.driver.state import Snapshot
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec
from interlane.live.functions.services import Place, Slowed
from interlane.live.measure.coruns import (
    BESIDE,
    LATENCY,
    P99,
    CoRun,
    SoloSpeed,
    function_workload,
    job_workload,
)
from interlane.model import MILLI, GpuRef, JobId, Workload
from interlane.policy.colocate.gpus import LIMIT
from interlane.policy.colocate.interference import (
    SEVERAL,
    SIDE_BY_SIDE,
    CoRunReading,
    SlowdownTarget,
)

BORNE: Final = 1.0 / (1.0 - LIMIT)
"""Slowdown by functions that a job bears."""

USE_MOST: Final = 1.0 - LIMIT
"""What a job keeps from functions of its share of compute: all but what it may lose."""

Holdings = Mapping[GpuRef, tuple[Held, ...]]
"""Device -> jobs that hold some of it."""


def holdings_of(now: Snapshot, solos: Mapping[Workload, SoloSpeed] | None = None) -> Holdings:
    """Return what jobs hold of every device; who says no memory has all of its share's.

    Of compute, a job has what it was measured to keep busy alone, but for what it may lose.
    """
    found: dict[GpuRef, list[Held]] = {}
    machines = now.machines.known
    for record in now.records:
        if record.placement is None:
            continue
        job = record.job
        request = now.request_of(job)
        workload = job_workload(spec.program_of(job))
        busy = _busy((solos or {}).get(workload))
        for spot in record.placement.spots:
            if spot.machine not in machines:
                continue  # it is gone, and its jobs will be requeued
            demand = request.tasks[spot.task].demand
            share = min(1.0, spot.instances * demand.gpu_milli / MILLI)
            for number in spot.gpus:
                card_mib = machines[spot.machine].device(number).memory_mib
                mib = spot.instances * demand.gpu_memory_mib or int(share * card_mib)
                own_mib = card_mib if _bears_nobody(job) else mib
                held = Held(record.id, workload, own_mib, share * busy)
                found.setdefault(GpuRef(spot.machine, number), []).append(held)
    return {gpu: tuple(sorted(held, key=lambda one: one.job_id)) for gpu, held in found.items()}


def _busy(solo: SoloSpeed | None) -> float:
    """Return the part of its share that a job keeps busy, in steps coarser than noise."""
    if solo is None or isnan(solo.busy):
        return USE_MOST
    return min(USE_MOST, round(10 * max(0.0, solo.busy)) / 10)


def _bears_nobody(job: JobSpec) -> bool:
    """Tell whether a job wants its devices for itself, or bears less than is promised."""
    bound = job.share.max_slowdown
    return job.share.mode is spec.ShareMode.EXCLUSIVE or (bound is not None and bound < BORNE)


@dataclass(frozen=True, slots=True)
class MeasuredSlot:
    """What was measured in a slot."""

    jobs: Mapping[JobId, float]
    """Job -> by how much functions slowed it down."""
    functions: Mapping[Place, Slowed]
    called: frozenset[Place]
    """Functions that did something."""


@dataclass(frozen=True, slots=True)
class ComparedSlowdown:
    """What somebody suffered on a device, and what was predicted, as times what it is alone."""

    device: str
    """As ``device_name`` calls it."""
    beside: tuple[str, ...]
    """Ids of jobs, or workloads of functions."""
    measured: float
    """Of a job's iterations the mean, of a function's calls the 99th percentile."""
    mean: float
    predicted: float
    """What was thought of the former before it was measured."""
    limit: float
    """What it may be."""
    at_s: float


@dataclass(frozen=True, slots=True)
class SlotVerdict:
    """What follows from a slot."""

    jobs: dict[tuple[JobId, GpuRef], ComparedSlowdown] = field(default_factory=dict)
    """What jobs suffer, and where."""
    functions: dict[Place, ComparedSlowdown] = field(default_factory=dict)
    coruns: list[CoRun] = field(default_factory=list)
    """What was measured of two that had the device to themselves."""
    readings: list[CoRunReading] = field(default_factory=list)
    """What is learned from."""
    judged: list[DeviceJudged] = field(default_factory=list)

    @property
    def events(self) -> list[FunctionEvent]:
        """What the function scheduler is told."""
        learned = [CoRunsMeasured(tuple(self.readings))] if self.readings else []
        return [*learned, *self.judged]


Present = Mapping[GpuRef, frozenset[str]]
"""Who is where: ids of jobs, and workloads of functions."""


def present(ledger: DeviceLedger) -> Present:
    """Return who is where, jobs and functions."""
    jobs = [(gpu, str(one.job_id)) for gpu, held in ledger.held.items() for one in held]
    functions = [
        (one.gpu.id, str(function_workload(one.function))) for one in ledger.replicas.values()
    ]
    found: dict[GpuRef, frozenset[str]] = {}
    for gpu, name in jobs + functions:
        found[gpu] = found.get(gpu, frozenset()) | {name}
    return found


def compare_slot(slot: MeasuredSlot, ledger: DeviceLedger, now_s: float) -> SlotVerdict:
    """Compare what everybody suffered with what was thought of it before."""
    verdict = SlotVerdict()
    for gpu, held in ledger.held.items():
        there = ledger.on(ledger.gpus.by_id[gpu])
        for job in held:
            if job.job_id in slot.jobs:
                _compare_job(job, gpu, slot, ledger, verdict, now_s)
        names = {one.function for one in there}
        ids = {one.job_id for one in held}
        slowed: dict[str, Slowed] = {}
        for name in names:
            place = Place(function_workload(name), gpu)
            found = slot.functions.get(place)
            if found is not None and found.jobs <= ids:  # of jobs that are still there
                slowed[name] = found
                _compare_function(place, found, ledger, verdict, now_s)
        if there:
            worst = max(
                (slot.jobs[one.job_id] for one in held if one.job_id in slot.jobs), default=None
            )
            p99 = {
                one.number: _p99(one, slowed[one.function])
                for one in there
                if one.function in slowed
            }
            verdict.judged.append(DeviceJudged(gpu, worst, p99))
    return verdict


def _compare_job(
    job: Held,
    gpu: GpuRef,
    slot: MeasuredSlot,
    ledger: DeviceLedger,
    verdict: SlotVerdict,
    now_s: float,
) -> None:
    beside = {
        function_workload(one.function): one.need
        for one in ledger.on(ledger.gpus.by_id[gpu])
        if Place(function_workload(one.function), gpu) in slot.called
    }
    if not beside:
        return
    gpu_type, slower = ledger.gpu_type(gpu), slot.jobs[job.job_id]
    *others, newest = beside.values()
    slowdown = ledger.model.slowdowns.slowdown(
        SIDE_BY_SIDE, gpu_type, str(job.workload), others, newest, estimated=True
    )
    names = tuple(map(str, beside))
    verdict.jobs[job.job_id, gpu] = ComparedSlowdown(
        device_name(gpu), names, slower, slower, slowdown.training, BORNE, now_s
    )
    if len(ledger.held[gpu]) > 1:
        return
    verdict.readings.append(
        CoRunReading(
            gpu_type, SlowdownTarget.TRAINING, str(job.workload), names, max(1.0, slower)
        )
    )
    if len(beside) == 1:
        (function,) = beside
        verdict.coruns.append(CoRun(BESIDE, job.workload, function, slower))


def _compare_function(
    place: Place, slowed: Slowed, ledger: DeviceLedger, verdict: SlotVerdict, now_s: float
) -> None:
    jobs = [one for one in ledger.held[place.gpu] if one.job_id in slowed.jobs]
    workload = jobs[0].workload if len(jobs) == 1 else SEVERAL
    reading = CoRunReading(
        ledger.gpu_type(place.gpu),
        SlowdownTarget.LATENCY,
        str(place.function),
        (str(workload),),
        max(1.0, slowed.p99),
    )
    verdict.readings.append(reading)
    verdict.functions[place] = ComparedSlowdown(
        device_name(place.gpu),
        tuple(one.job_id for one in jobs),
        slowed.p99,
        slowed.mean,
        ledger.model.predicted(reading),
        slowed.limit,
        now_s,
    )
    if len(jobs) == 1:
        verdict.coruns.append(CoRun(LATENCY, place.function, workload, slowed.mean))
        if slowed.is_p99:
            verdict.coruns.append(CoRun(P99, place.function, workload, slowed.p99))


def device_name(gpu: GpuRef) -> str:
    """Return what users see of the device of a function."""
    return f"{gpu.machine}/{gpu.index}"


def _p99(replica: PlacedReplica, slowed: Slowed) -> float:
    """Return what a replica suffers; a limit that was found since it was placed holds too."""
    return slowed.p99 * replica.need.p99_limit / slowed.limit
