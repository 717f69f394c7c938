"""One attempt on a simulated machine that fails at each call of the system in turn."""

import os
from pathlib import Path
from random import Random

import pytest

from interlane.engines.local import shim
from interlane.live.port import Attempt, Begun, Ended, Launch, NeverBegan, Report, Sight
from interlane.model import Placement, Spot
from interlane.testing.delivery import Killed
from interlane.testing.live import launch_of, spec
from interlane.testing.simulated.machine import SHORTAGES
from interlane.testing.simulated.shims import COMMAND, HERE, ShimWorld

CALLS_MAX = 2_000
SETTLED_S = 20.0


class Nth:
    """What the machine lacks: whatever is asked for at one moment, and nothing else."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __contains__(self, kind: object) -> bool:
        if kind in SHORTAGES:
            self.left -= 1
        return self.left == -1 and kind in SHORTAGES


class OneAttempt:
    """A gang of two on a machine on which nothing goes wrong by itself."""

    def __init__(self) -> None:
        self.world = ShimWorld(Random(5))
        self.world.calm()
        self.world._folders = ("/state-a",)
        self.machine = self.world.machine
        (machine,) = self.world.machines().values()
        placement = Placement((Spot(HERE, instances=2),))
        job = spec("a", COMMAND, gpus=0, gang={"nodes": 2}, checkpoint={"grace": "1s"})
        self.launch: Launch = launch_of(job, placement, machine)
        self.told: list[Report | Sight] = []
        self.engine = self.world.engine()
        self.engine.start(self.told.append)

    @property
    def attempt(self) -> Attempt:
        return self.launch.attempt

    def settle(self) -> None:
        self.machine.advance(SETTLED_S)

    def another_server(self) -> None:
        """Let the server die, and another see what there is."""
        self.world.engine_died(self.engine)
        self.engine = self.world.engine()
        self.engine.start(self.told.append)
        self.told += self.engine.observe([self.attempt]).attempts

    def finish(self) -> None:
        self.world.finish(self.attempt, 0)
        self.settle()

    @property
    def ended(self) -> list[Ended | NeverBegan]:
        return [one for one in self.told if isinstance(one, Ended | NeverBegan)]


def test_an_attempt_begins_as_a_whole_and_ends_as_it_is_told() -> None:
    one = OneAttempt()
    one.engine.begin(one.launch)
    one.settle()

    assert one.told == [Begun(one.attempt)]
    assert sum(len(place.spots) for place in one.world.running().values()) == 2
    one.finish()
    assert one.ended == [Ended(one.attempt, 0)]
    assert not one.world.running()


def test_what_the_machine_lacks_at_any_moment_is_no_fault_of_the_job() -> None:
    moments = 0
    for number in range(CALLS_MAX):
        one = OneAttempt()
        one.machine.lacks, one.machine.shortage = (nth := Nth(number)), 1.0
        one.engine.begin(one.launch)
        one.settle()
        one.finish()
        if nth.left >= 0:
            break
        moments += 1
        (end,) = one.ended
        if isinstance(end, NeverBegan):
            assert end.lacks is not None
            assert not one.world.begun()
            assert Begun(one.attempt) not in one.told
        else:
            assert end == Ended(one.attempt, 0)
    assert 20 < moments < CALLS_MAX


@pytest.mark.parametrize("name", ["shim.py", "shim.py+", "server"])
def test_whoever_dies_at_any_moment_leaves_nothing_behind_and_tells_no_lie(name: str) -> None:
    moments = 0
    for number in range(CALLS_MAX):
        one = OneAttempt()
        try:
            one.engine.begin(one.launch)
            victim = None
            while victim is None and one.machine.step():
                found = (it for it in one.machine.processes.values() if it.name == name)
                victim = next(found, None)
            assert victim is not None
            victim.fuse = number
            one.settle()
            lives = victim.fuse is not None
            victim.fuse = None
        except Killed:
            lives = False
        one.another_server()
        one.settle()
        one.told += one.engine.observe([one.attempt]).attempts
        said_over = bool(one.ended)

        assert bool(one.world.running()) is not said_over
        assert all(times == 1 for times in one.world.begun().values())
        if any(isinstance(end, NeverBegan) for end in one.ended):
            assert not one.world.begun()
            assert Begun(one.attempt) not in one.told
        one.finish()
        assert one.ended
        assert not one.world.running()
        if lives:
            break
        moments += 1
    assert 5 < moments < CALLS_MAX


def test_an_attempt_that_could_not_be_started_is_not_started_when_asked_for_again() -> None:
    one = OneAttempt()
    one.machine.shortage = 1.0
    one.engine.begin(one.launch)
    one.settle()
    one.machine.shortage = 0.0
    one.engine.begin(one.launch)
    one.settle()

    assert [type(report) for report in one.told] == [NeverBegan, NeverBegan]
    assert not one.world.running()


def test_a_claim_that_one_of_the_same_number_left_half_made_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    (tmp_path / f"{shim.CLAIM}.{os.getpid()}").write_text("half")

    held = shim.claim(str(tmp_path), "words")

    assert held is not None
    os.close(held)
    assert [path.name for path in tmp_path.iterdir()] == [shim.CLAIM]
    assert (tmp_path / shim.CLAIM).read_text() == "words"
