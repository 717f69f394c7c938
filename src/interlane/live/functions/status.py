"""What pages, the API and the command line see of functions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interlane.functions.watch import Band
from interlane.live.files.function import FunctionAmounts, FunctionSpec, terms_of
from interlane.live.functions.colocation import ComparedSlowdown, device_name
from interlane.live.functions.deployed import Deployed
from interlane.live.functions.figures import BUCKETS_S
from interlane.live.functions.replicas import Replica, ReplicaState


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica."""

    number: int
    state: str
    """loading, idle, busy or leaving."""
    device: str
    pid: int | None
    age_s: float
    calls: int
    memory_mib: float
    """What it has taken of its own; 0 where that cannot be seen."""


@dataclass(frozen=True, slots=True)
class FunctionStatus:
    """One function."""

    name: str
    user: str
    version: int
    deployed_s: float
    state: str
    """cold, loading, warm or failed."""
    reason: str | None
    spec: dict[str, Any]
    slot_s: float
    rate_per_s: float
    """Over the newest slots."""
    slots: tuple[int, ...]
    """Requests of the newest slots, the oldest first."""
    bands: tuple[Band, ...]
    """What was forecast for these slots, before they began."""
    forecast: Band
    """Of the slot that has begun."""
    replicas: tuple[ReplicaStatus, ...]
    waiting: int
    requests: int
    answered: int
    cold_starts: int
    deadline_misses: int
    raised: int
    refused: int
    lost: int
    abandoned: int
    loads: int
    failed_loads: int
    killed: int
    evicted: int
    warm_s: float
    """Seconds that replicas were loaded, all of them together."""
    load_s: float | None
    service_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    latency_buckets: tuple[int, ...]
    """Answered requests by bucket of latency; see ``latency_edges_s``."""
    latency_sum_s: float
    beside_jobs: tuple[ComparedSlowdown, ...]
    """What jobs cost it, by device, where that was measured."""

    @property
    def terms(self) -> FunctionAmounts:
        """The amounts that its file means."""
        return terms_of(FunctionSpec.model_validate(self.spec))

    @property
    def latency_edges_s(self) -> tuple[float | None, ...]:
        """Where each bucket of latency ends; the last has no end."""
        return (*BUCKETS_S, None)

    def document(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        return asdict(self)


def status_of(
    one: Deployed,
    *,
    slot_s: float,
    forecast: Band,
    beside_jobs: Sequence[ComparedSlowdown],
    now_s: float,
) -> FunctionStatus:
    """Return how a function is."""
    p50_s, p95_s, p99_s = one.latencies.quantiles(0.5, 0.95, 0.99)
    counts, slots = one.counts, tuple(one.slots)
    ready = one.status(ReplicaState.READY)
    return FunctionStatus(
        name=one.name,
        user=one.user,
        version=one.version,
        deployed_s=one.deployed_s,
        state=_state(one),
        reason=one.reason,
        spec=one.spec.model_dump(mode="json", exclude_defaults=True),
        slot_s=slot_s,
        rate_per_s=sum(slots) / (len(slots) * slot_s) if slots else 0.0,
        slots=slots,
        bands=tuple(one.bands),
        forecast=forecast,
        replicas=tuple(_replica_status(replica, now_s) for replica in one.replicas),
        waiting=one.waiting,
        requests=counts.requests,
        answered=counts.answered,
        cold_starts=counts.cold_starts,
        deadline_misses=counts.late,
        raised=counts.raised,
        refused=counts.refused,
        lost=counts.lost,
        abandoned=counts.abandoned,
        loads=counts.loads,
        failed_loads=counts.failed_loads,
        killed=counts.killed,
        evicted=counts.evicted,
        warm_s=counts.warm_s + sum(now_s - replica.ready_s for replica in ready),
        load_s=one.load_s.value,
        service_s=one.service_s.value,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        latency_buckets=tuple(one.latencies.buckets),
        latency_sum_s=one.latencies.sum_s,
        beside_jobs=tuple(beside_jobs),
    )


def _state(one: Deployed) -> str:
    if one.status(ReplicaState.READY):
        return "warm"
    if one.status(ReplicaState.LOADING):
        return "loading"
    return "failed" if one.failed_loads else "cold"


def _replica_status(replica: Replica, now_s: float) -> ReplicaStatus:
    state = replica.state.value
    if replica.state is ReplicaState.READY:
        state = "busy" if replica.calls else "idle"
    return ReplicaStatus(
        replica.number,
        state,
        device_name(replica.device.gpu),
        None if replica.loaded is None else replica.loaded.pid,
        now_s - replica.begun_s,
        sum(len(calls) for _, calls in replica.calls.values()),
        replica.memory_mib,
    )
