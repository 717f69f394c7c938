"""A transition that crashes anywhere goes on, or back, and loses nothing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.mig.check import layout_faults
from interlane.mig.demand import GpuOffer, Problem, Service
from interlane.mig.optimise import optimise
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.transition.documents import transition_document
from interlane.mig.transition.joint import joint_plan
from interlane.mig.transition.journal import Record, line_of, read_journal, resumed
from interlane.mig.transition.order import ordered
from interlane.mig.transition.present import floors_of, present
from interlane.mig.transition.run import RunEnd, RunEnded, TransitionRun
from interlane.mig.transition.simulated import SimulatedGpus
from interlane.mig.transition.steps import (
    StepTimes,
    Transition,
    TransitionStep,
    after_step,
    content_of,
    makespan_s,
)
from interlane.model import InvalidFile
from interlane.testing.mig import asked, small_changes

A30, A100 = "A30-24GB", "A100-80GB"


class Crashed(Exception):
    """The power went off."""


@dataclass
class Fuse:
    """Burns through at a moment: the n-th chance to crash, counted over disk and GPUs."""

    at: int | None = None
    seen: int = 0

    def pass_by(self) -> None:
        self.seen += 1
        if self.seen - 1 == self.at:
            raise Crashed


class Disk:
    """What a crash leaves of a file: every line that was written, perhaps half of the next."""

    def __init__(self) -> None:
        self.content = b""

    def writer(self, fuse: Fuse) -> Callable[[Record], None]:
        def write(record: Record) -> None:
            line = line_of(record).encode()
            fuse.pass_by()
            before, self.content = self.content, self.content + line[: len(line) // 2]
            fuse.pass_by()
            self.content = before + line
            fuse.pass_by()

        return write


class Watched(SimulatedGpus):
    """Simulated GPUs on which every moment is checked; a crash may strike around each step."""

    def __init__(self, state: PartitionPlan, floors: dict[str, float], **how: object) -> None:
        super().__init__(state, **how)  # type: ignore[arg-type]
        self._floors = floors
        self.fuse = Fuse()
        self.faults: list[str] = []
        self.performed: list[TransitionStep] = []

    def power_on(self) -> None:
        """After a crash: of what was under way, every other step has happened."""
        for number, (_, _, step) in enumerate(self._under_way):
            if number % 2:
                self._become(after_step(self.state, step))
                self._happened(step)
        self._under_way.clear()

    def _perform(self, step: TransitionStep) -> None:
        self.fuse.pass_by()
        super()._perform(step)
        self._happened(step)
        self.fuse.pass_by()

    def _happened(self, step: TransitionStep) -> None:
        self.performed.append(step)
        given = self.state.throughputs()
        self.faults += [
            f"{name} has {given.get(name, 0.0)} of {floor} after {step}"
            for name, floor in self._floors.items()
            if given.get(name, 0.0) < floor * (1 - 1e-6)
        ]
        self.faults += [fault for gpu in self.state.gpus for fault in layout_faults(gpu)]


def run(
    way: Transition,
    problem: Problem,
    disk: Disk,
    gpus: Watched,
    *,
    crash_at: int | None = None,
    back: bool = False,
) -> RunEnded:
    """Run from wherever the disk says, with a fuse that burns through at a moment."""
    name = transition_document(way, problem)["id"]
    read = read_journal(disk.content, "journal")
    disk.content = disk.content[: read.length]
    progress = resumed(way, problem, name, read.records, "journal")
    fuse = gpus.fuse = Fuse(crash_at)
    gpus.power_on()
    one = TransitionRun(progress, gpus, disk.writer(fuse))
    return one.back() if back else one.forward()


def moments(way: Transition, problem: Problem) -> int:
    """Count the chances to crash in a run without one."""
    gpus = watched(way)
    assert run(way, problem, Disk(), gpus).end is RunEnd.DONE
    return gpus.fuse.seen


def watched(way: Transition, **how: object) -> Watched:
    return Watched(way.current, dict(way.floors), **how)


# -- transitions to crash -------------------------------------------------------------


def change(seed: int, gpu: str, services: int) -> tuple[Transition, Problem]:
    """Return a way between two demands drawn from a seed."""
    rng = Random(seed)
    sizes = {"1g": 1, "2g": 2, "3g": 3, "4g": 4, "7g": 7}
    from interlane.mig.profiles import gpu_model

    rates = {
        (f"s{n}", gpu, profile.name): sizes[profile.name[:2]] * rng.choice([8, 10, 12])
        for n in range(services)
        for profile in gpu_model(gpu).of_kinds({gpu_model(gpu).whole.kind})
    }
    wanted = [Service(f"s{n}", f"s{n}", rng.randint(5, 60), 99.0) for n in range(services)]
    now = [replace(one, rate_per_s=one.rate_per_s * rng.choice([0.4, 1, 2])) for one in wanted]
    before, _ = asked(wanted, [GpuOffer(gpu)], {k: float(v) for k, v in rates.items()})
    after, _ = asked(now, [GpuOffer(gpu)], {k: float(v) for k, v in rates.items()})
    current = present(optimise(before).plan, after)
    target = joint_plan(after, current, slack=seed % 2).plan
    return ordered(current, target, floors_of(current, after), after), after


def swap() -> tuple[Transition, Problem]:
    """Return a way with a borrowed GPU and migrations: two services change places."""
    rates = {("a", A30, "2g.12gb"): 1.0, ("b", A30, "2g.12gb"): 1.0}
    services = [Service("a", "a", 1, 100.0), Service("b", "b", 1, 100.0)]
    problem, _ = asked(services, [GpuOffer(A30)], rates)
    a, b = (Instance("2g.12gb", 0, name, 1, 1, 1.0, 10.0) for name in "ab")
    current = PartitionPlan((GpuPlan("gpu-0", A30, (a, replace(b, start=2))),))
    target = PartitionPlan((GpuPlan("gpu-0", A30, (b, replace(a, start=2))),))
    return ordered(current, target, {"a": 1.0, "b": 1.0}, problem, exact=True), problem


WAYS: dict[str, Callable[[], tuple[Transition, Problem]]] = {
    "a swap with a borrowed GPU": swap,
    "A30, 3 services": lambda: change(6, A30, 3),
    "A30, 8 services": lambda: change(0, A30, 8),
    "A100, 3 services": lambda: change(8, A100, 3),
    "A100, 8 services": lambda: change(2, A100, 8),
}


def crashes(way: Transition, problem: Problem) -> Iterator[tuple[Disk, Watched]]:
    """Yield what every single crash leaves behind."""
    count = moments(way, problem)
    # Three chances a record (opened, begun, done, finished), two a step.
    assert count == 3 * 2 + (3 * 2 + 2) * len([*way.steps])
    for at in range(count):
        disk, gpus = Disk(), watched(way)
        with pytest.raises(Crashed):
            run(way, problem, disk, gpus, crash_at=at)
        yield disk, gpus


@pytest.mark.parametrize("name", WAYS)
def test_after_a_crash_at_any_moment_the_transition_goes_on(name: str) -> None:
    way, problem = WAYS[name]()
    assert [*way.steps]

    for disk, gpus in crashes(way, problem):
        ended = run(way, problem, disk, gpus)

        assert ended.end is RunEnd.DONE
        assert content_of(gpus.state) == content_of(way.target)
        assert gpus.faults == []
        # Nothing was done twice, and nothing that the way does not have.
        assert by_gpu(gpus.performed) == by_gpu(step for _, step in way.steps)


def by_gpu(steps: Iterable[TransitionStep]) -> dict[str, list[TransitionStep]]:
    """Return the steps of every GPU in their order."""
    found: dict[str, list[TransitionStep]] = {}
    for step in steps:
        found.setdefault(step.gpu, []).append(step)
    return found


@pytest.mark.parametrize("name", WAYS)
def test_what_may_go_at_once_does(name: str) -> None:
    way, problem = WAYS[name]()
    times, gpus = StepTimes(), watched(way, times=StepTimes())

    run(way, problem, Disk(), gpus)

    # A step takes a quarter more than it should at the most.
    assert gpus.elapsed_s <= 1.25 * makespan_s(way.actions, times)


@pytest.mark.parametrize("name", WAYS)
def test_after_a_crash_at_any_moment_the_transition_can_be_rolled_back(name: str) -> None:
    way, problem = WAYS[name]()

    for disk, gpus in crashes(way, problem):
        ended = run(way, problem, disk, gpus, back=True)

        assert ended.end is RunEnd.ROLLED_BACK
        assert content_of(gpus.state) == content_of(way.current)
        assert gpus.faults == []


@pytest.mark.parametrize("name", ["a swap with a borrowed GPU", "A30, 3 services"])
def test_a_crash_while_rolling_back_goes_on_rolling_back(name: str) -> None:
    way, problem = WAYS[name]()
    count = moments(way, problem)

    for at in range(0, 2 * count, 3):
        disk, gpus = Disk(), watched(way)
        with pytest.raises(Crashed):
            run(way, problem, disk, gpus, crash_at=count * 2 // 3)
        try:
            run(way, problem, disk, gpus, crash_at=at, back=True)
        except Crashed:
            run(way, problem, disk, gpus, back=True)

        assert content_of(gpus.state) == content_of(way.current)
        assert gpus.faults == []


def test_a_transition_that_crashes_again_and_again_comes_to_its_end() -> None:
    way, problem = change(2, A100, 8)
    disk, gpus = Disk(), watched(way)
    for _ in range(2 * moments(way, problem)):
        try:
            # Eight chances are one step: the run dies after a few.
            run(way, problem, disk, gpus, crash_at=40)
        except Crashed:
            continue
        break

    assert content_of(gpus.state) == content_of(way.target)
    assert gpus.faults == []


@given(drawn=small_changes(), at=st.integers(0, 10**6), back=st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_crash_loses_anything(
    drawn: tuple[Problem, Problem, object],
    at: int,
    back: bool,  # noqa: FBT001
) -> None:
    before, after, _ = drawn
    current = present(optimise(before).plan, after)
    target = joint_plan(after, current).plan
    way = ordered(current, target, floors_of(current, after), after)
    disk, gpus = Disk(), watched(way)
    with pytest.raises(Crashed):
        run(way, after, disk, gpus, crash_at=at % moments(way, after))

    run(way, after, disk, gpus, back=back)

    assert content_of(gpus.state) == content_of(way.current if back else way.target)
    assert gpus.faults == []


# -- failures -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_steps_that_fail_are_tried_again(seed: int) -> None:
    way, problem = change(2, A100, 8)
    gpus = watched(way, rng=Random(seed), fail_rate=0.2)

    ended = run(way, problem, Disk(), gpus)

    assert ended.end is RunEnd.DONE
    assert ended.retries > 0
    assert gpus.faults == []
    assert_served(gpus.state, problem)


def assert_served(state: PartitionPlan, problem: Problem) -> None:
    """Every service has what was asked for."""
    given = state.throughputs()
    for service in problem.services:
        assert given[service.name] >= service.rate_per_s * (1 - 1e-9)


@pytest.mark.parametrize("name", ["A30, 8 services", "A100, 8 services"])
def test_a_gpu_that_cannot_be_changed_is_planned_around(name: str) -> None:
    way, problem = WAYS[name]()
    for broken in sorted({step.gpu for _, step in way.steps}):
        gpus = watched(way, broken=[broken])
        there = [gpu for gpu in way.current.gpus if gpu.id == broken]

        ended = run(way, problem, Disk(), gpus)

        assert (ended.end, ended.replans) == (RunEnd.DONE, 1)
        assert [gpu for gpu in gpus.state.gpus if gpu.id == broken and gpu.instances] == there
        assert gpus.faults == []
        assert_served(gpus.state, problem)


def test_what_somebody_changed_meanwhile_is_planned_anew() -> None:
    way, problem = change(2, A100, 8)
    disk, gpus = Disk(), watched(way)
    with pytest.raises(Crashed):
        run(way, problem, disk, gpus, crash_at=20)
    busy = [gpu for gpu in gpus.state.gpus if gpu.instances]
    gpus.state = PartitionPlan(tuple(gpu for gpu in gpus.state.gpus if gpu.id != busy[-1].id))

    ended = run(way, problem, disk, gpus)

    assert ended.end is RunEnd.DONE
    assert ended.replans == 1
    assert_served(gpus.state, problem)
    assert [fault for gpu in gpus.state.gpus for fault in layout_faults(gpu)] == []


def test_a_run_that_cannot_get_on_gives_up_in_a_valid_state() -> None:
    way, problem = change(2, A100, 8)
    gpus = watched(way, fail_rate=1.0, rng=Random(3))

    ended = run(way, problem, Disk(), gpus)

    assert ended.end is RunEnd.GAVE_UP
    assert "failed 3 times" in ended.why
    assert gpus.faults == []


# -- journals -------------------------------------------------------------------------


def journal() -> tuple[Transition, Problem, bytes]:
    way, problem = swap()
    disk = Disk()
    run(way, problem, disk, watched(way))
    return way, problem, disk.content


def test_every_damaged_line_is_named() -> None:
    _, _, content = journal()
    lines = content.splitlines(keepends=True)

    for number, line in enumerate(lines, 1):
        broken = line.replace(b'"', b"'", 1)
        with pytest.raises(InvalidFile, match=f"line {number}: the journal is damaged here"):
            read_journal(b"".join([*lines[: number - 1], broken, *lines[number:]]), "j")


def test_a_journal_from_which_a_line_is_missing_is_damaged() -> None:
    way, problem, content = journal()
    lines = content.splitlines(keepends=True)
    name = transition_document(way, problem)["id"]

    for missing in range(1, len(lines) - 1):
        records = read_journal(b"".join(lines[:missing] + lines[missing + 1 :]), "j").records
        with pytest.raises(InvalidFile, match="damaged here"):
            resumed(way, problem, name, records, "j")


def test_a_journal_of_another_transition_is_refused() -> None:
    _, _, content = journal()
    other, problem = change(2, A100, 4)
    records = read_journal(content, "j").records
    name = transition_document(other, problem)["id"]

    with pytest.raises(InvalidFile, match="this journal belongs to transition"):
        resumed(other, problem, name, records, "j")


@pytest.mark.parametrize("content", [b"hello\n", b"{}\n", b"no journal at all", b"\xff\x00\n"])
def test_what_is_no_journal_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidFile):
        read_journal(content, "j")
