"""The contract of every engine, checked the same way for all of them.

``check_engine`` plays a script that a seed decides: jobs and gangs are submitted and cancelled,
preempt each other, finish and fail; the driver dies at any moment and another takes over;
commits fail; reports are lost, late, doubled and out of order; looks come at any moment and
are late, too; and the world has mishaps of its own.  Then all comes to rest, and what runs must
be what is on record.  At last everything that is left runs to its end.

The driver is the real one on a real store, but without its threads: the script says what comes
next, so that a seed plays the same way again wherever the engine does.

What is checked is computed from what the world shows, never with the code that is judged.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from random import Random
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from interlane.kernel.scheduler import Scheduler
from interlane.live.driver import Driver, NotReady
from interlane.live.driver.clock import Timed
from interlane.live.driver.reports import START_TRIES
from interlane.live.driver.state import RequestCounts, SchedulerPlan, attempt_of
from interlane.live.files.job import JobSpec, read_spec
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Engine,
    Grew,
    NeverBegan,
    NeverGrew,
    Observation,
    Report,
)
from interlane.live.replay import replay
from interlane.live.store.record import JobRecord, fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import (
    Cancelled,
    Cluster,
    Demand,
    Finished,
    JobId,
    LogEntry,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Refuse,
    Start,
    Started,
    StartFailed,
    Ticked,
    Wake,
)
from interlane.model.lifecycle import ENDED, HOLDING, JobState
from interlane.policy.order import PriorityWithAgeing
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.testing.contract import ContractBroken, demand
from interlane.testing.delivery import FaultyDelivery, FaultyStore, Fuse, Killed, Rates

ROUNDS_MAX: Final = 40
"""Rounds of work and looks within which everything must have come to rest."""

POLICY: Final = Policy(PriorityWithAgeing(preemptive=True), pack(), name="test")
LOOK_STEPS: Final = 3
"""Moves that a look takes: to ask what is known, to look, and to say what was seen."""
LAST: Final = (Finished, Cancelled, Refuse)
TIME: Final = (Ticked, Wake)
"""What is on record because time passes."""
SHM: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Limits:
    """What jobs an engine can run at all."""

    gpus_max: int = 2
    nodes_max: int = 3
    elastic: bool = True
    restores: bool = False
    """Whether an old copy of the store may come back in a script."""
    keeps_traces: bool = False
    """Whether nothing that has begun is ever forgotten, whatever is lost."""
    keeps_cancels: bool = False
    """Nor that a job was stopped for good."""
    pace: int = 1
    """Things that the world may do between two moves, at most."""


class EngineWorld(Protocol):
    """How the suite looks behind an engine, and disturbs what is there."""

    limits: Limits

    def engine(self) -> Engine:
        """Return a new engine on the same world, as a new server makes it."""
        ...

    def engine_died(self, engine: Engine) -> None:
        """Let an engine end as it does with its server: without a word."""
        ...

    def clock(self, at_least_s: float) -> Timed:
        """Return the time that drivers keep."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass; a real world may do with less."""
        ...

    def command(self) -> str:
        """Return what a job runs that ends when it is told to."""
        ...

    def running(self) -> Mapping[Attempt, Placement]:
        """Return what runs now, and where; of a gang, what has begun."""
        ...

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often each attempt has begun."""
        ...

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return the exit codes of attempts that ended by themselves."""
        ...

    def struck(self) -> frozenset[Attempt]:
        """Return the attempts of which others ended a part: the rest follows, and runs anew."""
        ...

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return the machines that there are."""
        ...

    def drained(self) -> frozenset[MachineId]:
        """Return the machines that somebody drained through the engine."""
        ...

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return what others have."""
        ...

    def withdrawn(self) -> frozenset[str]:
        """Return the keys of jobs that were withdrawn through the engine."""
        ...

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Let an attempt end by itself."""
        ...

    def work(self) -> bool:
        """Let the engine do one thing; False if it has nothing to do."""
        ...

    def mishap(self) -> None:
        """Let something happen that nobody asked for."""
        ...

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        ...

    def restore(self) -> None:
        """Let all machines be there, and nobody but us use them."""
        ...


def check_engine(make: Callable[[Random], EngineWorld], seed: int, steps: int = 90) -> int:
    """Play one script on an engine and raise ``ContractBroken`` if it breaks a clause.

    Returns how many events there were: moves, turns of the driver and steps of the world.
    """
    rng = Random(seed)
    folder = SHM if SHM.is_dir() else None
    with TemporaryDirectory(prefix="interlane-", dir=folder) as name, _complaints() as heard:
        play = _Play(make(Random(seed)), rng, Path(name), heard)
        try:
            play.script(steps)
        finally:
            play.close()
        return play.events


@contextmanager
def _complaints() -> Iterator[list[logging.LogRecord]]:
    """Collect what the live half says of its own faults."""
    heard: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = heard.append  # type: ignore[method-assign, assignment]
    logger = logging.getLogger("interlane.live")
    level, passes_on = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = passes_on


def _rates(rng: Random) -> Rates:
    """Return how much goes wrong: in some scripts nothing, so that the rest is seen."""
    if rng.random() < 0.2:
        return Rates()
    return Rates(*(rng.choice((0.0, 0.1, 0.3)) for _ in range(4)))


@dataclass
class _Look:
    """A look at the engine, which takes its time."""

    known: "Future[list[Attempt]]"
    seen: Observation | None = None


@dataclass
class _Play:
    """One script, and all that it has to remember."""

    world: EngineWorld
    rng: Random
    folder: Path
    complaints: list[logging.LogRecord]
    acknowledged: set[JobId] = field(default_factory=set)
    asked: "list[Future[JobRecord]]" = field(default_factory=list)
    cancelled: set[JobId] = field(default_factory=set)
    told: list[Report] = field(default_factory=list)
    """What earlier engines have said of attempts."""
    stopped: set[Attempt] = field(default_factory=set)
    """What earlier engines were asked to stop."""
    stopped_for_good: set[Attempt] = field(default_factory=set)
    """Those of them whose jobs nobody wanted any more."""
    most: dict[MachineId, Machine] = field(default_factory=dict)
    """Each machine as it was when it was largest."""
    look: _Look | None = None
    submitted: int = 0
    copied: set[JobId] = field(default_factory=set)
    """What was acknowledged when the store was last copied."""
    over: dict[Attempt, NeverBegan | Ended] = field(default_factory=dict)
    """Attempts of which it was said that they are over, or never begin."""
    heard: list[int] = field(default_factory=lambda: [0, 0])
    """How much of what this engine said is among them."""
    demands: dict[str, Demand] = field(default_factory=dict)
    """What an instance of each job asks for, by the job's uid."""
    ended: dict[JobId, JobRecord | None] = field(default_factory=dict)
    """Jobs that are not open, as they are stored after so many commits."""
    ended_as_of: int = -1
    events: int = 0
    """What has happened so far: moves, turns of the driver and steps of the world."""

    def __post_init__(self) -> None:
        self.rates = _rates(self.rng)
        self.gangs = self.rng.choice((0.2, 0.8))
        self.fuse = Fuse()
        self._uids = count(1)
        self._open()

    # -- lives ------------------------------------------------------------------------

    def _open(self) -> None:
        """Let a server begin on what there is."""
        path = self.folder / "state.db"
        if not path.exists():
            copy(_empty_store(), path)
        self.store = FaultyStore(f"sqlite:///{path}", self.fuse)
        self.raw = self.world.engine()
        self.gate = FaultyDelivery(self.raw, self.rng, self.rates, self.fuse)
        self.driver = Driver(
            self.store,
            SchedulerPlan(_scheduler),
            self.gate,
            clock=self.world.clock,
            new_uid=lambda: f"{next(self._uids):016x}",
        )
        self.look, self.heard, self.ended_as_of = None, [0, 0], -1
        self.driver.open()

    def _die(self) -> None:
        """Kill the server and let another take over."""
        self._note_answers()
        self.fuse.left = None
        before = self.world.running()
        self.close()
        ended = {*self.gate.stopped, *self.world.exits(), *self.world.struck()}
        lost = before.keys() - self.world.running().keys() - ended
        demand(not lost, "what runs goes on", f"{lost} ended with the server.")
        self._note_ends()
        self.told += self._said()
        self.stopped |= self.gate.stopped
        self.stopped_for_good |= self.gate.cancelled
        if self.gate.traits.keeps_record and self.rng.random() < 0.4:
            self._lose_store()
        elif self.world.limits.restores:
            self._copy_or_restore()
        self._open()

    def _copy_or_restore(self) -> None:
        """Keep a copy of the store, or put back an old one: what came after it is forgotten.

        What is forgotten may run still, or have ended, under a name that is given again.
        """
        now, copied = self.folder / "state.db", self.folder / "copy.db"
        what = self.rng.random()
        if what < 0.3:
            copy(now, copied)
            self.copied = set(self.acknowledged)
        elif what < 0.5 and copied.exists():
            for path in self.folder.glob("state.db*"):
                path.unlink()
            copy(copied, now)
            self.acknowledged &= self.copied
            self.asked.clear()
            # Who has forgotten an attempt that never began asks for it under its number again.
            self._note_ends()
            self.over = {at: one for at, one in self.over.items() if isinstance(one, Ended)}

    def close(self) -> None:
        """Let the server end without a word."""
        self.store.close()
        self.world.engine_died(self.raw)

    def _lose_store(self) -> None:
        """Lose all but what the engine keeps: what runs, and what came in through it."""
        for path in self.folder.glob("state.db*"):
            path.unlink()
        ending = {*self.world.exits(), *self.stopped}
        self.acknowledged &= {
            one.job_id
            for one in self.world.running()
            if self._is_whole(one) and one not in ending  # it may be over before anybody looks
        }
        self.asked.clear()

    def _is_whole(self, attempt: Attempt) -> bool:
        """Tell whether all of an attempt runs that was begun, and not only asked for."""
        record = self.driver.open_record(attempt.job_id)
        if record is None or record.placement is None or record.attempt != attempt.number:
            return False
        spots = record.placement.spots
        begun = Placement(spots[: len(spots) - record.growing])
        return _instances(begun) <= _instances(self.world.running()[attempt])

    def _said(self) -> list[Report]:
        return [*self.gate.reports.told, *self.gate.looked]

    # -- the script -------------------------------------------------------------------

    def script(self, steps: int) -> None:
        """Play everything: jobs come, then fewer, all comes to rest and runs to its end."""
        self._moves(steps * 2 // 3, submits=self.rng.choice((3, 8, 16, 24)), finishes=8)
        self._moves(steps // 3, submits=1, finishes=16)
        self._come_to_rest()
        self._repeat_what_was_said()
        self._run_out()
        self._check_timelines()

    def _moves(self, steps: int, *, submits: int, finishes: int) -> None:
        """Do one thing after another; how often which is a matter of weights."""
        moves = (
            (self._submit, submits),
            (self._cancel, 5),
            (self._finish, finishes),
            (self._late, 6),
            (self._look, 14),
            (self._pass_time, 6),
            (self.world.mishap, 12),
            (self._drain, 2),
            (self._fail_commit, 1),
            (self._light_fuse, 1),
            (self._die, 1),
        )
        # Scripts differ in what they are about: much of something shows what a little hides.
        weights = [weight * self.rng.choice((0.2, 1.0, 1.0, 3.0)) for _, weight in moves]
        for _ in range(steps):
            (move, _), *_ = self.rng.choices(moves, weights)
            self._unless_killed(move)
            self.events += 1
            self.audit()
            pace = self.world.limits.pace
            works = (self._work,) * (self.rng.randint(1, pace) if pace > 1 else 1)
            for follows in (self._turn, *works, self._turn):
                if self.rng.random() < 0.5:
                    follows()
                    self.events += 1
                    self.audit()

    def _unless_killed(self, move: Callable[[], object]) -> None:
        """Do something at which the server may die; then another takes over."""
        try:
            move()
        except Killed:
            self._die()

    def _turn(self) -> None:
        self._unless_killed(lambda: self.driver.turn(waits=False))
        self._note_answers()

    def _work(self) -> None:
        self._unless_killed(self.world.work)

    def _submit(self) -> None:
        self.submitted += 1
        with suppress(NotReady):
            self.asked.append(self.driver.submit(self._job(), self.rng.choice(("ann", "bob"))))

    def _job(self) -> JobSpec:
        rng, limits = self.rng, self.world.limits
        gpu: dict[str, object] = {"count": rng.choice((0, 1, 1, limits.gpus_max))}
        if gpu["count"] == 1 and rng.random() < 0.5:
            gpu["compute"] = rng.choice(("250m", "500m"))
        nodes = limits.nodes_max if rng.random() < self.gangs else 1
        gang: dict[str, object] = {"nodes": nodes}
        if limits.elastic and rng.random() < 0.7:
            gang["min"] = 1
        name, priority = rng.choice(("a", "b", "c")), rng.choice((10, 50, 90))
        said = {
            "name": name,
            "run": self.world.command(),
            "priority": priority,
            "resources": {"gpu": gpu, "cpu": rng.choice((0, 1))},
            "gang": gang,
            "checkpoint": {"grace": "1s"},
        }
        return _read(json.dumps(said))

    def _cancel(self) -> None:
        known = sorted(self.acknowledged)
        if known:
            job_id = self.rng.choice(known)
            self.cancelled.add(job_id)
            with suppress(NotReady):
                self.driver.cancel(job_id, "ann")

    def _finish(self) -> None:
        """Let a job end that somebody knows: others go on until they are stopped."""
        running = sorted(self.world.running(), key=str)
        running = [one for one in running if self.driver.open_record(one.job_id)]
        if running:
            self.world.finish(self.rng.choice(running), self.rng.choice((0, 0, 3)))

    def _late(self) -> None:
        self.gate.reports.deliver()

    def _look(self) -> None:
        """Take the next step of a look: ask what is known, look, and say what was seen."""
        if self.look is None:
            self.look = _Look(self.driver.attempts())
        elif self.look.seen is not None:
            self.driver.observed(self.look.seen)
            self.look = None
        elif self.look.known.done():
            try:
                self.look.seen = self.gate.observe(self.look.known.result())
            except OSError:  # the machine lacks something: the next look may see more
                self.look = None

    def _pass_time(self) -> None:
        self.world.wait(self.rng.choice((0.1, 2.0, 40.0)))

    def _drain(self) -> None:
        machines = sorted(self.driver.snapshot().machines.known)
        if machines:
            drained = self.rng.random() < 0.5
            with suppress(NotReady):
                self.driver.drain(self.rng.choice(machines), "op", drained=drained)

    def _fail_commit(self) -> None:
        self.store.fails_next = True

    def _light_fuse(self) -> None:
        self.fuse.left = self.rng.randrange(6)

    def _note_answers(self) -> None:
        """Note which submissions were acknowledged."""
        open_ = []
        for future in self.asked:
            if not future.done():
                open_.append(future)
            elif future.exception() is None:
                self.acknowledged.add(future.result().id)
        self.asked = open_

    # -- at every moment --------------------------------------------------------------

    def audit(self) -> None:
        """Check what must hold at every moment."""
        for complaint in self.complaints:
            error = complaint.exc_info[1] if complaint.exc_info else None
            raise ContractBroken("no cycle fails", complaint.getMessage()) from error
        self._note_ends()
        running = self.world.running()
        _check_once(self.world.begun())
        _check_one_at_a_time(running)
        for attempt in running:
            match self.over.get(attempt):
                case NeverBegan():
                    what = f"{attempt} runs, which was said never to begin."
                    demand(False, "never means never", what)
                case Ended():
                    what = f"{attempt} runs, which was said to have ended."
                    demand(False, "over means over", what)
                case None:
                    pass
        self._check_capacity(running)

    def _note_ends(self) -> None:
        """Take in what the engine has said since this was last asked."""
        for nth, said in enumerate((self.gate.reports.told, self.gate.looked)):
            new = [
                one for one in said[self.heard[nth] :] if isinstance(one, NeverBegan | Ended)
            ]
            self.over |= {one.attempt: one for one in new}
            self.heard[nth] = len(said)
            begun = self.world.begun() if new and self.world.limits.keeps_traces else {}
            for one in new:
                has_begun = isinstance(one, NeverBegan) and begun.get(one.attempt)
                what = f"{one.attempt} was said never to have begun, and has."
                demand(not has_begun, "never means never", what)

    def _check_capacity(self, running: Mapping[Attempt, Placement]) -> None:
        """Check that what we run nowhere exceeds the most that a machine ever had."""
        there = self.world.machines()
        for machine in there.values():
            had = self.most.get(machine.id)
            if had is not machine and (had is None or had.gpu_milli < machine.gpu_milli):
                self.most[machine.id] = machine
        used: dict[MachineId, Counter[str]] = {}
        for attempt, placement in running.items():
            job = self._demand_of(attempt)
            if job is None:
                continue  # nobody's: it takes what it finds
            for spot in placement.spots:
                if spot.machine not in there:
                    what = f"{attempt} runs on {spot.machine}, which is gone."
                    raise ContractBroken("machines that are there", what)
                taken = used.setdefault(spot.machine, Counter())
                taken["cpu"] += spot.instances * job.cpu_milli
                for gpu in spot.gpus:
                    taken[f"gpu {gpu}"] += spot.instances * job.gpu_milli
        for machine_id, taken in used.items():
            _check_fits(self.most[machine_id], taken)

    def _demand_of(self, attempt: Attempt) -> Demand | None:
        """Return what an instance of its job asks for; jobs that have ended are read once."""
        job_id = attempt.job_id
        record = self.driver.open_record(job_id)
        if record is None:
            if self.ended_as_of != self.store.commits:
                self.ended, self.ended_as_of = {}, self.store.commits
            if job_id not in self.ended:
                self.ended[job_id] = self.store.job(job_id)
            record = self.ended[job_id]
        if record is None or record.uid != attempt.uid:
            return None
        if record.uid not in self.demands:  # what a job asks for never changes here
            self.demands[record.uid] = _demand(record)
        return self.demands[record.uid]

    # -- at rest ----------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """Let nothing go wrong any more, and wait until the world is as the records say."""
        self.fuse.left, self.store.fails_next = None, False
        self.rates.lost = self.rates.doubled = self.rates.late = self.rates.stale = 0.0
        self.world.calm()
        self._eventually(self._check_rest)

    def _eventually(self, check: Callable[[], None]) -> None:
        for left in reversed(range(ROUNDS_MAX)):
            self._round()
            self.audit()
            try:
                check()
            except ContractBroken:
                if not left:
                    raise
            else:
                return

    def _round(self) -> None:
        """Let everybody do all that there is to do, look once, and let time pass."""
        self.gate.reports.deliver(everything=True)
        self._work_off()
        while self.look is not None:
            self._unless_killed(self._look)
            self._turn()
        for _ in range(LOOK_STEPS):
            self._unless_killed(self._look)
            self._turn()
        self._work_off()
        self._unless_killed(lambda: self.world.wait(40.0))
        self._turn()

    def _work_off(self) -> None:
        self._turn()
        while self.world.work():
            while self.world.work():
                pass
            self._turn()

    def _check_rest(self) -> None:
        """Check that the world, the records and the scheduler say the same."""
        records = {one.id: one for one in self.driver.open_records()}
        holders = [one for one in records.values() if one.state in HOLDING]
        running = {at: _instances(place) for at, place in self.world.running().items()}
        for record in holders:
            what = f"Job {record.id} is {record.state} (growing {record.growing})."
            is_at_rest = record.state is JobState.RUNNING and not record.growing
            demand(is_at_rest, "comes to rest", what)
        recorded = {
            attempt_of(one): _instances(one.placement or Placement(())) for one in holders
        }
        for attempt in running.keys() - recorded.keys():
            demand(False, "unknown attempts end", f"{attempt} runs and is not on record.")
        for attempt in recorded.keys() - running.keys():
            demand(False, "lost reports are made good", f"{attempt} does not run.")
        for attempt, instances in recorded.items():
            what = f"{attempt} runs as {running[attempt]}, not {instances}."
            demand(running[attempt] == instances, "a gang runs as a whole", what)
        for record in records.values():
            is_wanted = record.key is None or record.key not in self.world.withdrawn()
            what = f"Job {record.id} is {record.state}, but nobody wants it."
            demand(is_wanted, "withdrawn jobs end", what)
        self._check_machines()
        self._check_scheduler(records)

    def _check_machines(self) -> None:
        known = self.driver.snapshot().machines
        machines = self.world.machines()
        there = frozenset(machines)
        what = f"The driver knows {sorted(known.known)}, there are {sorted(there)}."
        demand(dict(known.known) == dict(machines), "machines are known", what)
        demand(
            known.drained_there & there == self.world.drained() & there,
            "drains are known",
            f"{sorted(known.drained_there)} are drained by the driver.",
        )
        taken = {one: what for one, what in known.occupied.items() if what != Occupied(one)}
        demand(taken == dict(self.world.occupied()), "occupied is known", f"Known is {taken}.")

    def _check_scheduler(self, records: Mapping[JobId, JobRecord]) -> None:
        def question(scheduler: Scheduler, now_s: float) -> dict[JobId, Placement | None]:
            scheduler.check()
            return {job_id: scheduler.placement(job_id) for job_id in records}

        asked = self.driver.ask(question)
        self._turn()
        for job_id, placement in asked.result(0).items():
            what = f"The scheduler has job {job_id} at {placement}."
            demand(
                placement == records[job_id].placement, "the scheduler's state balances", what
            )

    def _repeat_what_was_said(self) -> None:
        """Say again what was said of attempts that are over: it must change nothing."""
        current = {attempt_of(one) for one in self.driver.open_records()}
        old = [
            one
            for one in [*self.told, *self._said()]
            if isinstance(one, Begun | Ended | NeverBegan | Grew | NeverGrew)
            and one.attempt not in current
        ]
        before = self.store.ends().seq
        self.gate.reports.repeat(old)
        self._turn()
        self.world.wait(40.0)
        self._turn()
        noted = [one for one in self.store.log(before) if not isinstance(one.what, TIME)]
        what = f"{len(old)} reports of attempts that are over were noted: {noted}."
        demand(not noted, "late reports change nothing", what)

    # -- to the end -------------------------------------------------------------------

    def _run_out(self) -> None:
        """Let every job end that is left."""
        self.world.restore()
        for machine_id in sorted(self.driver.snapshot().machines.drained_here):
            self.driver.drain(machine_id, "op", drained=False)
        machines = list(self.world.machines().values())
        for record in self.driver.open_records():
            if not _could_run(record, machines):  # it waits for others, and may for ever
                self.cancelled.add(record.id)
                self.driver.cancel(record.id, "ann")
        self._eventually(self._check_rest)
        for _ in range(ROUNDS_MAX + len(self.driver.open_records())):
            running = list(self.world.running())
            for attempt in running[: (len(running) + 1) // 2]:  # what is left may grow
                self.world.finish(attempt, 0)
            self._eventually(self._check_rest)
            if not self.driver.open_records():
                return
        left = [f"{one.id} ({one.state})" for one in self.driver.open_records()]
        demand(False, "every job ends", f"{', '.join(left)} did not.")

    def _check_timelines(self) -> None:
        """Check that nothing was lost, and that every end is told once and truly."""
        records = {one.id: one for one in self.store.jobs(JobsWanted(limit=100_000))}
        log = list(self.store.whole_log())
        demand(fold(log) == records, "the log folds to the records", "It does not.")
        found = replay(log, lambda settings: _scheduler)
        demand(found.difference is None, "the log replays", str(found.difference))
        _check_starts(log)
        self._check_cancels()
        lost = self.acknowledged - records.keys()
        demand(not lost, "nothing acknowledged is lost", f"{sorted(lost)} are.")
        ends = Counter(entry.job_id for entry in log if isinstance(entry.what, LAST))
        exits = self.world.exits()
        for record in records.values():
            what = f"Job {record.id} is {record.state} and has ended {ends[record.id]} times."
            demand(ends[record.id] == 1 and record.state in ENDED, "every job ends once", what)
            self._check_end(record, exits.get(attempt_of(record), -1))

    def _check_cancels(self) -> None:
        """Check that what was stopped for good has not run again with an older copy."""
        if not self.world.limits.keeps_cancels:
            return
        said = {at: one for at, one in self.over.items() if isinstance(one, Ended)}
        asked = self.stopped_for_good | self.gate.cancelled
        gone = [at for at in asked & said.keys() if said[at].why in ("stopped", "cancelled")]
        last = {at.uid: at.number for at in gone}
        for attempt in self.world.begun():
            what = f"{attempt} ran though attempt {last.get(attempt.uid)} was to be the last."
            is_right = attempt.number <= last.get(attempt.uid, attempt.number)
            demand(is_right, "cancelled means cancelled", what)

    def _check_end(self, record: JobRecord, exit_code: int | None) -> None:
        """Check one end; -1 stands for an attempt that did not end by itself."""
        what = f"Job {record.id} is {record.state}, its exit code was {exit_code}."
        match record.state:
            case JobState.SUCCEEDED:
                demand(exit_code == 0, "ends are true", what)
            case JobState.FAILED:
                told, stopped = [*self.told, *self._said()], self.stopped | self.gate.stopped
                failed = exit_code not in (0, -1) or _refused(record, told, stopped)
                demand(failed, "ends are true", what)
            case JobState.CANCELLED:
                was_asked = record.id in self.cancelled or record.key in self.world.withdrawn()
                is_true = was_asked or _ended_unseen(record, self.told)
                demand(is_true, "ends are true", what)
            case _:
                pass


def _ended_unseen(record: JobRecord, told: Iterable[Report]) -> bool:
    """Tell whether a job that came in through the engine ended after the copy was made.

    Nobody there wants it any more, and nobody tells a server with an older copy why.
    """
    ended = [one for one in told if isinstance(one, Ended)]
    return record.key is not None and any(
        one.attempt.uid == record.uid and one.attempt.number > record.attempt for one in ended
    )


def _refused(record: JobRecord, told: Iterable[Report], stopped: Collection[Attempt]) -> bool:
    """Tell whether a job could not begin or was cut off, and more often than it may.

    Neither counts that was stopped, nor what a machine lacked for the moment.
    """
    over = [
        one
        for one in told
        if isinstance(one, NeverBegan | Ended) and one.attempt.uid == record.uid
    ]
    never = {one.attempt for one in over if isinstance(one, NeverBegan) and not one.lacks}
    cut_off = {one.attempt for one in over if isinstance(one, Ended) and one.was_cut_off}
    return len(never.difference(stopped)) >= START_TRIES or len(cut_off) > record.job.retries


@lru_cache(maxsize=1_000)
def _read(said: str) -> JobSpec:
    """Return the job that a document describes; there are few different ones."""
    return read_spec(json.loads(said))


def _scheduler(cluster: Cluster, workload: RequestCounts) -> Scheduler:
    """Return the scheduler of every driver."""
    return Scheduler(cluster, POLICY)


def _demand(record: JobRecord) -> Demand:
    """Return what an instance of a job of the suite asks for."""
    gpu = record.job.resources.gpu
    share = 1000 if gpu is None or gpu.compute is None else int(str(gpu.compute)[:-1])
    cpu_milli = 1000 * int(record.job.resources.cpu)
    return Demand(gpu.count if gpu else 0, share, cpu_milli=cpu_milli)


def _could_run(record: JobRecord, machines: Iterable[Machine]) -> bool:
    """Tell whether a job would fit if nobody else were there."""
    asks, gang = _demand(record), record.job.gang
    room = 0
    for machine in machines:
        by_gpu = machine.gpus // asks.gpus * (1000 // asks.gpu_milli) if asks.gpus else 1_000
        by_cpu = machine.cpu_milli // asks.cpu_milli if asks.cpu_milli else 1_000
        room += min(by_gpu, by_cpu)
    return room >= (gang.min or gang.nodes)


def _check_starts(log: Iterable[LogEntry]) -> None:
    """Check that nothing has started by the log of which it says then that it could not."""
    started: set[JobId] = set()
    for entry in log:
        job_id = entry.job_id
        if job_id is None or entry.is_void:
            continue
        if isinstance(entry.what, Start):
            started.discard(job_id)
        elif isinstance(entry.what, Started):
            started.add(job_id)
        elif isinstance(entry.what, StartFailed):
            what = f"Job {job_id} had started and then failed to (entry {entry.seq})."
            demand(job_id not in started, "what started has started", what)


def _check_once(begun: Mapping[Attempt, int]) -> None:
    for attempt, times in begun.items():
        if times > 1:
            raise ContractBroken("an attempt begins once", f"{attempt} began {times} times.")


def _check_one_at_a_time(running: Mapping[Attempt, Placement]) -> None:
    jobs = {(attempt.job_id, attempt.uid) for attempt in running}
    if len(jobs) < len(running):
        counts = Counter((attempt.job_id, attempt.uid) for attempt in running)
        ((job_id, _), many), *_ = counts.most_common(1)
        raise ContractBroken("one attempt at a time", f"{many} attempts at {job_id} run.")


def _check_fits(machine: Machine, taken: Mapping[str, int]) -> None:
    for what, amount in taken.items():
        has = machine.cpu_milli if what == "cpu" else 1000
        if amount > has:
            said = f"{amount} of {what} are used on {machine.id}, which has {has}."
            raise ContractBroken("within capacity", said)


def _instances(placement: Placement) -> Counter[tuple[str, tuple[int, ...], int]]:
    """Return where each instance runs, however they are written down together."""
    return Counter(
        (spot.machine, spot.gpus, spot.task)
        for spot in placement.spots
        for _ in range(spot.instances)
    )


_EMPTY: Final[list[tuple[TemporaryDirectory[str], Path]]] = []


def _empty_store() -> Path:
    """Return a store without jobs; it is made once, because that takes a while."""
    if not _EMPTY:
        folder = TemporaryDirectory(prefix="interlane-")
        path = Path(folder.name) / "empty.db"
        Store(f"sqlite:///{path}").close()
        _EMPTY.append((folder, path))
    return _EMPTY[0][1]
