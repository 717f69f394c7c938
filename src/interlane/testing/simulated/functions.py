"""The gateway of functions, with replicas, jobs and clients that a seed decides.

Replicas take their time to load, fail at it or hang, answer or raise, answer late, die with
calls in hand and end long after.  Jobs come and take memory, devices are lost, clients hang up,
functions are deployed anew and deleted, the store fails, and the server dies.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from interlane.functions.events import FunctionAction, FunctionEvent
from interlane.functions.learned import Learned
from interlane.live.driver.state import Snapshot
from interlane.live.files.function import FunctionSpec, terms_of
from interlane.live.files.job import read_spec
from interlane.live.functions.calls import CallOutcome, Reply
from interlane.live.functions.port import (
    Answered,
    CutOff,
    Ready,
    ReplicaEnded,
    ReplicaFailed,
    Tell,
)
from interlane.live.measure.monitor import Monitor
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import FunctionRow
from interlane.live.store.store import StoreFailed
from interlane.model import (
    Cluster,
    Device,
    GpuRef,
    JobId,
    Machine,
    MachineId,
    Placement,
    Spot,
    with_devices,
)
from interlane.model.lifecycle import JobState
from interlane.testing.contract import ContractBroken, demand
from interlane.testing.simulated.calls import on
from interlane.testing.simulated.loading import simulated
from interlane.testing.simulated.loop import SimulatedLoop
from interlane.testing.simulated.machine import SimulatedMachine

Result = TypeVar("Result")
HERE: Final = MachineId("here")
CARD_MIB: Final = 16_384
NAMES: Final = ("f", "g", "h")
LATE_S: Final = 0.01
"""By which an answer may miss its deadline: timers come when they come."""
LEAVES_S: Final = 3.0
"""Within which a replica is gone whose memory a job has taken, whatever it does."""
CALM_S: Final = 70.0
"""In which the longest pause after failed loads is over."""


@dataclass(eq=False)
class _Asked:
    """A call, as its client knows it."""

    number: int
    name: str
    until_s: float
    answer: "asyncio.Future[Reply]"


@dataclass(eq=False)
class _Process:
    """A replica that somebody loads."""

    world: "FunctionWorld"
    spec: FunctionSpec
    gpu: GpuRef
    tell: Tell
    pid: int | None = None
    is_ready: bool = False
    is_cut_off: bool = False
    is_over: bool = False
    grown_mib: float = 0.0
    in_hand: dict[int, list[int]] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    """Calls in hand that it has begun with."""

    def memory_mib(self) -> float | None:
        return self.grown_mib

    def send(self, number: int, bodies: Sequence[bytes]) -> None:
        """Take a call, and begin with it now or later."""
        asked = [json.loads(body)["call"] for body in bodies]
        demand(self.is_ready, "calls go to who is ready", f"{self.spec.name} got {asked}.")
        if self.is_cut_off:
            return  # it is gone, which nobody has heard of yet; CutOff will not name it
        self.in_hand[number] = asked
        much = f"{self.spec.name} has {len(self.in_hand)} calls in hand."
        demand(len(self.in_hand) <= self.spec.concurrency, "within concurrency", much)
        self.world.later(self._begin, number)

    def _begin(self, number: int) -> None:
        if number in self.in_hand and not self.is_cut_off:
            self.begun.add(number)
            for call in self.in_hand[number]:
                self.world.begin(call)
            if self.world.rng.random() > self.world.hang_rate:
                self.world.later(self._answer, number)

    def _answer(self, number: int) -> None:
        if self.is_cut_off or number not in self.in_hand:
            return
        self.begun.discard(number)
        replies = [self.world.reply(call) for call in self.in_hand.pop(number)]
        self.tell(Answered(number, replies))

    def loaded(self) -> None:
        """Come to the end of loading, well or not."""
        if self.is_cut_off:
            return
        if self.world.rng.random() < self.world.fail_rate:
            self.tell(ReplicaFailed("It could not be imported."))
            return
        self.is_ready = True
        self.tell(Ready())

    def kill(self) -> None:
        """End, soon."""
        self.world.later(self.die)

    def die(self) -> None:
        """Answer nothing more, and be gone some time later."""
        if self.is_cut_off:
            return
        self.is_cut_off = True
        self.tell(CutOff(frozenset(self.begun)))
        self.in_hand.clear()
        self.world.later(self.end)

    def end(self) -> None:
        """Be gone."""
        if not self.is_over:
            self.is_over = True
            self.tell(ReplicaEnded("It has ended."))


class _Prepared:
    def __init__(self, world: "FunctionWorld", spec: FunctionSpec) -> None:
        self._world = world
        self._spec = spec
        self.is_closed = False

    def load(self, number: int, gpu: GpuRef, tell: Tell) -> _Process:
        demand(not self.is_closed, "nothing is loaded after the end", self._spec.name)
        process = _Process(self._world, self._spec, gpu, tell)
        self._world.loaded(process)
        return process

    def close(self) -> None:
        alive = (one for one in self._world.processes if not one.is_over)
        left = [one for one in alive if one.spec is self._spec]
        demand(not self.is_closed, "what is prepared is released once", self._spec.name)
        demand(not left, "nobody is left behind", f"{len(left)} of {self._spec.name} live.")
        self.is_closed = True


class _Replicas:
    """See ``live.functions.port.ReplicaEngine``."""

    def __init__(self, world: "FunctionWorld") -> None:
        self._world = world
        self._prepared: list[_Prepared] = []

    def check(self, spec: FunctionSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse nothing."""

    def open(
        self, spec: FunctionSpec, user: str, printed: Callable[[bytes], None]
    ) -> _Prepared:
        return _Prepared(self._world, spec)

    def close(self) -> None:
        for process in list(self._world.processes):
            process.die()
            process.end()


