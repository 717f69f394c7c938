"""MIG: what GPUs can be cut into, and plans that the checker has passed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import getdoc
from pathlib import Path
from typing import Any

from interlane.mig import draw, services_file
from interlane.mig.check import PlanTerms, faults
from interlane.mig.demand import Problem, Service
from interlane.mig.documents import outcome_document, read_state
from interlane.mig.layouts import (
    Configuration,
    Layout,
    Rules,
    legal_layouts,
    maximal_layouts,
    multisets,
    undominated,
)
from interlane.mig.match import Matched, matched
from interlane.mig.optimise import DEFAULT, OPTIMISERS, optimise
from interlane.mig.parted import parted_document
from interlane.mig.plan import Effort, PartitionPlan, SolvedPlan
from interlane.mig.profiles import GpuModel, gpu_model, gpu_models
from interlane.mig.services_file import ServicesFile, kinds_of, read_services, with_gpu
from interlane.mig.table import PerformanceTable
from interlane.mig.tables import own, read_table, synthetic
from interlane.model import InterlaneError, InvalidInput
from interlane.usecases.documents import Document, from_file, json_in, yaml_in
from interlane.usecases.reporter import SILENT, Reporter

LIMIT_S = 30.0
"""Seconds to look for a better plan unless the caller says otherwise."""


# -- what there is --------------------------------------------------------------------


def models(name: str | None = None) -> tuple[GpuModel, ...]:
    """Return a GPU model with its profiles, or all."""
    return tuple(gpu_models().values()) if name is None else (gpu_model(name),)


@dataclass(frozen=True, slots=True)
class Layouts:
    """The ways to cut a GPU."""

    gpu: str
    legal: int
    maximal: Sequence[Layout]
    multisets: Sequence[Configuration]
    undominated: frozenset[str]
    """Multisets that no other one beats, as text."""


def layouts(gpu: str, kinds: Sequence[str] = (), *, forbid_4g3g: bool = False) -> Layouts:
    """Count and list the ways to cut a GPU."""
    rules = Rules(kinds_of(kinds), forbid_4g3g)
    return Layouts(
        gpu,
        sum(1 for _ in legal_layouts(gpu_model(gpu), rules)),
        maximal_layouts(gpu, rules),
        multisets(gpu, rules),
        frozenset(map(str, undominated(gpu, rules))),
    )


@dataclass(frozen=True, slots=True)
class Optimisers:
    """Who can plan, with a sentence on each."""

    about: dict[str, str]
    default: str


def optimisers() -> Optimisers:
    """Return all optimisers."""
    about = {
        name: " ".join((getdoc(type(one)) or "").split("\n\n")[0].split())
        for name, one in OPTIMISERS.items()
    }
    return Optimisers(about, DEFAULT)


# -- demand ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigDemand:
    """What is asked for, as people write it."""

    services: Document
    """YAML; the table that it names lies beside it."""
    table: Document | None = None
    """CSV, instead of the table that the services file names."""
    gpu: str | None = None
    """Plan for this model instead of the file's."""
    kinds: Sequence[str] = ()
    forbid_4g3g: bool = False


@dataclass(frozen=True, slots=True)
class ParsedDemand:
    """A demand that was understood."""

    asked: ServicesFile
    problem: Problem
    """What optimisers solve."""
    terms: PlanTerms
    """What a plan must keep to; the checker reads these, and nothing of the problem."""

    def read_plan(self, document: Document) -> PartitionPlan:
        """Read a plan, or what runs now; GPUs are of the first model asked for by default."""
        return read_state(json_in(document), document.name, self.asked.offers[0].model)


def wanted(demand: MigDemand) -> ParsedDemand:
    """Read what is asked for."""
    asked = asked_in(demand.services)
    rules = Rules(
        asked.rules.kinds | kinds_of(demand.kinds),
        asked.rules.forbid_4g3g or demand.forbid_4g3g,
    )
    asked = replace(asked, rules=rules)
    if demand.gpu is not None:
        asked = with_gpu(asked, demand.gpu)
    table = services_file.full_table(asked, _measured(demand, asked))
    return ParsedDemand(asked, *services_file.problem_from(asked, table))


def asked_in(services: Document) -> ServicesFile:
    """Read a services file."""
    return read_services(yaml_in(services), services.name)


