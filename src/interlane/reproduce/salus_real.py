"""Salus' experiments with real processes on this machine's CPU, scaled down.

Jobs are PyTorch training loops forked from one process that has imported torch; they are
served by real daemons.  What is compared runs in one go, round by round.  Completion times of
the training jobs are counted in iterations, which are all equal, in the order in which they
really ran: whatever else the machine does meanwhile does not count.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import getloadavg, sched_getaffinity, sysconf
from pathlib import Path
from random import Random
from statistics import fmean, median
from time import monotonic, monotonic_ns, sleep
from typing import TYPE_CHECKING, Any, Final

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.memory import Budget
from interlane.model import JobId
from interlane.reproduce.base import Excuse, Row, Setting, checked, figure
from interlane.reproduce.salus_workloads import (
    ARRIVALS_MIN,
    INSTANCES,
    MIB,
    PUBLISHED_DEVICES,
    PUBLISHED_GAIN,
    PUBLISHED_JCT,
    SERVED,
    TOTAL_MIN,
    devices_for,
    near,
    production_like,
)
from interlane.sim.lane_experiment import LaneExperiment
from interlane.sim.lane_figures import figures_of
from interlane.sim.lanes import LaneJob

if TYPE_CHECKING:
    from interlane.device.bench.stage import BenchStage

ROUNDS: Final = 3
JOBS: Final = 20
WORK_S: Final = 4.0
"""Of all jobs, on an idle machine."""
ITERATION_MS: Final = 10.0
NEEDS: Final = MemoryDemand(64 * MIB, 64 * MIB)
"""What jobs of the bench declare."""
NS: Final = 1e-9


Step = Sequence[int]
"""When an iteration began and ended, in ns."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What happened to jobs that were submitted at these times, in ns."""

    submitted: Sequence[int]
    steps: Sequence[Sequence[Step]]
    """Of each job."""

    @property
    def wall_s(self) -> float:
        """From the first submission to the last end."""
        return (max(steps[-1][1] for steps in self.steps) - min(self.submitted)) * NS

    @property
    def held_s(self) -> list[float]:
        """What the iterations of each job took, while others waited."""
        return [sum(end - begin for begin, end in steps) * NS for steps in self.steps]

    def before(self, moments: Iterable[int]) -> list[int]:
        """Return how many iterations of all jobs had ended by each moment."""
        ends = sorted(end for steps in self.steps for _, end in steps)
        return [bisect_right(ends, moment) for moment in moments]

    @property
    def mean_jct(self) -> float:
        """From submission to the end, in iterations of all jobs."""
        ended = self.before(steps[-1][1] for steps in self.steps)
        return fmean(ended) - fmean(self.before(self.submitted))


# A fifth of the 100 jobs


def trained(
    setting: Setting, rounds: int = ROUNDS, jobs_count: int = JOBS, work_s: float = WORK_S
) -> list[Row]:
    """Train jobs of production-like lengths under three orders, and simulate the same."""
    from interlane.device.bench.stage import staged

    jobs = _jobs(setting.seed, jobs_count, work_s)
    found: dict[str, list[tuple[float, float]]] = {"srtf": [], "fair": []}
    with staged() as stage:
        batch = stage.run("calibrate", iteration_ms=ITERATION_MS)
        for done in range(rounds):
            for order, gains in _round(stage, batch, jobs).items():
                found[order].append(gains)
            setting.progress(done + 1, rounds, "rounds")
    return [row for order, gains in found.items() for row in _rows(order, gains)]


def _round(
    stage: "BenchStage", batch: int, jobs: Sequence[LaneJob]
) -> dict[str, tuple[float, float]]:
    """Return FIFO's mean completion over that of each order, real and simulated."""
    fifo = _ordered(stage, "fifo", batch, jobs)
    # What a job took under FIFO is what it says it takes under SRTF.
    known = [
        replace(job, total_s=held_s) for job, held_s in zip(jobs, fifo.held_s, strict=True)
    ]
    simulated = _simulated(jobs, fifo)
    return {
        order: (
            fifo.mean_jct / _ordered(stage, order, batch, known).mean_jct,
            simulated["fifo"] / simulated[order],
        )
        for order in ("srtf", "fair")
    }


def _ordered(stage: "BenchStage", order: str, batch: int, jobs: Sequence[LaneJob]) -> Ran:
    with stage.daemon(order, "cpu:4GiB") as socket:
        return _train(stage, socket, batch, jobs)


def _simulated(jobs: Sequence[LaneJob], ran: Ran) -> dict[str, float]:
    """Return the mean completion under each order of jobs that came as they really did."""
    came = [
        replace(job, submitted_s=done * job.iteration_s)
        for job, done in zip(jobs, ran.before(ran.submitted), strict=True)
    ]
    budget = Budget(4 * 1024 * MIB)
    return {
        order: figures_of(LaneExperiment(came, budget, order).run()).mean_jct_s
        for order in ("fifo", "srtf", "fair")
    }


