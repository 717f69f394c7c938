"""What jobs and functions suffer from each other, as far as is known: read, taught, stored.

Tables grow with everybody who is met, up to a bound: then those make way that were met longest
ago, because a table costs the square of its rows.  A pair begins with what a trained model says
of it, else with a cautious constant.  What is measured counts for more than either, moves what
is thought of others beside the same workloads, and fades in the course of days.  How more than
two add up is learned on top, by a rule that lives as long as the tables.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from interlane.model import Workload, WorkloadKind
from interlane.policy.colocate.slowdown import SharingTables, SlowdownRule, Slowdowns
from interlane.predict.slowdown.models import SlowdownEstimate
from interlane.predict.slowdown.multiway import SuperAdditive
from interlane.predict.slowdown.online import Online
from interlane.predict.slowdown.pairs import Floats, Profiles
from interlane.predict.slowdown.table import CellBasis, SlowdownTable

SIDE_BY_SIDE: Final = "side-by-side"
SEVERAL: Final = Workload(WorkloadKind.SEVERAL, "jobs")
"""Jobs that share a device: what they bear or do together is not what each of them does."""


ROWS_MAX: Final = 128
"""Workloads that a table has rows for, beside those that it was trained on."""


class SlowdownTarget(StrEnum):
    """Whose slowdown it is."""

    TRAINING = "training"
    LATENCY = "latency"


class Prior(NamedTuple):
    """An estimate of what is retained, and how far it may be off, as a logarithm."""

    throughput: float
    spread: float


TRAINING: Final = Prior(0.97, 0.05)
"""What a job is thought to retain beside a function before anything was measured."""
LATENCY: Final = Prior(0.97, 0.3)
"""The same of a function's 99th percentile beside a job."""
IDLE: Final = Prior(0.99, 0.01)
"""The same beside another function, which is idle most of the time."""


class CoRunReading(NamedTuple):
    """What was measured of a victim beside one neighbour, or beside several together."""

    gpu_type: str
    target: SlowdownTarget
    victim: str
    others: tuple[str, ...]
    slowdown: float


