"""Handlers that do well, and handlers that do not."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_held: list[bytearray] = []


def echo(asked: object) -> object:
    return asked


def whoami(asked: object) -> dict[str, object]:
    names = ("INTERLANE_FUNCTION", "INTERLANE_DEVICES", "CUDA_VISIBLE_DEVICES", "COLOUR", "KEY")
    return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}


def doubler() -> int:
    print("loading twice two")
    return 2


def times(model: int, asked: int) -> int:
    return model * asked


async def later(asked: int) -> int:
    return asked + 1


def sizes(asked: list[object]) -> list[int]:
    return [len(asked)] * len(asked)


def too_few(asked: list[object]) -> list[object]:
    return []


def raises(asked: object) -> None:
    raise ValueError("not <b>today</b>")


def returns_what_is_not_json(asked: object) -> object:
    return object()


def sleeps(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def passes(asked: dict[str, str]) -> int:
    """Wait until a gate is open, and leave a name there."""
    gate = Path(asked["gate"])
    while not (gate / "open").exists():
        time.sleep(0.01)
    with (gate / "passed").open("a") as passed:
        passed.write(asked["name"])
    return os.getpid()


def ends(asked: object) -> None:
    os._exit(3)


def writes_to_every_descriptor(asked: object) -> None:
    for descriptor in range(3, 64):
        with suppress(OSError):
            os.write(descriptor, b"\xff" * 64)


def takes_memory(mib: int) -> int:
    _held.append(bytearray(mib << 20))
    return len(_held)


def leaves_a_child(asked: object) -> int:
    return subprocess.Popen(("sleep", "1000")).pid


def leaves_another_session(asked: object) -> int:
    return subprocess.Popen(("sleep", "1000"), start_new_session=True).pid


def leaves_a_daemon(asked: object) -> int:
    """Fork twice, so that the last is nobody's child, in a session of its own and unmarked."""
    ends, written = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(written, str(os.getpid()).encode())
        os.closerange(0, 64)
        time.sleep(1000)
        os._exit(0)
    os.wait()
    return int(os.read(ends, 100))


def kills_its_parent(asked: object) -> None:
    os.kill(os.getppid(), 9)
    time.sleep(1000)


def forks_without_end(most: int) -> int:
    """Return how many processes there could be before the next could not."""
    for number in range(most):
        try:
            if os.fork() == 0:
                time.sleep(1000)
                os._exit(0)
        except OSError:
            return number
    return most


def never_loads() -> Any:  # noqa: ANN401 - it never returns
    time.sleep(1000)


def has_no_weights() -> None:
    raise FileNotFoundError("there are no weights")


def picky(asked: list[object]) -> list[object]:
    """Raise if one of a batch is bad; answer what is no JSON for another."""
    if "bad" in asked:
        raise ValueError("bad")
    return [object() if one == "odd" else one for one in asked]


def long(length: int) -> str:
    return "x" * length


def longs(asked: list[int]) -> list[str]:
    return ["x" * one for one in asked]
