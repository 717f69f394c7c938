"""A function: short inference work that runs in what training leaves over of a GPU."""

from dataclasses import dataclass

from interlane.model.errors import InvalidField


@dataclass(frozen=True, slots=True)
class Function:
    """What one replica of a function needs, and what it may suffer."""

    id: str
    workload: str
    """Under which name slowdown tables have it."""
    memory_mib: int
    use: float = 0.1
    """Share of a GPU that it keeps busy: what is gained by placing it."""
    p99_limit: float = 2.0
    """How many times its solo latency the 99th percentile may be."""
    stay_s: float = 60.0
    """How long it is expected to stay."""
    gpu_types: frozenset[str] = frozenset()
    """GPU types that will do; empty means any."""
    disk_load_s: float = 0.0
    """Seconds that its model takes from disk to the GPU."""

    def __post_init__(self) -> None:
        if self.memory_mib < 0:
            raise InvalidField("memory_mib", self.memory_mib, "it must be 0 or more")
        if not 0 <= self.use <= 1:
            raise InvalidField("use", self.use, "it must be a share from 0 to 1")
        if not self.p99_limit >= 1:
            raise InvalidField("p99_limit", self.p99_limit, "it must be 1 or more")
        if not self.stay_s >= 0:
            raise InvalidField("stay_s", self.stay_s, "it must be 0 s or more")
        if not self.disk_load_s >= 0:
            raise InvalidField("disk_load_s", self.disk_load_s, "it must be 0 s or more")
