"""What functions are asked in a simulated run, and what each of them is.

Requests come from a trace of arrivals.  What a trace does not say of its functions is in a file
of profiles; what neither says is drawn from the measured workloads, and requests take as long
as it needs for all functions together to keep a stated number of replicas per GPU busy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import Cluster, InvalidField, InvalidInput
from interlane.model.function import Function
from interlane.predict.arrivals.series import DAY_S, Arrivals, Floats
from interlane.sim.true_slowdown import TrueSlowdowns
from interlane.traces.function_profiles import FunctionProfile

SERVICE_S: Final = (0.001, 10.0)
"""The least and most that a request takes, where nobody says how long."""
DEADLINE_S: Final = 30.0
"""What a live function has, too, unless its file says otherwise."""
LOAD_S: Final = 5.0
"""What loading a model takes, where nobody says how long."""
P99_LIMIT: Final = 2.0
KNOWN_DAYS: Final = 4
"""Days before those that are played, of which forecasts learn; more are left out."""
GROUPS_MAX: Final = 2_000_000
"""Requests that are played one by one; of more, several of a slot come as one."""


@dataclass(frozen=True, slots=True)
class PlayedFunction:
    """A function, and what its requests take."""

    function: Function
    service_s: float
    """Seconds that a request takes of a replica that is undisturbed."""
    deadline_s: float = DEADLINE_S


@dataclass(frozen=True, eq=False)
class FunctionLoad:
    """Functions and their requests, from the beginning of a run on."""

    name: str
    functions: tuple[PlayedFunction, ...]
    slot_s: float
    counts: Floats
    """Requests, slot x function."""
    known: Floats
    """The same of the slots before, oldest first; ``nan`` where nobody watched."""
    seed: int = 0
    groups_max: int = GROUPS_MAX
    slot: int = 0
    """The number of the first known slot, or of the first of all; slot 0 begins at midnight."""

    @property
    def end_s(self) -> float:
        """When requests end."""
        return len(self.counts) * self.slot_s

    @property
    def requests(self) -> int:
        """All requests."""
        return int(self.counts.sum())

    def groups(self) -> "RequestGroups":
        """Return the requests in the order they come, at random moments of their slots."""
        rng = np.random.default_rng(self.seed)
        slot, place = np.nonzero(self.counts)
        count = self.counts[slot, place].astype(np.int64)
        together = max(1, ceil(self.requests / self.groups_max))
        groups = -(-count // together)
        cell = np.repeat(np.arange(len(count)), groups)
        first = np.cumsum(groups) - groups
        within = np.arange(len(cell)) - first[cell]
        # As even as whole numbers allow: the first few of a cell have one more.
        weight = count[cell] // groups[cell] + (within < count[cell] % groups[cell])
        at_s = (slot[cell] + rng.random(len(cell))) * self.slot_s
        order = np.argsort(at_s, kind="stable")
        return RequestGroups(
            at_s[order].tolist(), place[cell][order].tolist(), weight[order].tolist()
        )


@dataclass(frozen=True, slots=True)
class RequestGroups:
    """Requests in the order they come; several of one function may come as one."""

    at_s: list[float] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    """Of their function."""
    weight: list[int] = field(default_factory=list)
    """How many they are."""

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True, slots=True)
class LoadWish:
    """How requests are made of arrivals."""

    days: float = 1.0
    """Days that are played, the last of the arrivals."""
    replicas: float = 0.5
    """Replicas per GPU that requests keep busy on average, where service times are not told."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.days < inf:
            raise InvalidField("function-days", self.days, "it must be above 0")
        if not 0 < self.replicas < inf:
            raise InvalidField("function-load", self.replicas, "it must be above 0")


