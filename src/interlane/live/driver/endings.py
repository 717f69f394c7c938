"""Attempts that were given up and may still run, and launches that wait for their end.

A job whose place is gone waits again at once, and what it held is given to others.  But to
kill an attempt takes time: until the engine says that it is over, nothing begins where it
was, and no other attempt at the same job begins anywhere.
"""

from collections.abc import Callable

from interlane.live.port import Attempt, Launch
from interlane.model import Placement


class Endings:
    """See the module's text."""

    def __init__(self) -> None:
        self._ending: dict[Attempt, Placement | None] = {}
        self._held: dict[tuple[Attempt, int], Launch] = {}
        """By attempt and growth, in the order in which they were decided."""

    def add(self, attempt: Attempt, place: Placement | None) -> None:
        """Note an attempt that is to end; without a place it may be anywhere."""
        self._ending[attempt] = self._ending.get(attempt) or place

    def over(self, attempt: Attempt) -> None:
        """Note that nothing is left of an attempt."""
        self._ending.pop(attempt, None)

    def attempts(self) -> list[Attempt]:
        """Return the attempts that may still run."""
        return list(self._ending)

    def hold(self, launch: Launch) -> None:
        """Keep a launch until nothing is in its way."""
        self._held[launch.attempt, launch.growth] = launch

    def holds(self, attempt: Attempt) -> bool:
        """Tell whether the engine has never heard of an attempt."""
        return (attempt, 0) in self._held

    def drop(self, attempt: Attempt) -> bool:
        """Forget the launch of an attempt; return whether the engine has never heard of it."""
        return self._held.pop((attempt, 0), None) is not None

    def forget_launches(self) -> None:
        """Forget all launches."""
        self._held.clear()

    def release(self, is_wanted: Callable[[Launch], bool]) -> list[Launch]:
        """Take out the launches that nothing is in the way of, and that somebody wants."""
        free = [launch for launch in self._held.values() if not self._in_the_way(launch)]
        for launch in free:
            del self._held[launch.attempt, launch.growth]
        return [launch for launch in free if is_wanted(launch)]

    def _in_the_way(self, launch: Launch) -> bool:
        wanted = set(launch.placement.machines)
        return any(
            attempt.job_id == launch.attempt.job_id
            or place is None
            or not wanted.isdisjoint(place.machines)
            for attempt, place in self._ending.items()
            if attempt != launch.attempt
        )
