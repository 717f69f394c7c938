"""MIG plans and the way to them, for the page that shows both; runs away from the server."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from interlane.mig import services_file
from interlane.mig.check import faults
from interlane.mig.demand import Problem
from interlane.mig.documents import plan_document, read_state
from interlane.mig.draw import service_table
from interlane.mig.optimise import optimise
from interlane.mig.plan import Effort, Plan
from interlane.mig.services_file import Asked, read_services, with_gpu
from interlane.mig.tables import read_table
from interlane.mig.transition.joint import joint_plan
from interlane.mig.transition.order import ordered
from interlane.mig.transition.standing import floors_of, standing
from interlane.mig.transition.steps import Transition, waves
from interlane.model import InterlaneError, InvalidFile, InvalidInput

SLACK: Final = 1
"""GPUs above the fewest, to leave more in place."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for, as pasted."""

    services: str
    """YAML."""
    gpu: str | None
    table: str
    """CSV; empty if every model is synthetic."""
    current: str
    """JSON of what runs now; empty if nothing does."""
    limit_s: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the way to it from what runs now."""

    told: tuple[str, ...]
    """How good it is, in sentences."""
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """What every service asks for and gets."""
    plan: Plan
    actions: tuple[tuple[int, str], ...] | None
    """The way: what can be done at a time has the same number; None if nothing runs now."""
    document: str
    """The plan as JSON: what runs now, the next time."""


def planned(wanted: Wanted) -> Planned:
    """Plan the fewest GPUs, or as few as leave most in place of what runs now."""
    asked = _asked(wanted)
    table = read_table(wanted.table.splitlines(), "the table") if wanted.table.strip() else None
    problem, terms = services_file.problem_from(asked, services_file.full_table(asked, table))
    effort = Effort(wanted.limit_s, 0, time.monotonic)
    actions = None
    if wanted.current.strip():
        there = read_state(_json(wanted.current), "what runs now", asked.offers[0].model)
        way, told = _way(problem, there, effort)
        plan, actions = way.target, _numbered(way)
    else:
        outcome = optimise(problem, effort=effort)
        plan, told = outcome.plan, (f"{outcome.told}.", *outcome.notes)
    if wrong := faults(plan, terms):
        raise InterlaneError(f"The plan does not hold: {wrong[0]} Please report it.")
    head, rows = service_table(asked.services, plan)
    document = json.dumps({"gpus": plan_document(plan)}, indent=1)
    return Planned(told, head, rows, plan, actions, document)


def _way(problem: Problem, there: Plan, effort: Effort) -> tuple[Transition, tuple[str, ...]]:
    """Return the way to a plan that leaves most in place, and what it keeps."""
    there = standing(there, problem, ())
    found = joint_plan(problem, there, slack=SLACK, effort=effort)
    way = ordered(there, found.plan, floors_of(there, problem, None), problem, seed=0)
    fewest = sum(not gpu.is_spare for gpu in found.optimum.plan.gpus)
    used = sum(not gpu.is_spare for gpu in way.target.gpus)
    return way, (
        f"{way.kept} of {way.running} running instances stay where they are.",
        f"{used} GPUs at the end, {fewest} would be the fewest; {way.peak_gpus} on the way.",
    )


def _numbered(way: Transition) -> tuple[tuple[int, str], ...]:
    """Return the actions by the wave in which they can be carried out."""
    return tuple(
        (number, str(way.actions[at]))
        for number, wave in enumerate(waves(way.actions), 1)
        for at in wave
    )


def _asked(wanted: Wanted) -> Asked:
    asked = read_services(_yaml(wanted.services), "services")
    if asked.table is not None:
        raise InvalidInput(
            "services: this page reads no files; paste the table below and leave 'table' out."
        )
    return asked if wanted.gpu is None else with_gpu(asked, wanted.gpu)


def _yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = f"this is not YAML ({getattr(error, 'problem', None) or 'unreadable'}); mend it."
        raise InvalidFile("services", what, mark.line + 1 if mark else None) from None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        what = f"this is not JSON ({error.msg})."
        raise InvalidFile("what runs now", what, error.lineno) from None
