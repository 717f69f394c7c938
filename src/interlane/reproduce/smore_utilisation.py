"""Functions beside training: what is gained, and at whose cost; exclusive, SMore and ours.

What happens in truth is what was measured: Lucid's pairs, of which schedulers know a fifth, and
for more than two a public curve that no scheduler has seen (``MeasuredCrowd``).
"""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlane.model import InvalidInput
from interlane.reproduce.base import Basis, Excuse, Reproduction, Row, Setting, checked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlane.functions.watch import FunctionWatch
    from interlane.model.function import Function
    from interlane.predict.arrivals.live import Trees
    from interlane.predict.arrivals.lslstm import LsLstm
    from interlane.predict.slowdown.multiway import Crowd
    from interlane.predict.slowdown.pairs import Pairs
    from interlane.predict.slowdown.table import SlowdownTable
    from interlane.sim.colocation import ColocationOutcome, ColocationScenario, Training

SIZES: Final = {8: 1440, 64: 720, 1024: 240}
"""GPUs -> minutes played."""
SMALL: Final = "small"
"""The variant that plays 8 and 64 GPUs only."""
LEARNED: Final = 0.2
"""Part of the pairs that schedulers know beforehand."""
LOAD: Final = 1.0
"""Training work over what all GPUs could do."""
ARRIVE: Final = 0.6
"""Part of the time in which all training jobs are submitted, so that they queue."""
REPLICAS: Final = 0.8
"""Mean replicas a GPU that requests take."""
KNOWN_DAYS: Final = 4
"""Days of requests before the one that is played; forecasts learn from them."""
MOST_FUNCTIONS: Final = 16
FUNCTION_USE: Final = 0.45
"""Workloads that keep a GPU less busy than this serve as functions, every second of them."""
P99_LIMIT: Final = 1.5
KEPT: Final = 0.99
MEMORY_MIB: Final = 24 * 1024
OURS: Final = "bounded"
COLOCATORS: Final = ("smore", OURS)
PAPER_POINTS: Final = (3, 34)
"""Least and most that SMore gains in use, by its paper."""
CLASSES: Final = ("light", "medium", "heavy")
BEHIND: Final = 1.0
"""Points by which our gain may be below SMore's, which promises training nothing."""


def _reproduce(setting: Setting) -> list[Row]:
    from interlane.predict.slowdown.store import trained

    if setting.data is None:
        raise InvalidInput("This needs traces and measured pairs; name them with --data.")
    pairs = measured(setting.data)
    sizes = {size: SIZES[size] for size in SIZES if setting.choice != SMALL or size < 1000}
    steps = 2 + len(COLOCATORS) * len(sizes)
    table = trained(_known(pairs, setting.seed), setting.seed).table
    setting.progress(1, steps, "slowdown learned")
    requests = _Requests.of(setting.data, setting.seed)
    setting.progress(2, steps, "arrivals learned")
    rows = []
    for at, (gpus, minutes) in enumerate(sizes.items()):
        scenario = _scenario(setting.data, pairs, requests, gpus, minutes, setting.seed)
        found = {"exclusive": _exclusive(scenario)}
        for place, name in enumerate(COLOCATORS):
            # Each learns on from the same beginning.
            found[name] = _played(scenario, deepcopy(table), requests, name)
            setting.progress(3 + len(COLOCATORS) * at + place, steps, f"{gpus} GPUs, {name}")
        rows += _rows(gpus, found)
    return rows


def _known(pairs: "Pairs", seed: int) -> "Pairs":
    from interlane.predict.slowdown.evaluate import by_pair

    return by_pair(pairs, LEARNED, seed).known


def measured(data: Path) -> "Pairs":
    """Return Lucid's pairs."""
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import FOLDERS, read

    (pairs,) = pairs_by_way(read(data / FOLDERS["lucid"])).values()
    return pairs


def _exclusive(scenario: "ColocationScenario") -> "ColocationOutcome":
    from interlane.sim.colocation import ColocationWorld

    return ColocationWorld(scenario).play()


def _played(
    scenario: "ColocationScenario", table: "SlowdownTable", requests: "_Requests", name: str
) -> "ColocationOutcome":
    from interlane.functions.scheduler import FunctionScheduler
    from interlane.policy.colocate.catalogue import make_colocator
    from interlane.policy.colocate.interference import SlowdownTarget
    from interlane.sim.colocation import MINUTE_S, ColocationWorld

    watch = requests.watch(scenario, is_ours=name == OURS)
    scheduler = FunctionScheduler(
        make_colocator(name, dict.fromkeys(SlowdownTarget, table)),
        slot_s=MINUTE_S,
        make_watch=lambda *_: watch,
        seed=scenario.seed,
    )
    return ColocationWorld(scenario, scheduler).play()


