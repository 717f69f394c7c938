"""Start a job on a shared device, and end with its exit code."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from interlane.device import wire
from interlane.device.client import Client, NoDaemon, Wish, connected, received
from interlane.device.inject import ATTACHED_VARIABLE, WISH_VARIABLE
from interlane.device.rendezvous import SOCKET_VARIABLE
from interlane.device.wire import Frame, Kind
from interlane.model.errors import InvalidInput

HOME_VARIABLE: Final = "INTERLANE_SHARE_HOME"
PACKAGE: Final = Path(__file__).resolve().parents[1]
HOOKS: Final = Path(__file__).resolve().parent / "hooks"
FOR_EVER_S: Final = 1e9
PATIENCE_S: Final = 5.0
"""From one signal to the next, harder one, when a job is interrupted."""


def status(path: Path, run: int = 0) -> dict[str, Any]:
    """Ask the daemon for its status."""
    with connected(path) as line:
        line.send(wire.packed(Frame(Kind.STATUS, run=run)))
        message, descriptors = received(line)
    frame = wire.read(message)
    if frame is None or frame.kind is not Kind.STATUS or not descriptors:
        raise NoDaemon(path)
    with os.fdopen(descriptors[0], "rb") as answer:
        document: dict[str, Any] = json.loads(os.pread(answer.fileno(), frame.first, 0))
        return document


def run_shared(command: Sequence[str], wish: Wish, path: Path) -> int:
    """Run a command whose Python programs share the device by themselves."""
    _check(command)
    numbered = replace(wish, run=secrets.randbits(31) | 1)
    status(path)
    code = _run(command, _environment(numbered, path))
    with suppress(NoDaemon):
        _say_what_it_missed(command, status(path, numbered.run)["run"])
    return code


def run_whole(command: Sequence[str], wish: Wish, path: Path) -> int:
    """Run a command on one lease, from its start to its end."""
    _check(command)
    with Client(wish, path, _Unmeasured) as client, client.iteration():
        client.extend(FOR_EVER_S)
        return _run(command, os.environ)


def run_alone(command: Sequence[str]) -> int:
    """Run a command as if there were no daemon."""
    _check(command)
    return _run(command, os.environ)


def name_of(command: Sequence[str]) -> str:
    """Return what to call a command: the script rather than the interpreter."""
    words = [Path(word).name for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith(".py")]
    return (scripts or words or ["job"])[0]


def _check(command: Sequence[str]) -> None:
    if not command:
        raise InvalidInput("there is no command to run; name it after --.")
    if shutil.which(command[0]) is None:
        raise InvalidInput(f"{command[0]!r} is no program on the PATH; name one that is.")


def _environment(wish: Wish, path: Path) -> dict[str, str]:
    """Return our environment with the hooks in front of every Python's path."""
    before = os.environ.get("PYTHONPATH")
    return {
        **{key: value for key, value in os.environ.items() if key != ATTACHED_VARIABLE},
        "PYTHONPATH": str(HOOKS) if not before else f"{HOOKS}{os.pathsep}{before}",
        HOME_VARIABLE: str(PACKAGE),
        SOCKET_VARIABLE: str(path),
        WISH_VARIABLE: json.dumps(asdict(wish)),
    }


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in a process group of its own, with our own streams; return its code."""
    process = subprocess.Popen(command, env=dict(environment), process_group=0)
    with _in_foreground(process.pid), _ends_with_us(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _in_foreground(group: int) -> Iterator[None]:
    """Let the job have the terminal, if we have it, so that it can read and be interrupted."""
    if not sys.stdin.isatty() or os.tcgetpgrp(0) != os.getpgrp():
        yield
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, group)
    try:
        yield
    finally:
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)


@contextmanager
def _ends_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Interrupt the whole group when we are interrupted, and do not take no for an answer."""

    def terminated(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_what_it_missed(command: Sequence[str], tally: Mapping[str, int] | None) -> None:
    """Tell the user of a job that never took part in the sharing."""
    if tally is None:
        why = "never imported torch"
    elif not tally["iterations"]:
        why = "never ran an iteration (a model's forward pass or an optimizer's step)"
    else:
        return
    print(
        f"interlane: {Path(command[0]).name!r} {why}, so it ran without a lease; "
        "'interlane share run --whole' gives a program the device from start to end.",
        file=sys.stderr,
    )


class _Unmeasured:
    """The memory of a job that runs elsewhere: nothing is known or done about it."""

    def __init__(self, _: str) -> None:
        pass

    def live(self) -> int:
        """Know nothing."""
        return 0

    def peak(self) -> int:
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