def _jobs(seed: int, count: int, work_s: float) -> list[LaneJob]:
    rng = Random(seed)
    drawn = [production_like(rng) for _ in range(count)]
    last_s = work_s * ARRIVALS_MIN / TOTAL_MIN
    arrivals_s = sorted([0.0, *(rng.uniform(0, last_s) for _ in range(count - 1))])
    return [
        _job(number, at_s, one / sum(drawn) * work_s)
        for number, (at_s, one) in enumerate(zip(arrivals_s, drawn, strict=True))
    ]


def _job(number: int, at_s: float, work_s: float) -> LaneJob:
    iteration_s = ITERATION_MS / 1000
    iterations = max(1, round(work_s / iteration_s))
    return LaneJob(
        JobId(f"j{number}"),
        at_s,
        iterations,
        iteration_s,
        NEEDS,
        says=NEEDS,
        total_s=iterations * iteration_s,
    )


def _train(
    stage: "BenchStage", socket: str, batch: int, jobs: Sequence[LaneJob], threads: int = 1
) -> Ran:
    """Run jobs, each submitted at its time."""
    with ExitStack() as stack:
        started = []
        for job in jobs:  # one after the other, so that they join in this order
            forked = stage.job(
                "steps",
                socket=socket,
                batch=batch,
                iterations=job.iterations,
                total_s=job.total_s,
                threads=threads,
            )
            started.append(stack.enter_context(forked))
            started[-1].ready()
        begin_s, submitted = monotonic(), []
        for process, job in zip(started, jobs, strict=True):
            sleep(max(0.0, begin_s + job.submitted_s - monotonic()))
            submitted.append(monotonic_ns())
            process.go()
        return Ran(submitted, [one.seen() for one in started])


def _rows(order: str, gains: Sequence[tuple[float, float]]) -> list[Row]:
    real, simulated = ([pair[at] for pair in gains] for at in (0, 1))
    return [
        checked(
            f"fifo / {order} mean completion ({_range(real)})",
            round(median(real), 2),
            PUBLISHED_JCT[order],
            min(real) > 1.0,
            "Orders would not do for real processes what they do in simulation.",
        ),
        checked(
            f"the same, beside the simulator's for these jobs ({_range(simulated)})",
            round(median(real), 2),
            f"{median(simulated):.2f}, simulated",
            near(median(real), median(simulated), 0.2),
            "The simulator would not say what real processes do.",
            _busy(0.5 * median(simulated), 1.5 * median(simulated)),
        ),
    ]


def _busy(low: float, high: float) -> Excuse | None:
    """Return why times may be off this far: others keep jobs from running; None if not."""
    load, cores = getloadavg()[0], len(sched_getaffinity(0))
    if load <= cores + 1:
        return None
    why = f"the machine has {cores} cores and a load of {load:.0f}; try again on a quiet one."
    return Excuse(why, low, high)


# A tuning run

TUNED: Final = 2
"""Jobs at a time: on two cores, one thread each half fills the device, two threads fill it."""
STEPS: Final = 20


def tuned(setting: Setting) -> list[Row]:
    """Train two equal jobs in turns and beside each other, on one thread each and on two."""
    from interlane.device.bench.stage import staged

    jobs = [
        LaneJob(JobId(f"t{n}"), 0.0, STEPS, ITERATION_MS / 1000, NEEDS) for n in range(TUNED)
    ]
    gains: dict[int, list[float]] = {1: [], 2: []}
    with staged() as stage:
        batch = stage.run("calibrate", iteration_ms=ITERATION_MS)
        for done in range(ROUNDS):
            for threads, found in gains.items():
                spans = []
                for sharing in ("turns", "beside"):
                    with stage.daemon("pack", sharing=sharing) as socket:
                        spans.append(_train(stage, socket, batch, jobs, threads=threads))
                found.append(spans[0].wall_s / spans[1].wall_s)
            setting.progress(done + 1, ROUNDS, "rounds")
    light, heavy = median(gains[1]), median(gains[2])
    return [
        checked(
            f"one thread: turns / beside each other ({_range(gains[1])})",
            round(light, 2),
            PUBLISHED_GAIN["light"],
            light > 1.2,
            "Lanes side by side would not give what the device has left.",
            _busy(0.8, 1.2),
        ),
        checked(
            f"two threads: turns / beside each other ({_range(gains[2])})",
            round(heavy, 2),
            PUBLISHED_GAIN["heavy"],
            heavy < light,
            "Jobs that fill the device would gain as much as those that do not.",
            _busy(0.8, 1.2),
        ),
    ]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


# 42 models

