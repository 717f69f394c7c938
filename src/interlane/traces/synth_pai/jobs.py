"""The jobs of a synthetic trace alone: what a simulation needs, without its seven tables.

Jobs carry what the tables show in several places: the GPU types that a program insists on or
whose memory it needs (all others may run anywhere), its family, and what runs used of a GPU.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from interlane.model.units import MIB_PER_GIB
from interlane.traces.schema import Trace, canonical
from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Floats, Ints
from interlane.traces.synth_pai.machines import make_machines
from interlane.traces.synth_pai.plan import Scope
from interlane.traces.synth_pai.population import ROLES, SERVER, Groups, draw_groups
from interlane.traces.synth_pai.runs import JobColumns, Tasks, draw_jobs, tasks_of
from interlane.traces.synth_pai.use import draw_habits

NAMES: Final = ("", "MISC", "T4", "P100", "V100|V100M32", "V100M32")
"""What a job may use that insists on a kind of machine; a larger V100 is a V100, too."""

LARGE_CARDS: Final = "V100|V100M32"
"""What a job may use that needs 16 GB of a card and more speed than a P100 has."""

BY_RUN: Final = 0.15
"""Spread of what single runs use about their program's habit, as in ``use``."""


@dataclass(frozen=True)
class Drawn:
    """Jobs as a trace, and what a sensor would have said of each, in the trace's order."""

    trace: Trace
    gpu_used: Floats
    """Share of a GPU that each instance of a job used."""


def draw_trace(scope: Scope, machines_scale: float = 1.0) -> Drawn:
    """Draw the jobs of a scope for machines of another scale, if need be.

    More jobs than the machines of their scale were made for are a heavier load of the same
    kind.
    """
    people, times, uses = map(
        np.random.default_rng, np.random.SeedSequence(scope.seed).spawn(3)
    )
    machines = make_machines(machines_scale)
    gpus = np.bincount(machines.kind, machines.gpus, len(of.KINDS)).astype(float)
    load = scope.scale / machines_scale
    groups = draw_groups(
        people,
        jobs=scope.jobs,
        users=scope.users,
        span_s=(scope.days + of.TAIL_DAYS) * of.DAY_S,
        gpus=gpus * load,
    )
    jobs = draw_jobs(times, groups, scope.days)
    tasks = tasks_of(groups, jobs)
    habits = draw_habits(uses, groups)
    about = np.exp(BY_RUN * uses.standard_normal(len(jobs.group)))
    used = np.minimum(jobs.gpu / 100 * habits.gpu[jobs.group] * about, 1.0)
    frame = _frame(groups, jobs, tasks)
    name = f"pai2020-like-{scope.days:g}d-x{scope.scale:g}-{scope.seed}"
    return Drawn(Trace(name, canonical(frame.to_dict())), used)


def _frame(groups: Groups, jobs: JobColumns, tasks: Tasks) -> pl.DataFrame:
    order = np.lexsort((tasks.serves, tasks.job))
    job, serves, group = tasks.job[order], tasks.serves[order], tasks.group[order]
    gpu = tasks.gpu[order]
    role = np.where(serves, SERVER, groups.role[group])
    return pl.DataFrame(
        {
            "job_id": pl.Series(job).cast(pl.String),
            "submit_s": (jobs.submit_s[job] - of.BEGIN_S).astype(float),
            "duration_s": jobs.run_s[job].astype(float),
            "role": _texts(ROLES, role),
            "instances": tasks.instances[order],
            "gpus": np.where(gpu > 100, gpu // 100, gpu > 0).astype(np.int64),
            "gpu_milli": np.where((gpu > 0) & (gpu < 100), gpu * 10, 1000),
            "cpu_milli": tasks.cpu[order] * 10,
            "memory_mib": (tasks.memory_gib[order] * MIB_PER_GIB).astype(np.int64),
            "gpu_types": _held_to(groups, group, np.where(gpu > 0, tasks.kind[order], of.CPU)),
            "user": pl.Series(groups.user[group]).cast(pl.String),
            "group": pl.Series(group).cast(pl.String),
            "family": _texts(of.WORKLOADS, groups.workload[group]),
        }
    )


def _held_to(groups: Groups, group: Ints, kind: Ints) -> pl.Series:
    """Return the types that each task is held to; nothing for work without GPUs."""
    large = groups.needs_card[group] & (kind != of.CPU)
    word = np.where(groups.names_type[group], kind, np.where(large, len(NAMES), of.CPU))
    return _texts((*NAMES, LARGE_CARDS), word)


def _texts(words: tuple[str, ...], index: Ints) -> pl.Series:
    return pl.Series(words).gather(pl.Series(index))
