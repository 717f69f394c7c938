"""What pages, the API and the command line see of functions."""

from dataclasses import asdict, dataclass
from typing import Any

from interlane.server.functions.lender import Compared
from interlane.server.functions.warmth import Band


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
    """What it has taken beyond its nursery's; 0 where that cannot be seen."""


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
    """Answered requests by bucket of latency; see ``figures.BUCKETS_S``."""
    latency_sum_s: float
    beside_jobs: tuple[Compared, ...]
    """What jobs cost it, by device, where that was measured."""

    def document(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        return asdict(self)