def load_of(
    name: str,
    arrivals: Arrivals,
    profiles: Mapping[str, FunctionProfile],
    truth: TrueSlowdowns,
    cluster: Cluster,
    wish: LoadWish,
) -> FunctionLoad:
    """Return what is played of arrivals on a cluster."""
    if not len(arrivals):
        raise InvalidInput(f"{name} has no function that is ever asked; name other arrivals.")
    table, begin = _aligned(arrivals)
    played = min(len(table), max(1, round(wish.days * DAY_S / arrivals.slot_s)))
    counts = np.nan_to_num(table[-played:], nan=0.0)
    known = table[:-played][-KNOWN_DAYS * arrivals.day :]
    names = [one.name for one in arrivals]
    service_s = _service_s(
        counts, names, profiles, arrivals.slot_s, wish.replicas * cluster.gpus
    )
    card_mib = _card_mib(cluster)
    functions = tuple(
        _played(one, profiles.get(one) or profiles.get("*"), took_s, truth, card_mib, wish.seed)
        for one, took_s in zip(names, service_s, strict=True)
    )
    first = begin + len(table) - played - len(known)
    return FunctionLoad(name, functions, arrivals.slot_s, counts, known, wish.seed, slot=first)


def _aligned(arrivals: Arrivals) -> tuple[NDArray[np.float64], int]:
    """Return slot x function with all functions' last slots together, and the first's number.

    Functions that were watched in other weeks are laid on top of each other by whole days, so
    that each keeps its time of day.
    """
    day = arrivals.day
    ends = [one.first + len(one) for one in arrivals]
    latest = max(ends)
    spans = [
        (one.first + shift, one)
        for one, end in zip(arrivals, ends, strict=True)
        for shift in [(latest - end) // day * day]
    ]
    begin = min(first for first, _ in spans)
    table = np.full((latest - begin, len(spans)), np.nan)
    for place, (first, one) in enumerate(spans):
        table[first - begin : first - begin + len(one), place] = one.counts
    return table, begin


def _service_s(
    counts: Floats,
    names: Sequence[str],
    profiles: Mapping[str, FunctionProfile],
    slot_s: float,
    replicas: float,
) -> list[float]:
    """Return what a request of each function takes.

    Where nobody says, all take the same, so that all together keep so many replicas busy.
    """
    told = [profiles.get(one) or profiles.get("*") for one in names]
    given = [None if one is None else one.service_s for one in told]
    rates = counts.mean(0) / slot_s
    left = replicas - sum(
        rate * one for rate, one in zip(rates, given, strict=True) if one is not None
    )
    open_rate = sum(rate for rate, one in zip(rates, given, strict=True) if one is None)
    least, most = SERVICE_S
    same = min(most, max(least, left / max(open_rate, 1e-9)))
    return [same if one is None else one for one in given]


def _card_mib(cluster: Cluster) -> int:
    """Return the memory of the largest GPU: shares of workloads are of that."""
    found = [
        one.device(gpu).memory_mib
        for one in cluster
        if not one.pooled
        for gpu in range(one.gpus)
    ]
    if not found or not max(found):
        raise InvalidInput(
            f"Cluster {cluster.name} has no GPU whose memory is known and that is told apart "
            "from others; functions need a cluster file with gpu_memory, or a built-in one."
        )
    return max(found)


def _played(
    name: str,
    profile: FunctionProfile | None,
    service_s: float,
    truth: TrueSlowdowns,
    card_mib: int,
    seed: int,
) -> PlayedFunction:
    told = profile or FunctionProfile()
    if told.workload is not None and told.workload not in truth.places:
        raise InvalidField(
            f"workload of function {name}", told.workload, f"{truth.name} has no such workload"
        )
    place = (
        truth.served_by(name, seed) if told.workload is None else truth.places[told.workload]
    )
    memory_mib = told.memory_mib or max(1, int(truth.memory[place] * card_mib))
    function = Function(
        name,
        truth.workloads[place],
        memory_mib,
        truth.use[place] if told.use is None else told.use,
        told.p99_limit or P99_LIMIT,
        disk_load_s=LOAD_S if told.load_s is None else told.load_s,
    )
    return PlayedFunction(function, service_s, told.deadline_s or DEADLINE_S)
