"""All functions: takes requests in, keeps replicas, stores what is deployed.

Everything here runs on the server's event loop.  Three things recur: a *sweep* that kills what
hangs, a *slot* after which it is decided anew what is warm, and news of jobs, which take their
memory from functions.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from interlane.functions.costs import Prices
from interlane.functions.pool import LoadReplica, PoolAction
from interlane.live.files.function import FunctionSpec, terms_of
from interlane.live.functions.calls import Call, CallOutcome, Reply, UnsentAnswers
from interlane.live.functions.colocation import Allocator, holdings_of
from interlane.live.functions.deployed import Deployed
from interlane.live.functions.interference_reports import Sides
from interlane.live.functions.port import JobsPort, ReplicaEngine
from interlane.live.functions.replicas import Replica, ReplicaState
from interlane.live.functions.status import FunctionStatus, status_of
from interlane.live.functions.warmth import MakeForecast, WarmStatus, Warmth, warm_up
from interlane.live.measure import occupancy
from interlane.live.measure.coruns import CoRun, SoloSpeed, function_workload
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.store.rows import FunctionRow
from interlane.model import InterlaneError, InvalidField, Refusal, Workload, amounts

SWEEP_S: Final = 0.25
LOOK_EVERY: Final = 4
"""Sweeps between two looks at jobs and calls."""
BEHIND_S: Final = 1.0
"""Slots that have passed by more than this, or by more than one, are not made up for."""
FOLLOW_S: Final = 0.05
"""Seconds in which news of jobs are gathered: a busy server has hundreds a second."""
EVICTED_S: Final = 1.0
"""Seconds that calls get to end when their replica must make way."""

log = logging.getLogger("interlane.live")


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


class Gateway:
    """See the module's text."""

    def __init__(
        self, jobs: JobsPort, replicas: ReplicaEngine, settings: FunctionSettings
    ) -> None:
        self.jobs = jobs
        self.settings = settings
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._warmth = Warmth(settings.slot_s, settings.forecast, settings.prices)
        self._allocator = Allocator()
        self.sides = Sides(self._allocator, jobs.monitor, self._keep)
        self._functions: dict[str, Deployed] = {}
        self._closing: set[Deployed] = set()
        """Functions that are gone but for replicas that still answer."""
        self._changes = asyncio.Lock()
        self._numbers = count(1)
        self._wanting: dict[str, None] = {}
        """Functions for whose next replica others are leaving."""
        self._tasks: list[asyncio.Task[None]] = []
        self.answers = UnsentAnswers(settings.answers_mib << 20)
        self._warmed_up = self._loop.run_in_executor(None, warm_up)
        """Loads compiled code before the first decision, while others are served."""
        self._next_slot = self._loop.create_future()

    async def start(self, news: Callable[[], Awaitable[object]]) -> None:
        """Take up the functions that are stored, and begin."""
        rows = await asyncio.to_thread(self.jobs.store.functions)
        if rows:
            await self._warmed_up
        for row in rows:
            try:
                self._put(row)
            except (InterlaneError, ValueError) as error:
                log.error("Function %s cannot be read; deploy it again: %s", row.name, error)
        self._follow_jobs()
        for what in (self._sweeping(), self._slots(), self._following(news)):
            self._tasks.append(self._loop.create_task(what))

    async def close(self) -> None:
        """End all replicas."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
            deployed = self._put(row)
        deployed.kept_until_s = self._loop.time() + self.settings.first_s
        self._short(deployed)
        return self.status(spec.name)

    async def delete(self, name: str, user: str, *, is_admin: bool) -> None:
        """Forget a function; who waits for it is told so."""
        async with self._changes:
            deployed = self.function(name)
            _must_own(deployed, user, is_admin=is_admin)
            await asyncio.to_thread(self.jobs.store.drop_function, name)
            del self._functions[name]
            self._warmth.forget(name)
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

    def _put(self, row: FunctionRow) -> Deployed:
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
        if old is None or old.terms.keep_s != terms.keep_s:
            self._warmth.watch(row.name, terms.keep_s, self.jobs.now_s())
        if old is not None:
            for call in self._let_go(old):
                deployed.take(call)
        return deployed

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
        """Bring one more replica in, if need be in the place of idle ones of less worth."""
        self._follow_jobs()
        if deployed.is_full:
            return  # those who wait for a function that is deployed anew have brought one in
        if not self._place(deployed):
            for owner, replica in self._in_the_way(deployed):
                owner.leave(replica)
                self._wanting[deployed.name] = None
        self._refuse_in_vain(deployed)

    def _place(self, deployed: Deployed) -> bool:
        """Start a replica where there is room; return whether there was."""
        number = next(self._numbers)
        site = self._allocator.lend(
            f"{deployed.name}/{number}",
            function_workload(deployed.name),
            deployed.terms.memory_mib,
            self.jobs.now_s(),
            p99_limit=self.sides.limit(deployed.name),
            waiting=deployed.waiting,
        )
        if isinstance(site, Refusal):
            deployed.reason = f"{site.reason} {site.remedy}"
            return False
        deployed.grow(number, site)
        return True

    def _in_the_way(self, deployed: Deployed) -> list[tuple[Deployed, Replica]]:
        """Return the idle replicas on one device that are worth least and make room enough."""
        worth = self._worth()
        needed_mib = deployed.terms.memory_mib
        best: list[tuple[Deployed, Replica]] = []
        best_cost = 0.0
        for gpu, free_mib in self._allocator.free_mib().items():
            idle = [
                (other, one)
                for other in self._functions.values()
                if other is not deployed
                for one in other.status(ReplicaState.READY)
                if one.site.device.gpu == gpu and not one.calls
            ]
            chosen, cost = [], 0.0
            for other, one in sorted(idle, key=lambda pair: worth[pair[0].name]):
                if free_mib >= needed_mib:
                    break
                chosen.append((other, one))
                free_mib += other.terms.memory_mib
                cost += worth[other.name]
            if free_mib >= needed_mib and chosen and (not best or cost < best_cost):
                best, best_cost = chosen, cost
        return best

    def _worth(self) -> dict[str, float]:
        """Return what a warm replica of each function is worth."""
        device_mib = self._allocator.lendable_mib
        prewarmer = self._warmth.prewarmer(self._statuses(device_mib), device_mib)
        return {name: prewarmer.worth(name) for name in prewarmer.names}

    def _refuse_in_vain(self, deployed: Deployed) -> None:
        """Let nobody wait for a replica that is not to be had."""
        is_coming = deployed.name in self._wanting and self._anybody_leaves()
        if not deployed.replicas and not is_coming:
            deployed.refuse_all(
                f"{deployed.name} has no replica: {deployed.reason}", self.settings.slot_s
            )

    def _statuses(self, device_mib: int) -> list[WarmStatus]:
        return [
            _status(one, is_kept=self._loop.time() < one.kept_until_s)
            for one in self._functions.values()
            if one.terms.memory_mib <= device_mib
        ]

    def _carry_out(self, actions: tuple[PoolAction, ...]) -> None:
        for action in actions:
            deployed = self._functions[action.function]
            if not isinstance(action, LoadReplica):
                deployed.shrink()
            elif not deployed.is_full and not self._place(deployed):
                self._wanting[deployed.name] = None

    def _gone(self, owner: Deployed, replica: Replica) -> None:
        self._allocator.leave(replica.site.id, self.jobs.now_s())
        if owner in self._closing and not owner.replicas:
            self._pass_on(owner)
            self._closing.discard(owner)
            owner.release()
        self._loop.call_soon(self._place_wanting)

    def _pass_on(self, owner: Deployed) -> None:
        """Let calls that came back to a version which is gone wait for the one in its place."""
        successor = self._functions.get(owner.name)
        for call in owner.close() if owner.waiting else ():
            if successor is not None:
                successor.take(call)
            else:
                said = f"{owner.name} was deleted."
                call.end(Reply(CallOutcome.UNAVAILABLE, said.encode()))

    def _place_wanting(self) -> None:
        """Try again for those for whom others have left, or still do."""
        wanting, self._wanting = self._wanting, {}
        for name in wanting:
            deployed = self._functions.get(name)
            if deployed is None or deployed.is_full:
                continue
            if not self._place(deployed):
                if self._anybody_leaves():
                    self._wanting[name] = None
                self._refuse_in_vain(deployed)

    def _anybody_leaves(self) -> bool:
        return any(one.state is ReplicaState.LEAVING for _, one in self._all_replicas())

    def _all_replicas(self) -> Iterator[tuple[Deployed, Replica]]:
        for deployed in (*self._functions.values(), *self._closing):
            for one in deployed.replicas:
                yield deployed, one

    def _evict(self, replica_ids: list[str]) -> list[Deployed]:
        """Take replicas away from devices where jobs are; return their functions."""
        evicted = [
            (owner, one)
            for owner, one in self._all_replicas()
            if one.site.id in replica_ids and one.state is not ReplicaState.LEAVING
        ]
        for owner, replica in evicted:
            owner.counts.evicted += 1
            owner.leave(replica)
            self._loop.call_later(EVICTED_S, replica.kill)
        return [owner for owner, _ in evicted]

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
        counts = {
            one.name: float(one.end_slot(self._warmth.band(one.name)))
            for one in self._functions.values()
        }
        device_mib = self._allocator.lendable_mib
        statuses = self._statuses(device_mib)
        if statuses:
            prewarmer = self._warmth.prewarmer(statuses, device_mib)
            self._carry_out(prewarmer.slot_passed(counts))
        for deployed in self._evict(self.sides.end_slot(self.jobs.now_s())):
            self._wanting[deployed.name] = None  # elsewhere, once it is gone

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
        self._evict(self._allocator.follow(machines, holdings_of(now), now.now_s))

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
            forecast=self._warmth.band(name),
            beside_jobs=self.sides.of_function(name),
            now_s=self._loop.time(),
        )


def _must_own(deployed: Deployed, user: str, *, is_admin: bool) -> None:
    if deployed.user != user and not is_admin:
        raise NotYours(
            f"Function {deployed.name} is {deployed.user}'s; only they or an admin may "
            "change it."
        )


def _status(one: Deployed, *, is_kept: bool) -> WarmStatus:
    """Return how a function stands; what is kept counts as loading, which never parts."""
    ready = [] if is_kept else one.status(ReplicaState.READY)
    busy = sum(bool(replica.calls) for replica in ready)
    return WarmStatus(
        one.name,
        one.terms.memory_mib,
        one.load_s_expected,
        one.service_s.value,
        one.spec.concurrency,
        len(ready) - busy,
        busy,
        len(one.replicas) - len(ready),
    )
