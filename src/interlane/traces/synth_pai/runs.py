"""Runs of groups: when each job comes, how long it waits and runs, with what request."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Flags, Floats, Ints, Rng, by_weight
from interlane.traces.synth_pai.population import Groups

HOURLY: Final = np.array(
    (
        *(1.15, 0.85, 0.62, 0.50, 0.42, 0.38, 0.42, 0.55, 0.98, 1.48, 1.42, 1.10),
        *(0.95, 1.05, 1.25, 1.40, 1.40, 1.30, 1.15, 1.10, 1.15, 1.20, 1.15, 1.05),
    )
)
"""Submissions by the hour of the day (figure 3): a peak by day and a small one at midnight."""

WEEKLY: Final = np.array((1.02, 1.03, 1.03, 1.03, 1.02, 0.94, 0.93))
"""Submissions by the day of the week, from Monday."""

GANG_RHYTHM: Final = 1.5
BARE_RHYTHM: Final = 2.1
"""Gangs keep to office hours more than others do."""

LARGE: Final = 64
NIGHTLY: Final = np.array(
    (
        *(1.8, 1.5, 1.1, 0.8, 0.6, 0.55, 0.7, 1.1, 1.5, 1.5, 1.1, 0.9),
        *(0.8, 0.8, 0.9, 0.9, 0.9, 0.8, 0.7, 0.7, 0.7, 0.8, 0.9, 1.0),
    )
)
LONG_S: Final = 2 * of.HOUR_S
"""Long programs are set off at night, so that GPUs are fullest in the morning (figure 8)."""

NO_GPU, SHARED, WHOLE, SEVERAL = range(4)
WEAK, TWO, STRONG, STRONGEST = range(4)

WAIT_S: Final = {
    # How much of a GPU, on which machines -> median and ninth decile of the wait (4c, 4d).
    **dict.fromkeys(((NO_GPU, where) for where in range(4)), (6.0, 80.0)),
    (SHARED, WEAK): (10.8, 325.0),
    (SHARED, TWO): (12.0, 490.0),
    (SHARED, STRONG): (113.0, 13_709.0),
    (SHARED, STRONGEST): (50.0, 3_000.0),
    (WHOLE, WEAK): (10.8, 325.0),
    (WHOLE, TWO): (25.0, 500.0),
    (WHOLE, STRONG): (113.0, 13_709.0),
    (WHOLE, STRONGEST): (80.0, 6_000.0),
    **dict.fromkeys(((SEVERAL, where) for where in range(4)), (150.0, 10_000.0)),
}
DECILE: Final = 1.2816
"""The ninth decile of the normal distribution."""
NORMAL_AT: Final = (0.0, 0.0228, 0.1587, 0.5, 0.8413, 0.9, 0.9772, 0.9987, 1.0)
NORMAL: Final = np.array((-3.0, -2.0, -1.0, 0.0, 1.0, DECILE, 2.0, 3.0, 3.5))
WAIT_MOST_S: Final = 2 * of.DAY_S
WAIT_LEANS: Final = 0.18
"""How much longer jobs wait longer, too; patience is asked of those who have it."""

FAILED: Final = 0.18


@dataclass(frozen=True)
class JobColumns:
    """One entry per job in every column, ordered by submission."""

    group: Ints
    submit_s: Ints
    wait_s: Ints
    run_s: Ints
    gpu: Ints
    cpu: Ints
    kind: Ints
    failed: Flags

    @property
    def start_s(self) -> Ints:
        """When the tasks of each job start."""
        return self.submit_s + self.wait_s


@dataclass(frozen=True)
class Tasks:
    """One entry per task in every column, ordered by start."""

    job: Ints
    serves: Flags
    """Parameter servers, the second task of their job."""
    instances: Ints
    start_s: Ints
    run_s: Ints
    gpu: Ints
    cpu: Ints
    memory_gib: Floats
    kind: Ints
    group: Ints


def draw_jobs(rng: Rng, groups: Groups, days: float) -> JobColumns:
    """Draw all runs of the groups within ``days``."""
    group = np.repeat(np.arange(groups.count), groups.runs)
    submit_s = _arrivals(rng, groups, group, days)
    order = np.argsort(submit_s, kind="stable")
    group, submit_s = group[order], submit_s[order]
    gpu, cpu, kind, slowdown = _variants(rng, groups, group)
    run_s = _lengths(rng, groups, group, submit_s, slowdown)
    wait_s = _waits(rng, gpu, kind, run_s, groups.instances[group])
    loose = groups.spread[group] > 0.5
    failed = rng.random(len(group)) < np.where(loose, 1.8 * FAILED, 0.75 * FAILED)
    return JobColumns(group, submit_s, wait_s, run_s, gpu, cpu, kind, failed)


def _arrivals(rng: Rng, groups: Groups, group: Ints, days: float) -> Ints:
    """Draw submissions: a program is run over some weeks, at the hours when people work."""
    begin = rng.random(groups.count)
    width = rng.beta(1.2, 1.6, groups.count)
    through = (begin[group] + width[group] * rng.random(len(group))) % 1.0
    # Large gangs are few; chance alone would make hours of the week unlike each other.
    large = np.flatnonzero(groups.instances[group] >= LARGE)
    through[large] = (rng.permutation(len(large)) + rng.random(len(large))) / len(large)
    alone = groups.instances[group] == 1
    late, bare = groups.typical_s[group] > LONG_S, groups.asks.gpu[group] == 0
    submit_s = np.empty(len(group))
    for some, hourly, power in (
        (alone & ~late, HOURLY, 1.0),
        (~alone & ~late & ~bare, HOURLY, GANG_RHYTHM),
        (~alone & ~late & bare, HOURLY, BARE_RHYTHM),
        (late, NIGHTLY, 1.0),
    ):
        reached, edges_s = _rhythm(days, hourly**power)
        submit_s[some] = np.interp(through[some], reached, edges_s)
    return np.floor(submit_s).astype(np.int64)


def _rhythm(days: float, hourly: Floats) -> tuple[Floats, Floats]:
    """Return the part of submissions that has come by the end of each hour."""
    hours = np.arange(int(np.ceil(days * 24)))
    weekday = (hours // 24 + 2) % 7
    weight = hourly[hours % 24] * WEEKLY[weekday]
    ends = np.minimum(np.append(hours, hours[-1] + 1), days * 24)
    weight *= np.diff(ends)
    reached = np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum()
    return reached, of.BEGIN_S + ends * of.HOUR_S


def _variants(rng: Rng, groups: Groups, group: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Run some programs now and then with more or fewer GPUs, on other cards, more CPUs."""
    count = groups.count
    what = np.where(rng.random(count) < of.VARIED, rng.integers(1, 4, count), 0)
    slowdown = np.exp(of.SLOWDOWN * rng.standard_normal(count))
    up = rng.random(count) < 0.5
    odd = (what[group] > 0) & (rng.random(len(group)) < of.VARIED_RUNS)
    asks = groups.asks

    gpu = asks.gpu[group]
    steps = np.array((25, 50, 100))
    at = np.searchsorted(steps, gpu)
    other = steps[np.clip(np.where(up[group], at + 1, at - 1), 0, 2)]
    between = odd & (what[group] == 1) & np.isin(gpu, steps)
    kind = groups.kind[group]
    swaps = odd & (what[group] == 2) & ~groups.names_type[group]
    cpu = asks.cpu[group]
    more = odd & (what[group] == 3) & (cpu <= 1000)
    swapped = np.where(kind == of.T4, of.P100, np.where(kind == of.P100, of.T4, kind))
    return (
        np.where(between, other, gpu),
        np.where(more, cpu + 200, cpu),
        np.where(swaps, swapped, kind),
        np.where(odd, slowdown[group], 1.0),
    )


