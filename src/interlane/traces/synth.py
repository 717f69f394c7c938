"""Make a trace that looks like PAI's, for any cluster and any load.

Theory of operation.  Work comes in *groups*: the runs of one program by one user, which ask
for the same thing and take about as long.  So groups are drawn first (how often each runs,
who owns it, what it asks for, its typical length), and jobs are runs of groups.  Shares are
those published for the PAI trace ("MLaaS in the Wild", NSDI 2022, figures 2, 4, 5, 10).
Requests are then made to fit the given cluster, and at last the time over which jobs arrive
is chosen so that the GPU time asked for is the wanted share of what the cluster has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.model import MILLI, Cluster, InvalidField, InvalidInput, Machine
from interlane.model.units import MIB_PER_GIB
from interlane.traces.clusters import ANY_TYPE
from interlane.traces.schema import TRUE_DURATION, Trace, canonical

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RequestStep:
    """A GPU request that users make, and what they ask for beside it."""

    gpus: int
    gpu_milli: int
    share: float
    cpus: tuple[int, ...]
    memory_gib: tuple[int, ...]


STEPS: Final = (
    RequestStep(0, MILLI, 0.150, (1, 2, 4, 8, 16), (4, 8, 16, 32)),
    RequestStep(1, 100, 0.051, (1, 2, 4), (4, 8)),
    RequestStep(1, 200, 0.034, (2, 4), (4, 8, 16)),
    RequestStep(1, 250, 0.281, (2, 4, 6), (8, 12, 16)),
    RequestStep(1, 500, 0.238, (4, 6, 8), (12, 16, 24, 32)),
    RequestStep(1, MILLI, 0.233, (6, 8, 12), (24, 32, 48)),
    RequestStep(2, MILLI, 0.006, (12, 16, 24), (48, 64)),
    RequestStep(4, MILLI, 0.004, (24, 32, 48), (96, 128)),
    RequestStep(8, MILLI, 0.003, (48, 64, 90), (192, 256)),
)
"""Figure 5's steps, with 15 % of tasks that want no GPU."""

ONE_INSTANCE: Final = 0.75
"""Tasks of a single instance; with the gangs below, 85 % of instances are in gangs."""

GANG_MEDIAN: Final = 8.0
GANG_SPREAD: Final = 1.2
GANG_SIZES: Final = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 50, 60, 64, 80),
    *(100, 128, 150, 200, 256, 300, 400, 512),
)
"""Users like round numbers; the largest gang published for these jobs is 512."""

LARGEST_PART: Final = 4
"""No gang takes more than a quarter of the machines that can host it."""

RECURRENCE: Final = (
    (1, 1, 0.150),
    (2, 2, 0.125),
    (3, 10, 0.125),
    (11, 62, 0.200),
    (63, 100, 0.170),
    (101, 1000, 0.180),
    (1001, 5000, 0.050),
)
"""How often programs run (figure 10): from, to, share of tasks."""

MEDIAN_S: Final = 600.0
GROUP_SPREAD: Final = 2.0
STEADY_GROUPS: Final = 0.7
STEADY_SPREAD: Final = 0.12
LOOSE_SPREAD: Final = 0.9
DURATION_MAX_S: Final = 4 * DAY_S

NAMES_TYPE: Final = 0.08
"""Groups with GPUs that insist on a GPU type."""

VARIED_GROUPS: Final = 0.3
VARIED_RUNS: Final = 0.25
"""Some programs run now and then at half or twice their size."""

CARD_MIB_MOST: Final = 16 * MIB_PER_GIB
CARD_PART: Final = 0.8
"""Memory asked of a card: this part of the weakest card, times the share asked."""

SLACK: Final = 0.8
"""CPU and memory are asked for at most at this part of the GPU load."""

HOURLY: Final = np.array(
    (
        *(1.0, 0.8, 0.6, 0.5, 0.45, 0.45, 0.5, 0.6, 0.85, 1.2, 1.4, 1.35),
        *(1.1, 1.2, 1.4, 1.45, 1.4, 1.3, 1.15, 1.1, 1.15, 1.2, 1.15, 1.1),
    )
)
"""Submissions by hour of the day (figure 3): the day's peak, and a small one at midnight."""

WEEKEND: Final = 0.85
"""Saturday and Sunday against a weekday."""