class InterferenceModel:
    """See the module's text."""

    def __init__(
        self,
        trained: Mapping[SlowdownTarget, SlowdownTable] | None = None,
        rule: SlowdownRule | None = None,
        *,
        cautious: bool = True,
    ) -> None:
        """Begin with ``trained`` tables of the same workloads, which are learned on in place.

        One may serve both targets; a target without any begins with constants.
        """
        self._functions: set[str] = set()
        trained = trained or {}
        known = next((one.profiles for one in trained.values()), _NOBODY)
        self._first = frozenset(known.names)
        """Those that stay, whoever is met."""
        self._met: dict[str, None] = {}
        """All others, in the order in which they were met last."""
        made: dict[int, Online] = {}
        self._online: dict[SlowdownTarget, Online] = {}
        for target in SlowdownTarget:
            table = trained.get(target)
            if table is None:
                empty = Online(_nothing())
                online = self._grown(empty, target, known.names, known.gpu_types)
            else:
                online = made.setdefault(id(table), Online(table))
            self._online[target] = online
        self.slowdowns = Slowdowns(self._modes(), rule or SuperAdditive(), cautious)

    def _modes(self) -> dict[str, SharingTables]:
        training, latency = (self._online[target].table for target in SlowdownTarget)
        return {SIDE_BY_SIDE: SharingTables(training, latency)}

    def meet(
        self,
        jobs: Iterable[str] = (),
        functions: Iterable[str] = (),
        gpu_types: Iterable[str] = (),
    ) -> None:
        """Give rows to workloads and types of GPUs that were never seen."""
        table = self._online[SlowdownTarget.TRAINING].table
        jobs, functions = tuple(jobs), tuple(functions)
        self._functions.update(functions)
        known = table.profiles
        gone = self._made_way((*jobs, *functions))
        kept = (one for one in known.names if one not in gone)
        names = tuple(
            one for one in dict.fromkeys((*kept, *jobs, *functions)) if one not in gone
        )
        types = tuple(dict.fromkeys((*known.gpu_types, *gpu_types)))
        if (names, types) == (known.names, known.gpu_types):
            return
        grown: dict[int, Online] = {}
        for target, online in self._online.items():
            if id(online) not in grown:
                grown[id(online)] = self._grown(online, target, names, types)
            self._online[target] = grown[id(online)]
        self.slowdowns.read_from(self._modes())

    def _made_way(self, names: Iterable[str]) -> set[str]:
        """Note who is met, and return who has made way for them."""
        for name in names:
            if name not in self._first:
                self._met.pop(name, None)
                self._met[name] = None
        gone = set(list(self._met)[: max(0, len(self._met) - ROWS_MAX)])
        for name in gone:
            del self._met[name]
        self._functions -= gone
        return gone

    def _grown(
        self,
        old: Online,
        target: SlowdownTarget,
        names: tuple[str, ...],
        types: tuple[str, ...],
    ) -> Online:
        """Return a learner of other workloads that knows what the old one did of them."""
        priors = np.array([self._prior(target, one) for one in names])
        shape = len(types), len(names), len(names)
        before = old.table
        stay = [before.workload(one) for one in names if before.workload(one) >= 0]
        known_types, known = before.basis.shape[0], len(stay)
        there = np.ix_(range(known_types), stay, stay)
        spreads = np.concatenate([before.spreads, np.ones(len(types) - known_types)])
        mean = np.broadcast_to(np.log(priors[:, 0]), shape).copy()
        spread = priors[:, 1] / np.maximum(spreads, 1e-9)[:, None, None] * np.ones(shape)
        if known_types:
            # A type that was never measured has the worst of those that were.
            mean[known_types:, :known, :known] = before.prior[there].min(axis=0)
            spread[known_types:, :known, :known] = before.prior_spread[there].max(axis=0)
        here = slice(0, known_types), slice(0, known), slice(0, known)
        mean[here], spread[here] = before.prior[there], before.prior_spread[there]
        basis = np.full(shape, CellBasis.HINGE, np.int8)
        basis[here] = before.basis[there]
        table = SlowdownTable(
            Profiles(names, names, types, (), np.zeros((len(types), len(names), 0))),
            SlowdownEstimate(mean, spread),
            spreads,
            basis,
            half_life_s=before.half_life_s,
        )
        for name in ("shift", "seen_mean", "seen_weight", "seen_at_s"):
            getattr(table, name)[here] = getattr(before, name)[there]
        for gpu in range(len(types)):
            table.refresh(gpu)
        online = Online(table, old.alarm)
        online.since_fit = old.since_fit
        for gpu, residuals in enumerate(old.residuals):
            online.residuals[gpu].take_over(residuals, stay)
        return online

    def _prior(self, target: SlowdownTarget, aggressor: str) -> Prior:
        if target is SlowdownTarget.TRAINING:
            return TRAINING
        return IDLE if aggressor in self._functions else LATENCY

    # -- what is measured -------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether enough was measured, or bounds were missed, for a model to be fitted anew."""
        return any(one.is_due for one in self._online.values())

    def doubt(self, gpu_type: str, job: str, function: str) -> float:
        """Return how far apart estimate and bound of a pair are; 0 where it was measured."""
        table = self._online[SlowdownTarget.TRAINING].table
        gpu, *pair = table.gpu(gpu_type), table.workload(job), table.workload(function)
        if min(gpu, *pair) < 0:
            return 0.0
        read = table.read(gpu, *pair)
        if read.basis is CellBasis.MEASURED:
            return 0.0
        return float(np.log(read.throughput / read.lower))

    def refit(self, tables: Mapping[SlowdownTarget, SlowdownTable]) -> None:
        """Begin anew with what a model says of pairs; what was measured counts on top.

        Of a target of which too little is known for a model, nothing changes.
        """
        for target, online in list(self._online.items()):
            online.since_fit, online.alarm.level = 0, 0.0
            if target not in tables:
                continue
            table = online.table
            _rebase(table, tables[target])
            self._online[target] = Online(table)
            for gpu in range(len(table.profiles.gpu_types)):
                table.shift[gpu] = 0.0
                table.refresh(gpu)
        self.slowdowns.read_from(self._modes())

    def predicted(self, reading: CoRunReading) -> float:
        """Return the slowdown that was to be expected beside the first of the others."""
        table = self._online[reading.target].table
        victim, other = map(table.workload, (reading.victim, reading.others[0]))
        return 1.0 / table.read(table.gpu(reading.gpu_type), victim, other).throughput

    def learn(self, readings: Iterable[CoRunReading], now_s: float) -> None:
        """Take in what was measured: pairs go to their table, more to the rule."""
        for one in readings:
            if len(one.others) > 1:
                self.slowdowns.learn(
                    SIDE_BY_SIDE, one.gpu_type, one.victim, one.others, one.slowdown
                )
                continue
            online = self._online[one.target]
            table = online.table
            gpu, victim = table.gpu(one.gpu_type), table.workload(one.victim)
            other = table.workload(one.others[0])
            if victim < 0 or other < 0:
                continue  # it has made way since
            online.learn(gpu, victim, other, 1.0 / one.slowdown, now_s)
        self.slowdowns.forget()

    # -- what is stored ---------------------------------------------------------------

    def snapshot(self) -> dict[str, Floats]:
        """Return what was measured, by name; priors are whatever a successor is given."""
        profiles = self._online[SlowdownTarget.TRAINING].table.profiles
        found: dict[str, Floats] = {
            "names": np.array(profiles.names, str),
            "gpu_types": np.array(profiles.gpu_types, str),
            "functions": np.array(sorted(self._functions), str),
            f"rule.{type(self.slowdowns.rule).__name__}": self.slowdowns.rule.snapshot(),
        }
        for target, online in self._online.items():
            table = online.table
            found[f"{target}.seen"] = np.stack(
                [table.seen_mean, table.seen_weight, table.seen_at_s]
            )
            for gpu, residuals in enumerate(online.residuals):
                found[f"{target}.effects.{gpu}"] = residuals.effects
                found[f"{target}.covariance.{gpu}"] = residuals.covariance
        return found

    def restore(self, stored: Mapping[str, Floats]) -> None:
        """Take up what a predecessor has measured."""
        names, types, functions = (
            tuple(str(one) for one in stored[name])
            for name in ("names", "gpu_types", "functions")
        )
        self.meet([one for one in names if one not in functions], functions, types)
        rule = self.slowdowns.rule
        weights = stored.get(f"rule.{type(rule).__name__}")
        if weights is not None:
            rule.restore(weights)
        for target, online in self._online.items():
            _take_up(online, stored, target, names, types)
        self.slowdowns.forget()


