"""What a domain knows about one job."""

from dataclasses import dataclass

from interlane.model import JobId


@dataclass(slots=True)
class Tenant:
    """One job of a device.  The domain writes it; orders and engines read it."""

    job_id: JobId
    serial: int
    """In order of arrival at the domain."""
    priority: int = 0
    """Higher is more urgent."""
    total_s: float | None = None
    """Estimated device time of the whole job."""
    attained_s: float = 0.0
    """Device time received, the present lease not included."""
    virtual_s: float = 0.0
    """Fair order's clock: device time by weight, moved on while the job was away."""
    last_turn: int = 0
    """Epoch of the last lease."""
    wanted_since_s: float | None = None
    """Since when it waits for the lane; None while it holds it or has nothing to run."""
    held_since_s: float | None = None
    """Since when it holds the lane."""
    iterations: int = 0
    """Finished in all."""
    iteration_s: float | None = None
    """Usual length of an iteration, newer ones counting more."""
    weight: float = 1.0
    """Fair order's share of the lane, against those of others."""

    @property
    def takes_part(self) -> bool:
        """Whether it holds its lane or wants it."""
        return self.held_since_s is not None or self.wanted_since_s is not None

    def held_s(self, now_s: float) -> float:
        """Return how long the present lease has lasted."""
        return 0.0 if self.held_since_s is None else now_s - self.held_since_s

    def attained_at(self, now_s: float) -> float:
        """Return the device time received until now."""
        return self.attained_s + self.held_s(now_s)

    def virtual_at(self, now_s: float) -> float:
        """Return the virtual time now."""
        return self.virtual_s + self.held_s(now_s) / self.weight
