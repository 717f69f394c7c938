"""How jobs get on beside each other, from what the device daemon tells every second.

A job is slowed down in two ways.  In turns it waits for its lane: it needs as long as it is
there instead of as long as it does not wait.  Beside other lanes its iterations themselves take
longer: what they take is set against what they took while no other lane of the device ran.
The product of both is the measured slow-down.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from interlane.engines.local.lanes import Status
from interlane.live.files.job import program_in
from interlane.live.measure.coruns import BESIDE, LANES, CoRun, Solo, Tell, job_workload
from interlane.live.measure.slowdown import Beside, in_turns
from interlane.model import MILLI, JobId, Workload

WINDOW_S: Final = 10.0
"""Seconds over which shares and slow-downs are taken."""

LEAST_ITERATIONS: Final = 4
"""In a window, for the length of an iteration to count; the first of a job never do."""


TOGETHER_S: Final = 5.0
"""For which a pair must have been together for its slow-down to be told."""

TAKING_PART: Final = ("running", "holding", "waiting")


@dataclass(frozen=True, slots=True)
class Use:
    """What a job has done on its device so far, over all its processes."""

    iterations: int = 0
    busy_s: float = 0.0
    """Inside iterations."""
    waited_s: float = 0.0
    """With an iteration to run, while others had the device."""
    present_s: float = 0.0
    """Since it was admitted to the device."""
    measured_slowdown: float | None = None
    """Time per iteration over what it is alone, of late; None where nobody knows."""
    predicted_slowdown: float | None = None
    """The same by the shares of those that ran in its lane, or by what is known of those beside
    it; None where nobody knows."""

    def __add__(self, other: "Use") -> "Use":
        return Use(
            self.iterations + other.iterations,
            self.busy_s + other.busy_s,
            self.waited_s + other.waited_s,
            self.present_s + other.present_s,
        )

    def since(self, before: "Use") -> "Use | None":
        """Return what was done since then; None if a process has ended meanwhile."""
        done = Use(
            self.iterations - before.iterations,
            self.busy_s - before.busy_s,
            self.waited_s - before.waited_s,
            self.present_s - before.present_s,
        )
        least = min(done.iterations, done.busy_s, done.waited_s, done.present_s)
        return None if least < 0 else done

    @property
    def turns_slowdown(self) -> float:
        """By how much turns have slowed it down."""
        worked_s = self.present_s - self.waited_s
        return self.present_s / worked_s if worked_s > 0 else 1.0

    @property
    def iteration_s(self) -> float | None:
        """The mean length of an iteration, if there were enough."""
        if self.iterations < LEAST_ITERATIONS:
            return None
        return self.busy_s / self.iterations


def use_of(told: Mapping[str, Any]) -> Use:
    """Return what the daemon tells of a process or of a run."""
    return Use(told["iterations"], told["busy_s"], told["waited_s"], told["present_s"])


@dataclass(frozen=True, slots=True)
class Seen:
    """What was last told, and what follows from it and from what was told before."""

    status: Status
    busy: tuple[float | None, ...]
    """By device: the share of the last seconds in which an iteration ran."""
    uses: Mapping[JobId, Use]
    solos: Mapping[JobId, Solo]
    """What jobs do when no other lane runs, of those of which it is known."""


class Pair(NamedTuple):
    """Two jobs that had a device to themselves, seen from the first."""

    victim: JobId
    aggressor: JobId
    beside: bool
    """Whether they ran in lanes of their own, and not in turns."""


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    pid: int
    busy_s: tuple[float, ...]
    uses: Mapping[JobId, Use]
    taking_part: frozenset[JobId]
    """Jobs that run an iteration or wait for their turn."""
    memory: Mapping[JobId, float]
    """Share of the device's memory that they were measured to use."""
    lanes: Mapping[JobId, frozenset[tuple[int, int]]]
    """Device and lane of every job's processes."""
    shares: Mapping[JobId, int]
    predicted: dict[JobId, float] = field(default_factory=dict)
    """Slow-down of those that ran since the look before."""


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


