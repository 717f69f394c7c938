"""A holder passes its lane to the next job by itself: never two at once, never a lane lost."""

import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from interlane.device import page, wire
from interlane.device.admission import link_of
from interlane.device.link import Link
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import MOST_SUCCESSORS, SharedJob
from interlane.device.specs import DeviceSpec
from interlane.device.wire import Flag, Frame, FrameKind
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.domain import Domain
from interlane.lanes.events import Switched
from interlane.lanes.memory import Budget
from interlane.lanes.order import ORDERS, make_order
from interlane.lanes.sharing import Serialise
from interlane.model import JobId, Ticked
from interlane.testing.waiting import until

from .conftest import ONE_MIB, Job, Stage

if TYPE_CHECKING:
    from _typeshed import HasFileno

DEMAND = MemoryDemand(1, 2)


class Line:
    """The daemon's end of a connection."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setblocking(False)

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        with suppress(OSError):  # it died
            socket.send_fds(self.ours, [wire.packed(frame)], list(descriptors))

    def close(self) -> None:
        self.ours.close()


def linked(line: Line) -> Link:
    link = link_of(line.theirs)
    assert link is not None
    return link


@dataclass
class Body:
    """A job whose process does one thing at a time, and may die between any two of them."""

    shared: SharedJob
    link: Link
    epoch: int = 0
    newest: int = 0
    is_waiting: bool = False
    chosen: int = 0
    """Epoch of the successor that was read, and is not yet in the page."""
    passing: int = 0
    """Epoch that is in the page and not yet in the pipe of the successor."""
    iterations: int = 0
    frames: deque[Frame] = field(default_factory=deque)
    """Sent, and not yet read by the daemon."""

    @property
    def words(self) -> memoryview:
        return self.link.page.words

    def want(self) -> None:
        self.is_waiting = True
        self.frames.append(Frame(FrameKind.ACQUIRE, self.shared.key))

    def end_iteration(self) -> None:
        self.iterations += 1
        self.words[page.ITERATIONS] = self.iterations

    def give_up(self) -> None:
        """Find out whom to pass the lane to; tell the daemon if that is nobody."""
        successor_epoch = self.link.successor()
        if successor_epoch > self.epoch:
            self.chosen = successor_epoch
        else:
            self.frames.append(Frame(FrameKind.RELEASE, self.shared.key, epoch=self.epoch))
            self.epoch = 0

    def pass_on(self) -> None:
        self.words[page.PASSED] = self.passing = self.chosen
        self.chosen = self.epoch = 0

    def tell_successor(self) -> None:
        self.link.tell_successor(self.passing)
        self.passing = 0

    def look(self) -> None:
        """Take a lease up if one has come."""
        waiting_for: list[HasFileno] = [self.link.baton, self.link.line]
        while not self.epoch and select.select(waiting_for, [], [], 0)[0]:
            epoch = self.link.epoch()
            assert epoch is not None
            if epoch > self.newest:
                self.epoch = self.newest = self.words[page.EPOCH] = epoch
                self.is_waiting = False


class World:
    """One lane and some jobs; what happens next is for the random generator."""

    def __init__(self, seed: int, order: str) -> None:
        self.rng = Random(seed)
        self.now_s = 0.0
        domain = Domain(
            Budget(1000), make_order(order), sharing=Serialise(), names_successors=True
        )
        self.device = SharedDevice(0, DeviceSpec("cpu", 1000), domain, lambda: self.now_s)
        self.bodies: list[Body] = []
        self.dead: list[Body] = []
        """Whose death the daemon has not noticed."""
        self.lines: list[Line] = []
        self.made = 0
        self.passes = 0

    def join(self) -> None:
        self.made += 1
        line = self.line()
        name = JobId(f"j{self.made}")
        job = SharedJob(
            name, self.made, 1, name, DEMAND, False,
            priority=self.rng.randrange(3), total_s=1.0, line=line,
        )  # fmt: skip
        self.device.join(job)
        self.bodies.append(Body(job, linked(line)))

    def line(self) -> Line:
        self.lines.append(Line())
        return self.lines[-1]

    def step(self, *, may_break: bool) -> None:
        self.now_s += self.rng.choice((0.0, 0.001, 0.05))
        if self.rng.random() < 0.3:
            self.daemon_acts()
        elif may_break and self.rng.random() < 0.03:
            self.breaks()
        else:
            self.lives(self.rng.choice(self.bodies))
        self.check()

    def daemon_acts(self) -> None:
        mail = [body for body in self.bodies if body.frames]
        if self.dead and self.rng.random() < 0.5:
            self.device.leave(self.dead.pop().shared)
        elif mail and self.rng.random() < 0.8:
            body = self.rng.choice(mail)
            frame = body.frames.popleft()
            if frame.kind is FrameKind.ACQUIRE:
                self.device.want(body.shared)
            else:
                self.device.take_back(body.shared, frame)
        else:
            self.device.settle()
            self.device.tell(Ticked())

    def lives(self, body: Body) -> None:
        if body.passing:
            self.passes += 1
            body.tell_successor()
        elif body.chosen:
            body.pass_on()
        elif body.epoch:
            body.end_iteration()
            revoked = body.words[page.REVOKE] >= body.epoch
            if revoked or (body.words[page.WANTED] and self.rng.random() < 0.2):
                body.give_up()
        elif body.is_waiting:
            body.look()
        else:
            body.want()

    def breaks(self) -> None:
        if len(self.bodies) < 2 or self.rng.random() < 0.3:
            self.join()
            return
        body = self.rng.choice(self.bodies)
        if self.rng.random() < 0.5:
            self.kill(body)
        elif not body.passing and not body.chosen:
            self.connect_again(body)

    def kill(self, body: Body) -> None:
        self.bodies.remove(body)
        self.dead.append(body)
        body.frames.clear()
        body.link.close()

    def connect_again(self, body: Body) -> None:
        """Lose the connection with all that was under way in it."""
        body.frames.clear()
        body.link.close()
        line = self.line()
        body.shared.line = line
        flags = Flag.REATTACH | (Flag.HOLDS if body.epoch else Flag.NONE)
        hello = Frame(FrameKind.HELLO, body.shared.key, flags=flags, epoch=body.epoch)
        self.device.welcome_back(body.shared, hello)
        body.link = linked(line)
        body.words[page.ITERATIONS] = body.iterations
        if body.is_waiting:
            body.want()

    def check(self) -> None:
        running = [body for body in self.bodies if body.epoch]
        assert len(running) <= 1, "two jobs run in one lane"
        self.device.domain.check()

    def close(self) -> None:
        for body in list(self.bodies):
            self.kill(body)
        for body in self.dead:
            self.device.leave(body.shared)
        for line in self.lines:
            line.close()


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_breaks_a_lane_has_one_holder_and_is_never_lost(order: str) -> None:
    passes = 0
    for seed in range(25):
        world = World(seed, order)
        for _ in range(3):
            world.join()
        for _ in range(300):
            world.step(may_break=True)
        before = sum(body.iterations for body in world.bodies)
        for _ in range(300):
            world.step(may_break=False)
        assert sum(body.iterations for body in world.bodies) > before
        passes += world.passes
        world.close()
    assert passes > 100


def test_a_holder_that_does_not_look_is_told_of_so_many_successors_and_no_more() -> None:
    world = World(0, "priority")
    for _ in range(MOST_SUCCESSORS + 20):
        world.join()
    for priority, body in enumerate(world.bodies):
        world.device.domain.tenants[body.shared.id].priority = priority
        body.want()
        world.device.want(body.shared)

    holder = world.bodies[0]
    holder.look()

    assert holder.words[page.TOLD] == MOST_SUCCESSORS
    assert (
        holder.link.successor() == 0
    )  # of the best one it has not heard, so the daemon decides
    world.close()


def test_a_switch_costs_the_way_and_what_the_first_iteration_takes_longer() -> None:
    job = SharedJob(JobId("a"), 1, 1, "a", DEMAND, False)
    job.page, descriptor = page.make_page()
    os.close(descriptor)
    job.begin_lease()
    job.took_from_ns = 1_000_000
    job.write(page.TAKEN_NS, 1_200_000)
    job.write(page.FIRST_NS, 23_000_000)
    job.write(page.ITERATIONS, 1)
    job.write(page.BUSY_NS, 23_000_000)

    assert job.switched() == Switched(0.0002, None)  # one iteration has nothing beside it

    job.write(page.ITERATIONS, 3)
    job.write(page.BUSY_NS, 23_000_000 + 2 * 20_000_000)

    assert job.switched() == Switched(0.0002, 0.003)
    job.page.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_who_waits_for_a_lane_does_so_on_one_core_and_runs_on_all(stage: Stage) -> None:
    stage.daemon("--order", "fifo")
    with (
        stage.client("first", **ONE_MIB) as first,
        stage.client("second", **ONE_MIB) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        thread = pool.submit(threading.get_native_id).result()
        all_cores = os.sched_getaffinity(thread)
        first.begin()
        waiting = pool.submit(second.begin)
        until(lambda: len(os.sched_getaffinity(thread)) == 1, "the one core")

        first.end()
        first.close()
        waiting.result(60)

        assert os.sched_getaffinity(thread) == all_cores


def test_one_pause_does_not_make_a_job_give_its_lease_up_at_every_boundary(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo")
    with (
        stage.client("first", **ONE_MIB) as first,
        stage.client("second", **ONE_MIB) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        for _ in range(10):
            with first.iteration():
                pass
        time.sleep(0.3)
        first.begin()
        waiting = pool.submit(second.begin)
        until(lambda: first._words[page.WANTED])
        for _ in range(10):
            first.end()
            first.begin()
        assert not waiting.done()
        first.end()
        first.close()
        waiting.result(60)


def test_a_model_that_is_asked_seldom_gives_its_lease_back_at_once(stage: Stage) -> None:
    stage.daemon("--order", "fair")
    with stage.client("model", is_guest=True, **ONE_MIB) as model:
        with model.iteration():
            assert stage.states == {"model": "running"}
        until(lambda: stage.states == {"model": "idle"})


DIES = """
import os, signal, sys
from pathlib import Path
from interlane.device import page
from interlane.device.attach import attach

