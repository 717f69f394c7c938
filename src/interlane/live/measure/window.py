"""How jobs get on beside each other, from the looks at one device daemon of the last seconds.

A job is slowed down in two ways.  In turns it waits for its lane: it needs as long as it is
there instead of as long as it does not wait.  Beside other lanes its iterations themselves take
longer: what they take is set against what they took while no other lane of the device ran.
The product of both is the measured slowdown.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from interlane.lanes.report import DaemonReport, DeviceReport, ProcessReport, RunReport
from interlane.live.measure.coruns import SoloSpeed
from interlane.model import MILLI, JobId

WINDOW_S: Final = 10.0
"""Seconds over which shares and slowdowns are taken."""

LEAST_ITERATIONS: Final = 4
"""In a window, for the length of an iteration to count; the first of a job never do."""

TOGETHER_S: Final = 5.0
"""For which a pair must have been together for its slowdown to be told."""

TAKING_PART: Final = ("running", "holding", "waiting")
NOTHING: Final = RunReport()


class PairWindow(NamedTuple):
    """Two jobs that had a device to themselves, seen from the first."""

    victim: JobId
    aggressor: JobId
    beside: bool
    """Whether they ran in lanes of their own, and not in turns."""


class Company(NamedTuple):
    """A job and those that ran on its device since the look before."""

    job_id: JobId
    others: Sequence[JobId]
    beside: bool
    """Whether any of them ran in a lane of its own."""
    shares_milli: Mapping[JobId, int]


Predict = Callable[[Company], float | None]
"""Predicts the slowdown of a job in its company; None if nobody knows."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a daemon reported, by job."""

    report: DaemonReport
    at_s: float
    uses: Mapping[JobId, RunReport]
    processes: Mapping[JobId, Sequence[ProcessReport]]
    lanes: Mapping[JobId, frozenset[tuple[int, int]]]
    """Device and lane of every job's processes."""
    memory: Mapping[JobId, float]
    """Share of the device's memory that they were measured to use."""
    predicted: dict[JobId, float] = field(default_factory=dict)
    """Slowdown of those that ran since the look before."""

    @property
    def taking_part(self) -> set[JobId]:
        """Jobs that run an iteration or wait for their turn."""
        return {
            job_id
            for job_id, processes in self.processes.items()
            if any(one.state in TAKING_PART for one in processes)
        }

    @property
    def shares_milli(self) -> dict[JobId, int]:
        """Return the share of its device that each job holds."""
        return {
            job_id: processes[-1].share_milli or MILLI
            for job_id, processes in self.processes.items()
        }


def look_at(report: DaemonReport, at_s: float) -> Look:
    """Sort what a daemon reports by job."""
    uses: dict[JobId, RunReport] = {}
    processes: dict[JobId, list[ProcessReport]] = {}
    lanes: dict[JobId, frozenset[tuple[int, int]]] = {}
    memory: dict[JobId, float] = {}
    for device, one in _processes(report):
        job_id = JobId(one.name)
        uses[job_id] = uses.get(job_id, NOTHING) + one.run
        processes.setdefault(job_id, []).append(one)
        lane = () if one.lane is None else ((device.index, one.lane),)
        lanes[job_id] = lanes.get(job_id, frozenset()) | frozenset(lane)
        if one.measured is not None:
            used = one.measured.peak_bytes / device.capacity_bytes
            memory[job_id] = memory.get(job_id, 0.0) + used
    return Look(report, at_s, uses, processes, lanes, memory)


def _processes(report: DaemonReport) -> Iterable[tuple[DeviceReport, ProcessReport]]:
    return ((device, one) for device in report.devices for one in device.processes)


