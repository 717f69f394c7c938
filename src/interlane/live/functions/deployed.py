"""One function at work: who waits, which replicas there are, who answers whom.

Requests wait in the order of their deadlines.  A replica that can take one more gets it at
once; where the function takes batches, requests wait for company until the window closes.
Everything happens on the event loop; nothing here waits.

A replica that raises answers and lives on.  One that hangs, takes too much memory or does not
load is killed.  A request whose replica ended is lost, unless the replica had not begun with it
(the engine tells): then it waits again, once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import monotonic
from typing import Final

from interlane.functions.watch import Band
from interlane.live.files.function import FunctionAmounts, FunctionSpec
from interlane.live.functions.calls import Call, CallOutcome, CallQueue, Reply
from interlane.live.functions.figures import Counts, Latencies, Mean
from interlane.live.functions.port import (
    Answered,
    CutOff,
    Environment,
    Ready,
    ReplicaEnded,
    ReplicaEngine,
    ReplicaFailed,
    ReplicaReport,
)
from interlane.live.functions.replicas import FunctionDevice, Replica, ReplicaState

HANG_FACTOR: Final = 2.0
"""A call that takes so many deadlines will never end: its replica is killed."""
BACKOFF_S: Final = 1.0
"""Seconds after a failed load in which nobody tries again; doubles each time."""
BACKOFF_S_MAX: Final = 60.0
LOAD_S_ESTIMATE: Final = 1.0
LOG_BYTES: Final = 1 << 16
"""What is kept of the newest output of a function."""


@dataclass(slots=True, eq=False)
class Deployed:
    """A function; see the module's text."""

    name: str
    user: str
    version: int
    deployed_s: float
    spec: FunctionSpec
    terms: FunctionAmounts
    engine: ReplicaEngine
    on_short: Callable[["Deployed"], None]
    """Told when those who wait would be better off with another replica."""
    on_gone: Callable[["Deployed", Replica], None]
    """Told when a replica has ended and its memory is free."""
    counts: Counts = field(default_factory=Counts)
    latencies: Latencies = field(default_factory=Latencies)
    service_s: Mean = field(default_factory=Mean)
    load_s: Mean = field(default_factory=lambda: Mean(0.5))
    replicas: list[Replica] = field(default_factory=list)
    """All that have not ended."""
    log: bytearray = field(default_factory=bytearray)
    slots: deque[int] = field(default_factory=lambda: deque(maxlen=60))
    """Requests of the newest slots."""
    bands: deque[Band] = field(default_factory=lambda: deque(maxlen=60))
    """What was forecast for the same slots."""
    is_closing: bool = False
    failed_loads: int = 0
    """In a row."""
    reason: str | None = None
    """Why the last load failed, or why there is no room."""
    _again_s: float = 0.0
    """When a load may be tried again."""
    _asked_in_slot: int = 0
    _free: list[Replica] = field(default_factory=list)
    """Replicas that can take a call; the last was used last and is used next."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _queue: CallQueue = field(init=False)
    _environment: Environment = field(init=False)

    def __post_init__(self) -> None:
        self._queue = CallQueue(
            self._loop,
            batch=self.spec.batch.max,
            window_s=self.terms.batch_window_s,
            on_ripe=self._dispatch,
        )
        self._environment = self.engine.open(self.spec, self.user, self._printed)

    @property
    def load_s_expected(self) -> float:
        """How long a replica takes to load."""
        return LOAD_S_ESTIMATE if self.load_s.value is None else self.load_s.value

    @property
    def waiting(self) -> int:
        """Requests that wait for a replica."""
        return self._queue.waiting

    @property
    def latest_s(self) -> float:
        """When the last of those who wait gives up, on the loop's clock."""
        return self._queue.latest_s

    def status(self, state: ReplicaState) -> list[Replica]:
        """Return the replicas in a state."""
        return [one for one in self.replicas if one.state is state]

    # -- requests ---------------------------------------------------------------------

    def ask(self, body: bytes, deadline_s: float) -> "asyncio.Future[Reply]":
        """Take a request in; the answer comes by its deadline."""
        now_s = self._loop.time()
        call = Call(body or b"null", now_s, now_s + deadline_s, self._loop.create_future())
        self.counts.requests += 1
        self._asked_in_slot += 1
        refusal = self._refusal(now_s)
        if refusal is not None:
            self.counts.refused += 1
            call.answer.set_result(refusal)
        else:
            call.timer = self._loop.call_at(call.until_s, _is_late, call)
            call.answer.add_done_callback(partial(_is_done, call))
            self.take(call)
        answer: asyncio.Future[Reply] = call.answer
        return answer

    def take(self, call: Call) -> None:
        """Give a call to a replica, or let it wait for one."""
        call.home = self
        if self._free and not self._queue.waiting and self.spec.batch.max == 1:
            self._send([call])
        else:
            self._queue.put(call)
            self._dispatch()

    def _refusal(self, now_s: float) -> Reply | None:
        """Return why a request cannot be taken in."""
        if self.waiting >= self.spec.queue and not self._free:
            said = f"{self.waiting} requests wait for {self.name} already; try again later."
            return _reply(CallOutcome.FULL, said, self._wait_s())
        if now_s < self._again_s and not self.replicas:
            said = f"{self.name} cannot be loaded: {self.reason}"
            return _reply(CallOutcome.UNAVAILABLE, said, self._again_s - now_s)
        return None

    def _wait_s(self) -> float:
        """Return how long those who wait will need."""
        service_s = self.service_s.value or 0.0
        return service_s * self.waiting / max(1, len(self.replicas) * self._at_a_time)

    @property
    def _at_a_time(self) -> int:
        """Requests that one replica has in hand."""
        return self.spec.concurrency * self.spec.batch.max

    def _late(self, call: Call) -> None:
        said = f"The deadline of {call.until_s - call.at_s:g} s passed"
        if call.is_waiting:
            said += " while it waited for a replica" + (
                f" ({self.reason})" if self.reason else ""
            )
            self._queue.drop(call)
        if call.end(_reply(CallOutcome.LATE, f"{said}.")):
            self.counts.late += 1

    def _abandoned(self, call: Call, answer: "asyncio.Future[Reply]") -> None:
        """Drop a call if whoever made it is gone; one that was begun goes on."""
        if not answer.cancelled():
            return
        if call.timer is not None:
            call.timer.cancel()
        if call.is_waiting:
            self._queue.drop(call)
        self.counts.abandoned += 1

    # -- who answers whom -------------------------------------------------------------

    def _dispatch(self) -> None:
        while self._free and self._queue.may_go():
            self._send(self._queue.take_batch())
        if self._queue.waiting and not self._free and self._is_short():
            self.on_short(self)

    def _send(self, calls: list[Call]) -> None:
        """Give calls to the replica that was used last."""
        replica = self._free[-1]
        number = next(self._numbers) & 0xFFFFFFFF
        replica.calls[number] = monotonic(), calls
        replica.device.calls += 1
        replica.device.in_hand += 1
        if len(replica.calls) >= self.spec.concurrency:
            self._free.pop()
        for call in calls:
            if replica.ready_s > call.at_s:
                self.counts.cold_starts += 1
        assert replica.loaded is not None
        replica.loaded.send(number, [call.body for call in calls])

    def _told(self, replica: Replica, report: ReplicaReport) -> None:
        """Take in what has become of a replica."""
        match report:
            case Answered():
                self._answered(replica, report)
            case Ready():
                self._ready(replica)
            case ReplicaFailed():
                replica.kill(report.why)
            case CutOff():
                self._cut_off(replica, report.begun)
            case ReplicaEnded():
                self._ended(replica, report.why)

    def _answered(self, replica: Replica, answer: Answered) -> None:
        sent_s, calls = replica.calls.get(answer.number, (0.0, []))
        if not calls or len(answer.replies) != len(calls):
            replica.kill("It gave an answer that nobody asked for.")
            return
        del replica.calls[answer.number]
        replica.device.in_hand -= 1
        now_s = self._loop.time()
        served_s = (monotonic() - sent_s) / len(calls)  # the loop's clock may be coarse
        self.service_s.add(served_s)
        replica.served_s.append(served_s)
        for call, reply in zip(calls, answer.replies, strict=True):
            if call.end(reply):
                self._count(reply.outcome, now_s - call.at_s)
        if replica.state is ReplicaState.LEAVING:
            if not replica.calls:
                replica.kill()
            return
        if replica not in self._free:
            self._free.append(replica)
        if self._queue.waiting:
            self._dispatch()

    def _count(self, outcome: CallOutcome, latency_s: float) -> None:
        if outcome is CallOutcome.GOOD:
            self.counts.answered += 1
            self.latencies.add(latency_s)
        elif outcome is CallOutcome.RAISED:
            self.counts.raised += 1

    # -- replicas ---------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether it has as many replicas as it may have."""
        return len(self.replicas) >= self.spec.replicas.max

    def _is_short(self) -> bool:
        """Tell whether one more replica would serve those who wait sooner."""
        if self.is_closing or self.is_full:
            return False
        if self._loop.time() < self._again_s:
            return False
        if not any(one.state is not ReplicaState.LEAVING for one in self.replicas):
            return True
        return self.service_s.value is not None and self._wait_s() > self.load_s_expected

    def grow(self, number: int, device: FunctionDevice) -> None:
        """Start one more replica on a device."""
        replica = Replica(number, device, self._loop.time())
        self.replicas.append(replica)
        self.counts.loads += 1
        tell = partial(self._told, replica)
        replica.loaded = self._environment.load(number, device.gpu, tell)

    def _ready(self, replica: Replica) -> None:
        if replica.state is not ReplicaState.LOADING:
            return
        replica.state, replica.ready_s = ReplicaState.READY, self._loop.time()
        self.load_s.add(replica.ready_s - replica.begun_s)
        self.failed_loads, self.reason, self._again_s = 0, None, 0.0
        self._free.append(replica)
        self._dispatch()

    def leave(self, replica: Replica) -> None:
        """Let a replica end: at once if it is idle, else when it has answered."""
        if replica in self._free:
            self._free.remove(replica)
        replica.state = ReplicaState.LEAVING
        if not replica.calls:
            replica.kill()

    def _cut_off(self, replica: Replica, begun: Collection[int]) -> None:
        """Note that a replica will answer nothing more."""
        if replica in self._free:
            self._free.remove(replica)
        calls = [
            (call, number in begun)
            for number, (_, batch) in replica.calls.items()
            for call in batch
            if not call.answer.done()
        ]
        replica.device.in_hand -= len(replica.calls)
        replica.calls.clear()
        said = f"Its replica has ended. {replica.failure or ''}".strip()
        for call, was_begun in calls:
            if not was_begun and not call.tries:
                call.tries = 1
                self.take(call)
            elif call.end(_reply(CallOutcome.LOST, said)):
                self.counts.lost += 1

    def _ended(self, replica: Replica, why: str) -> None:
        """Note that nothing is left of a replica."""
        self.replicas.remove(replica)
        was, replica.state = replica.state, ReplicaState.GONE
        if replica.ready_s < float("inf"):
            self.counts.warm_s += self._loop.time() - replica.ready_s
        if was is ReplicaState.LOADING and not self.is_closing:
            self._load_failed(replica.failure or why)
        self.on_gone(self, replica)
        self._dispatch()

    def _load_failed(self, why: str) -> None:
        """Note it, and let nobody wait who would wait for nothing."""
        self.counts.failed_loads += 1
        self.failed_loads += 1
        self.reason = why
        backoff_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** (self.failed_loads - 1))
        self._again_s = self._loop.time() + backoff_s
        if not self.replicas:
            self.refuse_all(f"{self.name} cannot be loaded: {why}", backoff_s)

    def refuse_all(self, said: str, retry_s: float) -> None:
        """Answer everybody who waits that it is in vain."""
        for call in self._queue.take(self.waiting):
            if call.end(_reply(CallOutcome.UNAVAILABLE, said, retry_s)):
                self.counts.refused += 1

    # -- what passes ------------------------------------------------------------------

    def sweep(self) -> None:
        """Kill replicas that hang, take too much memory, or never load."""
        now_s = self._loop.time()
        hang_s = self.terms.deadline_s * HANG_FACTOR
        for replica in self.replicas:
            oldest_s = min((sent_s for sent_s, _ in replica.calls.values()), default=now_s)
            if replica.state is ReplicaState.LOADING:
                if now_s - replica.begun_s > self.terms.load_deadline_s:
                    limit_s = self.terms.load_deadline_s
                    replica.kill(f"It was not loaded within {limit_s:g} s, its load_deadline.")
            elif now_s - oldest_s > hang_s:
                self._note(replica, f"A call took {hang_s:g} s without an answer.")
                self.leave(replica)
                replica.kill()
            elif replica.measure() > self.terms.memory_mib:
                took = f"{replica.memory_mib:,.0f} MiB, but its memory is"
                self._note(replica, f"It took {took} {self.terms.memory_mib:,} MiB.")
                self.leave(replica)

    def _note(self, replica: Replica, why: str) -> None:
        if replica.failure is None:
            self.counts.killed += 1
            self.reason = replica.failure = why

    @property
    def is_asked(self) -> bool:
        """Whether it was asked in this slot."""
        return self._asked_in_slot > 0

    def end_slot(self, told: Band) -> int:
        """Return the requests of the slot that ends, as was told of it, and begin another."""
        asked, self._asked_in_slot = self._asked_in_slot, 0
        self.slots.append(asked)
        self.bands.append(told)
        return asked

    def close(self) -> list[Call]:
        """Take no more; return those who wait.  Replicas end when they have answered."""
        self.is_closing = True
        waiting = self._queue.take(self.waiting)
        for replica in list(self.replicas):
            self.leave(replica)
        return waiting

    def release(self) -> None:
        """Give up what was prepared, once no replica is left."""
        self._environment.close()

    def _printed(self, more: bytes) -> None:
        self.log += more
        del self.log[:-LOG_BYTES]


def _is_late(call: Call) -> None:
    call.home._late(call)


def _is_done(call: Call, answer: "asyncio.Future[Reply]") -> None:
    call.home._abandoned(call, answer)


def _reply(outcome: CallOutcome, said: str, retry_s: float | None = None) -> Reply:
    return Reply(outcome, said.encode(), retry_s)
