"""Slowdown models as data files (see ``files``): what was measured, models, tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from interlane.model import UnknownName
from interlane.predict import files
from interlane.predict.files import Arrays, Header, forest, must, packed_forest, text, untext
from interlane.predict.slowdown.bounds import Bounds, calibrated
from interlane.predict.slowdown.features import crossed
from interlane.predict.slowdown.models import LEAST_PAIRS, Blend, Linear, SlowdownEstimate
from interlane.predict.slowdown.pairs import Pairs, Profiles
from interlane.predict.slowdown.process import SETTINGS, GaussianProcess
from interlane.predict.slowdown.table import CellBasis, SlowdownTable, complete
from interlane.predict.threads import one_thread

FORMAT: Final = "interlane-degradation-model"
VERSION: Final = 1
KIND: Final = files.ModelFileKind(
    FORMAT,
    VERSION,
    "slowdown model",
    "interlane predict slowdown train",
    ("blend",),
    {"settings": dict, "trained_on": dict},
)


_TEXTS: Final = ("names", "families", "gpu_types", "counters")


@dataclass(frozen=True, eq=False)
class ModelPart:
    """What was learned of one way to share: a sharing mode and a target."""

    model: Blend
    bounds: Bounds
    table: SlowdownTable


@dataclass(frozen=True, eq=False)
class SlowdownModel:
    """A part for each way to share, and what is known of their making."""

    parts: Mapping[str, ModelPart]
    """``mode/target`` -> what was learned."""
    trained_on: Mapping[str, object]
    sha256: str = ""

    def part(self, way: str) -> ModelPart:
        """Return what was learned of a way to share."""
        if way not in self.parts:
            raise UnknownName("way to share", way, self.parts)
        return self.parts[way]


def trained(pairs: Pairs, seed: int = 0) -> ModelPart:
    """Learn from measured pairs: model, bounds and the complete table."""
    model, hinge = Blend(seed=seed), Linear(hinged=True)
    bounds, fallback = calibrated(model, pairs, seed), calibrated(hinge, pairs)
    with one_thread():
        return ModelPart(model, bounds, complete(model, bounds, hinge, fallback, pairs))


def save(model: SlowdownModel, path: Path) -> str:
    """Write a model; return its hash."""
    ways = list(model.parts)
    first = model.parts[ways[0]]
    header = {
        "model": "blend",
        "settings": files.settings(first.model),
        "trained_on": dict(model.trained_on),
    }
    arrays = {"ways": text(ways), **_pack_profiles(first.table.profiles)}
    for place, part in enumerate(model.parts.values()):
        arrays |= {f"{place}.{name}": array for name, array in _pack(part).items()}
    return files.write(path, KIND, header, arrays)


def load(path: Path) -> SlowdownModel:
    """Read a model; anything that is not one is refused in a sentence."""
    return files.read(path, KIND, _model)


def _model(header: Header, arrays: Arrays) -> SlowdownModel:
    ways = [str(way) for way in untext(arrays["ways"])]
    profiles = _profiles(arrays)
    parts = {
        way: _part(header["settings"], _under(f"{place}.", arrays), profiles)
        for place, way in enumerate(ways)
    }
    must(bool(parts), "it has no way to share")
    return SlowdownModel(parts, header["trained_on"], header["sha256"])


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _pack_profiles(profiles: Profiles) -> Arrays:
    texts = {name: text(list(getattr(profiles, name))) for name in _TEXTS}
    return {**texts, "values": profiles.values}


def _profiles(arrays: Arrays) -> Profiles:
    names, families, gpu_types, counters = (
        tuple(str(one) for one in untext(arrays[name])) for name in _TEXTS
    )
    values = arrays["values"].astype(np.float64)
    return Profiles(names, families, gpu_types, counters, values)


def _pack(part: ModelPart) -> Arrays:
    process = part.model.process_
    assert process is not None
    seen, table = process.pairs, part.table
    return {
        "pairs": np.stack([seen.gpu, seen.victim, seen.aggressor]),
        "retained": seen.throughput,
        "process": process.settings,
        **packed_forest("trees", part.model.forest_),
        "scores": part.bounds.scores,
        "score_of": np.stack([part.bounds.gpu, part.bounds.couples]),
        "spreads": table.spreads,
        "prior": np.stack([table.prior, table.prior_spread, table.shift]),
        "basis": table.basis,
        "seen": np.stack([table.seen_mean, table.seen_weight, table.seen_at_s]),
    }


def _part(settings: Mapping[str, Any], arrays: Arrays, profiles: Profiles) -> ModelPart:
    pairs = _pairs(arrays, profiles)
    process = arrays["process"].astype(np.float64)
    must(process.shape == (2 * len(profiles.counters) + SETTINGS,), "a process is misshapen")
    must(bool(np.isfinite(process).all()), "a process has no numbers")
    model = Blend(**settings)
    model.process_ = GaussianProcess(pairs, process)
    model.forest_ = forest("trees", arrays, crossed(pairs).shape[1] + 1)
    scores, (gpu, couples) = arrays["scores"].astype(np.float64), arrays["score_of"]
    must(len(scores) == len(gpu) > 0, "bounds have the wrong length")
    must(bool(np.isfinite(scores).all()), "bounds are no numbers")
    bounds = Bounds(scores, gpu.astype(np.int64), couples.astype(np.int64))
    return ModelPart(model, bounds, _table(arrays, profiles))


def _pairs(arrays: Arrays, profiles: Profiles) -> Pairs:
    gpu, victim, aggressor = arrays["pairs"].astype(np.int64)
    count = len(profiles)
    for column, limit in ((gpu, len(profiles.gpu_types)), (victim, count), (aggressor, count)):
        must(bool(((column >= 0) & (column < limit)).all()), "a pair names nobody")
    must(len(gpu) >= LEAST_PAIRS, "it has too few pairs")
    return Pairs(profiles, gpu, victim, aggressor, arrays["retained"].astype(np.float64))


def _table(arrays: Arrays, profiles: Profiles) -> SlowdownTable:
    shape = (len(profiles.gpu_types), len(profiles), len(profiles))
    prior, seen, basis = arrays["prior"], arrays["seen"], arrays["basis"]
    fits = prior.shape == seen.shape == (3, *shape) and basis.shape == shape
    must(fits, "a table is misshapen")
    must(bool(np.isfinite(prior).all() and np.isfinite(seen).all()), "a table has no numbers")
    must(bool((prior[1] > 0).all()), "a table is sure of itself")
    must(bool(np.isin(basis, list(CellBasis)).all()), "a table rests on nothing known")
    spreads = arrays["spreads"].astype(np.float64)
    must(spreads.shape == shape[:1], "the bounds of a table are misshapen")
    mean, spread, shift = (one.astype(np.float64) for one in prior)
    table = SlowdownTable(
        profiles, SlowdownEstimate(mean, spread), spreads, basis.astype(np.int8)
    )
    table.shift[:] = shift
    table.seen_mean[:], table.seen_weight[:], table.seen_at_s[:] = seen
    for gpu in range(shape[0]):
        table.refresh(gpu)
    return table
