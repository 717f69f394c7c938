"""MIG transitions: what stays in place, beside exchange-and-compact, and who is interrupted."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked
from interlane.reproduce.pai import data_file

if TYPE_CHECKING:
    from interlane.mig.demand import Problem
    from interlane.mig.transition.steps import StepTimes, Transition

MEASURED: Final = "mig/parvagpu/parvagpu_tidy.csv"

GPUS: Final = 100
SERVICES: Final = 24
CASES: Final = (("normal", 0.1), ("normal", 0.3), ("lognormal", 0.1), ("lognormal", 0.3))
"""Shape of the demand, and the spread of the log-normal factors that change each rate."""

SEEDS: Final = 3
"""Changes of each kind, with seeds that follow each other."""

LEAST_KEPT: Final = 0.85
MOST_MINUTES: Final = 30
"""Within which MIG-serving's own controller changed from one workload to another."""
OVERLAPS: Final = 5
"""Replays of a transition with overlapping actions, each with durations of its own."""
LIMIT_S: Final = 60.0

LOADS: Final = "pai-v2026-genai/basemodel_update_latency_anon.csv.gz"
ANSWERS: Final = "pai-v2026-genai/pipeline_inference_data_anon.csv.gz"
SLOT_S: Final = {"usual": 1.0, "slow": 10.0}
"""To make or destroy a slice: nothing but the command, so seconds; no table is public."""
RANKS: Final = {"usual": 0.5, "slow": 0.99}
"""Of the times that production servers took to load a model, and to answer."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One change of demand, and two ways to follow it."""

    ours: "Transition"
    theirs: "Transition"
    """Exchange-and-compact's."""
    fewest: int
    """GPUs of the cheapest plan for the new demand."""
    is_proven: bool
    most_kept: int
    """Instances that any plan with one GPU more can keep."""
    moments: int
    below: int
    """Moments, of both ways, at which something was wrong."""

    @property
    def kept(self) -> float:
        """Share of the instances that stay."""
        return self.ours.kept / self.ours.running

    @property
    def kept_by_baseline(self) -> float:
        """Share of the instances that exchange-and-compact leaves alone."""
        return self.theirs.kept / self.theirs.running


def _transition(
    setting: Setting, changes: Sequence[tuple[str, float]] = CASES, seeds: int = SEEDS
) -> list[Row]:
    rows: list[Row] = []
    times = _times(setting)
    everything: list[_Case] = []
    for number, (shape, spread) in enumerate(changes):
        cases = []
        for seed in range(setting.seed, setting.seed + seeds):
            cases.append(_case(replace(setting, seed=seed), shape, spread))
            done = number * seeds + len(cases)
            setting.progress(done, len(changes) * seeds, "transitions")
        rows += _rows(f"{shape}, rates changed by {spread:g}", cases, times)
        everything += cases
    moments, below = (
        sum(getattr(c, name) for c in everything) for name in ("moments", "below")
    )
    rows.append(
        checked(f"moments below a floor, of {moments:,} replayed", below, None, below == 0)
    )
    return rows


def _case(setting: Setting, shape: str, spread: float) -> _Case:
    from interlane.mig.optimise import optimise
    from interlane.mig.plan import Effort
    from interlane.mig.transition.exchange import exchange_and_compact
    from interlane.mig.transition.joint import joint_plan
    from interlane.mig.transition.order import ordered
    from interlane.mig.transition.present import floors_of, present

    before, after = _problems(setting, shape, spread)
    effort = Effort(LIMIT_S, setting.seed, time.monotonic)
    current = present(optimise(before, effort=effort).plan, after)
    old_rates = {service.name: service.rate_per_s for service in before.services}
    floors = floors_of(current, after, old_rates)
    found = joint_plan(after, current, effort=effort)
    ours = ordered(current, found.plan, floors, after, seed=setting.seed)
    theirs = exchange_and_compact(current, found.optimum.plan, floors, after)
    seen = [_replayed(way, after, setting.seed) for way in (ours, theirs)]
    return _Case(
        ours,
        theirs,
        len(found.optimum.plan.gpus),
        found.optimum.is_optimal,
        found.most_kept,
        sum(moments for moments, _ in seen),
        sum(below for _, below in seen),
    )


