"""MIG transitions: what stays in place, beside exchange-and-compact, and who is interrupted."""

import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting
from interlane.reproduce.pai import data_file

if TYPE_CHECKING:
    from interlane.mig.demand import Problem
    from interlane.mig.transition.steps import Transition

MEASURED: Final = "mig/parvagpu/parvagpu_tidy.csv"

GPUS: Final = 100
SERVICES: Final = 24
CASES: Final = (("normal", 0.1), ("normal", 0.3), ("lognormal", 0.1), ("lognormal", 0.3))
"""Shape of the demand, and the spread of the log-normal factors that change each rate."""

LEAST_KEPT: Final = 0.85
MOST_MINUTES: Final = 30
"""Within which MIG-serving's own controller changed from one workload to another."""
OVERLAPS: Final = 5
"""Replays of a transition with overlapping actions, each with durations of its own."""
LIMIT_S: Final = 60.0


def _transition(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    moments = below = 0
    for number, (shape, spread) in enumerate(CASES):
        name = f"{shape}, rates changed by {spread:g}"
        found, seen, low = _case(name, shape, spread, setting)
        rows += found
        moments += seen
        below += low
        setting.progress(number + 1, len(CASES), "transitions")
    rows.append(
        Row(f"moments below a floor, of {moments:,} replayed", below, 0, holds=below == 0)
    )
    return rows


def _case(name: str, shape: str, spread: float, setting: Setting) -> tuple[list[Row], int, int]:
    from interlane.mig.optimise import optimise
    from interlane.mig.plan import Effort
    from interlane.mig.transition.exchange import exchange_and_compact
    from interlane.mig.transition.joint import joint_plan
    from interlane.mig.transition.order import ordered
    from interlane.mig.transition.standing import floors_of, standing

    before, after = _problems(setting, shape, spread)
    effort = Effort(LIMIT_S, setting.seed, time.monotonic)
    current = standing(optimise(before, effort=effort).plan, after)
    old_rates = {service.name: service.rate_per_s for service in before.services}
    floors = floors_of(current, after, old_rates)
    found = joint_plan(after, current, effort=effort)
    ours = ordered(current, found.plan, floors, after, seed=setting.seed)
    theirs = exchange_and_compact(current, found.optimum.plan, floors, after)
    fewest = len(found.optimum.plan.gpus)
    gpus = len(ours.target.gpus)
    rows = [
        Row(
            f"{name}: GPUs; {len(current.gpus)} now, the fewest are {fewest}",
            gpus,
            f"{fewest + 1} wanted",
            holds=gpus <= fewest + 1 and found.optimum.is_optimal,
        ),
        _kept(name, ours, theirs, found.most_kept),
        _borrowed(name, ours, theirs),
        _minutes(name, ours, theirs),
    ]
    moments = low = 0
    for way in (ours, theirs):
        seen, wrong = _replayed(way, after, setting.seed)
        moments += seen
        low += wrong
    return rows, moments, low


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


def _kept(name: str, ours: "Transition", theirs: "Transition", most: int) -> Row:
    share, other = ours.kept / ours.running, theirs.kept / theirs.running
    return Row(
        f"{name}: instances left in place; at most {most} of {ours.running} can be",
        f"{share:.1%} ({ours.kept}), baseline {other:.1%}",
        f"{LEAST_KEPT:.0%} wanted",
        holds=share >= LEAST_KEPT and share > other,
    )


def _borrowed(name: str, ours: "Transition", theirs: "Transition") -> Row:
    return Row(
        f"{name}: GPUs borrowed on the way",
        f"{ours.extra_gpus}, baseline {theirs.extra_gpus}",
        None,
        holds=ours.extra_gpus <= theirs.extra_gpus,
    )


def _minutes(name: str, ours: "Transition", theirs: "Transition") -> Row:
    from interlane.mig.transition.steps import Times, makespan_s

    took, other = (makespan_s(way.actions, Times()) / 60 for way in (ours, theirs))
    return Row(
        f"{name}: minutes, actions on different GPUs at once",
        f"{took:.1f} ({len(ours.actions)} actions), baseline {other:.1f} "
        f"({len(theirs.actions)})",
        "under 30",
        holds=took <= other and took < MOST_MINUTES,
    )


def _replayed(way: "Transition", problem: "Problem", seed: int) -> tuple[int, int]:
    """Return the moments that the witness looked at, and how many were wrong in any way."""
    moments = wrong = 0
    for seen in _replays(way, problem, seed):
        moments += seen[0]
        wrong += seen[1]
    return moments, wrong


def _replays(way: "Transition", problem: "Problem", seed: int) -> Iterator[tuple[int, int]]:
    from interlane.mig.transition import replay
    from interlane.mig.transition.documents import transition_document

    deeds = replay.deeds_of(transition_document(way, problem))
    end = {(g.id, one.profile, one.start, one.service) for g, one in way.target.instances}
    replays = [replay.faults_in_order(way.current, deeds, way.floors)]
    replays += [
        replay.faults_at_once(way.current, deeds, way.floors, Random(f"{seed}/{number}"))
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
)
