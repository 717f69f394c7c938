"""What Salus published about its workloads, and traces made from it.

The table of models comes with the released source: peak memory, milliseconds an iteration
and seconds of start-up on a P100.  Two columns are ours: the persistent part of the memory
(four bytes a parameter, as for plain SGD) and how the start-up was told from the iterations
(fitted from jobs of one, five and ten minutes).  The trace of the 100 jobs was not released.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.memory import Budget, LaneBook
from interlane.lanes.sharing import Serialise
from interlane.model import JobId
from interlane.sim.lanes import LaneJob

MIB: Final = 1 << 20
MINUTE_S: Final = 60.0

P100: Final = Budget(14 * 1024 * MIB)
"""What Salus gives to jobs of its 16 GB."""

SWITCH_S: Final = 0.3
"""The gap that figure 8b shows between the iterations of two jobs."""


PUBLISHED_GAIN: Final = {"heavy": 1.08, "light": 2.38}
PUBLISHED_DEVICES: Final = {"apart": 42, "in parts": 6, "hosted": 1}
PUBLISHED_JCT: Final = {"srtf": 3.19, "fair": 1.77, "pack": 1.17}
"""FIFO's mean completion time over that of each policy."""


@dataclass(frozen=True, slots=True)
class SalusWorkload:
    """One row of the published table."""

    model: str
    batch: int
    peak_mib: int
    iteration_ms: float
    startup_s: float

    @property
    def demand(self) -> MemoryDemand:
        """Weights persist, the rest of the peak is ephemeral."""
        persistent = persistent_bytes(self.model)
        return MemoryDemand(persistent, self.peak_mib * MIB - persistent)


PARAMETERS_M: Final[Mapping[str, float]] = {
    "alexnet": 61.1,
    "overfeat": 145.9,
    "googlenet": 7.0,
    "vgg11": 132.9,
    "vgg16": 138.4,
    "vgg19": 143.7,
    "resnet50": 25.6,
    "resnet101": 44.5,
    "resnet152": 60.2,
    "inception3": 23.8,
    "inception4": 42.7,
}
"""Millions of parameters, as the architectures have them."""


def persistent_bytes(model: str) -> int:
    """Return the bytes of a model's weights."""
    return int(PARAMETERS_M[model] * 1e6) * 4


_TABLE: Final = """
alexnet     25   687   21.3  4.5
alexnet     50  1155   29.3  5.2
alexnet    100  1397   45.2  6.7
overfeat    25  3255   50.4  5.0
overfeat    50  3416   63.9  5.2
overfeat   100  6240   99.0  6.6
googlenet   25   756   59.3 12.9
googlenet   50  1411  100.2 14.9
googlenet  100  2534  179.8 16.9
vgg11       25  3710  105.9  7.2
vgg11       50  5088  185.4  8.3
vgg11      100  9203  334.0 12.1
vgg16       25  4317  191.6  8.8
vgg16       50  6183  353.2 12.1
vgg16      100 10445  658.0 17.5
vgg19       25  4463  223.9  9.5
vgg19       50  6359  415.0 12.8
vgg19      100 12024  770.2 19.0
resnet50    25  2116  125.4 19.1
resnet50    50  4008  225.7 20.9
resnet50    75  5915  325.1 22.6
resnet101   25  3238  216.5 34.1
resnet101   50  6106  382.6 36.6
resnet101   75  8988  548.1 39.2
resnet152   25  4563  308.7 51.9
resnet152   50  8637  548.4 51.8
resnet152   75 12726  783.5 55.0
inception3  25  2500  197.7 31.4
inception3  50  4775  361.8 35.8
inception3 100  9379  682.9 45.9
inception4  25  4445  405.4 48.2
inception4  50  8541  728.5 57.5
inception4  75 12662 1036.7 72.1
"""


def _workload(line: str) -> SalusWorkload:
    model, batch, peak_mib, iteration_ms, startup_s = line.split()
    return SalusWorkload(
        model, int(batch), int(peak_mib), float(iteration_ms), float(startup_s)
    )


WORKLOADS: Final = tuple(map(_workload, _TABLE.strip().splitlines()))

JOBS: Final = 100
TOTAL_MIN: Final = 303.4
"""Makespan under FIFO, which is the work of all jobs: the device never idled."""
ARRIVALS_MIN: Final = 52.3
"""FIFO's makespan less its 95th percentile of completion: when the last jobs came."""

Lengths = Callable[[Random], float]


