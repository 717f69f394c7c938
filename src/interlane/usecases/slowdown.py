"""How much work slows down beside other work: measure, train, judge and look up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlane import wiring
from interlane.device import corun
from interlane.model import InvalidInput, UnknownName
from interlane.predict.slowdown import store
from interlane.predict.slowdown.evaluate import judge, splits
from interlane.predict.slowdown.models import LEAST_PAIRS, PREDICTORS, make_predictor
from interlane.predict.slowdown.pairs import Pairs
from interlane.predict.slowdown.store import (
    FORMAT,
    VERSION,
    ModelPart,
    SlowdownModel,
    save,
    trained,
)
from interlane.sim.coruns import pairs_by_way
from interlane.traces.colocation import FOLDERS, own, read
from interlane.traces.colocation.coruns import Corun, CoRuns, Way
from interlane.usecases.reporter import SILENT, Reporter

BEST: Final = "blend"
NAIVE: Final = ("random-forest", "linear", "constant")
"""Models that are always judged beside."""
BY_PAIR: Final = "pair"

Content = TypeVar("Content")


# -- measuring ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeasuredPairs:
    """Jobs that ran alone and in pairs."""

    alone: int
    pairs: int
    most_cpu_share: float
    """The most of its cores that any job got alone; far below 1 if the machine was busy."""


def measure(
    out: Path,
    *,
    workloads: Sequence[str] = (),
    pairs: int = 12,
    seconds: float = 2.0,
    cores: int = 1,
    seed: int = 0,
    reporter: Reporter = SILENT,
) -> MeasuredPairs:
    """Run jobs on this machine, all built-in ones unless named; write what each kept."""
    names = list(workloads) or list(corun.BUILT_IN)
    with reporter.steps("measuring", len(names) + pairs, "runs") as tell:
        solos, kept = corun.measure(
            names, pairs=pairs, seconds=seconds, cores=cores, seed=seed, tell=tell
        )
    own.write(_coruns(solos, kept), out)
    return MeasuredPairs(len(solos), len(kept), max(solo.cpu_share for solo in solos))


def _coruns(solos: Sequence[corun.SoloRun], kept: Sequence[corun.CorunPair]) -> CoRuns:
    counters = [[solo.cpu_share, solo.memory_share, solo.steps_per_s * 3600] for solo in solos]
    values = np.array([counters])
    values[:, :, 2] = np.log(np.maximum(values[:, :, 2], 1.0))
    runs = [
        Corun("CPU", *side)
        for pair in kept
        for side in (
            (pair.one, pair.other, pair.kept_one),
            (pair.other, pair.one, pair.kept_other),
        )
    ]
    return CoRuns(
        "measured",
        tuple(solo.name for solo in solos),
        tuple(solo.family for solo in solos),
        ("CPU",),
        ("host_cpu", "memory", "log_speed"),
        values,
        {Way("side-by-side", "training"): tuple(dict.fromkeys(runs))},
    )


# -- learning -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainedSlowdown:
    """A model on disk."""

    ways: int
    coruns: int
    workloads: int
    sha256: str


def train(
    source: str,
    out: Path,
    *,
    seed: int = 0,
    data: Path | None = None,
    reporter: Reporter = SILENT,
) -> TrainedSlowdown:
    """Learn from measured co-runs, complete the table of all pairs, and write both."""
    coruns, ways = _read(source, data, reporter)
    few = [way for way, pairs in ways.items() if len(pairs) < LEAST_PAIRS]
    if 0 < len(few) < len(ways):
        reporter.note(
            f"{', '.join(few)}: left out, because fewer than {LEAST_PAIRS} pairs are known."
        )
        ways = {way: pairs for way, pairs in ways.items() if way not in few}
    parts = {}
    with reporter.steps("training", len(ways), "ways") as tell:
        for done, (way, pairs) in enumerate(ways.items(), 1):
            parts[way] = trained(pairs, seed)
            tell(done)
    account: dict[str, object] = {
        "set": coruns.name,
        "workloads": len(coruns.workloads),
        "gpu_types": list(coruns.gpu_types),
        "co_runs": coruns.count,
    }
    digest = save(SlowdownModel(parts, account), out)
    return TrainedSlowdown(len(parts), coruns.count, len(coruns.workloads), digest)


@dataclass(frozen=True, slots=True)
class JudgedSlowdowns:
    """How well models estimate co-runs that they have not seen."""

    source: str
    way: str
    pairs: int
    """All that are known."""
    models: dict[str, dict[str, float]]
    """Model -> figure -> value."""


def evaluate(
    source: str,
    *,
    split: str = BY_PAIR,
    part: float = 0.2,
    probes: int = 0,
    models: Sequence[str] = (),
    way: str | None = None,
    seed: int = 0,
    data: Path | None = None,
    reporter: Reporter = SILENT,
) -> JudgedSlowdowns:
    """Judge models on co-runs that they have not seen; naive ones beside."""
    names = list(dict.fromkeys([*(models or [BEST]), *NAIVE]))
    for name in names:
        make_predictor(name)
    coruns, ways = _read(source, data, reporter)
    chosen, pairs = _chosen(ways, way)
    found = {}
    with reporter.steps("judging", len(names), "models") as tell:
        for done, name in enumerate(names, 1):
            parted = splits(pairs, split, part=part, seed=seed, probes=probes)
            found[name] = judge(PREDICTORS[name], parted)
            tell(done)
    return JudgedSlowdowns(coruns.name, chosen, len(pairs), found)


def _read(
    source: str, data: Path | None, reporter: Reporter
) -> tuple[CoRuns, dict[str, Pairs]]:
    """Read a folder of co-runs, or a published set by name."""
    folder = _folder(source, data)
    coruns = read(folder)
    ways = pairs_by_way(coruns)
    if not ways:
        raise InvalidInput(f"{folder} has solo runs only; learning needs co-runs.")
    lacks = next(iter(ways.values())).profiles.missing
    missing = [name for name, lack in zip(coruns.workloads, lacks, strict=True) if lack]
    if missing:
        reporter.note(
            f"{len(missing)} workloads lack a counter, the first {missing[0]}: the middle of "
            f"their family stands in."
        )
    return coruns, ways


def _folder(source: str, data: Path | None) -> Path:
    folder = Path(source)
    if source not in FOLDERS or folder.exists():
        return folder
    where = wiring.data_of(data)
    if where is None:
        raise InvalidInput(
            f"Set {source} is published data, and no directory of it is known; name it "
            f"with --data or INTERLANE_DATA."
        )
    return where / FOLDERS[source]


def _chosen(ways: Mapping[str, Content], way: str | None) -> tuple[str, Content]:
    chosen = way or next(iter(ways))
    if chosen not in ways:
        raise UnknownName("way to share", chosen, ways)
    return chosen, ways[chosen]


# -- looking up -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlowdownMatrix:
    """What every victim (row) keeps beside every aggressor (column)."""

    way: str
    gpu_type: str
    workloads: tuple[str, ...]
    lower: NDArray[np.float64]
    """At least, but for one pair in ten."""
    throughput: NDArray[np.float64]
    """As expected."""


def table(model: Path, *, way: str | None = None, gpu: str | None = None) -> SlowdownMatrix:
    """Return a model's table of all pairs, of its first way and GPU type unless named."""
    chosen, part = _chosen(store.load(model).parts, way)
    profiles = part.table.profiles
    gpu_type = gpu or profiles.gpu_types[0]
    place = part.table.gpu(gpu_type)
    if place < 0:
        raise UnknownName("GPU type", gpu_type, profiles.gpu_types)
    lower, throughput = part.table.lower[place], np.exp(part.table.mean[place])
    return SlowdownMatrix(chosen, gpu_type, tuple(profiles.names), lower, throughput)