class _Jobs:
    """The driver, as functions see it, and its store."""

    def __init__(self, world: "FunctionWorld") -> None:
        self._world = world
        self.monitor = Monitor()
        self.store = self
        self.rows: dict[str, FunctionRow] = {}
        self.records: dict[JobId, JobRecord] = {}
        self.lost: set[int] = set()
        self.fails_next = False

    def now_s(self) -> float:
        return self._world.machine.now_s

    def snapshot(self) -> Snapshot:
        # Not at the top: this brings the whole server with it.
        from interlane.testing.live import snapshot_of

        cluster = Cluster("here", (self._world.card(),))
        return snapshot_of(cluster, *self.records.values(), now_s=self.now_s())

    def functions(self) -> list[FunctionRow]:
        return list(self.rows.values())

    def _may_fail(self) -> None:
        if self.fails_next:
            self.fails_next = False
            raise StoreFailed("The disk was full for a moment.")

    def put_function(self, row: FunctionRow) -> None:
        self._may_fail()
        self.rows[row.name] = row

    def drop_function(self, name: str) -> None:
        self._may_fail()
        self.rows.pop(name, None)


class _Learned:
    """What outlives a server that dies; see ``live.functions.port.LearnedStore``."""

    def __init__(self) -> None:
        self.kept: dict[str, Learned] = {}

    def read(self) -> dict[str, Learned]:
        return dict(self.kept)

    def write(self, learned: Mapping[str, Learned]) -> None:
        self.kept |= learned

    def drop(self, name: str) -> None:
        self.kept.pop(name, None)