class Monitor:
    """Takes looks in, and keeps what follows from those of the last seconds."""

    def __init__(self, turns: str | None = None) -> None:
        self._turns = turns
        self.seen: Seen | None = None
        """Replaced as a whole, so that any thread may read it."""
        self._looks: deque[_Look] = deque()
        self._alone: dict[JobId, Use] = {}
        """What jobs did while no other lane of their device ran."""
        self._beside: set[JobId] = set()
        """Jobs that ran beside other lanes."""
        self._predicted: dict[JobId, _Sum] = {}
        """By job, over the looks since which it had run."""
        self._together: dict[Pair, Use] = {}
        """What victims have done beside their aggressor so far."""
        self.tell: Tell = lambda coruns, solos: None
        """Told of pairs that were together for long enough, once they part."""
        self.beside: Beside = lambda victim, others: None
        """Predicts slow-down where turns do not explain it."""

    def heard(self, status: Status, now_s: float) -> None:
        """Take in what the daemon tells."""
        look = _looked(status, now_s)
        if self._looks and self._looks[-1].pid != look.pid:
            self._looks.clear()  # its counters of devices begin anew
        if self._looks:
            self._compare(self._looks[-1], look)
        self._looks.append(look)
        while look.at_s - self._looks[0].at_s > WINDOW_S:
            self._looks.popleft()
        here = {job_id for one in self._looks for job_id in one.uses}
        self._alone = {one: use for one, use in self._alone.items() if one in here}
        self._predicted = {one: kept for one, kept in self._predicted.items() if one in here}
        self._beside &= here
        first = self._looks[0]
        self.seen = Seen(
            status,
            tuple(
                _share(now - before, look.at_s - first.at_s)
                for now, before in zip(look.busy_s, first.busy_s, strict=True)
            ),
            {
                job_id: replace(
                    use,
                    measured_slowdown=self._of_late(job_id, use),
                    predicted_slowdown=_mean(
                        [one.predicted.get(job_id) for one in self._looks]
                    ),
                )
                for job_id, use in look.uses.items()
            },
            self._solos(look.uses),
        )

    def over_all(self, job_id: JobId, use: Use) -> Use:
        """Return what a job that has ended did, with its slow-downs over all of it."""
        return replace(
            use,
            measured_slowdown=self.slowdown(job_id, use),
            predicted_slowdown=self._predicted.get(job_id, _Sum()).mean,
        )

    def slowdown(self, job_id: JobId, done: Use) -> float | None:
        """Return how much a job was slowed down while it did this."""
        now_s, alone_s = done.iteration_s, self._alone.get(job_id, Use()).iteration_s
        if now_s is None:
            return None
        if not alone_s:
            return None if job_id in self._beside else done.turns_slowdown
        return done.turns_slowdown * now_s / alone_s

    def _of_late(self, job_id: JobId, use: Use) -> float | None:
        before = next(one.uses[job_id] for one in self._looks if job_id in one.uses)
        done = use.since(before)
        return None if done is None else self.slowdown(job_id, done)

    def _compare(self, before: _Look, now: _Look) -> None:
        """See who ran since the look before: alone, in turns or beside other lanes."""
        ran = now.taking_part | {
            job_id
            for job_id, use in now.uses.items()
            if use.iterations > before.uses.get(job_id, Use()).iterations
        }
        pairs = set()
        for job_id in ran:
            mine = now.lanes[job_id]
            devices = {device for device, _ in mine}
            others = [
                one
                for one in ran
                if one != job_id and devices & {at for at, _ in now.lanes[one]}
            ]
            beside = any(not now.lanes[one] <= mine for one in others)
            self._predict(job_id, others, now, beside=beside)
            was = before.uses.get(job_id, Use())
            done = now.uses[job_id].since(was)
            if done is None or was.iterations < LEAST_ITERATIONS:
                continue
            self._note(job_id, done, beside=beside)
            if len(others) == 1:
                pair = Pair(job_id, others[0], beside)
                self._together[pair] = self._together.get(pair, Use()) + done
                pairs.add(pair)
        self._part(self._together.keys() - pairs)

    def _note(self, job_id: JobId, done: Use, *, beside: bool) -> None:
        """Add what a job did to what it did alone, unless others ran beside it."""
        if beside:
            self._beside.add(job_id)
        else:
            self._alone[job_id] = self._alone.get(job_id, Use()) + done

    def _predict(self, job_id: JobId, others: list[JobId], now: _Look, *, beside: bool) -> None:
        slower = None
        if beside:
            slower = self.beside(program_in(job_id), [program_in(one) for one in others])
        elif self._turns is not None:
            shares = [now.shares[one] for one in others]
            slower = in_turns(now.shares[job_id], shares, self._turns)
        if slower is not None:
            now.predicted[job_id] = slower
            self._predicted.setdefault(job_id, _Sum()).add(slower)

    def _part(self, pairs: Iterable[Pair]) -> None:
        """Tell of pairs that are no longer together, if they were for long enough."""
        found: dict[Pair, float] = {}
        for pair in list(pairs):
            done = self._together.pop(pair)
            slower = self.slowdown(pair.victim, done)
            if slower is not None and done.present_s >= TOGETHER_S:
                found[pair] = slower
        if found:
            solos = self._solos({one for pair in found for one in pair[:2]})
            self.tell(
                [_corun(pair, slower) for pair, slower in found.items()],
                {_workload(one): solo for one, solo in solos.items()},
            )

    def _solos(self, job_ids: Iterable[JobId]) -> dict[JobId, Solo]:
        found = {one: self._solo(one) for one in job_ids}
        return {one: solo for one, solo in found.items() if solo is not None}

    def _solo(self, job_id: JobId) -> Solo | None:
        alone = self._alone.get(job_id, Use())
        worked_s = alone.present_s - alone.waited_s
        memory = [one.memory[job_id] for one in self._looks if job_id in one.memory]
        if alone.iterations < LEAST_ITERATIONS or worked_s <= 0 or not memory:
            return None
        return Solo(min(1.0, alone.busy_s / worked_s), max(memory), alone.iterations / worked_s)


