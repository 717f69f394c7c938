"""The experiment of "Beware of Fragmentation" (ATC'23) on the openb trace, and a placer beyond.

Six published placers fill the 1,213 machines with pods drawn by seed, and so does our
``lookahead``.  The published runs drew with another generator, so that means over ten seeds
are compared, never single runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlane.model import InvalidInput, UnknownName
from interlane.reproduce.base import Reproduction, Row, Setting, checked, figure

if TYPE_CHECKING:
    from interlane.model import Cluster, Job

FOLDER: Final = "pai-v2023"
CURVES: Final = f"{FOLDER}/fgd-expected/analysis_allo_discrete.csv.gz"

SEEDS: Final = 10
"""Runs per placer; the published seeds are 42 to 51."""

DEFAULT: Final = "default"
ALL: Final = "all"

OURS: Final = "lookahead"
FGD: Final = "fgd"

PUBLISHED: Final = {
    "random": "01-Random",
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    FGD: "06-FGD",
}
"""Our name of a placer -> its name in the published tables."""

AT_130: Final = {
    "random": 87.47,
    "dot-product": 90.85,
    "gpu-clustering": 91.88,
    "gpu-packing": 92.00,
    "best-fit": 93.08,
    FGD: 95.39,
}
"""Published mean allocation in percent when 130 % of the capacity has arrived."""

FRAGMENTS: Final = {50: 17.9, 80: 29.9, 90: 50.0}
"""Load -> published share of the idle GPUs that is fragments under FGD, in percent."""

TOLERANCE: Final = {"gpu-clustering": 1.2, "gpu-packing": 1.2}
"""Points within which the default list must agree; 0.5 for all others."""

TOLERANCE_ELSEWHERE: Final = 2.5
"""Points on other lists.

The published rules hinge on ties, which go to the smallest machine name.  With the names that
the trace was published with, lists of many pods without GPUs come out about two points low;
with machines shuffled, the figures that were tried are met within 0.2 (see docs/results).
"""

MOST_LOST: Final = 0.5
"""Points that our placer may be behind FGD on any list."""

CURVED: Final = (
    DEFAULT, "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80",
    "gpushare100", "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20",
    "multigpu30", "multigpu40", "multigpu50",
)  # fmt: skip
"""Pod lists with published curves."""

CURVELESS: Final = (
    "cpu0", "cpu037", "cpu072", "cpu235", "cpu300", "gpushare20", "gpuspec05",
)  # fmt: skip
"""Pod lists that come with the trace and have no published curves."""


@dataclass(frozen=True)
class FgdRun:
    """One placer on one pod list with one seed."""

    pods: str
    placer: str
    seed: int


@dataclass(frozen=True)
class FgdFigures:
    """What is reported of a run, in percent."""

    at_100: float
    at_130: float
    fragments: tuple[float, ...]
    """At the loads of ``FRAGMENTS``; empty where nobody looked."""


def _reproduce(setting: Setting) -> list[Row]:
    data = setting.data
    if data is None or not (data / FOLDER).is_dir():
        raise InvalidInput(
            f"The reproduction needs the folder {FOLDER} of published traces, which is not "
            "there; name the directory with --data or INTERLANE_DATA."
        )
    choice = setting.choice or DEFAULT
    if choice == ALL:
        return _over_all_lists(setting, data)
    if choice not in CURVED + CURVELESS:
        raise UnknownName("pod list", choice, (ALL, *CURVED, *CURVELESS))
    return _on_one_list(setting, data, choice)


# -- rows -----------------------------------------------------------------------------


def _on_one_list(setting: Setting, data: Path, pods: str) -> list[Row]:
    placers = (*PUBLISHED, OURS)
    means = _means(setting, data, [(pods, placer) for placer in placers])
    published = AT_130 if pods == DEFAULT else _published(data, pods)
    rows = [
        _agreement(pods, placer, means[pods, placer].at_130, published.get(placer))
        for placer in PUBLISHED
    ]
    if pods == DEFAULT:
        rows += [
            checked(
                f"fragments, % of idle GPU, fgd, {load} % arrived",
                round(ours, 2),
                known,
                abs(ours - known) <= 1.0,
                "Fragments would be counted otherwise than the authors do.",
            )
            for (load, known), ours in zip(
                FRAGMENTS.items(), means[pods, FGD].fragments, strict=True
            )
        ]
    ours = means[pods, OURS].at_130
    rows.append(figure(f"allocated, %, {OURS}", round(ours, 2)))
    return rows + list(_lead(pods, ours, means[pods, FGD].at_130, published.get(FGD)))


def _agreement(pods: str, placer: str, ours: float, published: float | None) -> Row:
    what = f"allocated, %, {placer}"
    if published is None:
        return figure(what, round(ours, 2))
    within = TOLERANCE.get(placer, 0.5) if pods == DEFAULT else TOLERANCE_ELSEWHERE
    wrong = "A rule would score or break ties otherwise than the published ones."
    return checked(what, round(ours, 2), published, abs(ours - published) <= within, wrong)


def _lead(pods: str, ours: float, fgd: float, published: float | None) -> Iterator[Row]:
    """Yield by how many points our placer beats FGD's run here and the published one."""
    least = 0.0 if pods == DEFAULT else -MOST_LOST
    lead, wrong = ours - fgd, "Our own placer would not be worth its name."
    what = f"{OURS} beats {FGD} by points"
    yield checked(what, round(lead, 2), None, lead > least, wrong)
    if published is not None:
        what = f"allocated, %, {OURS}, beside the published {FGD}"
        yield checked(what, round(ours, 2), published, ours - published > least, wrong)


