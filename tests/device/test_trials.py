"""Jobs that fill the device take turns, jobs that half-fill it run beside each other."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from interlane.device import page
from interlane.device.activity import Activity
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.device.specs import DeviceSpec
from interlane.device.trials import Trials
from interlane.device.wire import Frame, FrameKind
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.domain import Domain
from interlane.lanes.memory import Budget
from interlane.lanes.order import make_order
from interlane.lanes.sharing import MeasuredSlowDown, OverlapIfItPays
from interlane.model import JobId, Ticked

STEP_S = 0.01


@dataclass
class Line:
    """A job that runs whenever it may, at a speed that depends on how many run."""

    epoch: int = 0

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        if frame.kind is FrameKind.GRANT:
            self.epoch = frame.epoch

    def close(self) -> None:
        self.epoch = 0


@dataclass
class World:
    """Two or more jobs on a device, each slowed down by the others that run."""

    slow_down: float
    capacity: int = 1000
    now_s: float = 0.0
    lines: dict[JobId, Line] = field(default_factory=dict)
    cores: float = 0.0
    """That each job wants while it runs, of as many as the machine has."""

    def __post_init__(self) -> None:
        measured = MeasuredSlowDown()
        sharing = OverlapIfItPays(measured)
        domain = Domain(Budget(self.capacity), make_order("rr"), sharing=sharing)
        spec = DeviceSpec("cpu", self.capacity)
        self.device = SharedDevice(0, spec, domain, lambda: self.now_s)
        self.trials = Trials(self.device, measured, sharing, self.activity)

    def activity(self, pid: int) -> Activity:
        """Return what a job's process has done: it wants cores inside its iterations only."""
        busy_s = {job.pid: job.word(page.BUSY_NS) / 1e9 for job in self.device.jobs.values()}
        return Activity(self.now_s, self.cores * busy_s[pid])

    def add(self, name: str, share: int = 0) -> SharedJob:
        line = self.lines[JobId(name)] = Line()
        job = SharedJob(
            JobId(name),
            len(self.lines),
            len(self.lines),
            name,
            MemoryDemand(10, 100),
            False,
            share=share,
            line=line,
        )
        self.device.join(job)
        self.device.want(job)
        return job

    def run(self, seconds: float) -> None:
        """Let time pass: whoever has a lease runs, and gives way when asked."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += STEP_S
            self.device.tell(Ticked())
            running = [job for job in self.device.jobs.values() if self.lines[job.id].epoch]
            for job in running:
                self._iterate(job, self.slow_down if len(running) > 1 else 1.0)
            self.trials.look(self.now_s)

    def _iterate(self, job: SharedJob, slower: float) -> None:
        """Run a step's worth of iterations, one of which takes 1 ms alone."""
        line = self.lines[job.id]
        job.write(page.ITERATIONS, job.word(page.ITERATIONS) + round(10 / slower))
        job.write(page.BUSY_NS, job.word(page.BUSY_NS) + round(STEP_S * 1e9))
        job.write(page.BOUNDARY_NS, round(self.now_s * 1e9))
        if job.word(page.REVOKE) >= line.epoch:
            epoch, line.epoch = line.epoch, 0
            self.device.take_back(job, Frame(FrameKind.RELEASE, job.key, epoch=epoch))
            self.device.want(job)

    def lanes(self) -> list[list[str]]:
        return [list(lane.tenants) for lane in self.device.domain.book.lanes.values()]

    def close(self) -> None:
        for job in list(self.device.jobs.values()):
            self.device.leave(job)


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.close()


def test_two_that_half_fill_the_device_end_up_beside_each_other(worlds: list[World]) -> None:
    worlds.append(world := World(slow_down=1.1))
    world.add("a")
    world.add("b")
    assert world.lanes() == [["a", "b"]]  # nothing is known: in turns

    world.run(6.0)

    assert world.lanes() == [["a"], ["b"]]


def test_two_that_fill_the_device_take_turns_again_after_the_trial(
    worlds: list[World],
) -> None:
    worlds.append(world := World(slow_down=2.3))
    world.add("a")
    world.add("b")
    seen = []
    for _ in range(30):
        world.run(0.2)
        seen.append(len(world.lanes()))

    assert 2 in seen  # it was tried,
    assert seen[-10:] == [1] * 10  # given up, and not tried again


@pytest.mark.parametrize(("part", "tried"), [(0.5, "once"), (0.95, "never"), (1.4, "never")])
def test_two_that_each_want_all_cores_are_not_tried_beside_each_other(
    worlds: list[World], part: float, tried: str
) -> None:
    cores = len(os.sched_getaffinity(0))
    worlds.append(world := World(slow_down=2.3, cores=part * cores))
    world.add("a")
    world.add("b")
    seen = []
    for _ in range(30):
        world.run(0.2)
        seen.append(len(world.lanes()))

    assert (2 in seen) == (tried == "once")


def test_a_trial_ends_when_a_job_is_seen_to_be_slower_than_in_turns(
    worlds: list[World],
) -> None:
    worlds.append(world := World(slow_down=1000.0))  # beside each other, nothing gets done
    world.add("a")
    world.add("b")
    while len(world.lanes()) == 1:
        world.run(0.1)
    begun_s = world.now_s

    while len(world.lanes()) == 2:
        world.run(0.1)

    assert world.now_s - begun_s < 2.5


def test_nobody_is_moved_beside_others_who_is_better_off_in_turns(worlds: list[World]) -> None:
    # Both together do 1.25 times as much as in turns, in which the first loses 1.11 only.
    worlds.append(world := World(slow_down=1.6))
    world.add("a", share=900)
    world.add("b", share=100)

    world.run(10.0)

    assert world.lanes() == [["a", "b"]]


@pytest.mark.parametrize(("slow_down", "lanes"), [(1.2, 3), (3.0, 1)])
def test_three_jobs_find_their_lanes_one_after_the_other(
    worlds: list[World], slow_down: float, lanes: int
) -> None:
    worlds.append(world := World(slow_down))
    for name in "abc":
        world.add(name)

    world.run(20.0)

    assert len(world.lanes()) == lanes


def test_without_memory_for_a_second_lane_everybody_takes_turns(worlds: list[World]) -> None:
    worlds.append(world := World(slow_down=1.0, capacity=150))
    world.add("a")
    world.add("b")

    world.run(15.0)

    assert world.lanes() == [["a", "b"]]
    world.device.domain.check()


def test_a_job_that_leaves_in_the_middle_of_its_trial_is_forgotten(
    worlds: list[World],
) -> None:
    worlds.append(world := World(slow_down=1.1))
    world.add("a")
    job = world.add("b")
    while len(world.lanes()) == 1:
        world.run(0.1)

    world.lines.pop(job.id)
    world.device.leave(job)
    world.add("c")
    world.run(6.0)

    assert world.lanes() == [["a"], ["c"]]