def _corun(pair: Pair, slower: float) -> CoRun:
    way = BESIDE if pair.beside else LANES
    return CoRun(way, _workload(pair.victim), _workload(pair.aggressor), slower)


def _workload(job_id: JobId) -> Workload:
    return job_workload(program_in(job_id))


def _looked(status: Status, now_s: float) -> _Look:
    uses: dict[JobId, Use] = {}
    lanes: dict[JobId, frozenset[tuple[int, int]]] = {}
    shares: dict[JobId, int] = {}
    memory: dict[JobId, float] = {}
    taking_part = set()
    for device in status["devices"]:
        for one in device["jobs"]:
            job_id = JobId(one["name"])
            uses[job_id] = uses.get(job_id, Use()) + use_of(one)
            lane = () if one["lane"] is None else ((device["index"], one["lane"]),)
            lanes[job_id] = lanes.get(job_id, frozenset()) | frozenset(lane)
            shares[job_id] = one["share"] or MILLI
            if one["state"] in TAKING_PART:
                taking_part.add(job_id)
            if one["measured_persistent_bytes"] is not None:
                used = one["measured_persistent_bytes"] + one["measured_ephemeral_bytes"]
                memory[job_id] = memory.get(job_id, 0.0) + used / device["capacity_bytes"]
    busy_s = tuple(device["busy_seconds"] for device in status["devices"])
    return _Look(
        now_s, status["pid"], busy_s, uses, frozenset(taking_part), memory, lanes, shares
    )


def _share(part_s: float, whole_s: float) -> float | None:
    return min(1.0, max(0.0, part_s / whole_s)) if whole_s > 0 else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