@dataclass(slots=True)
class _Sum:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Count one more."""
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float | None:
        """Return the mean of what was counted; None if nothing was."""
        return self.total / self.count if self.count else None


class Window:
    """Takes looks at one daemon in, and keeps what follows from those of the last seconds."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._looks: deque[Look] = deque()
        self._alone: dict[JobId, RunReport] = {}
        """What jobs did while no other lane of their device ran."""
        self._beside: set[JobId] = set()
        """Jobs that ran beside other lanes."""
        self._predicted: dict[JobId, _Sum] = {}
        """By job, over the looks since which it had run."""
        self._together: dict[PairWindow, RunReport] = {}
        """What victims have done beside their aggressor so far."""

    def heard(self, look: Look) -> dict[PairWindow, float]:
        """Take in a look; return the slowdown of pairs that have parted after some time."""
        if self._looks and self._looks[-1].report.pid != look.report.pid:
            self._looks.clear()  # its counters of devices begin anew
        parted = self._compare(self._looks[-1], look) if self._looks else {}
        self._looks.append(look)
        return parted

    def trim(self) -> set[JobId]:
        """Forget what is too long ago; return the jobs that were there since."""
        while self._looks[-1].at_s - self._looks[0].at_s > WINDOW_S:
            self._looks.popleft()
        here = {job_id for one in self._looks for job_id in one.uses}
        self._alone = {one: use for one, use in self._alone.items() if one in here}
        self._predicted = {one: kept for one, kept in self._predicted.items() if one in here}
        self._beside &= here
        return here

    def busy(self) -> dict[int, float | None]:
        """Return by device the share of the window in which an iteration ran."""
        first, last = self._looks[0], self._looks[-1]
        before_s = {device.index: device.busy_s for device in first.report.devices}
        return {
            device.index: _share(
                device.busy_s - before_s.get(device.index, 0.0), last.at_s - first.at_s
            )
            for device in last.report.devices
        }

    # -- slowdowns --------------------------------------------------------------------

    def knows(self, job_id: JobId) -> bool:
        """Tell whether a job has run here of late."""
        return job_id in self._alone or job_id in self._beside or job_id in self._predicted

    def slowdown(self, job_id: JobId, done: RunReport) -> float | None:
        """Return how much a job was slowed down while it did this."""
        now_s = _iteration_s(done)
        alone_s = _iteration_s(self._alone.get(job_id, NOTHING))
        if now_s is None:
            return None
        if not alone_s:
            return None if job_id in self._beside else done.turns_slowdown
        return done.turns_slowdown * now_s / alone_s

    def of_late(self, job_id: JobId) -> tuple[float | None, float | None]:
        """Return the slowdown of a job that is here, measured and predicted, in the window."""
        uses = [one.uses[job_id] for one in self._looks if job_id in one.uses]
        done = uses[-1].since(uses[0])
        measured = None if done is None else self.slowdown(job_id, done)
        return measured, _mean([one.predicted.get(job_id) for one in self._looks])

    def predicted(self, job_id: JobId) -> float | None:
        """Return the slowdown that was predicted for a job, over all of its time."""
        return self._predicted.get(job_id, _Sum()).mean

    def solos(self, job_ids: Iterable[JobId]) -> dict[JobId, SoloSpeed]:
        """Return what jobs do when no other lane runs, of those of which it is known."""
        found = {one: self._solo(one) for one in job_ids}
        return {one: solo for one, solo in found.items() if solo is not None}

    def _solo(self, job_id: JobId) -> SoloSpeed | None:
        alone = self._alone.get(job_id, NOTHING)
        worked_s = alone.present_s - alone.waited_s
        memory = [one.memory[job_id] for one in self._looks if job_id in one.memory]
        if alone.iterations < LEAST_ITERATIONS or worked_s <= 0 or not memory:
            return None
        return SoloSpeed(
            min(1.0, alone.busy_s / worked_s), max(memory), alone.iterations / worked_s
        )

    # -- one look after another -------------------------------------------------------

    def _compare(self, before: Look, now: Look) -> dict[PairWindow, float]:
        """See who ran since the look before: alone, in turns or beside other lanes."""
        ran = now.taking_part | {
            job_id
            for job_id, use in now.uses.items()
            if use.iterations > before.uses.get(job_id, NOTHING).iterations
        }
        pairs, shares_milli = set(), now.shares_milli
        for job_id, others in _companions(ran, now).items():
            beside = any(not now.lanes[one] <= now.lanes[job_id] for one in others)
            self._note_predicted(Company(job_id, others, beside, shares_milli), now)
            was = before.uses.get(job_id, NOTHING)
            done = now.uses[job_id].since(was)
            if done is None or was.iterations < LEAST_ITERATIONS:
                continue
            self._note_done(job_id, done, beside=beside)
            if len(others) == 1:
                pair = PairWindow(job_id, others[0], beside)
                self._together[pair] = self._together.get(pair, NOTHING) + done
                pairs.add(pair)
        return self._part(self._together.keys() - pairs)

    def _note_done(self, job_id: JobId, done: RunReport, *, beside: bool) -> None:
        """Add what a job did to what it did alone, unless others ran beside it."""
        if beside:
            self._beside.add(job_id)
        else:
            self._alone[job_id] = self._alone.get(job_id, NOTHING) + done

    def _note_predicted(self, company: Company, now: Look) -> None:
        slower = self._predict(company)
        if slower is not None:
            now.predicted[company.job_id] = slower
            self._predicted.setdefault(company.job_id, _Sum()).add(slower)

    def _part(self, pairs: Iterable[PairWindow]) -> dict[PairWindow, float]:
        """Forget pairs that are no longer together; return those that were for long enough."""
        found: dict[PairWindow, float] = {}
        for pair in list(pairs):
            done = self._together.pop(pair)
            slower = self.slowdown(pair.victim, done)
            if slower is not None and done.present_s >= TOGETHER_S:
                found[pair] = slower
        return found


def _companions(ran: Iterable[JobId], now: Look) -> dict[JobId, list[JobId]]:
    """Return of every job that ran the others that ran on a device of it."""
    on_device: dict[int, dict[JobId, None]] = {}
    for job_id in ran:
        for device, _ in now.lanes[job_id]:
            on_device.setdefault(device, {})[job_id] = None
    return {
        job_id: [
            one
            for one in dict.fromkeys(
                one for device, _ in now.lanes[job_id] for one in on_device[device]
            )
            if one != job_id
        ]
        for job_id in ran
    }


def _iteration_s(done: RunReport) -> float | None:
    """Return the mean length of an iteration, if there were enough."""
    return None if done.iterations < LEAST_ITERATIONS else done.busy_s / done.iterations


def _share(part_s: float, whole_s: float) -> float | None:
    return min(1.0, max(0.0, part_s / whole_s)) if whole_s > 0 else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