def synthesize(
    *,
    jobs: int,
    cluster: Cluster,
    load: float = 0.9,
    seed: int = 0,
    days: float | None = None,
) -> Trace:
    """Return a PAI-like trace of one-task jobs that keeps the cluster's GPUs busy.

    Jobs arrive over the time in which their GPU time is ``load`` of what the cluster has;
    ``days`` sets that time instead, and the load follows.
    """
    _check(jobs=jobs, cluster=cluster, load=load, seed=seed, days=days)
    streams = np.random.SeedSequence(seed).spawn(4)
    sizes_rng, asks_rng, lengths_rng, arrivals_rng = map(np.random.default_rng, streams)
    groups = _draw_groups(sizes_rng, jobs)
    asked = _draw_requests(asks_rng, len(groups.size), cluster)
    runs = _draw_runs(lengths_rng, groups, asked)
    runs = _within(runs, cluster)
    span_s = _span_s(runs, cluster, load) if days is None else days * DAY_S
    frame = runs.with_columns(_arrivals(arrivals_rng, jobs, span_s)).with_columns(
        job_id=pl.int_range(jobs).cast(pl.String),
        user_dur=pl.col("duration_s").median().over("user"),
        group_dur=pl.col("duration_s").median().over("group"),
        group_gpu_dur=pl.col("duration_s").median().over("group", "instances"),
    )
    estimates = (TRUE_DURATION, "user_dur", "group_dur", "group_gpu_dur")
    return Trace(f"synth-{jobs}-{seed}", canonical(frame.to_dict()), estimates)


def _check(*, jobs: int, cluster: Cluster, load: float, seed: int, days: float | None) -> None:
    if not 1 <= jobs <= 10**8:
        raise InvalidField("jobs", jobs, "it must be 1 to 100,000,000")
    if not 0 < load <= 10:
        raise InvalidField("load", load, "it must be above 0 and at most 10")
    if seed < 0:
        raise InvalidField("seed", seed, "it must be 0 or more")
    if days is not None and not 0 < days <= 36_500:
        raise InvalidField("days", days, "it must be above 0 and at most 36500")
    if not cluster.gpus:
        raise InvalidInput(
            f"Cluster {cluster.name} has no GPUs, so that no GPU load can be made for it; "
            "name another with --cluster."
        )


@dataclass(frozen=True)
class _Groups:
    """How often each program runs, and whose it is."""

    size: Ints
    user: Ints