class FunctionWorld:
    """One script of requests; what must hold is checked after every event."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.machine = on.machine = SimulatedMachine(rng)
        on.programs = {}
        self.loop = SimulatedLoop(self.machine)
        self.gpus = rng.randint(1, 2)
        self.jobs = _Jobs(self)
        self.fail_rate = rng.choice((0.0, 0.1, 0.4))
        self.hang_rate = rng.choice((0.0, 0.02, 0.1))
        self.slow_s = rng.choice((0.01, 0.1, 1.0))
        self.processes: list[_Process] = []
        self.times_begun: Counter[int] = Counter()
        self.asked: list[_Asked] = []
        self.acknowledged: dict[str, int] = {}
        """Functions that were deployed, and the version that was said."""
        self.events = 0
        self.told: list[tuple[float, FunctionEvent, tuple[FunctionAction, ...]]] = []
        """What the function scheduler of the newest gateway was told, and answered."""
        self.learned = _Learned()
        self.restored: dict[str, Learned] = {}
        """What that scheduler began with."""
        self._calls = count(1)
        self._serials = count(1)
        self._gateway: Any = None
        self._taken_s: dict[JobId, float] = {}

    # -- what replicas and the gateway ask --------------------------------------------

    def card(self) -> Machine:
        """Return the machine, whose devices that are lost offer nothing."""
        whole = Machine(HERE, "EMULATED", self.gpus, 64_000, 65_536, CARD_MIB)
        if not self.jobs.lost:
            return whole
        devices = [whole.device(gpu) for gpu in range(self.gpus)]
        for gpu in self.jobs.lost:
            devices[gpu] = Device(devices[gpu].type, devices[gpu].memory_mib, 0)
        return with_devices(HERE, devices, cpu_milli=64_000, memory_mib=65_536)

    def later(self, work: Callable[..., None], *args: object) -> None:
        """Do something at some moment; what is later may come earlier."""
        self.loop.call_later(self.rng.expovariate(1 / self.slow_s), work, *args)

    def begin(self, call: int) -> None:
        """Note that a call is carried out."""
        self.times_begun[call] += 1
        what = f"Call {call} was begun {self.times_begun[call]} times."
        demand(self.times_begun[call] == 1, "no call is carried out twice", what)

    def reply(self, call: int) -> Reply:
        """Return what a call is answered."""
        if self.rng.random() < 0.1:
            return Reply(CallOutcome.RAISED, b"It raised.")
        return Reply(CallOutcome.GOOD, json.dumps({"call": call}).encode())

    def loaded(self, process: _Process) -> None:
        """Take a replica in, and check that there is room for it."""
        self.processes = [one for one in self.processes if not one.is_over]
        self.processes.append(process)
        here = [one for one in self.processes if one.gpu == process.gpu]
        used_mib = sum(terms_of(one.spec).memory_mib for one in here)
        what = f"{used_mib} MiB are lent of {process.gpu}, which has {CARD_MIB}."
        demand(used_mib <= CARD_MIB, "within the memory of a device", what)
        if self.rng.random() > self.hang_rate:
            self.later(process.loaded)

    # -- the script -------------------------------------------------------------------

    def play(self, events: int) -> int:
        """Play a script; return how many events there were."""
        self.run(self._script(events))
        return self.events

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something on the loop, which ends with it."""
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(work)
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            asyncio.set_event_loop(None)
            self.loop.close()

    async def _script(self, events: int) -> None:
        await self._open()
        moves = (
            (self._deploy, 1),
            (self._delete, 0.3),
            (self._ask, 20),
            (self._hang_up, 1),
            (self._kill, 2),
            (self._grow_fat, 0.5),
            (self._job_comes, 1),
            (self._job_goes, 1),
            (self._lose_device, 0.3),
            (self._fail_store, 0.2),
            (self._die, 0.1),
            (self._pass_time, 6),
        )
        weights = [weight * self.rng.choice((0.2, 1.0, 3.0)) for _, weight in moves]
        while self.events < events:
            (move, _), *_ = self.rng.choices(moves, weights)
            await move()
            self.events += 1
            self.audit()
        await self._come_to_rest()

    async def _open(self) -> None:
        make, settings = (
            simulated("interlane.live.functions.gateway").Gateway,
            simulated("interlane.live.functions.gateway").FunctionSettings,
        )
        self._replicas = _Replicas(self)
        self.told, self.restored = [], self.learned.read()
        how = settings(
            slot_s=5.0,
            record=lambda *told: self.told.append(told),
            learned=self.learned,
        )
        self._gateway = make(self.jobs, self._replicas, how)
        await self._gateway.start(self._news)
        for name in self.acknowledged:
            demand(name in self._gateway, "nothing deployed is lost", f"{name} is.")

    async def _news(self) -> None:
        await asyncio.sleep(1.0)

    async def _deploy(self) -> None:
        rng, name = self.rng, self.rng.choice(NAMES)
        spec = FunctionSpec.model_validate(
            {
                "name": name,
                "handler": "m:f",
                "memory": f"{rng.choice((2, 6, 12))}GB",
                "deadline": rng.choice(("2s", "20s")),
                "load_deadline": "10s",
                "concurrency": rng.choice((1, 2)),
                "batch": {"max": rng.choice((1, 1, 4)), "window": rng.choice(("0s", "100ms"))},
                "replicas": {"max": rng.choice((1, 3))},
                "queue": rng.choice((2, 1_000)),
            }
        )
        try:
            status = await self._gateway.deploy(spec, "ann", is_admin=False)
        except StoreFailed:
            return
        what = f"{name} became version {status.version}."
        demand(status.version == self.acknowledged.get(name, 0) + 1, "versions rise", what)
        self.acknowledged[name] = status.version

    async def _delete(self) -> None:
        if self.acknowledged:
            name = self.rng.choice(sorted(self.acknowledged))
            try:
                await self._gateway.delete(name, "ann", is_admin=False)
            except StoreFailed:
                return
            del self.acknowledged[name]

    async def _ask(self) -> None:
        if not self.acknowledged:
            return
        name, number = self.rng.choice(sorted(self.acknowledged)), next(self._calls)
        own_s = self._gateway.function(name).terms.deadline_s
        within_s = self.rng.choice((own_s, 0.5, 5.0))
        answer = self._gateway.ask(name, json.dumps({"call": number}).encode(), within_s)
        until_s = self.machine.now_s + min(own_s, within_s)
        self.asked.append(_Asked(number, name, until_s, answer))

    async def _hang_up(self) -> None:
        if self.asked:
            self.rng.choice(self.asked).answer.cancel()
            await asyncio.sleep(0)  # who had it hears of it

    async def _kill(self) -> None:
        alive = [one for one in self.processes if not one.is_cut_off]
        if alive:
            self.rng.choice(alive).die()

    async def _grow_fat(self) -> None:
        alive = [one for one in self.processes if not one.is_cut_off]
        if alive:
            self.rng.choice(alive).grown_mib = float(CARD_MIB)

    async def _job_comes(self) -> None:
        """Let a job have a part of a device, or all of it."""
        serial = next(self._serials)
        gpu: dict[str, object] = {"count": 1, "compute": self.rng.choice(("250m", "1"))}
        job = read_spec({"name": "j", "run": "x", "resources": {"gpu": gpu}})
        job_id = JobId(f"j-{serial}")
        place = Placement((Spot(HERE, (self.rng.randrange(self.gpus),)),))
        now_s = self.machine.now_s
        self.jobs.records[job_id] = JobRecord(
            serial, job_id, "j", "ann", "q", job, now_s, 9.0, 9.0, 9.0,
            state=JobState.RUNNING, placement=place, started_s=now_s,
        )  # fmt: skip
        self._taken_s[job_id] = now_s

    async def _job_goes(self) -> None:
        if self.jobs.records:
            job_id = self.rng.choice(sorted(self.jobs.records))
            del self.jobs.records[job_id]
            del self._taken_s[job_id]

    async def _lose_device(self) -> None:
        """Let a device be lost, or be there again."""
        self.jobs.lost ^= {self.rng.randrange(self.gpus)}

    async def _fail_store(self) -> None:
        self.jobs.fails_next = True

    async def _pass_time(self) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.05, 0.3, 3.0)))

    async def _die(self) -> None:
        """Let the server die: replicas end with it, clients hear nothing, all is begun anew."""
        for process in self.processes:
            process.is_cut_off = process.is_over = True
            process.tell = lambda report: None
        self.processes.clear()
        self.asked.clear()
        for task in self._gateway._tasks:
            task.cancel()
        self._gateway._functions.clear()
        self._gateway._closing.clear()
        await self._open()

    # -- what must hold ---------------------------------------------------------------

    def audit(self) -> None:
        """Check what must hold at every moment."""
        for context in self.loop.failures:
            error = context.get("exception")
            demand(False, "nothing fails unheard", f"{context.get('message')}: {error!r}")
        now_s, open_ = self.machine.now_s, []
        for one in self.asked:
            if one.answer.done():
                self._check_answer(one)
                continue
            if now_s > one.until_s + LATE_S:
                what = f"Call {one.number} of {one.name} waits since its deadline."
                raise ContractBroken("every call is answered in time", what)
            open_.append(one)
        self.asked = open_
        self._check_open()
        self.processes = [one for one in self.processes if not one.is_over]
        self._check_replicas()

    def _check_answer(self, one: _Asked) -> None:
        if one.answer.cancelled():
            return
        reply = one.answer.result()
        if reply.outcome is CallOutcome.GOOD:
            what = f"Call {one.number} was answered {reply.data!r}."
            is_its = json.loads(reply.data) == {"call": one.number}
            demand(is_its and self.times_begun[one.number] == 1, "answers are true", what)
        elif reply.outcome in (CallOutcome.FULL, CallOutcome.UNAVAILABLE):
            what = f"Call {one.number} was refused ({reply.data!r}), and begun."
            demand(not self.times_begun[one.number], "what is refused is not begun", what)

    def _check_open(self) -> None:
        """Check that every call that is open waits, or is in the hands of a replica."""
        gateway, asked = self._gateway, Counter(one.name for one in self.asked)
        known: Counter[str] = Counter()
        for deployed in (*gateway._functions.values(), *gateway._closing):
            waiting = deployed.waiting
            if not 0 <= waiting <= asked[deployed.name]:
                what = f"{waiting} calls of {deployed.name} wait, of {asked[deployed.name]}."
                raise ContractBroken("who waits is counted", what)
            known[deployed.name] += waiting
            for replica in deployed.replicas:
                known[deployed.name] += sum(len(calls) for _, calls in replica.calls.values())
        for name, many in asked.items():
            if many > known[name]:
                what = f"{many} calls of {name} are open, and {known[name]} are known of."
                raise ContractBroken("no call is lost sight of", what)

    def _check_replicas(self) -> None:
        for name in self.acknowledged:
            deployed = self._gateway.function(name)
            most, many = deployed.spec.replicas.max, len(deployed.replicas)
            if many > most:
                said = f"{name} has {many} of {most}."
                raise ContractBroken("no more replicas than may be", said)
            for replica in deployed.replicas:
                device = replica.device
                if device.in_hand < 0:
                    what = f"{device.in_hand} calls in hand on {device.gpu}."
                    raise ContractBroken("calls in hand are counted", what)

    async def _come_to_rest(self) -> None:
        """Let nothing go wrong: then every function answers, and nothing is left at the end."""
        self.fail_rate = self.hang_rate = 0.0
        self.slow_s, self.jobs.fails_next = 0.01, False
        self.jobs.records.clear()
        self.jobs.lost.clear()
        for process in list(self.processes):
            process.grown_mib = 0.0
        await self._let_pass(CALM_S)
        for name in sorted(self.acknowledged):
            number, body = next(self._calls), b'{"call": %d}'
            one = _Asked(
                number, name, self.machine.now_s + 2.0, self._gateway.ask(name, body % number)
            )
            self.asked.append(one)
            reply = await one.answer
            is_answered = reply.outcome in (CallOutcome.GOOD, CallOutcome.RAISED)
            what = f"{name} said {reply.outcome.name}: {reply.data!r}."
            demand(is_answered, "functions answer when all is well", what)
        await self._gateway.close()
        await self._let_pass(1.0)
        left = [one for one in self.processes if not one.is_over]
        demand(not left, "nobody is left behind", f"{len(left)} replicas live.")

    async def _let_pass(self, seconds: float) -> None:
        end_s = self.machine.now_s + seconds
        while self.machine.now_s < end_s:
            await asyncio.sleep(min(0.5, max(0.0, end_s - self.machine.now_s)))
            self.audit()


def check_functions(seed: int, events: int) -> int:
    """Play one script of requests and raise ``ContractBroken`` if it breaks a clause."""
    return FunctionWorld(Random(seed)).play(events)