def _problems(setting: Setting, shape: str, spread: float) -> "tuple[Problem, Problem]":
    import numpy as np

    from interlane.mig.demand import GpuOffer, problem_of
    from interlane.mig.tables import parvagpu
    from interlane.mig.workloads import HALF, drawn_services

    lines = data_file(setting, MEASURED).read_text(encoding="utf-8").splitlines()
    table = parvagpu.read(lines, "ParvaGPU's table")
    old = drawn_services(
        table, gpu=parvagpu.GPU, count=SERVICES, gpus=GPUS, shape=shape, seed=setting.seed
    )
    factors = np.exp(np.random.default_rng([setting.seed, 7]).normal(0.0, spread, SERVICES))
    new = [
        replace(service, rate_per_s=round(service.rate_per_s * float(factor), 3))
        for service, factor in zip(old, factors, strict=True)
    ]
    offers = [GpuOffer(parvagpu.GPU)]
    return (
        problem_of(old, offers, table, latency=HALF),
        problem_of(new, offers, table, latency=HALF),
    )


def _rows(name: str, cases: Sequence[_Case], times: "Mapping[str, StepTimes]") -> Iterator[Row]:
    """Yield the rows of one kind of change: the worst of ours, the best of the baseline."""
    from interlane.mig.transition.steps import makespan_s

    more = max(len(case.ours.target.gpus) - case.fewest for case in cases)
    yield checked(
        f"{name}: GPUs above the fewest, which are proven",
        more,
        "1 wanted",
        holds=more <= 1 and all(case.is_proven for case in cases),
    )
    kept = min(case.kept for case in cases)
    possible = min(case.most_kept / case.ours.running for case in cases)
    theirs = [case.kept_by_baseline for case in cases]
    yield checked(
        f"{name}: instances left in place, of {possible:.1%} possible",
        f"{kept:.1%}, baseline {min(theirs):.1%} to {max(theirs):.1%}",
        f"{LEAST_KEPT:.0%} wanted",
        holds=kept >= LEAST_KEPT and all(case.kept > case.kept_by_baseline for case in cases),
    )
    borrowed = max(case.ours.extra_gpus for case in cases)
    others = [case.theirs.extra_gpus for case in cases]
    yield checked(
        f"{name}: GPUs borrowed on the way",
        f"{borrowed}, baseline {min(others)} to {max(others)}",
        None,
        holds=borrowed <= min(others),
    )
    for pace, step in times.items():
        took = [makespan_s(case.ours.actions, step) / 60 for case in cases]
        other = [makespan_s(case.theirs.actions, step) / 60 for case in cases]
        took_for = f"{step.start_s:.0f} s to load, {step.drain_s:.0f} s to drain"
        yield checked(
            f"{name}: minutes, {pace} steps ({took_for})",
            f"{max(took):.1f}, baseline {min(other):.1f} to {max(other):.1f}",
            f"under {MOST_MINUTES}",
            holds=max(took) < min(MOST_MINUTES, *other),
            if_not="Transitions would take longer than the paper's, or than the baseline's.",
        )


def _times(setting: Setting) -> "dict[str, StepTimes]":
    """Return usual and slow times of steps, as production servers were measured."""
    import polars as pl

    from interlane.mig.transition.steps import StepTimes

    loads, answers = (
        pl.read_csv(data_file(setting, file))["value"].drop_nulls() / 1000
        for file in (LOADS, ANSWERS)
    )
    return {
        pace: StepTimes(
            SLOT_S[pace],
            loads.quantile(rank) or 0.0,
            answers.quantile(rank) or 0.0,
            SLOT_S[pace],
        )
        for pace, rank in RANKS.items()
    }


def _replayed(way: "Transition", problem: "Problem", seed: int) -> tuple[int, int]:
    """Return the moments that the verifier looked at, and how many were wrong in any way."""
    moments = wrong = 0
    for seen in _replays(way, problem, seed):
        moments += seen[0]
        wrong += seen[1]
    return moments, wrong


def _replays(way: "Transition", problem: "Problem", seed: int) -> Iterator[tuple[int, int]]:
    from interlane.mig.transition import replay
    from interlane.mig.transition.documents import transition_document

    actions = replay.actions_of(transition_document(way, problem))
    end = {(g.id, one.profile, one.start, one.service) for g, one in way.target.instances}
    replays = [replay.faults_in_order(way.current, actions, way.floors)]
    replays += [
        replay.faults_at_once(way.current, actions, way.floors, Random(f"{seed}/{number}"))
        for number in range(OVERLAPS)
    ]
    for seen in replays:
        yield seen.moments, len(seen.faults) + (seen.end != end)


TRANSITION: Final = Reproduction(
    "mig-transition",
    "24 services on about 100 A100s, their rates changed: instances left in place at the "
    "fewest GPUs and one more, with exchange-and-compact as the baseline and every moment of "
    "every transition replayed.",
    "Transitions would move more than they need to, or let a service fall below what it is "
    "owed while they run.",
    _transition,
    basis=Basis.DRAWN,
    published=("interlane.reproduce.mig_transition:MOST_MINUTES",),
)