def _draw_groups(rng: np.random.Generator, jobs: int) -> _Groups:
    sizes: list[Ints] = []
    # In a short trace no single program may set the tone.
    largest = max(10, jobs // 100)
    left, due = jobs, 0.0
    for least, most, share in reversed(RECURRENCE):
        due += jobs * share
        wanted = left if least == 1 else min(left, round(due))
        if least <= min(largest, wanted):
            drawn = log_even_sizes(rng, least, min(most, largest), wanted)
            sizes.append(drawn)
            left -= wanted
            due -= wanted
    size = np.concatenate(sizes)
    users = max(3, min(1300, jobs // 50))
    weights = 1.0 / np.arange(1, users + 1) ** 1.2
    user = rng.choice(users, len(size), p=weights / weights.sum())
    return _Groups(size, user.astype(np.int64))


def log_even_sizes(rng: np.random.Generator, least: int, most: int, wanted: int) -> Ints:
    """Return whole numbers between bounds, even on a log scale, that sum up to ``wanted``."""
    if wanted <= 0:
        return np.zeros(0, np.int64)
    drawn = rng.uniform(np.log(least), np.log(most + 1), wanted // least + 1)
    size = np.clip(np.exp(drawn).astype(np.int64), least, most)
    cut = int(np.searchsorted(np.cumsum(size), wanted))
    size = size[: cut + 1].copy()
    size[-1] -= int(size.sum()) - wanted
    return size[size > 0]


@dataclass(frozen=True)
class _Kind:
    """Machines that are alike."""

    machine: Machine
    count: int

    def room(self, row: dict[str, int], types: frozenset[str]) -> int:
        """Count the instances of a request that these machines host when empty."""
        each = [self._by_gpu(row, types)]
        for field in ("cpu_milli", "memory_mib"):
            if row[field]:
                each.append(getattr(self.machine, field) // row[field])
        return self.count * min(each)

    def _by_gpu(self, row: dict[str, int], types: frozenset[str]) -> int:
        machine, gpus, share = self.machine, row["gpus"], row["gpu_milli"]
        if not gpus:
            return GANG_SIZES[-1]
        wrong = types and machine.gpu_type not in types
        if wrong or machine.gpu_memory_mib < row["gpu_memory_mib"]:
            return 0
        if machine.pooled:
            return machine.gpu_milli // (gpus * share)
        return machine.gpus // gpus if share == MILLI else machine.gpus * (MILLI // share)


def _kinds(cluster: Cluster) -> list[_Kind]:
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], Machine] = {}
    for one in cluster:
        alike = (one.gpu_type, one.gpus, one.cpu_milli, one.memory_mib, one.gpu_memory_mib)
        counts[alike] = counts.get(alike, 0) + 1
        first.setdefault(alike, one)
    return [_Kind(first[alike], count) for alike, count in counts.items()]


def _draw_requests(rng: np.random.Generator, groups: int, cluster: Cluster) -> pl.DataFrame:
    """Return what each group asks for, as it fits the machines."""
    kinds = _kinds(cluster)
    step = _draw_steps(rng, groups, kinds)
    gpus = np.array([one.gpus for one in STEPS])[step]
    share = np.array([one.gpu_milli for one in STEPS])[step]
    card_mib = min(
        CARD_MIB_MOST,
        *(kind.machine.gpu_memory_mib for kind in kinds if kind.machine.gpus),
    )
    card_need = (CARD_PART * card_mib * share / MILLI).astype(np.int64) // 256 * 256
    frame = pl.DataFrame(
        {
            "gpus": gpus,
            "gpu_milli": share,
            "gpu_memory_mib": np.where(gpus > 0, card_need, 0),
            "cpu_milli": _pick(rng, step, [one.cpus for one in STEPS]) * MILLI,
            "memory_mib": _pick(rng, step, [one.memory_gib for one in STEPS]) * MIB_PER_GIB,
            "gpu_types": _draw_types(rng, gpus, kinds),
            "instances": _draw_instances(rng, groups),
        }
    )
    return _fitted(frame, kinds)


def _draw_steps(rng: np.random.Generator, groups: int, kinds: list[_Kind]) -> Ints:
    """Draw steps; what no machine has room for becomes the largest step that one has."""
    most = max(kind.machine.gpus for kind in kinds)
    shares = np.array([one.share for one in STEPS])
    step = rng.choice(len(STEPS), groups, p=shares / shares.sum())
    largest = max(place for place, one in enumerate(STEPS) if one.gpus <= most)
    return np.minimum(step, largest).astype(np.int64)


def _pick(rng: np.random.Generator, step: Ints, choices: Sequence[tuple[int, ...]]) -> Ints:
    """Draw one of the choices of each group's step."""
    counts = np.array([len(some) for some in choices])
    table = np.zeros((len(choices), counts.max()), np.int64)
    for row, some in enumerate(choices):
        table[row, : len(some)] = some
    drawn: Ints = table[step, (rng.random(len(step)) * counts[step]).astype(np.int64)]
    return drawn


def _draw_types(rng: np.random.Generator, gpus: Ints, kinds: list[_Kind]) -> pl.Series:
    """Let a few groups insist on a GPU type, in proportion to what the cluster has of it."""
    named = [kind for kind in kinds if kind.machine.gpus and kind.machine.gpu_type != ANY_TYPE]
    insists = (rng.random(len(gpus)) < NAMES_TYPE) & (gpus > 0)
    if not named:
        return pl.Series([""]).new_from_index(0, len(gpus))
    capacity = np.array([kind.count * kind.machine.gpus for kind in named], float)
    chosen = rng.choice(len(named), len(gpus), p=capacity / capacity.sum())
    has = np.array([kind.machine.gpus for kind in named])[chosen]
    names = np.array([*(kind.machine.gpu_type for kind in named), ""])
    return pl.Series(names[np.where(insists & (has >= gpus), chosen, len(named))])


def _draw_instances(rng: np.random.Generator, groups: int) -> Ints:
    gang = 2 + rng.lognormal(np.log(GANG_MEDIAN), GANG_SPREAD, groups)
    drawn = np.where(rng.random(groups) < ONE_INSTANCE, 1.0, gang)
    return _round_down(drawn)


def _round_down(instances: Floats) -> Ints:
    sizes = np.array(GANG_SIZES, np.int64)
    place = np.searchsorted(sizes, np.maximum(instances, 1), side="right") - 1
    rounded: Ints = sizes[place]
    return rounded


def _fitted(frame: pl.DataFrame, kinds: list[_Kind]) -> pl.DataFrame:
    """Cap gangs at a part of the machines that can host them; drop what nobody can give."""
    columns = frame.columns[:-1]
    distinct = frame.select(columns).unique(maintain_order=True)
    fitted = [_fit(row, kinds) for row in distinct.iter_rows(named=True)]
    new = pl.DataFrame(fitted).rename({name: f"{name}_fit" for name in columns})
    joined = frame.join(
        pl.concat([distinct, new], how="horizontal"),
        on=columns,
        how="left",
        maintain_order="left",
    )
    fit = joined.select(pl.col(f"{name}_fit").alias(name) for name in columns)
    capped = np.minimum(joined["instances"].to_numpy(), joined["most"].to_numpy())
    return fit.with_columns(
        pl.Series("instances", _round_down(capped)), joined["most"].alias("most")
    )


def _fit(row: dict[str, int], kinds: list[_Kind]) -> dict[str, object]:
    """Return the request and the largest gang of it; without CPU and memory if it must be."""
    types = frozenset(str(row["gpu_types"]).split("|")) - {""}
    bare = {"cpu_milli": 0, "memory_mib": 0, "gpu_memory_mib": 0}
    for asked in (row, row | bare):
        room = sum(kind.room(asked, types) for kind in kinds)
        if room:
            return {**asked, "most": max(1, room // LARGEST_PART)}
    return {**row, **bare, "gpu_types": "", "gpus": 1, "gpu_milli": MILLI, "most": 1}


def _draw_runs(rng: np.random.Generator, groups: _Groups, asked: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of all groups, shuffled: request, owner and length of each."""
    count = len(groups.size)
    median_s = rng.lognormal(np.log(MEDIAN_S), GROUP_SPREAD, count)
    steady = rng.random(count) < STEADY_GROUPS
    spread = np.where(steady, STEADY_SPREAD, LOOSE_SPREAD)
    factor = rng.choice([0.5, 2.0], count)
    slowdown = rng.lognormal(0.0, 0.5, count)
    varies = rng.random(count) < VARIED_GROUPS

    group = rng.permutation(np.repeat(np.arange(count), groups.size))
    odd = varies[group] & (rng.random(len(group)) < VARIED_RUNS)
    typical_s = median_s[group] * np.where(odd, slowdown[group], 1.0)
    noise = np.exp(spread[group] * rng.standard_normal(len(group)))
    duration_s = np.clip(np.rint(typical_s * noise), 5, DURATION_MAX_S)

    runs = asked[group]
    instances = runs["instances"].to_numpy() * np.where(odd, factor[group], 1.0)
    capped = np.minimum(instances, runs["most"].to_numpy())
    return runs.drop("most").with_columns(
        pl.Series("instances", _round_down(capped)),
        pl.Series("duration_s", duration_s),
        pl.Series("group", group).cast(pl.String).alias("group"),
        pl.Series("user", groups.user[group]).cast(pl.String).alias("user"),
    )


def _asked(runs: pl.DataFrame, per_instance: pl.Expr) -> float:
    """Return the sum over jobs of an amount times the seconds for which it is held."""
    seconds = pl.col("instances") * pl.col("duration_s")
    return float(runs.select((per_instance * seconds).sum()).item())


def _gpu_milli_s(runs: pl.DataFrame) -> float:
    return _asked(runs, pl.col("gpus") * pl.col("gpu_milli"))


def _within(runs: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Scale CPU and memory down until GPUs are what runs short."""
    gpu_load = _gpu_milli_s(runs) / (cluster.gpus * MILLI)
    for column, step in (("cpu_milli", 100), ("memory_mib", 64)):
        has = sum(getattr(machine, column) for machine in cluster)
        wanted = _asked(runs, pl.col(column))
        most = SLACK * gpu_load * has
        if wanted > most > 0:
            scaled = (pl.col(column) * (most / wanted) / step).floor() * step
            runs = runs.with_columns(scaled.cast(pl.Int64).alias(column))
    return runs


def _span_s(runs: pl.DataFrame, cluster: Cluster, load: float) -> float:
    """Return over how long jobs arrive so that they ask for ``load`` of the GPUs' time."""
    gpu_milli_s = _gpu_milli_s(runs)
    if not gpu_milli_s:
        # A handful of jobs may happen to want no GPU; any time will do for them.
        return float(HOUR_S)
    return gpu_milli_s / (load * cluster.gpus * MILLI)


def _arrivals(rng: np.random.Generator, jobs: int, span_s: float) -> pl.Series:
    """Draw submissions that follow the hours of the day and the days of the week."""
    hours = np.arange(int(np.ceil(span_s / HOUR_S)))
    weekend = np.where(hours // 24 % 7 >= 5, WEEKEND, 1.0)
    weight = HOURLY[hours % 24] * weekend
    weight[-1] *= span_s / HOUR_S - hours[-1]
    edges_s = np.append(hours * HOUR_S, span_s)
    reached = np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum()
    drawn = np.interp(np.sort(rng.random(jobs)), reached, edges_s)
    return pl.Series("submit_s", np.floor(drawn))