def _measured(demand: MigDemand, asked: ServicesFile) -> PerformanceTable | None:
    table, folder = demand.table, demand.services.folder
    if table is None and asked.table is not None:
        if folder is None:
            raise InvalidInput(
                f"{demand.services.name}: files cannot be read here; give the table itself and "
                "leave 'table' out."
            )
        table = from_file(folder / asked.table)
    return None if table is None else measurements(table)


def measurements(document: Document) -> PerformanceTable:
    """Read a performance table of any known format."""
    return read_table(document.text.splitlines(), document.name)


# -- plans ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigPlan:
    """A plan that the checker found no fault with."""

    services: tuple[Service, ...]
    outcome: SolvedPlan
    matched: Matched | None = None
    """How it was laid over what runs now, if anything does."""

    @property
    def plan(self) -> PartitionPlan:
        """The GPUs and what is on each."""
        return self.outcome.plan

    @property
    def document(self) -> dict[str, Any]:
        """The plan and how good it is, for JSON."""
        return outcome_document(self.outcome)

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """What every service asks for and gets: head and rows."""
        return draw.service_table(self.services, self.plan)

    @property
    def svg(self) -> str:
        """The picture of all GPUs."""
        return draw.svg(self.plan)

    @property
    def page(self) -> str:
        """The picture and the table as HTML."""
        return draw.page(self.outcome, *self.table)

    def drawn(self, shown: int) -> str:
        """Return the first different GPUs in plain text."""
        return draw.terminal(self.plan, shown)

    def parted(self, gpus_per_node: int) -> dict[str, Any]:
        """Return the configuration that mig-parted reads."""
        return parted_document(self.plan, gpus_per_node)


def plan(
    demand: MigDemand,
    current: Document | None = None,
    *,
    optimiser: str = DEFAULT,
    limit_s: float = LIMIT_S,
    seed: int = 0,
    reporter: Reporter = SILENT,
) -> MigPlan:
    """Plan the fewest GPUs that meet every service's target; no plan with a fault returns.

    GPUs are named after those of what runs now that are most alike.
    """
    want = wanted(demand)
    there = None if current is None else want.read_plan(current)
    with reporter.busy(f"Looking for a better plan, for at most {limit_s:g} s..."):
        outcome = optimise(want.problem, optimiser, Effort(limit_s, seed, time.monotonic))
    found = None
    if there is not None:
        found = matched(outcome.plan, there, {pin.gpu for pin in want.asked.pins})
        outcome = replace(outcome, plan=found.plan)
    must_hold(f"Optimiser {optimiser} made a plan that", faults(outcome.plan, want.terms))
    outcome = replace(outcome, notes=(*outcome.notes, *_unmeasured(outcome.plan, want.problem)))
    return MigPlan(want.asked.services, outcome, found)


def _unmeasured(plan: PartitionPlan, problem: Problem) -> list[str]:
    """Say which instances rest on figures that nobody measured."""
    rows = [
        problem.serving.get((one.service, gpu.model, one.profile))
        for gpu, one in plan.instances
        if one.service
    ]
    count = sum(row is not None and row.interpolated for row in rows)
    if not count:
        return []
    return [
        f"{count} of {len(rows)} instances rest on interpolated figures; "
        "`interlane mig measure` measures them."
    ]


def must_hold(what: str, wrong: Sequence[str]) -> None:
    """Refuse what a checker found wrong: the fault is ours, and nobody may act on it."""
    if wrong:
        raise InterlaneError(
            f"{what} does not hold: {wrong[0]} This is a fault of interlane; please report it."
        )


# -- tables ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A performance table on disk."""

    path: Path
    rows: int
    models: int


def synthetic_table(
    path: Path, gpus: Sequence[str], *, models: int = 0, seed: int = 0
) -> WrittenTable:
    """Make a performance table with the shapes that measurements have."""
    families = synthetic.drawn(models, seed) if models else list(synthetic.FAMILIES.values())
    return _write(synthetic.table_of(families, gpus), path)


def convert_table(source: Document, path: Path) -> WrittenTable:
    """Convert published measurements to interlane's own columns."""
    return _write(measurements(source), path)


def _write(table: PerformanceTable, path: Path) -> WrittenTable:
    lines = list(own.write(table))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return WrittenTable(path, len(lines) - 1, len(table.models))
