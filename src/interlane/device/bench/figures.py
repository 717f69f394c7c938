"""What is measured, and the bounds that it is held to."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from time import monotonic_ns
from typing import Any, Final

from interlane.device.bench.stage import BenchJob, BenchStage

ITERATION_MS: Final = 30.0
"""Of the jobs whose makespan is measured."""
SLOWDOWN: Final = 25
"""Iterations in a row under one condition: few, so that all meet the same machine."""
STRETCHES: Final = 3
LARGE: Final = "cpu:2GiB"
FILLED: Final = f"{LARGE}:{min(os.sched_getaffinity(0))}"
"""A device of one core, because jobs of the bench have one thread."""
MS: Final = 1e6
US: Final = 1e3


@dataclass(frozen=True, slots=True)
class BenchFigure:
    """A measured figure beside its bound."""

    name: str
    unit: str
    bound: float | None = None
    is_least: bool = False
    """Whether the bound is the least that the figure may be; else the most."""
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle of all samples."""
        return median(self.samples)

    @property
    def best(self) -> float:
        """What came out when least disturbed."""
        return max(self.samples) if self.is_least else min(self.samples)

    @property
    def holds(self) -> bool:
        """Whether the median keeps the bound, if there is one."""
        if self.bound is None:
            return True
        return self.median >= self.bound if self.is_least else self.median <= self.bound


class Bench:
    """All figures, taken round by round."""

    def __init__(self) -> None:
        self.look = BenchFigure("revoke check", "us", 1.0)
        self.iteration = BenchFigure("iteration without hand-over", "us")
        self.hand_over = BenchFigure("hand-over between processes", "us", 200.0)
        self.preemption = BenchFigure("preemption, beyond the iteration under way", "ms", 5.0)
        self.makespan = BenchFigure("makespan of two jobs / sum of exclusive times", "x", 1.03)
        self.half = BenchFigure("the same on more cores than they use", "x")
        self.killed = BenchFigure("holder killed, next job runs after", "ms", 250.0)
        self.restart = BenchFigure("restart / switch", "x", 1000.0, is_least=True)
        self.fork_server = BenchFigure("cold start / warm start", "x", 20.0, is_least=True)

    @property
    def figures(self) -> tuple[BenchFigure, ...]:
        """In the order in which they are printed."""
        return (
            self.look, self.iteration, self.hand_over, self.preemption, self.makespan,
            self.half, self.killed, self.restart, self.fork_server,
        )  # fmt: skip

    def run(
        self,
        stage: BenchStage,
        rounds: int,
        tell: Callable[[int], None],
        stretches: int = STRETCHES,
    ) -> None:
        """Measure all figures, ``rounds`` times."""
        batch = stage.run("calibrate", iteration_ms=ITERATION_MS)
        checkpoint = str(stage.folder / "checkpoint.pt")
        stage.run("save", checkpoint=checkpoint)
        for done in range(rounds):
            with stage.daemon("rr") as socket:
                self._checks(stage, socket)
                switch_ns = self._hand_overs(stage, socket)
                self._kill(stage, socket)
            for figure, device in ((self.makespan, FILLED), (self.half, LARGE)):
                with stage.daemon("rr", device) as socket:
                    figure.samples.extend(_makespans(stage, socket, batch, stretches))
            with stage.daemon("priority") as socket:
                self._preempt(stage, socket)
            self._starts(stage, checkpoint, switch_ns)
            tell(done + 1)

    def _checks(self, stage: BenchStage, socket: str) -> None:
        seen = stage.run("check", socket=socket)
        self.look.samples.append(seen["look_ns"] / US)
        self.iteration.samples.append(seen["iteration_ns"] / US)

    def _hand_overs(self, stage: BenchStage, socket: str) -> float:
        """Let two jobs take turns; return the median hand-over, in ns."""
        seen = _together(stage, socket, [{"iteration_ms": 1.0, "iterations": 600}] * 2)
        gaps = list(hand_overs(*seen))
        self.hand_over.samples.extend(gap / US for gap in gaps)
        return median(gaps)

    def _kill(self, stage: BenchStage, socket: str) -> None:
        with (
            stage.job("hold", socket=socket) as holder,
            stage.job("turns", socket=socket, iteration_ms=0.0, iterations=1) as waiter,
        ):
            holder.ready()
            waiter.ready()
            waiter.go()
            killed_ns = monotonic_ns()
            holder.kill()
            ((_, begun_ns, _),) = waiter.seen()
        self.killed.samples.append((begun_ns - killed_ns) / MS)

    def _preempt(self, stage: BenchStage, socket: str) -> None:
        low, high = _together(
            stage,
            socket,
            [
                {"iteration_ms": ITERATION_MS, "iterations": 60, "priority": 0},
                {"iteration_ms": 1.0, "iterations": 15, "pause_ms": 70.0, "priority": 9},
            ],
        )
        self.preemption.samples.extend(late / MS for late in lateness(low, high))

    def _starts(self, stage: BenchStage, checkpoint: str, switch_ns: float) -> None:
        cold_ns = _start_ns(stage, checkpoint, warm=False)
        warm_ns = _start_ns(stage, checkpoint, warm=True)
        self.restart.samples.append(cold_ns / switch_ns)
        self.fork_server.samples.append(cold_ns / warm_ns)