def _lengths(rng: Rng, groups: Groups, group: Ints, submit_s: Ints, slowdown: Floats) -> Ints:
    """Draw run times about each program's own, with a drift that lasts for days."""
    count = groups.count
    period_s = rng.uniform(8.0, 60.0, count) * of.DAY_S
    phase = rng.random(count)
    turn = 2 * np.pi * (submit_s / period_s[group] + phase[group])
    drift = np.sqrt(2 * of.DRIFT) * np.sin(turn)
    own = np.sqrt(1 - of.DRIFT) * rng.standard_normal(len(group))
    run_s = groups.typical_s[group] * slowdown * np.exp(groups.spread[group] * (drift + own))
    return np.asarray(np.clip(np.rint(run_s), of.RUN_LEAST_S, of.RUN_MOST_S), np.int64)


def _waits(rng: Rng, gpu: Ints, kind: Ints, run_s: Ints, instances: Ints) -> Ints:
    """Draw waits with the published quantiles by instances."""
    asked = np.select([gpu == 0, gpu < 100, gpu == 100], [NO_GPU, SHARED, WHOLE], SEVERAL)
    bounds = [kind <= of.MISC, kind <= of.P100, kind == of.V100]
    where = np.select(bounds, [WEAK, TWO, STRONG], STRONGEST)
    rank = np.sqrt(1 - WAIT_LEANS**2) * rng.standard_normal(len(gpu))
    rank += WAIT_LEANS * np.log(run_s) / 2.0
    wait_s = np.zeros(len(gpu))
    for (what, which), (median_s, decile_s) in WAIT_S.items():
        some = (asked == what) & (where == which)
        if some.any():
            spread = np.log(decile_s / median_s) / DECILE
            quantiles_s = median_s * np.exp(spread * NORMAL)
            weight = instances[some].astype(float)
            wait_s[some] = by_weight(rank[some], weight, NORMAL_AT, quantiles_s.tolist())
    return np.clip(np.rint(wait_s), 0, WAIT_MOST_S).astype(np.int64)


def tasks_of(groups: Groups, jobs: JobColumns) -> Tasks:
    """Return the tasks of all jobs: the main one, and parameter servers where there are."""
    served = np.flatnonzero(groups.servers[jobs.group] > 0)
    main = np.arange(len(jobs.group))
    job = np.concatenate([main, served])
    serves = np.arange(len(job)) >= len(main)
    group = jobs.group[job]
    start_s = jobs.start_s[job]
    order = np.lexsort((serves, job, start_s))
    job, serves, group, start_s = job[order], serves[order], group[order], start_s[order]
    asks, helps = groups.asks, groups.server_asks
    return Tasks(
        job,
        serves,
        np.where(serves, groups.servers[group], groups.instances[group]),
        start_s,
        jobs.run_s[job],
        np.where(serves, 0, jobs.gpu[job]),
        np.where(serves, helps.cpu[group], jobs.cpu[job]),
        np.where(serves, helps.memory_gib[group], asks.memory_gib[group]),
        np.where(serves, groups.server_kind[group], jobs.kind[job]),
        group,
    )
