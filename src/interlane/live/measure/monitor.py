"""What all device daemons report every second, and what follows from it; see ``window``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from interlane.lanes.report import DeviceReport, ProcessReport, RunReport
from interlane.live.measure.coruns import BESIDE, LANES, CoRun, SoloSpeed, Tell, job_workload
from interlane.live.measure.slowdown import Beside, in_turns
from interlane.live.measure.window import Company, Look, PairWindow, Window, look_at
from interlane.live.port import Measured
from interlane.model import GpuRef, JobId, MachineId, Workload

ProgramOf = Callable[[JobId], str | None]
"""Returns what recurs of a job; None if nobody knows such a job."""


@dataclass(frozen=True, slots=True)
class Use(RunReport):
    """What a job has done on its device so far, and how much it was slowed down."""

    measured_slowdown: float | None = None
    """Time per iteration over what it is alone, of late; None where nobody knows."""
    predicted_slowdown: float | None = None
    """The same by the shares of those that ran in its lane, or by what is known of those beside
    it; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as its daemon reports it."""

    report: DeviceReport
    busy: float | None
    """Share of the last seconds in which an iteration ran."""


@dataclass(frozen=True, slots=True, eq=False)
class LastReport:
    """What was last reported, and what follows from it and from what was reported before."""

    devices: Mapping[GpuRef, SeenDevice]
    uses: Mapping[JobId, Use]
    processes: Mapping[JobId, ProcessReport]
    """Of every job, the process that does most."""
    solos: Mapping[JobId, SoloSpeed]
    """What jobs do when no other lane runs, of those of which it is known."""
    programs: Mapping[JobId, str]
    """What recurs of every job that somebody knows."""

    @property
    def named_solos(self) -> dict[Workload, SoloSpeed]:
        """What programs do when no other lane runs."""
        return {
            job_workload(self.programs[job_id]): solo
            for job_id, solo in self.solos.items()
            if job_id in self.programs
        }


_UNSEEN: Final = LastReport({}, {}, {}, {}, {})
_NOBODY: Final = Window(lambda company: None)
"""Knows no job."""


@dataclass(slots=True)
class _Daemon:
    """One of the daemons, and what is known of its jobs."""

    window: Window
    programs: dict[JobId, str]
    """Asked for once, because a pair parts when one of its jobs is no longer on record."""
    seen: LastReport = _UNSEEN
    """Replaced as a whole, so that any thread may read it."""


class Monitor:
    """Takes reports in, and keeps what follows from those of the last seconds.

    Args:
        turns: the order in which jobs of a lane take turns; None if they do not.
        program_of: names what recurs of a job.
    """

    def __init__(
        self, turns: str | None = None, program_of: ProgramOf = lambda job_id: None
    ) -> None:
        self._turns = turns
        self._program_of = program_of
        self._daemons: dict[GpuRef, _Daemon] = {}
        """By the first GPU that each shares: no other daemon shares it."""
        self._merged: tuple[Sequence[LastReport], LastReport] = ((), _UNSEEN)
        self.tell: Tell = lambda coruns, solos: None
        """Told of pairs that were together for long enough, once they part."""
        self.beside: Beside = lambda victim, others: None
        """Predicts slowdown where turns do not explain it."""

    @property
    def seen(self) -> LastReport | None:
        """What all daemons have reported, in any thread; None until one has."""
        parts = tuple(one.seen for one in tuple(self._daemons.values()))
        before, merged = self._merged
        if parts != before:
            merged = parts[0] if len(parts) == 1 else _together(parts)
            self._merged = parts, merged
        return merged if parts else None

    def heard(self, measured: Measured) -> None:
        """Take in what a daemon reports."""
        if not measured.gpus:
            return
        daemon = self._daemons.get(measured.gpus[0]) or self._daemon()
        look = look_at(measured.report, measured.at_s)
        self._name(look.uses, daemon.programs)
        parted = daemon.window.heard(look)
        if parted:
            self._tell(parted, daemon)
        here = daemon.window.trim()
        for job_id in daemon.programs.keys() - here:
            del daemon.programs[job_id]
        daemon.seen = _seen(measured, look, daemon)
        self._daemons[measured.gpus[0]] = daemon

    def forget(self, machine_id: MachineId) -> None:
        """Forget the daemons of a machine that is gone."""
        kept = {gpu: one for gpu, one in self._daemons.items() if gpu.machine != machine_id}
        self._daemons = kept

    def over_all(self, job_id: JobId, run: RunReport) -> Use:
        """Return what a job that has ended did, with its slowdowns over all of it."""
        windows = [one.window for one in tuple(self._daemons.values())]
        known = [one for one in windows if one.knows(job_id)] or [_NOBODY]
        return _use(
            run,
            _most(one.slowdown(job_id, run) for one in known),
            _most(one.predicted(job_id) for one in known),
        )

    def _daemon(self) -> _Daemon:
        programs: dict[JobId, str] = {}
        return _Daemon(Window(lambda company: self._predicted(company, programs)), programs)

    def _name(self, job_ids: Iterable[JobId], programs: dict[JobId, str]) -> None:
        """Find out what recurs of jobs that were not seen before."""
        for job_id in job_ids:
            if job_id not in programs and (program := self._program_of(job_id)) is not None:
                programs[job_id] = program

    def _predicted(self, company: Company, programs: Mapping[JobId, str]) -> float | None:
        if company.beside:
            victim = programs.get(company.job_id)
            others = [programs[one] for one in company.others if one in programs]
            if victim is None or len(others) < len(company.others):
                return None
            return self.beside(victim, others)
        if self._turns is None:
            return None
        shares_milli = company.shares_milli
        others_milli = [shares_milli[one] for one in company.others]
        return in_turns(shares_milli[company.job_id], others_milli, self._turns)

    def _tell(self, parted: Mapping[PairWindow, float], daemon: _Daemon) -> None:
        """Tell of pairs that have parted, of those whose programs are known."""
        programs = daemon.programs
        found = {pair: slower for pair, slower in parted.items() if {*pair[:2]} <= {*programs}}
        solos = daemon.window.solos({one for pair in found for one in pair[:2]})
        if found:
            self.tell(
                [_corun(pair, slower, programs) for pair, slower in found.items()],
                {job_workload(programs[job_id]): solo for job_id, solo in solos.items()},
            )


def _corun(pair: PairWindow, slower: float, programs: Mapping[JobId, str]) -> CoRun:
    way = BESIDE if pair.beside else LANES
    victim, aggressor = (job_workload(programs[one]) for one in (pair.victim, pair.aggressor))
    return CoRun(way, victim, aggressor, slower)


def _seen(measured: Measured, look: Look, daemon: _Daemon) -> LastReport:
    """Return what follows from the report of one daemon."""
    busy, gpus = daemon.window.busy(), dict(enumerate(measured.gpus))
    return LastReport(
        {
            gpus[one.index]: SeenDevice(one, busy[one.index])
            for one in measured.report.devices
            if one.index in gpus
        },
        {
            job_id: _use(run, *daemon.window.of_late(job_id))
            for job_id, run in look.uses.items()
        },
        {job_id: most_active(processes) for job_id, processes in look.processes.items()},
        daemon.window.solos(look.uses),
        dict(daemon.programs),
    )


def _together(parts: Iterable[LastReport]) -> LastReport:
    """Return what several daemons report; a job may be on devices of more than one."""
    devices: dict[GpuRef, SeenDevice] = {}
    uses: dict[JobId, Use] = {}
    processes: dict[JobId, ProcessReport] = {}
    solos: dict[JobId, SoloSpeed] = {}
    programs: dict[JobId, str] = {}
    for part in parts:
        devices |= part.devices
        solos |= part.solos
        programs |= part.programs
        for job_id, use in part.uses.items():
            uses[job_id] = _sum(uses[job_id], use) if job_id in uses else use
        for job_id, process in part.processes.items():
            processes[job_id] = most_active((processes.get(job_id, process), process))
    return LastReport(devices, uses, processes, solos, programs)


def _sum(one: Use, other: Use) -> Use:
    return _use(
        one + other,
        _most((one.measured_slowdown, other.measured_slowdown)),
        _most((one.predicted_slowdown, other.predicted_slowdown)),
    )


def most_active(processes: Iterable[ProcessReport]) -> ProcessReport:
    """Return the process that stands for a job."""
    return min(processes, key=lambda one: one.rank)


def _use(run: RunReport, measured: float | None, predicted: float | None) -> Use:
    return Use(run.iterations, run.busy_s, run.waited_s, run.present_s, measured, predicted)


def _most(values: Iterable[float | None]) -> float | None:
    """Return the greatest that is known: a job is as slow as its slowest part."""
    return max((one for one in values if one is not None), default=None)