def _makespans(stage: BenchStage, socket: str, batch: int, stretches: int) -> Iterator[float]:
    """Let two jobs train in turns, and each alone right before or after."""
    settings: dict[str, Any] = {"socket": socket, "batch": batch, "iterations": SLOWDOWN}
    with stage.job("train", **settings) as one, stage.job("train", **settings) as other:
        one.ready()
        other.ready()
        for _ in range(stretches):
            alone_ns = _span_ns("alone", one)
            together_ns = _span_ns("turns", one, other)
            alone_ns += _span_ns("alone", other)
            yield together_ns / alone_ns


def _span_ns(how: str, *jobs: BenchJob) -> int:
    """Let jobs run a stretch; return the time from the first beginning to the last end."""
    for job in jobs:
        job.go(how)
    spans: list[tuple[int, int]] = [job.told() for job in jobs]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def _start_ns(stage: BenchStage, checkpoint: str, *, warm: bool) -> int:
    """Return the time from the start of a job to the end of its first iteration."""
    begin_ns = monotonic_ns()
    with stage.job("first-step", warm=warm, checkpoint=checkpoint) as job:
        job.ready()
        return monotonic_ns() - begin_ns


def _together(
    stage: BenchStage, socket: str, settings: Sequence[Mapping[str, Any]]
) -> list[list["Turn"]]:
    """Let jobs take turns; return the turns of each."""
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(stage.job("turns", socket=socket, **one)) for one in settings
        ]
        for job in jobs:
            job.ready()
        for job in jobs:
            job.go()
        return [job.seen() for job in jobs]


Turn = Sequence[int]
"""When an iteration was asked for, when it began, when it ended."""


def hand_overs(one: Iterable[Turn], other: Iterable[Turn]) -> Iterator[int]:
    """Return how long the device was idle each time that it passed to a job that waited."""
    whose = [(turn, 0) for turn in one] + [(turn, 1) for turn in other]
    in_order = sorted(whose, key=lambda owned: owned[0][1])
    for ((_, _, ended), owner), ((asked, begun, _), next_owner) in pairwise(in_order):
        if owner != next_owner and asked <= ended:
            yield begun - ended


def lateness(low: Sequence[Turn], high: Iterable[Turn]) -> Iterator[int]:
    """Return how long after the end of the iteration that was under way each turn began."""
    for asked, begun, _ in high:
        for _, low_begun, low_ended in low:
            if low_begun <= asked <= low_ended:
                yield max(0, begun - low_ended)