def _over_all_lists(setting: Setting, data: Path) -> list[Row]:
    means = _means(setting, data, [(pods, placer) for pods in CURVED for placer in (FGD, OURS)])
    rows, leads = [], []
    for pods in CURVED:
        ours, fgd = means[pods, OURS].at_130, means[pods, FGD].at_130
        published = _published(data, pods)[FGD]
        lead = ours - max(fgd, published)
        leads.append(lead)
        what = f"allocated, %, {pods}: {OURS} (here {FGD} {fgd:.2f}) beside the published {FGD}"
        rows.append(checked(what, round(ours, 2), published, lead >= -MOST_LOST))
    won = sum(lead > 0 for lead in leads)
    most = len(CURVED) // 2 + 1
    what = f"lists on which {OURS} beats {FGD}, here and as published, of {len(CURVED)}"
    rows.append(checked(what, won, None, won >= most))
    what = f"points by which {OURS} beats the better {FGD} on its worst list"
    rows.append(checked(what, round(min(leads), 2), None, min(leads) >= -MOST_LOST))
    return rows


def _published(data: Path, pods: str) -> Mapping[str, float]:
    """Return the published mean allocation at 130 %, by our names of the placers."""
    import polars as pl

    table = pl.read_csv(data / CURVES).filter(pl.col("workload") == f"openb_pod_list_{pods}")
    means = dict(table.group_by("sc_policy").agg(pl.col("130").mean()).iter_rows())
    return {
        ours: round(means[theirs], 2) for ours, theirs in PUBLISHED.items() if theirs in means
    }


# -- runs -----------------------------------------------------------------------------


def _means(
    setting: Setting, data: Path, cells: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], FgdFigures]:
    """Return the mean outcome of every (pod list, placer) over the seeds."""
    seeds = range(setting.seed, setting.seed + SEEDS)
    runs = [FgdRun(pods, placer, seed) for pods, placer in cells for seed in seeds]
    outcomes = dict(_outcomes(setting, data, runs))
    return {
        cell: _mean([outcomes[run] for run in runs if (run.pods, run.placer) == cell])
        for cell in cells
    }


def _mean(outcomes: Sequence[FgdFigures]) -> FgdFigures:
    count = len(outcomes)
    return FgdFigures(
        sum(one.at_100 for one in outcomes) / count,
        sum(one.at_130 for one in outcomes) / count,
        tuple(sum(each) / count for each in zip(*(o.fragments for o in outcomes), strict=True)),
    )


def _outcomes(
    setting: Setting, data: Path, runs: Sequence[FgdRun]
) -> Iterator[tuple[FgdRun, FgdFigures]]:
    """Yield the outcome of every run as it ends."""
    if setting.processes <= 1:
        workshop = Workshop(data)
        for done, run in enumerate(runs, 1):
            yield run, workshop.outcome(run)
            setting.progress(done, len(runs), "runs")
        return
    with ProcessPoolExecutor(
        setting.processes, get_context("spawn"), _set_up, (data,)
    ) as workers:
        futures = {workers.submit(_outcome, run): run for run in runs}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                yield futures[future], future.result()
                setting.progress(done, len(runs), "runs")
        finally:
            workers.shutdown(wait=True, cancel_futures=True)


class Workshop:
    """Makes runs; keeps the cluster and the pod list it read last."""

    def __init__(self, data: Path) -> None:
        from interlane import wiring

        self._data = data
        self._cluster: Cluster = wiring.cluster_of("openb", data)
        self._pods = ""
        self._jobs: list[Job] = []

    def outcome(self, run: FgdRun) -> FgdFigures:
        """Fill the cluster once."""
        from interlane.policy.catalogue import placer_recipe
        from interlane.sim.fill import arrivals, fill

        coming = arrivals(self._jobs_of(run.pods), self._cluster, run.seed)
        watched = run.placer == FGD and run.pods == DEFAULT
        recipe = placer_recipe(run.placer)
        seen = fill(self._cluster, coming, recipe, run.seed, watch_fragments=watched)
        ratios = [seen.at(load, seen.fragment_ratio_percent) for load in FRAGMENTS if watched]
        percent = seen.allocated_percent
        return FgdFigures(seen.at(100, percent), seen.at(130, percent), tuple(ratios))

    def _jobs_of(self, pods: str) -> "list[Job]":
        from interlane import wiring
        from interlane.traces.jobs import jobs_of

        if pods != self._pods:
            plain = self._data / FOLDER / f"openb_pod_list_{pods}.csv"
            path = plain if plain.is_file() else plain.with_name(f"{plain.name}.gz")
            self._jobs = jobs_of(wiring.trace_of(path, self._cluster), estimate=None)[0]
            self._pods = pods
        return self._jobs


_workshop: Workshop | None = None
"""The worker process's own; None in the process that asks."""


def _set_up(data: Path) -> None:
    global _workshop
    _workshop = Workshop(data)


def _outcome(run: FgdRun) -> FgdFigures:
    assert _workshop is not None
    return _workshop.outcome(run)


OPENB: Final = Reproduction(
    "fgd-openb",
    "Six placers fill the 6,212 GPUs of openb with pods that never finish; FGD leaves the "
    "fewest GPUs idle (ten seeds, 130 % of the capacity arrives). Our lookahead leaves fewer.",
    "A rule would score or break ties otherwise than the published ones, or our own placer "
    "would not be worth its name.",
    _reproduce,
    variants=(ALL, *CURVED, *CURVELESS),
    published=("interlane.reproduce.fgd:AT_130", "interlane.reproduce.fgd:FRAGMENTS"),
)
