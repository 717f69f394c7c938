"""All functions: takes requests in, keeps replicas, stores what is deployed.

Everything here runs on the server's event loop.  The function scheduler decides how many
replicas there are, where, and which go: it is told what happens, and what it answers is carried
out.  Three things recur: a *sweep* that kills what hangs, a *slot* after which it is decided
anew what is warm, and news of jobs, which take their memory from functions.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from interlane.functions.costs import Prices
from interlane.functions.events import (
    DevicesChanged,
    DropReason,
    DropReplica,
    FunctionAction,
    FunctionDeployed,
    FunctionEvent,
    FunctionTimed,
    FunctionWithdrawn,
    JobsHeld,
    LoadReplica,
    PairsFitted,
    QueueReplica,
    RefuseReplica,
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.scheduler import FunctionScheduler
from interlane.functions.watch import Forecast, MakeForecast, watches_of
from interlane.live.files.function import FunctionSpec, terms_of
from interlane.live.functions.calls import Call, CallOutcome, Reply, UnsentAnswers
from interlane.live.functions.colocation import holdings_of
from interlane.live.functions.deployed import Deployed
from interlane.live.functions.interference_reports import Sides
from interlane.live.functions.port import JobsPort, LearnedStore, ReplicaEngine
from interlane.live.functions.replicas import Replica, ReplicaState
from interlane.live.functions.status import FunctionStatus, status_of
from interlane.live.measure import occupancy
from interlane.live.measure.coruns import CoRun, SoloSpeed, function_workload
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.store.rows import FunctionRow
from interlane.model import (
    InterlaneError,
    InvalidField,
    Machine,
    MachineId,
    Workload,
    amounts,
)
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import BOUNDED, make_colocator
from interlane.policy.colocate.interference import SlowdownTarget
from interlane.predict.arrivals.series import HOUR_S
from interlane.predict.slowdown.table import SlowdownTable

SWEEP_S: Final = 0.25
LOOK_EVERY: Final = 4
"""Sweeps between two looks at jobs and calls."""
BEHIND_S: Final = 1.0
"""Slots that have passed by more than this, or by more than one, are not made up for."""
FOLLOW_S: Final = 0.05
"""Seconds in which news of jobs are gathered: a busy server has hundreds a second."""
EVICTED_S: Final = 1.0
"""Seconds that calls get to end when their replica must make way."""

USE: Final = 0.01
"""Share of a device that a function is thought to keep busy."""

log = logging.getLogger("interlane.live")

Recorder = Callable[[float, FunctionEvent, tuple[FunctionAction, ...]], None]
"""Told of every event, when it was, and what the function scheduler answered."""


class NoSuchFunction(InterlaneError):
    """There is no function of this name."""


class NotYours(InterlaneError):
    """The function is somebody else's."""


class TooManyFunctions(InterlaneError):
    """There are as many functions as there may be."""


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """How functions are kept warm."""

    slot_s: float = 10.0
    """Seconds after which it is decided anew."""
    forecast: MakeForecast | None = None
    """Makes the forecast of a function; one that begins with nothing unless given."""
    prices: Prices = field(default_factory=Prices)
    first_s: float = 30.0
    """Seconds that a function which was just deployed stays warm, whatever is forecast."""
    functions_max: int = 1_000
    functions_per_user: int = 100
    answers_mib: int = 256
    """Answers that have not been sent, of all functions."""
    colocate: str = BOUNDED
    """The policy by which functions share devices with jobs."""
    trained: Mapping[SlowdownTarget, SlowdownTable] | None = None
    """What is thought of pairs that were never measured here."""
    refit: Callable[[], Mapping[SlowdownTarget, SlowdownTable]] | None = None
    """Fits a model of pairs to everything that this machine has measured; slow."""
    learned: LearnedStore | None = None
    """Where what was learned outlives the server."""
    record: Recorder | None = None
    leads: Forecast = Forecast.PORTFOLIO
    """Whether the forecast decides alone, or leads a portfolio."""


