"""MIG plans: ParvaGPU's scenarios, and published heuristics beside the proven optimum."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked, figure
from interlane.reproduce.pai import data_file

if TYPE_CHECKING:
    from interlane.mig.demand import Problem, Service
    from interlane.mig.plan import SolvedPlan
    from interlane.mig.table import PerformanceTable

MEASURED: Final = "mig/parvagpu/parvagpu_tidy.csv"
LATENCIES: Final = "mig/parvagpu/slo/SLO_latency.csv"
RATES: Final = "mig/parvagpu/slo/SLO_req_rate.csv"
DEPLOYED: Final = "mig/parvagpu/deployment/SLO{}_ParvaGPU_deploy.csv"

MOST_GPUS: Final = (2, 3, 5, 7, 12, 15)
"""What each scenario must be served with at most."""

LIMIT_S: Final = 60.0
"""Seconds for one exact plan."""


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _table(setting: Setting) -> "PerformanceTable":
    from interlane.mig.tables import parvagpu

    return parvagpu.read(_lines(data_file(setting, MEASURED)), "ParvaGPU's table")


# -- ParvaGPU's six scenarios ---------------------------------------------------------


def _parvagpu(setting: Setting) -> list[Row]:
    from interlane.mig.tables import parvagpu

    table = _table(setting)
    scenarios = parvagpu.scenarios(
        _lines(data_file(setting, LATENCIES)),
        _lines(data_file(setting, RATES)),
        table.models,
        RATES,
    )
    rows: list[Row] = []
    for number, services in enumerate(scenarios, 1):
        published = _gpus_deployed(_lines(data_file(setting, DEPLOYED.format(number))))
        rows += _scenario(number, services, table, published, setting.seed)
        setting.progress(number, len(scenarios), "scenarios")
    return rows


def _gpus_deployed(lines: Sequence[str]) -> int:
    """Return how many GPUs the authors' own output uses."""
    return len({tuple(line.split(",")[:2]) for line in lines[1:] if line.strip()})


def _scenario(
    number: int,
    services: "Sequence[Service]",
    table: "PerformanceTable",
    published: int,
    seed: int,
) -> Iterator[Row]:
    from interlane.mig.check import PlanTerms, faults
    from interlane.mig.demand import GpuOffer, problem_of
    from interlane.mig.tables import parvagpu

    offers = [GpuOffer(parvagpu.GPU)]
    name = f"scenario {number}, {len(services)} services"
    found = {}
    for processes in (parvagpu.MOST_PROCESSES, 1):
        problem = problem_of(
            services, offers, table, latency=parvagpu.LATENCY, max_processes=processes
        )
        outcome = _solved(problem, "columns", LIMIT_S, seed)
        terms = PlanTerms(services, offers, tuple(table), parvagpu.LATENCY, processes)
        found[processes] = outcome, faults(outcome.plan, terms)
    outcome, wrong = found[parvagpu.MOST_PROCESSES]
    most = MOST_GPUS[number - 1]
    yield checked(
        f"{name}: GPUs, to be at most {most}",
        int(outcome.cost),
        published,
        outcome.cost <= most,
        "The planner would waste GPUs that a published heuristic saves.",
    )
    yield checked(
        f"{name}: proven, no plan has fewer than",
        outcome.lower_bound,
        None,
        outcome.is_optimal,
        "The planner would claim a proof that it does not have.",
    )
    faulty = "Plans could not be carried out."
    yield checked(f"{name}: faults that the checker finds", len(wrong), None, not wrong, faulty)
    alone, wrong_alone = found[1]
    yield checked(
        f"{name}: GPUs without MPS inside slices",
        int(alone.cost),
        None,
        alone.is_optimal and alone.cost >= outcome.cost and not wrong_alone,
        "A choice more would make plans worse.",
    )


def _solved(problem: "Problem", name: str, limit_s: float, seed: int) -> "SolvedPlan":
    from interlane.mig.optimise import optimise
    from interlane.mig.plan import Effort

    return optimise(problem, name, Effort(limit_s, seed, time.monotonic))


# -- heuristics beside the optimum ----------------------------------------------------

SERVICES: Final = 24
SIZES: Final = (20, 100, 300, 1000)
SEEDS: Final = (0, 1, 2)
QUICK: Final = ("greedy", "lp-rounding", "whole", "smallest", "fixed-mix")
"""Heuristics that are run on every instance, as far as they exist."""

SLOW: Final = ("two-phase",)
"""Those that take all the time they get; run on the first seed of each size and shape."""

SLOW_LIMIT_S: Final = 20.0
PUBLISHED_SAVING: Final = 40
"""Percent of GPUs that slices save over whole ones, at most, by the paper."""

SYNTHETIC: Final = "synthetic"


@dataclass(frozen=True, slots=True)
class _Instance:
    """One instance, solved by everybody."""

    gpus: int
    shape: str
    seed: int
    outcomes: dict[str, "SolvedPlan"]
    faults: int

    @property
    def best(self) -> "SolvedPlan":
        """The plan of column generation."""
        return self.outcomes["columns"]

    @property
    def saving(self) -> float:
        """Share of GPUs that are saved over whole ones."""
        return 1 - self.best.cost / self.outcomes["whole"].cost

    def rows(self) -> list[Row]:
        """Everybody side by side, and the seconds that each took."""
        gpus = [f"{name} {outcome.cost:g}" for name, outcome in self.outcomes.items()]
        took = [f"{name} {outcome.seconds:.2f}" for name, outcome in self.outcomes.items()]
        what = f"{self.gpus} GPUs, {self.shape}, seed {self.seed}"
        worst = min(outcome.cost for outcome in self.outcomes.values())
        holds = not self.faults and self.best.cost <= worst and self.best.gap <= 1
        wrong = "A heuristic would beat the default planner, or a plan would be impossible."
        return [
            checked(what, ", ".join(gpus), None, holds, wrong),
            figure(f"{what}: seconds", ", ".join(took)),
        ]


