"""A device that is a number: its memory changes when it is told to."""


class FakeBackend:
    """A backend whose bytes are counted and never allocated."""

    measures = True

    def __init__(self, live_bytes: int = 0, cached_bytes: int = 0) -> None:
        self.live_bytes = self.peak_bytes = live_bytes
        self.cached_bytes = cached_bytes
        self.limit_bytes: int | None = None
        self.fences = 0

    def allocate(self, nbytes: int) -> None:
        """Take memory; beyond the limit this is the error that PyTorch would raise."""
        if self.limit_bytes is not None and self.live_bytes + nbytes > self.limit_bytes:
            raise RuntimeError(f"can't allocate memory: you tried to allocate {nbytes} bytes.")
        self.live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def free(self, nbytes: int) -> None:
        """Return memory to the cache."""
        self.live_bytes -= nbytes
        self.cached_bytes += nbytes

    def live(self) -> int:
        """Return the bytes in use."""
        return self.live_bytes

    def peak(self) -> int:
        """Return the most bytes in use since ``reset_peak``."""
        return self.peak_bytes

    def glance(self) -> tuple[int, int]:
        """Return both."""
        return self.live_bytes, self.peak_bytes

    def mark(self) -> int:
        """Return the peak, which costs nothing here."""
        return self.peak_bytes

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        self.peak_bytes = self.live_bytes

    def trim(self) -> int:
        """Empty the cache."""
        freed, self.cached_bytes = self.cached_bytes, 0
        return freed

    def fence(self) -> None:
        """Count the calls."""
        self.fences += 1

    def limit(self, nbytes: int | None) -> None:
        """Remember the limit."""
        self.limit_bytes = nbytes