_NOBODY: Final = Profiles((str(SEVERAL),), (str(SEVERAL),), (), (), np.zeros((0, 1, 0)))


def _nothing() -> SlowdownTable:
    none = np.zeros(0)
    nobody = Profiles((), (), (), (), np.zeros((0, 0, 0)))
    return SlowdownTable(nobody, SlowdownEstimate(none, none), none, np.zeros(0, np.int8))


def _rebase(table: SlowdownTable, fitted: SlowdownTable) -> None:
    """Let a table begin with another's estimates of the pairs that both know."""
    names = [one for one in table.profiles.names if fitted.workload(one) >= 0]
    types = [one for one in table.profiles.gpu_types if fitted.gpu(one) >= 0]
    if not names or not types:
        return
    here = np.ix_(
        [table.gpu(one) for one in types], *([table.workload(one) for one in names],) * 2
    )
    there = np.ix_(
        [fitted.gpu(one) for one in types], *([fitted.workload(one) for one in names],) * 2
    )
    ratio = fitted.spreads[[fitted.gpu(one) for one in types]] / np.maximum(
        1e-9, table.spreads[[table.gpu(one) for one in types]]
    )
    table.prior[here] = fitted.prior[there]
    table.prior_spread[here] = fitted.prior_spread[there] * ratio[:, None, None]
    seen = table.basis[here] == CellBasis.MEASURED
    table.basis[here] = np.where(seen, CellBasis.MEASURED, CellBasis.PREDICTED)


def _take_up(
    online: Online,
    stored: Mapping[str, Floats],
    target: SlowdownTarget,
    names: tuple[str, ...],
    types: tuple[str, ...],
) -> None:
    table = online.table
    gpus = np.array([table.gpu(one) for one in types], np.int64)
    found = [place for place, one in enumerate(names) if table.workload(one) >= 0]
    rows = np.array([table.workload(names[place]) for place in found], np.int64)
    cells = np.ix_(gpus, rows, rows)
    mean, weight, at_s = stored[f"{target}.seen"][:, :, found][..., found]
    table.seen_mean[cells], table.seen_weight[cells] = mean, weight
    table.seen_at_s[cells] = at_s
    table.basis[cells] = np.where(weight > 0, CellBasis.MEASURED, table.basis[cells])
    both = np.concatenate([rows, rows + len(table.profiles)])
    theirs = [*found, *(len(names) + place for place in found)]
    for place, gpu in enumerate(gpus.tolist()):
        residuals = online.residuals[gpu]
        residuals.effects[both] = stored[f"{target}.effects.{place}"][theirs]
        covariance = stored[f"{target}.covariance.{place}"]
        residuals.covariance[np.ix_(both, both)] = covariance[np.ix_(theirs, theirs)]
        table.shift[gpu] = residuals.shift
        table.refresh(gpu)