where = sys.argv[2]
write = os.write

def deadly_write(pipe, what):
    if where == "before the successor is told":
        os.kill(os.getpid(), signal.SIGKILL)
    write(pipe, what)
    os.kill(os.getpid(), signal.SIGKILL)

class DeadlyWords:
    def __init__(self, words):
        self.words = words
    def __getitem__(self, at):
        return self.words[at]
    def __setitem__(self, at, value):
        if at == page.PASSED:
            os.kill(os.getpid(), signal.SIGKILL)
        self.words[at] = value

job = attach(name="dies", socket=Path(sys.argv[1]), memory="1MiB+1MiB")
job.begin()
print("holds", flush=True)
while not job.revoked:
    pass
if where == "before it is in the page":
    job._words = DeadlyWords(job._words)
os.write = deadly_write
job.end()
print("lives")
"""


@pytest.mark.parametrize(
    "where",
    [
        "before it is in the page",
        "before the successor is told",
        "after the successor was told",
    ],
)
def test_a_holder_that_dies_while_it_passes_the_lane_on_leaves_it_to_the_successor(
    stage: Stage, where: str
) -> None:
    stage.daemon("--order", "rr")
    dies = stage.start(stage.script(DIES), stage.address, where, shared=False)
    until(lambda: "holds" in dies.text)

    with stage.client("heir", **ONE_MIB) as successor:
        for _ in range(3):
            with successor.iteration():
                until(lambda: stage.states == {"heir": "running"})

    assert dies.process.wait(60) == -signal.SIGKILL, dies.text


CROWD = """
import fcntl, sys, time
from pathlib import Path
from interlane.device.attach import attach

job = attach(name="crowd", socket=Path(sys.argv[1]), memory="1MiB+1MiB")
with open(sys.argv[2], "a") as lane:
    while True:
        with job.iteration():
            try:
                fcntl.flock(lane, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("not alone", flush=True)
            time.sleep(0.001)
            fcntl.flock(lane, fcntl.LOCK_UN)
"""


def test_jobs_that_are_killed_at_any_moment_leave_the_lane_to_one_other(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    rng = Random(3)
    script = stage.script(CROWD)

    def another() -> Job:
        return stage.start(script, stage.address, stage.folder / "lane", shared=False)

    jobs = [another() for _ in range(3)]
    for _ in range(20):
        stage.goes_on(jobs[0])
        time.sleep(rng.random() * 0.05)
        victim = jobs.pop(rng.randrange(len(jobs)))
        victim.process.send_signal(signal.SIGKILL)
        jobs.append(another())
    for job in jobs:
        stage.goes_on(job)
    assert all(job.text == "" for job in stage.jobs)