class Gateway:
    """See the module's text."""

    def __init__(
        self, jobs: JobsPort, replicas: ReplicaEngine, settings: FunctionSettings
    ) -> None:
        self.jobs = jobs
        self.settings = settings
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self.scheduler = FunctionScheduler(
            make_colocator(settings.colocate, deepcopy(settings.trained)),
            slot_s=settings.slot_s,
            make_watch=watches_of(settings.forecast, settings.slot_s, settings.leads),
            prices=settings.prices,
        )
        self.sides = Sides(self.scheduler.ledger, jobs.monitor, self._keep)
        self._functions: dict[str, Deployed] = {}
        self._closing: set[Deployed] = set()
        """Functions that are gone but for replicas that still answer."""
        self._changes = asyncio.Lock()
        self._machines: tuple[Machine, ...] = ()
        self._ended: list[int] = []
        """Replicas whose end the scheduler has not heard of."""
        self._tasks: list[asyncio.Task[None]] = []
        self.answers = UnsentAnswers(settings.answers_mib << 20)
        self._warmed_up = self._loop.run_in_executor(None, warm_up)
        """Loads compiled code before the first decision, while others are served."""
        self._next_slot = self._loop.create_future()
        self._kept: asyncio.Future[None] = self._loop.create_future()
        """The last writing of what was learned."""
        self._kept.set_result(None)
        self._fitting: asyncio.Task[None] | None = None

    async def start(self, news: Callable[[], Awaitable[object]]) -> None:
        """Take up the functions that are stored, and begin."""
        rows = await asyncio.to_thread(self.jobs.store.functions)
        if self.settings.learned is not None:
            kept = await asyncio.to_thread(self.settings.learned.read)
            for unusable in self.scheduler.restore(kept):
                log.warning("%s", unusable)
        if rows:
            await self._warmed_up
        self._follow_jobs()
        for row in rows:
            try:
                self._put(row)
            except (InterlaneError, ValueError) as error:
                log.error("Function %s cannot be read; deploy it again: %s", row.name, error)
        for endless in (self._sweeping(), self._slots(), self._following(news)):
            self._tasks.append(self._loop.create_task(endless))

    async def close(self) -> None:
        """End all replicas."""
        tasks = [*self._tasks, *([] if self._fitting is None else [self._fitting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.settings.learned is not None:
            learned = self.scheduler.snapshot(self.jobs.now_s())
            await asyncio.to_thread(self.settings.learned.write, learned)
        for deployed in self._functions.values():
            deployed.close()
        self._replicas.close()
        for deployed in (*self._functions.values(), *self._closing):
            deployed.release()

    # -- what is deployed -------------------------------------------------------------

    async def deploy(self, spec: FunctionSpec, user: str, *, is_admin: bool) -> FunctionStatus:
        """Store a function, in place of the one of its name, and load it once."""
        self._must_fit(spec)
        self._replicas.check(spec, user, is_admin=is_admin)
        await self._warmed_up
        async with self._changes:
            old = self._functions.get(spec.name)
            if old is not None:
                _must_own(old, user, is_admin=is_admin)
            elif len(self._functions) >= self.settings.functions_max:
                most = self.settings.functions_max
                raise TooManyFunctions(f"There are {most:,} functions; delete one first.")
            elif self._owned_by(user) >= self.settings.functions_per_user:
                most = self.settings.functions_per_user
                raise TooManyFunctions(f"{user} has {most:,} functions; delete one first.")
            said = spec.model_dump(mode="json", exclude_defaults=True)
            version = 1 if old is None else old.version + 1
            row = FunctionRow(spec.name, user, version, self.jobs.now_s(), json.dumps(said))
            await asyncio.to_thread(self.jobs.store.put_function, row)
            self._follow_jobs()
            self._observe()
            self._put(row, self.jobs.now_s() + self.settings.first_s)
        return self.status(spec.name)

    async def delete(self, name: str, user: str, *, is_admin: bool) -> None:
        """Forget a function; who waits for it is told so."""
        async with self._changes:
            deployed = self.function(name)
            _must_own(deployed, user, is_admin=is_admin)
            await asyncio.to_thread(self.jobs.store.drop_function, name)
            if self.settings.learned is not None:
                await asyncio.to_thread(self.settings.learned.drop, name)
            del self._functions[name]
            self._tell(FunctionWithdrawn(name))
            self.sides.forget(name)
            for call in self._let_go(deployed):
                call.end(Reply(CallOutcome.UNAVAILABLE, f"{name} was deleted.".encode()))

    def _must_fit(self, spec: FunctionSpec) -> None:
        """Refuse a function of which no device could hold a replica, even when it is empty."""
        needs_mib = terms_of(spec).memory_mib
        machines = self.jobs.snapshot().cluster
        most_mib = max(
            (one.device(gpu).memory_mib for one in machines for gpu in range(one.gpus)),
            default=None,
        )
        if most_mib is not None and needs_mib > most_mib:
            rule = f"the largest device has {amounts.written(most_mib << 20)}; ask for less"
            raise InvalidField("memory", spec.memory, rule)

    def _owned_by(self, user: str) -> int:
        return sum(one.user == user for one in self._functions.values())

    def _put(self, row: FunctionRow, kept_until_s: float = 0.0) -> None:
        spec = FunctionSpec.model_validate_json(row.spec)
        terms = terms_of(spec)
        deployed = Deployed(
            row.name,
            row.user,
            row.version,
            row.deployed_s,
            spec,
            terms,
            self._replicas,
            self._short,
            self._gone,
        )
        old = self._functions.get(row.name)
        self._functions[row.name] = deployed
        self.sides.watch(deployed)
        need = Function(
            row.name,
            str(function_workload(row.name)),
            terms.memory_mib,
            USE,
            disk_load_s=deployed.load_s_expected,
        )
        self._tell(
            FunctionDeployed(
                need,
                spec.replicas.max,
                terms.keep_s,
                spec.concurrency,
                is_loaded=kept_until_s > 0.0,
                kept_until_s=kept_until_s,
            )
        )
        if old is not None:
            for call in self._let_go(old):
                deployed.take(call)

    def _let_go(self, deployed: Deployed) -> list[Call]:
        """Let a function end when its replicas have answered; return who waits for it."""
        waiting = deployed.close()
        if deployed.replicas:
            self._closing.add(deployed)
        else:
            deployed.release()
        return waiting

    # -- requests ---------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def function(self, name: str) -> Deployed:
        """Return a function, or say that there is none."""
        deployed = self._functions.get(name)
        if deployed is None:
            raise NoSuchFunction(
                f"There is no function {name!r}; 'interlane function list' lists all."
            )
        return deployed

    def ask(
        self, name: str, body: bytes, deadline_s: float | None = None
    ) -> "asyncio.Future[Reply]":
        """Take a request in; a deadline of its own can only be sooner."""
        deployed = self.function(name)
        own_s = deployed.terms.deadline_s
        return deployed.ask(body, own_s if deadline_s is None else min(own_s, deadline_s))

    # -- replicas ---------------------------------------------------------------------

    def _short(self, deployed: Deployed) -> None:
        """Ask for one more replica, if need be in the place of idle ones of less worth."""
        if self._functions.get(deployed.name) is not deployed:
            return
        self._follow_jobs()
        if deployed.is_full:
            return  # those who wait for a function that is deployed anew have brought one in
        self._observe()
        now_s, loop_s = self.jobs.now_s(), self._loop.time()
        until_s = now_s + deployed.latest_s - loop_s
        self._tell(ReplicasNeeded({deployed.name: 1}, {deployed.name: until_s}))

    def _tell(self, event: FunctionEvent) -> None:
        """Tell the scheduler what has happened, and do what it says."""
        now_s = self.jobs.now_s()
        actions = self.scheduler.tell(event, now_s)
        if isinstance(event, DevicesChanged):
            self.sides.follow()
        if self.settings.record is not None:
            self.settings.record(now_s, event, actions)
        for action in actions:
            if isinstance(action, LoadReplica):
                device = self.sides.devices[action.gpu]
                self._functions[action.function].grow(action.replica, device)
            elif isinstance(action, DropReplica):
                self._drop(action)
            elif isinstance(action, QueueReplica):
                deployed = self._functions[action.function]
                deployed.reason = f"{action.refusal.reason} {action.refusal.remedy}"
            else:
                self._refuse(action)

    def _drop(self, action: DropReplica) -> None:
        """Let a replica go; who must make way for jobs gets a moment to answer."""
        if action.why is DropReason.WITHDRAWN:
            return  # it goes with its function
        for owner, replica in self._all_replicas():
            if replica.number != action.replica or replica.state is ReplicaState.LEAVING:
                continue
            owner.leave(replica)
            if action.why in (DropReason.JOB, DropReason.BOUND):
                owner.counts.evicted += 1
                self._loop.call_later(EVICTED_S, replica.kill)

    def _refuse(self, action: RefuseReplica) -> None:
        """Let nobody wait for a replica that is not to be had."""
        deployed = self._functions.get(action.function)
        if deployed is None:
            return  # it was deleted while it waited, and who waits for it is told that
        deployed.reason = f"{action.refusal.reason} {action.refusal.remedy}"
        if not deployed.replicas:
            deployed.refuse_all(
                f"{deployed.name} has no replica: {deployed.reason}", self.settings.slot_s
            )

    def _observe(self) -> None:
        """Tell the scheduler how replicas are, and which have ended, before it decides."""
        there = list(self._all_replicas())
        ready = [one.number for _, one in there if one.state is ReplicaState.READY]
        busy = frozenset(one.number for _, one in there if one.calls)
        asked = frozenset(one.name for one in self._functions.values() if one.is_asked)
        self._tell(ReplicasLoaded(tuple(ready)))
        self._tell(ReplicasObserved(busy, asked))
        if self._ended:
            ended, self._ended = tuple(self._ended), []
            self._tell(ReplicasEnded(ended))

    def _gone(self, owner: Deployed, replica: Replica) -> None:
        self._ended.append(replica.number)
        if owner in self._closing and not owner.replicas:
            self._pass_on(owner)
            self._closing.discard(owner)
            owner.release()
        self._loop.call_soon(self._tell_ended)

    def _tell_ended(self) -> None:
        if self._ended:
            self._observe()

    def _pass_on(self, owner: Deployed) -> None:
        """Let calls that came back to a version which is gone wait for the one in its place."""
        successor = self._functions.get(owner.name)
        for call in owner.close() if owner.waiting else ():
            if successor is not None:
                successor.take(call)
            else:
                said = f"{owner.name} was deleted."
                call.end(Reply(CallOutcome.UNAVAILABLE, said.encode()))

    def _all_replicas(self) -> Iterator[tuple[Deployed, Replica]]:
        for deployed in (*self._functions.values(), *self._closing):
            for one in deployed.replicas:
                yield deployed, one

    # -- what recurs ------------------------------------------------------------------

    async def _sweeping(self) -> None:
        for number in count():
            await asyncio.sleep(SWEEP_S)
            for deployed in (*self._functions.values(), *self._closing):
                deployed.sweep()
            for deployed in list(self._closing):
                self._pass_on(deployed)
            if number % LOOK_EVERY == 0 and self._functions:
                with suppress(InterlaneError):
                    self.sides.look(self._devices(), self._functions.values())

    async def _slots(self) -> None:
        begun_s = self._loop.time()
        while True:
            await asyncio.sleep(max(0.0, begun_s + self.settings.slot_s - self._loop.time()))
            behind_s = min(BEHIND_S, self.settings.slot_s)
            begun_s = max(begun_s + self.settings.slot_s, self._loop.time() - behind_s)
            try:
                self._end_slot()
            except Exception:
                log.exception("What is warm could not be decided; it stays as it is.")
            self._next_slot.set_result(None)
            self._next_slot = self._loop.create_future()

    async def next_slot(self) -> None:
        """Wait until a slot begins."""
        await asyncio.shield(self._next_slot)

    def _end_slot(self) -> None:
        self._follow_jobs()
        self._observe()
        counts = {}
        for one in self._functions.values():
            counts[one.name] = float(one.end_slot(self.scheduler.band(one.name)))
            limit = self.sides.limit(one.name)
            self._tell(FunctionTimed(one.name, one.load_s_expected, one.service_s.value, limit))
        self._tell(SlotPassed(counts))
        for event in self.sides.end_slot(self.jobs.now_s()):
            self._tell(event)
        if self.scheduler.model.is_due and self.settings.refit is not None:
            self._refit(self.settings.refit)
        self._keep_learned([name for name, asked in counts.items() if asked])

    def _keep_learned(self, asked: list[str]) -> None:
        """Write what was learned of functions that were asked, while others are served."""
        if asked and self.settings.learned is not None and self._kept.done():
            learned = self.scheduler.snapshot(self.jobs.now_s(), asked)
            self._kept = self._loop.run_in_executor(None, self.settings.learned.write, learned)

    def _refit(self, fit: Callable[[], Mapping[SlowdownTarget, SlowdownTable]]) -> None:
        """Fit the model of pairs anew while others are served, unless that goes on already."""
        if self._fitting is not None and not self._fitting.done():
            return

        async def fitted() -> None:
            try:
                tables = await self._loop.run_in_executor(None, fit)
            except (InterlaneError, OSError, ValueError) as error:
                log.warning("The slowdown of pairs could not be fitted anew: %s", error)
                tables = {}
            self._tell(PairsFitted(tables))

        self._fitting = self._loop.create_task(fitted())

    def _keep(self, coruns: Sequence[CoRun], solos: Mapping[Workload, SoloSpeed]) -> None:
        """Give co-runs to the machine's data set, while others are served."""
        self._loop.run_in_executor(None, self.jobs.monitor.tell, coruns, solos)

    async def _following(self, news: Callable[[], Awaitable[object]]) -> None:
        while True:
            await news()
            if self._functions:
                await asyncio.sleep(FOLLOW_S)
                with suppress(InterlaneError):
                    self._follow_jobs()

    def _follow_jobs(self) -> None:
        now = self.jobs.snapshot()
        machines = tuple(now.machines.known.values())
        if machines != self._machines:
            self._machines = machines
            self._observe()
            self._tell(DevicesChanged(machines))
        seen = self.jobs.monitor.seen
        held = holdings_of(now, None if seen is None else seen.named_solos)
        ledger = self.scheduler.ledger
        changed = {
            gpu: held.get(gpu, ())
            for gpu in ledger.gpus.by_id
            if held.get(gpu, ()) != ledger.held.get(gpu, ())
        }
        if changed:
            self._observe()
            self._tell(JobsHeld(changed))

    def _devices(self) -> Sequence[DeviceUse]:
        return occupancy.devices(self.jobs.snapshot(), self.jobs.monitor.seen)

    # -- what is shown ----------------------------------------------------------------

    def statuses(self) -> list[FunctionStatus]:
        """Return how all functions are, by name."""
        return [self.status(name) for name in sorted(self._functions)]

    def status(self, name: str) -> FunctionStatus:
        """Return how a function is."""
        return status_of(
            self.function(name),
            slot_s=self.settings.slot_s,
            forecast=self.scheduler.band(name),
            beside_jobs=self.sides.of_function(name),
            now_s=self._loop.time(),
        )


def _must_own(deployed: Deployed, user: str, *, is_admin: bool) -> None:
    if deployed.user != user and not is_admin:
        raise NotYours(
            f"Function {deployed.name} is {deployed.user}'s; only they or an admin may "
            "change it."
        )


def warm_up() -> None:
    """Decide something that nobody sees, so that compiled code is loaded."""
    scheduler = FunctionScheduler(make_colocator(BOUNDED), slot_s=HOUR_S)
    scheduler.tell(DevicesChanged((Machine(MachineId("m"), "ANY", 1, gpu_memory_mib=1),)), 0.0)
    scheduler.tell(FunctionDeployed(Function("f", "f", 1)), 0.0)
    scheduler.tell(SlotPassed({"f": 1.0}), HOUR_S)
    scheduler.band("f")