def _heuristics(
    setting: Setting,
    sizes: Sequence[int] = SIZES,
    seeds: Sequence[int] = SEEDS,
    slow: Sequence[str] = SLOW,
) -> list[Row]:
    table = _synthetic() if setting.choice == SYNTHETIC else _table(setting)
    cases = [
        (gpus, shape, setting.seed + seed)
        for gpus in sizes
        for shape in ("normal", "lognormal")
        for seed in seeds
    ]
    instances = []
    for number, (gpus, shape, seed) in enumerate(cases, 1):
        patient = slow if seed == setting.seed else ()
        instances.append(_instance(table, gpus, shape, seed, patient))
        setting.progress(number, len(cases), "instances")
    published = None if setting.choice == SYNTHETIC else PUBLISHED_SAVING
    each = [row for one in instances for row in one.rows()]
    return each + list(_verdicts(instances, published))


def _synthetic() -> "PerformanceTable":
    from interlane.mig.tables import parvagpu, synthetic

    return synthetic.table_of(synthetic.FAMILIES.values(), [parvagpu.GPU])


def _instance(
    table: "PerformanceTable", gpus: int, shape: str, seed: int, slow: Sequence[str]
) -> _Instance:
    from interlane.mig.check import PlanTerms, faults
    from interlane.mig.demand import GpuOffer, problem_of
    from interlane.mig.optimise import OPTIMISERS
    from interlane.mig.tables import parvagpu
    from interlane.mig.workloads import HALF, drawn_services

    services = drawn_services(
        table, gpu=parvagpu.GPU, count=SERVICES, gpus=gpus, shape=shape, seed=seed
    )
    offers = [GpuOffer(parvagpu.GPU)]
    problem = problem_of(services, offers, table, latency=HALF)
    terms = PlanTerms(services, offers, tuple(table), HALF)
    outcomes = {"columns": _solved(problem, "columns", LIMIT_S, seed)}
    for name in (*QUICK, *slow):
        if name in OPTIMISERS:
            limit_s = SLOW_LIMIT_S if name in slow else LIMIT_S
            outcomes[name] = _solved(problem, name, limit_s, seed)
    wrong = sum(len(faults(outcome.plan, terms)) for outcome in outcomes.values())
    return _Instance(gpus, shape, seed, outcomes, wrong)


def _verdicts(instances: Sequence[_Instance], published: int | None) -> Iterator[Row]:
    proven = sum(one.best.is_optimal for one in instances)
    share = proven / len(instances)
    loose = "Column generation would not be the planner to take by default."
    yield checked(
        "instances proven optimal by column generation, % (at least 95)",
        round(100 * share, 1),
        None,
        share >= 0.95,
        loose,
    )
    gap = max(one.best.gap for one in instances)
    what = "largest distance from its bound, GPUs (at most 1)"
    yield checked(what, gap, None, gap <= 1, loose)
    wrong = sum(one.faults for one in instances)
    what = "faults that the checker finds in all plans"
    yield checked(what, wrong, None, wrong == 0, "Plans could not be carried out.")
    for name in dict.fromkeys(name for one in instances for name in one.outcomes):
        if name != "columns":
            yield _excess(name, instances)
    most = max(one.saving for one in instances)
    mean = sum(one.saving for one in instances) / len(instances)
    yield figure("GPUs saved over whole ones, mean, %", round(100 * mean, 1))
    # The paper's models were measured, so a synthetic table is not held to its figure.
    least = (published or 0) / 100
    yield checked(
        "GPUs saved over whole ones, most, %",
        round(100 * most, 1),
        None if published is None else f"up to {published}",
        most >= least,
        "Slices would save less than the paper's authors saw.",
    )


def _excess(name: str, instances: Sequence[_Instance]) -> Row:
    """Return how far a heuristic is above the optimum, by size."""
    cells = []
    for gpus in dict.fromkeys(one.gpus for one in instances):
        over = [
            100 * (one.outcomes[name].cost / one.best.cost - 1)
            for one in instances
            if one.gpus == gpus and name in one.outcomes
        ]
        cells.append(f"{sum(over) / len(over):.1f} at {gpus}")
    holds = all(
        one.outcomes[name].cost >= one.best.lower_bound
        for one in instances
        if name in one.outcomes
    )
    what = f"{name}: above the optimum, mean %"
    return checked(what, ", ".join(cells), None, holds, "The lower bound would not be one.")


PARVAGPU: Final = Reproduction(
    "mig-parvagpu",
    "ParvaGPU's six published scenarios on A100s, with its measurements and its latency rule: "
    "no more GPUs than it uses, in two scenarios fewer, each proven optimal.",
    "The planner would waste GPUs that a published heuristic saves, claim a proof that it does "
    "not have, or make plans that cannot be carried out.",
    _parvagpu,
    seed=0,
    basis=Basis.MEASURED,
    published=("interlane.reproduce.mig:_gpus_deployed",),
)

HEURISTICS: Final = Reproduction(
    "mig-heuristics",
    "24 services on 20 to 1,000 GPUs, demand normal and lognormal: published heuristics and "
    "baselines beside the proven optimum, with seconds.",
    "Column generation would not be the planner to take by default, or its bound would not be "
    "one.",
    _heuristics,
    seed=0,
    variants=("parvagpu", SYNTHETIC),
    basis=Basis.DRAWN,
    published=("interlane.reproduce.mig:PUBLISHED_SAVING",),
)