REQUESTS: Final = 4
REQUEST_EVERY_S: Final = 2.0
GAP_S: Final = REQUEST_EVERY_S / (INSTANCES * len(SERVED))
"""Between two requests of any model."""
PUBLISHED_LATENCY: Final = 1.72
"""Mean latency over alone, median of the models of figure 10."""
WIDTHS: Final = tuple(range(128, 128 + 32 * len(SERVED), 32))
DEVICE: Final = Budget(2 * 1024 * MIB)


def served(setting: Setting) -> list[Row]:
    """Host 42 real models in one process; measure memory and latency against one at a time."""
    from interlane.device.bench.stage import staged

    names = [(f"w{width}-{number}", width) for number in range(INSTANCES) for width in WIDTHS]
    with staged() as stage, stage.daemon("fair", "cpu:4GiB") as socket:
        alone_s, empty_bytes = _alone(names[: len(WIDTHS)])
        setting.progress(1, 2, "alone")
        together_s, full_bytes = _together(names, Path(socket), setting.seed)
        setting.progress(2, 2, "together")
    a_model = MemoryDemand((full_bytes - empty_bytes) // len(names), 0)
    budget = Budget(DEVICE.capacity_bytes, context_bytes=empty_bytes)
    apart = devices_for([a_model] * len(names), budget)
    hosted = devices_for([a_model] * len(names), budget, guests=True)
    slower = [together_s[name] / alone_s[width] for name, width in names]
    return [
        figure("MiB of a process with torch", round(empty_bytes / MIB)),
        figure("MiB of a model in it", round(a_model.peak_bytes / MIB, 1)),
        checked(
            "devices of 2 GiB, a process each",
            apart,
            PUBLISHED_DEVICES["in parts"],
            apart > hosted,
            "A process for each model would cost nothing.",
        ),
        checked(
            "devices of 2 GiB, one process for all",
            hosted,
            PUBLISHED_DEVICES["hosted"],
            hosted == 1,
            "One process would not hold them all.",
        ),
        checked(
            "mean latency over alone, median of models",
            round(median(slower), 2),
            PUBLISHED_LATENCY,
            median(slower) < 3,
            "Models of one host would wait for one another.",
            _busy(3.0, 8.0),
        ),
    ]


def _alone(names: Sequence[tuple[str, int]]) -> tuple[dict[int, float], int]:
    """Return the mean latency of each width alone in a host, and the bytes of an empty one."""
    from interlane.device.model_host import ModelHost

    found = {}
    with ModelHost() as host:
        host.add("memory", resident)
        empty_bytes: int = host("memory")
        for name, width in names:
            host.add(name, partial(model_of, width))
            host(name)
            # As often as the host is asked for one model or another when all are in it: what
            # has not run for a while is slow, shared or not.
            asked = _asked(partial(host, name), Random(width), REQUESTS * INSTANCES, GAP_S)
            found[width] = fmean(asked)
            host.remove(name)
    return found, empty_bytes


def _together(
    names: Sequence[tuple[str, int]], socket: Path, seed: int
) -> tuple[dict[str, float], int]:
    """Return the mean latency of each model while all are asked, and the host's bytes."""
    from interlane.device.model_host import ModelHost

    found: dict[str, float] = {}
    with ModelHost(share=socket) as host:
        host.add("memory", resident, memory="1MiB")
        for name, width in names:
            host.add(name, partial(model_of, width), memory="8MiB+8MiB")
            host(name)

        def ask(name: str, rng: Random) -> None:
            found[name] = fmean(_asked(partial(host, name), rng, REQUESTS, REQUEST_EVERY_S))

        clients = [
            threading.Thread(target=ask, args=(name, Random(f"{seed}-{name}")))
            for name, _ in names
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        full_bytes: int = host("memory")
    return found, full_bytes


def _asked(
    call: Callable[[], object], rng: Random, requests: int, every_s: float
) -> list[float]:
    latencies_s = []
    for _ in range(requests):
        sleep(rng.expovariate(1 / every_s))
        latencies_s.append(_latency_s(call))
    return latencies_s


def _latency_s(call: Callable[[], object]) -> float:
    begin_s = monotonic()
    call()
    return monotonic() - begin_s


def model_of(width: int) -> Callable[[], float]:
    """Return a small network that answers on one thread."""
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = [torch.nn.Linear(width, width) for _ in range(8)]
    network, inputs = torch.nn.Sequential(*layers), torch.ones(16, width)

    def answer() -> float:
        with torch.no_grad():
            return float(network(inputs).sum())

    return answer


def resident() -> Callable[[], int]:
    """Return what tells the resident bytes of its process."""
    import torch

    torch.ones(1)
    page_bytes = sysconf("SC_PAGE_SIZE")
    return lambda: int(Path("/proc/self/statm").read_text().split()[1]) * page_bytes
