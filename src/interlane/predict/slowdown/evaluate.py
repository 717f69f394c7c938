"""How good estimates of slowdown are, on pairs, models and families never seen.

* *pair*: a random part of unordered pairs is learned from; the rest is judged.
* *model*: a sixth of the workloads is unknown at a time; every pair with one is judged.
* *family*: all workloads of a family are unknown at a time.

Under the last two, each unknown workload may be probed: run beside a few anchors, which are
known workloads as different from each other as possible.  Probed pairs are not judged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.model import InvalidField, UnknownName
from interlane.predict.slowdown.models import SlowdownPredictor
from interlane.predict.slowdown.pairs import Floats, Ints, Mask, Pairs
from interlane.predict.slowdown.table import PROBES_MOST
from interlane.predict.threads import one_thread

MODEL_FOLDS: Final = 6


@dataclass(frozen=True, eq=False)
class PairSplit:
    """Pairs to learn from, and pairs that are judged."""

    known: Pairs
    judged: Pairs


SPLITS: Final = ("pair", "model", "family")


def splits(
    pairs: Pairs, name: str, *, part: float, seed: int, probes: int
) -> Iterator[PairSplit]:
    """Return the splits of a protocol by its name."""
    if name not in SPLITS:
        raise UnknownName("split", name, SPLITS)
    if name == "pair":
        return iter([by_pair(pairs, part, seed)])
    return by_model(pairs, seed, probes) if name == "model" else by_family(pairs, probes)


def by_pair(pairs: Pairs, part: float, seed: int) -> PairSplit:
    """Learn from a random part of the unordered pairs."""
    if not 0 < part < 1:
        raise InvalidField("part", part, "it must be between 0 and 1")
    couples, place = np.unique(pairs.couples, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(couples))
    known = np.zeros(len(couples), bool)
    known[order[: int(part * len(couples))]] = True
    return PairSplit(pairs.where(known[place]), pairs.where(~known[place]))


def by_model(pairs: Pairs, seed: int, probes: int = 0) -> Iterator[PairSplit]:
    """Leave out a sixth of the workloads at a time."""
    order = np.random.default_rng(seed).permutation(len(pairs.profiles))
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % MODEL_FOLDS
    return (without(pairs, fold == one, probes) for one in range(MODEL_FOLDS))


def by_family(pairs: Pairs, probes: int = 0) -> Iterator[PairSplit]:
    """Leave out a family at a time."""
    families = pairs.profiles.family_numbers
    measured = np.unique(families[pairs.victim])
    return (without(pairs, families == one, probes) for one in measured)


def without(pairs: Pairs, unknown: Mask, probes: int) -> PairSplit:
    """Learn from pairs of known workloads and from probes of the others."""
    strange = unknown[pairs.victim].astype(int) + unknown[pairs.aggressor]
    known = pairs.where(strange == 0)
    beside_anchor = np.isin(pairs.victim, chosen := anchors(known, probes)) | np.isin(
        pairs.aggressor, chosen
    )
    probed = (strange == 1) & beside_anchor
    return PairSplit(pairs.where((strange == 0) | probed), pairs.where((strange > 0) & ~probed))


def anchors(known: Pairs, count: int) -> Ints:
    """Return workloads to probe with: far apart in what they suffer and what they do.

    Only those that were measured beside nearly all others qualify, because a probe that
    does not fit into memory says nothing.
    """
    if not 0 <= count <= PROBES_MOST:
        raise InvalidField("probes", count, f"it must be 0 to {PROBES_MOST}")
    workloads, runs = np.unique(known.victim, return_counts=True)
    points = np.column_stack(
        [_standard(_means(side, known, workloads)) for side in (known.victim, known.aggressor)]
    )
    able = runs >= 0.8 * runs.max()
    chosen: list[int] = []
    for _ in range(min(count, int(able.sum()))):
        from_chosen = [((points - points[one]) ** 2).sum(1) for one in chosen]
        apart = np.min(from_chosen, axis=0) if chosen else (points**2).sum(1)
        chosen.append(int(np.argmax(np.where(able, apart, -1.0))))
    return workloads[chosen]


def _means(side: Ints, known: Pairs, workloads: Ints) -> Floats:
    return np.array([known.log_throughput[side == one].mean() for one in workloads])


def _standard(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


def judge(
    make: Callable[[], SlowdownPredictor], parted: Iterable[PairSplit]
) -> dict[str, float]:
    """Fit a model on every split and score all that was judged together."""
    truth, told = [], []
    with one_thread():
        for split in parted:
            truth.append(split.judged.throughput)
            told.append(make().fit(split.known).predict(split.judged).throughput)
    return scores(np.concatenate(truth), np.concatenate(told))


def scores(truth: Floats, told: Floats) -> dict[str, float]:
    """Return errors of the normalised throughput, and RMSLE of the slowdown, its inverse."""
    off = truth - told
    total = float(((truth - truth.mean()) ** 2).sum())
    logs = np.log1p(1.0 / truth) - np.log1p(1.0 / np.maximum(told, 1e-3))
    return {
        "pairs": float(len(truth)),
        "mae": float(np.abs(off).mean()),
        "r2": 1.0 - float((off**2).sum()) / total if total else 0.0,
        "rmsle": float(np.sqrt((logs**2).mean())),
    }


def admission(truth: Floats, bound: Floats, limit: float) -> dict[str, float]:
    """Return how a rule fares that admits what promises to retain ``1 - limit``."""
    admitted, good = bound >= 1.0 - limit, truth >= 1.0 - limit
    right = float((admitted & good).sum())
    return {
        "admitted": float(admitted.mean()),
        "precision": right / float(admitted.sum()) if admitted.any() else 1.0,
        "recall": right / float(good.sum()) if good.any() else 1.0,
        "twice_the_limit": float((truth[admitted] < 1.0 - 2 * limit).mean())
        if admitted.any()
        else 0.0,
    }
