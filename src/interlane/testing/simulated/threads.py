"""Threads and what they wait for, as code on a simulated machine sees them."""

import errno
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from interlane.testing.simulated.calls import on
from interlane.testing.simulated.disk import fault
from interlane.testing.simulated.machine import Thread


def _number(which: object) -> int:
    return which if isinstance(which, int) else int(which.fileno())  # type: ignore[attr-defined]


class _Lock:
    def __init__(self) -> None:
        self._owner: object = None

    def acquire(self) -> bool:
        machine = on.machine
        machine.enter()
        machine.wait(lambda: self._owner is None)
        self._owner = machine.thread or machine.current
        return True

    def release(self) -> None:
        self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class _Event:
    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        on.machine.enter()
        return on.machine.wait(self.is_set, timeout)


class _Thread:
    def __init__(
        self,
        target: Callable[..., object],
        name: str = "",
        args: tuple[object, ...] = (),
        *,
        daemon: bool = False,
    ) -> None:
        self._target = target
        self._args = args
        self._thread: Thread | None = None

    @property
    def ident(self) -> int | None:
        return None if self._thread is None else id(self._thread)

    def start(self) -> None:
        machine = on.machine
        self._thread = machine.run_in(machine.enter(), lambda: self._target(*self._args))

    def join(self) -> None:
        thread = self._thread
        assert thread is not None
        on.machine.enter()
        on.machine.wait(lambda: thread.is_over)


class Threading:
    """The module ``threading``."""

    Lock, Event, Thread = _Lock, _Event, _Thread


class _Pool:
    """Carries out one thing after another, in a thread of its own."""

    def __init__(self, workers: int, name: str = "") -> None:
        self._left: deque[Callable[[], object]] = deque()
        self._is_closing = False
        self._thread: Thread | None = None

    def submit(self, work: Callable[..., object], *args: object) -> None:
        machine = on.machine
        self._left.append(lambda: work(*args))
        if self._thread is None:
            self._thread = machine.run_in(machine.enter(), self._run)

    def _run(self) -> None:
        while True:
            on.machine.wait(lambda: bool(self._left) or self._is_closing)
            if not self._left:
                return
            self._left.popleft()()
            on.machine.enter()

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._left.clear()
        self._is_closing = True
        thread = self._thread
        if thread is not None:
            on.machine.wait(lambda: thread.is_over)


class Pools:
    """The module ``concurrent.futures``."""

    ThreadPoolExecutor = _Pool


class _Selector:
    """Waits for descriptors of the process that asks."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(
        self, which: object, events: int, data: object = None
    ) -> selectors.SelectorKey:
        number = _number(which)
        if number in self._keys:
            raise KeyError(number)
        key = selectors.SelectorKey(which, number, events, data)  # type: ignore[arg-type]
        self._keys[number] = key
        return key

    def unregister(self, which: object) -> selectors.SelectorKey:
        return self._keys.pop(_number(which))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        machine = on.machine
        process = machine.enter()

        def ready() -> list[selectors.SelectorKey]:
            ends = process.ends
            return [
                key
                for number, key in self._keys.items()
                if number in ends and ends[number].is_ready()
            ]

        machine.wait(lambda: bool(ready()), timeout)
        found = ready()
        machine.rng.shuffle(found)
        return [(key, selectors.EVENT_READ) for key in found]

    def close(self) -> None:
        self._keys.clear()


class Selectors:
    """The module ``selectors``."""

    EVENT_READ: Final = selectors.EVENT_READ
    DefaultSelector = BaseSelector = _Selector


class _Poll:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def register(self, which: object, events: int) -> None:
        self._numbers[_number(which)] = events

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        machine = on.machine
        process = machine.enter()

        def ready() -> list[tuple[int, int]]:
            found = []
            for number, events in self._numbers.items():
                end = process.ends.get(number)
                if end is None:
                    found.append((number, Select.POLLNVAL))
                elif events == Select.POLLHUP:
                    if getattr(end, "other", self) is None:
                        found.append((number, Select.POLLHUP))
                elif end.is_ready():
                    found.append((number, Select.POLLIN))
            return found

        machine.wait(lambda: bool(ready()), None if timeout_ms is None else timeout_ms / 1e3)
        return ready()


class Select:
    """The module ``select``."""

    POLLIN, POLLHUP, POLLNVAL = 1, 16, 32
    poll = _Poll

    def select(
        self,
        readers: Iterable[int],
        writers: Iterable[int],
        others: Iterable[int],
        timeout: float | None = None,
    ) -> tuple[list[int], list[int], list[int]]:
        """Wait until something can be read."""
        machine, numbers = on.machine, list(readers)
        process = machine.enter()

        def ready() -> list[int]:
            missing = [one for one in numbers if one not in process.ends]
            if missing:
                raise fault(errno.EBADF)
            return [one for one in numbers if process.ends[one].is_ready()]

        machine.wait(lambda: bool(ready()), timeout)
        return ready(), [], []
