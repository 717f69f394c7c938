"""An event loop whose time is that of a simulated machine."""

import asyncio
from collections.abc import Callable
from typing import Any

from interlane.testing.simulated.machine import SimulatedMachine


class _Idle:
    """Where a loop waits: time passes there, and nothing else comes in."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise RuntimeError("The loop has nothing to wait for.")
        if timeout > 0:
            self._machine.advance(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs what is due at once, and lets time pass when nothing is."""

    def __init__(self, machine: SimulatedMachine) -> None:
        super().__init__()
        self._machine = machine
        self._selector = _Idle(machine)
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self.failures.append(context))

    def time(self) -> float:
        """Return the seconds since the machine started."""
        return self._machine.now_s

    def _process_events(self, events: object) -> None:
        """Nothing comes in."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., object], *args: object
    ) -> "asyncio.Future[object]":
        """Do at once what others do in threads; who waits for it hears of it later."""
        done = self.create_future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done