# -- requests -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Requests:
    """Five days of requests: forecasts have learned from four, the last one is played."""

    counts: "NDArray[np.float64]"
    """Minute x function."""
    ours: "Trees"
    smores: "LsLstm"

    @classmethod
    def of(cls, data: Path, seed: int) -> "_Requests":
        """Draw five days in a row of some of Azure's functions, and learn the first four."""
        import numpy as np

        from interlane.predict.arrivals.live import Trees
        from interlane.predict.arrivals.lslstm import LsLstm
        from interlane.predict.arrivals.series import Arrivals, Series
        from interlane.sim.requests import arrivals_of
        from interlane.traces.requests import read_requests

        path = data / "azure-functions-2019-sample" / "azure_fn_2019_minute.csv.gz"
        found = arrivals_of(read_requests(path))
        rng, days = np.random.default_rng(seed), KNOWN_DAYS + 1
        chosen = rng.choice(len(found), MOST_FUNCTIONS, replace=False)
        counts = []
        for one in (found.series[number].seen for number in chosen):
            first = found.day * int(rng.integers(0, len(one) // found.day - days + 1))
            counts.append(one[first : first + days * found.day])
        known = Arrivals(
            found.slot_s,
            tuple(
                Series(str(place), one[: KNOWN_DAYS * found.day])
                for place, one in enumerate(counts)
            ),
        )
        return cls(
            np.column_stack(counts),
            Trees().fit(known),
            LsLstm(seed=seed, epochs=2, windows=10_000).fit(known),
        )

    @property
    def day(self) -> int:
        """Minutes in a day."""
        return len(self.counts) // (KNOWN_DAYS + 1)

    def played(self, functions: int, minutes: int) -> "NDArray[np.float64]":
        """Return the counts that are played, from the beginning of the last day on."""
        begin = KNOWN_DAYS * self.day
        return self.counts[begin : begin + minutes, :functions]

    def watch(self, scenario: "ColocationScenario", *, is_ours: bool) -> "FunctionWatch":
        """Return who says how many replicas there should be, and has seen the known days."""
        from interlane.functions.advise import Hurdle
        from interlane.functions.catalogue import advisors
        from interlane.functions.portfolio import Portfolio
        from interlane.functions.watch import FunctionWatch
        from interlane.predict.arrivals.live import OnlineForecaster
        from interlane.predict.arrivals.lslstm_live import LiveLsLstm
        from interlane.sim.colocation import MINUTE_S

        names = tuple(one.id for one in scenario.functions)
        weight, capacity = self._weight(scenario), scenario.capacity
        known = self.counts[: KNOWN_DAYS * self.day, : len(names)]
        if not is_ours:
            smores = LiveLsLstm(
                self.smores, functions=len(names), slot_s=MINUTE_S, updates=False
            )
            for counts in known:
                smores.passed(counts)
            smores.updates = True
            hurdle = Hurdle(smores, weight, capacity)
            return FunctionWatch(names, smores, hurdle, weight, capacity)
        live = OnlineForecaster(self.ours, functions=len(names), slot_s=MINUTE_S)
        everybody = advisors({"trees": live}, weight=weight, capacity=capacity, slot_s=MINUTE_S)
        ours = FunctionWatch(names, live, Portfolio(everybody, weight), weight, capacity)
        for counts in known:
            ours.passed(counts)
        return ours

    def _weight(self, scenario: "ColocationScenario") -> "NDArray[np.float64]":
        """Return how many idle replicas a missing one is worth, as the scheduler prices it."""
        import numpy as np

        from interlane.functions.costs import Prices, costs_of
        from interlane.sim.colocation import MINUTE_S

        at_stake = (
            costs_of(
                one,
                Prices(),
                slot_s=MINUTE_S,
                device_mib=scenario.memory_mib,
                least=one.use,
            )
            for one in scenario.functions
        )
        return np.array([costs.weight for costs in at_stake])


def _capacity(counts: "NDArray[np.float64]", replicas: float) -> "NDArray[np.float64]":
    """Return what a replica serves in a minute, so that requests take so many on average.

    Every function that is asked takes at least one.
    """
    import numpy as np

    mean = np.maximum(counts.mean(0), 1e-9)
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = np.sqrt(low * high)
        taken = np.ceil(counts / (mean * middle)).sum(1).mean()
        low, high = (middle, high) if taken > replicas else (low, middle)
    return np.asarray(mean * high)


# -- what happens ---------------------------------------------------------------------


def _scenario(
    data: Path, pairs: "Pairs", requests: _Requests, gpus: int, minutes: int, seed: int
) -> "ColocationScenario":
    from random import Random

    from interlane.policy.colocate.slowdown import SharingTables, Slowdowns
    from interlane.sim.colocation import ColocationScenario

    rng = Random(seed)
    table = true_table(pairs)
    functions, trainers = _roles(pairs)
    functions = functions[:: max(1, len(functions) // min(MOST_FUNCTIONS, gpus))]
    load_s = _load_s(data)
    counts = requests.played(len(functions), minutes)
    return ColocationScenario(
        gpus,
        pairs.profiles.gpu_types[0],
        MEMORY_MIB,
        _trainings(data, pairs, trainers, gpus, minutes, rng.randrange(1 << 30)),
        tuple(_function(pairs, number, sum(load_s) / len(load_s)) for number in functions),
        counts,
        _capacity(counts, REPLICAS * gpus),
        load_s,
        Slowdowns(
            {"side-by-side": SharingTables(table, table)},
            MeasuredCrowd.of(data),
            cautious=False,
        ),
        seed,
    )


def true_slowdown(pairs: "Pairs") -> "NDArray[np.float64]":
    """Return slowdown by victim and neighbour, from 1 on, as it was measured.

    A pair that was not measured is what its two sides are elsewhere.
    """
    import numpy as np

    count = len(pairs.profiles)
    logs = np.full((count, count), np.nan)
    logs[pairs.victim, pairs.aggressor] = pairs.log_throughput
    known = ~np.isnan(logs)
    middle = float(pairs.log_throughput.mean())
    off = np.where(known, logs - middle, 0.0)
    sensitivity = off.sum(1) / np.maximum(known.sum(1), 1)
    pressure = off.sum(0) / np.maximum(known.sum(0), 1)
    logs = np.where(known, logs, middle + sensitivity[:, None] + pressure)
    return np.asarray(np.exp(-np.minimum(logs, 0.0)))


def true_table(pairs: "Pairs") -> "SlowdownTable":
    """Return the same as a table that is certain."""
    import numpy as np

    from interlane.predict.slowdown.models import SlowdownEstimate
    from interlane.predict.slowdown.table import CellBasis, SlowdownTable

    count = len(pairs.profiles)
    estimate = SlowdownEstimate(-np.log(true_slowdown(pairs)).ravel(), np.full(count**2, 1e-6))
    basis = np.full(count**2, CellBasis.MEASURED, np.int8)
    return SlowdownTable(pairs.profiles, estimate, np.zeros(1), basis)


@dataclass(frozen=True)
class MeasuredCrowd:
    """How more than two add up in truth: as a public curve was measured, point by point.

    No policy has seen the curve, and it is no policy's rule: between the points there are
    straight lines.
    """

    factors: tuple[float, ...]
    """By neighbours, from one on: the slowdown over the sum of pairwise ones, each less 1."""

    @classmethod
    def of(cls, data: Path) -> "MeasuredCrowd":
        """Read the curve of the smallest engines, which goes up to eight."""
        import numpy as np

        from interlane.traces.colocation import multiway

        curve = multiway.read(data / multiway.FOLDER)[0]
        neighbours = np.array(curve.engines[1:]) - 1
        excess = np.array(curve.slow_down[1:]) - 1.0
        over = excess / (neighbours * excess[0])
        every = np.interp(np.arange(1, neighbours[-1] + 1), neighbours, over)
        return cls(tuple(every.tolist()))

    def total(self, excess: float, worst: float, neighbours: int) -> float:
        """Return the slowdown, of the sum and the largest of pairwise ones less 1."""
        at = min(max(neighbours, 1), len(self.factors)) - 1
        return 1.0 + max(self.factors[at] * excess, worst)

    def learn(self, crowd: "Crowd", slow_down: float) -> None:
        """Stay as it is: the truth does not learn."""

    def snapshot(self) -> "NDArray[np.float64]":
        """Return what was learned: nothing."""
        import numpy as np

        return np.zeros(0)

    def restore(self, learned: "NDArray[np.float64]") -> None:
        """Stay as it is."""


def _roles(pairs: "Pairs") -> tuple[list[int], list[int]]:
    """Return the workloads that serve as functions, and those that train."""
    import numpy as np

    use = pairs.profiles.filled[0, :, pairs.profiles.counters.index("sm_active")]
    measured = np.unique(pairs.victim)
    light = [int(one) for one in measured[np.argsort(use[measured])] if use[one] < FUNCTION_USE]
    functions = light[::2]
    return functions, [int(one) for one in measured if int(one) not in functions]


def _function(pairs: "Pairs", number: int, load_s: float) -> "Function":
    from interlane.model.function import Function

    profiles = pairs.profiles
    return Function(
        profiles.names[number],
        profiles.names[number],
        _memory_mib(pairs, number),
        min(1.0, float(profiles.filled[0, number, profiles.counters.index("sm_active")])),
        P99_LIMIT,
        600.0,
        disk_load_s=load_s,
    )


def _memory_mib(pairs: "Pairs", number: int) -> int:
    place = pairs.profiles.counters.index("memory")
    return int(MEMORY_MIB * min(1.0, pairs.profiles.filled[0, number, place]))


def _trainings(
    data: Path, pairs: "Pairs", trainers: list[int], gpus: int, minutes: int, seed: int
) -> "tuple[Training, ...]":
    """Return single-GPU jobs of Helios' Venus, as many as keep the GPUs busy.

    The trace does not say what they train: workloads are drawn.
    """
    import numpy as np

    from interlane.sim.colocation import MINUTE_S, Training
    from interlane.traces.read import read_trace

    frame = read_trace(data / "helios-venus" / "venus_gpu_jobs.csv.gz").frame
    alone = frame.filter(frame["gpus"] == 1)
    rng = np.random.default_rng(seed)
    first = int(rng.integers(0, alone.height // 2))
    work_s = np.minimum(alone["duration_s"].to_numpy()[first:], minutes * MINUTE_S)
    enough = int(np.searchsorted(np.cumsum(work_s), LOAD * gpus * minutes * MINUTE_S)) + 1
    came_s = alone["submit_s"].to_numpy()[first : first + enough]
    spread = (came_s - came_s[0]) / max(1.0, came_s[-1] - came_s[0])
    use = pairs.profiles.filled[0, :, pairs.profiles.counters.index("sm_active")]
    drawn = rng.choice(trainers, enough)
    return tuple(
        Training(
            pairs.profiles.names[number],
            _memory_mib(pairs, int(number)),
            min(1.0, float(use[number])),
            # The first jobs are there when the day begins, so that no GPU starts idle.
            0 if place < gpus else int(spread[place] * ARRIVE * minutes),
            float(length_s),
        )
        for place, (number, length_s) in enumerate(zip(drawn, work_s[:enough], strict=True))
    )


def _load_s(data: Path) -> tuple[float, ...]:
    """Return measured times to load a model from disk."""
    import polars as pl

    frame = pl.read_csv(data / "serverlessllm-load-times" / "load_times.csv")
    cold = frame.filter(pl.col("mode") == "random")["loading_time_s"].drop_nulls()
    return tuple(float(one) for one in cold)


# -- what came of it ------------------------------------------------------------------


def _rows(gpus: int, found: "dict[str, ColocationOutcome]") -> list[Row]:
    alone, smore, ours = (found[name] for name in ("exclusive", "smore", OURS))
    what = f"{gpus} GPUs"
    gains = {name: one.use - alone.use for name, one in found.items()}
    rows = [
        checked(
            f"{what}: gain in use over exclusive, points",
            round(100 * gains[OURS], 1),
            f">= SMore's {100 * gains['smore']:.1f}",
            gains[OURS] >= gains["smore"],
            excuse=_near(100 * gains["smore"]),
        )
    ]
    for kind in CLASSES:
        gain, theirs = (one.use_of(kind) - alone.use_of(kind) for one in (ours, smore))
        least, most = PAPER_POINTS
        told = f"SMore {100 * theirs:.1f}; paper {least} to {most}"
        rows.append(
            checked(
                f"{what}: gain where training is {kind}", round(100 * gain, 1), told, gain > 0
            )
        )
    kept = 1.0 - ours.broken
    return [
        *rows,
        checked(
            f"{what}: training job-hours within 10 %",
            round(kept, 4),
            f">= {KEPT}",
            kept >= KEPT,
        ),
        checked(
            f"{what}: job-hours that lost more",
            round(ours.broken, 4),
            f"< SMore's {smore.broken:.4f}",
            ours.broken < smore.broken or smore.broken == 0.0,
        ),
        checked(
            f"{what}: deadlines missed by functions",
            round(ours.missed, 4),
            f"<= SMore's {smore.missed:.4f}",
            ours.missed <= smore.missed,
        ),
    ]


def _near(theirs: float) -> Excuse:
    """Excuse a gain that is a point below SMore's at most: it pays with training's hours."""
    why = (
        "a known price: SMore co-locates beyond what training may lose, which is counted in "
        "the job-hours that lost more"
    )
    return Excuse(why, round(theirs - BEHIND, 1), round(theirs, 1))


UTILISATION: Final = Reproduction(
    "smore-utilisation",
    "Functions in what training leaves over of GPUs raise their use by 3 to 34 points while "
    "training stays within 10 %; real traces, measured pairs, exclusive and SMore beside.",
    "Harvesting would cost training more than promised, or gain less than SMore does.",
    _reproduce,
    seed=0,
    variants=(SMALL,),
    basis=Basis.MEASURED,
    published=("interlane.reproduce.smore_utilisation:PAPER_POINTS",),
)
