"""The memory of a job that runs in another process: nothing is known or done about it."""


class Unmeasured:
    """A backend that leaves the state to what was declared."""

    measures = False

    def __init__(self, _: str) -> None:
        pass

    def live(self) -> int:
        """Know nothing."""
        return 0

    def peak(self) -> int:
        """Know nothing."""
        return 0

    def glance(self) -> tuple[int, int]:
        """Know nothing."""
        return 0, 0

    def mark(self) -> int:
        """Know nothing."""
        return 0

    def reset_peak(self) -> None:
        """Do nothing."""

    def trim(self) -> int:
        """Do nothing."""
        return 0

    def fence(self) -> None:
        """Do nothing."""

    def limit(self, nbytes: int | None) -> None:
        """Do nothing."""