def production_like(rng: Random) -> float:
    """Draw a length as Gavel (OSDI 2020) does after Philly: four in five short, one long.

    Both parts are log-uniform, over 1.5 and over one decade.
    """
    short = rng.random() < 0.8
    return float(10 ** (rng.uniform(1.5, 3.0) if short else rng.uniform(3.0, 4.0)))


def three_lengths(rng: Random) -> float:
    """Draw one, five or ten minutes, the lengths in the released table.

    The weights are the most even ones (largest entropy) with the published mean of 3.03.
    """
    return rng.choices((1.0, 5.0, 10.0), (0.624, 0.257, 0.119))[0]


def hundred_jobs(lengths: Lengths, seed: int) -> list[LaneJob]:
    """Return the 100-job experiment as far as it is known, the rest drawn with this seed."""
    rng = Random(seed)
    drawn_min = [lengths(rng) for _ in range(JOBS)]
    scale = TOTAL_MIN / sum(drawn_min)
    arrivals_min = sorted([0.0, *(rng.uniform(0, ARRIVALS_MIN) for _ in range(JOBS - 1))])
    return [
        training(
            f"{number:03}",
            rng.choice(WORKLOADS),
            at_s=at_min * MINUTE_S,
            length_s=drawn * scale * MINUTE_S,
        )
        for number, (drawn, at_min) in enumerate(zip(drawn_min, arrivals_min, strict=True))
    ]


def training(name: str, row: SalusWorkload, *, at_s: float, length_s: float) -> LaneJob:
    """Return a job that takes this long alone, start-up included."""
    iteration_s = row.iteration_ms / 1000
    iterations = max(1, round((length_s - row.startup_s) / iteration_s))
    return LaneJob(
        JobId(f"{name}-{row.model}_{row.batch}"),
        at_s,
        iterations,
        iteration_s,
        row.demand,
        startup_s=row.startup_s,
        says=row.demand,
        total_s=iterations * iteration_s,
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A model of the inference experiment."""

    model: str
    alone_ms: float
    """Mean latency under TensorFlow on a device of its own, read off figure 10."""
    salus_ms: float
    """The same with all 42 on one device under Salus."""
    demand: MemoryDemand


def _at_batch_one(model: str) -> MemoryDemand:
    """Extend the table's line through batches 25 and 50 to batch 1; training, so at most."""
    small, large = (row for row in WORKLOADS if row.model == model and row.batch <= 50)
    a_sample_mib = (large.peak_mib - small.peak_mib) / (large.batch - small.batch)
    peak_bytes = int((small.peak_mib - (small.batch - 1) * a_sample_mib) * MIB)
    persistent = persistent_bytes(model)
    return MemoryDemand(persistent, max(0, peak_bytes - persistent))


UNLISTED: Final = MemoryDemand(100 * MIB, 200 * MIB)
"""Assumed for the three models whose memory was not published."""

SERVED: Final = tuple(
    Served(
        model,
        alone_ms,
        salus_ms,
        _at_batch_one(model) if model in PARAMETERS_M else UNLISTED,
    )
    for model, alone_ms, salus_ms in (
        ("alexnet", 3, 5),
        ("googlenet", 9, 17),
        ("inception3", 20, 34),
        ("inception4", 35, 53),
        ("overfeat", 5, 7),
        ("resnet50", 11, 22),
        ("resnet101", 19, 37),
        ("resnet152", 26, 53),
        ("seq2seq", 3, 7),
        ("superres", 4, 8),
        ("vae", 3, 5),
        ("vgg11", 6, 8),
        ("vgg16", 8, 10),
        ("vgg19", 9, 12),
    )
)
INSTANCES: Final = 3
"""Of each served model."""
REQUEST_EVERY_S: Final = 10.0


def near(ours: float, published: float, part: float) -> bool:
    """Tell whether a figure is within this part of another."""
    return abs(ours - published) <= part * published


def devices_for(
    demands: Sequence[MemoryDemand], budget: Budget, *, guests: bool = False
) -> int:
    """Return how many devices hold these, the largest first, each on the first that takes it.

    Guests share one process on each device, and so its context.
    """
    state: list[LaneBook] = []
    largest_first = sorted(demands, key=lambda demand: -demand.peak_bytes)
    for number, demand in enumerate(largest_first):
        job = JobId(f"m{number}")
        if not any(_took(book, job, demand, 0 if guests else 1) for book in state):
            state.append(LaneBook(budget, Serialise()))
            assert _took(state[-1], job, demand, 1), "every model fits on an empty device"
    return len(state)


def _took(book: LaneBook, job: JobId, demand: MemoryDemand, processes: int) -> bool:
    book.request(job, demand, processes=processes)
    if book.lane_of(job) is not None:
        return True
    book.leave(job)
    return False