@dataclass(frozen=True, slots=True)
class ShownSlowdowns:
    """What a model is."""

    format: str
    version: int
    sha256: str
    trained_on: dict[str, object]
    ways: list[str]
    workloads: list[str]


def show(model: Path) -> ShownSlowdowns:
    """Read what a model says of itself."""
    found = store.load(model)
    names = next(iter(found.parts.values())).table.profiles.names
    return ShownSlowdowns(
        FORMAT, VERSION, found.sha256, dict(found.trained_on), list(found.parts), list(names)
    )


@dataclass(frozen=True, slots=True)
class SlowdownReading:
    """What one workload keeps beside another."""

    throughput: float
    lower: float
    basis: str


def beside(
    model: Path, victim: str, aggressor: str, gpu: str | None = None
) -> dict[str, SlowdownReading]:
    """Return what each of two workloads keeps beside the other, for every way to share.

    A workload or GPU type that the model does not know gets the stated fallback.
    """
    readings = {}
    for way, part in store.load(model).parts.items():
        for one, other in ((victim, aggressor), (aggressor, victim)):
            readings[f"{way}: {one} beside {other}"] = _reading(part, gpu, one, other)
    return readings


def _reading(part: ModelPart, gpu: str | None, victim: str, aggressor: str) -> SlowdownReading:
    table = part.table
    place = 0 if gpu is None else table.gpu(gpu)
    found = table.read(place, table.workload(victim), table.workload(aggressor))
    basis = found.basis.name.lower().replace("_", " ")
    return SlowdownReading(round(found.throughput, 4), round(found.lower, 4), basis)
