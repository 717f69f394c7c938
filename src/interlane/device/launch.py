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
from typing import Final, Protocol

from interlane.device import wire
from interlane.device.backends.cpu import ENVIRONMENT
from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import DeviceClient
from interlane.device.fork_server import caller
from interlane.device.inject import ATTACHED_VARIABLE, PACKAGE, with_hooks
from interlane.device.lane_request import REQUEST_VARIABLE, LaneRequest
from interlane.device.link import NoDaemon, connected, received
from interlane.device.memory import GROWTH_AFTER_OVERRUN, Programs, program_of
from interlane.device.rendezvous import SOCKET_VARIABLE, credentials
from interlane.device.talk import say
from interlane.device.wire import Frame, FrameKind
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import DaemonReport, RunReport, report_of
from interlane.model.amounts import written
from interlane.model.errors import InvalidInput

HOME_VARIABLE: Final = "INTERLANE_SHARE_HOME"
FOR_EVER_S: Final = 1e9
ANSWER_S: Final = 5.0
"""Seconds that a daemon gets to answer; it needs a few milliseconds."""
_HOOKLESS: Final = frozenset("IES")
"""Letters of Python's options: isolated, without environment, without ``site``."""
PATIENCE_S: Final = 5.0
"""From one signal to the next, harder one, when a job is interrupted."""


def status(path: Path, run: int = 0) -> DaemonReport:
    """Ask the daemon for its report; one that dies or is silent for seconds counts as none."""
    with connected(path) as line:
        pid, _ = credentials(line)
        line.settimeout(ANSWER_S)
        try:
            line.send(wire.packed(Frame(FrameKind.STATUS, run=run)))
            message, descriptors = received(line)
        except (TimeoutError, ConnectionError):
            raise NoDaemon(path) from None
    frame = wire.read(message)
    if frame is None or frame.kind is not FrameKind.STATUS or not descriptors:
        raise NoDaemon(path)
    with os.fdopen(descriptors[0], "rb") as answer:
        said = json.loads(os.pread(answer.fileno(), frame.first, 0))
    # Whoever asks may signal that process: so the kernel says which it is, not the answer.
    return report_of({**said, "pid": pid} if isinstance(said, dict) else said)


def run_shared(
    command: Sequence[str],
    request: LaneRequest,
    path: Path,
    *,
    warm: bool = False,
    retry: bool = False,
) -> int:
    """Run a command whose Python programs share the device by themselves.

    What the command needs is what its runs before this one needed, unless it is declared.

    Args:
        command: what to run.
        request: what it asks for.
        path: the daemon's socket.
        warm: whether to fork it from a fork server where that is possible.
        retry: whether to run it once more, with more memory, if what it declared is too little.
    """
    _check(command)
    status(path)
    kept, program = path.with_suffix(".programs"), program_of(command, Path.cwd())
    request = _expecting(request, Programs(kept).demand(program))
    code, needed = _run_once(command, request, path, warm=warm)
    if retry and code and needed is not None and _overran(request, needed):
        say(f"the job ran out of its memory; once more with {written(needed.peak_bytes)}.")
        larger = _with_demand(request, needed)
        code, needed = _run_once(command, larger, path, warm=warm)
    if needed is not None:
        Programs(kept).learn(program, needed)
    return code


def _run_once(
    command: Sequence[str], request: LaneRequest, path: Path, *, warm: bool
) -> tuple[int, MemoryDemand | None]:
    """Run a command; return its exit code, and what it was measured to need."""
    request = replace(request, run=secrets.randbits(31) | 1)
    code = _waited(_started(command, request, path, warm=warm))
    try:
        total = status(path, request.run).run
    except NoDaemon:
        return code, None
    if code == 0:
        _say_what_it_missed(command, total)
    if total is None or not total.needed.ephemeral_bytes:
        return code, None
    return code, total.needed


def _overran(request: LaneRequest, needed: MemoryDemand) -> bool:
    """Tell whether a job told that what it had declared did not suffice."""
    if not request.is_declared or request.persistent_bytes is None:
        return False
    declared = request.persistent_bytes + (request.ephemeral_bytes or 0)
    return needed.peak_bytes >= GROWTH_AFTER_OVERRUN * declared - needed.persistent_bytes


def run_whole(command: Sequence[str], request: LaneRequest, path: Path) -> int:
    """Run a command on one lease, from its start to its end."""
    _check(command)
    with DeviceClient(request, path, Unmeasured) as client, client.iteration():
        client.extend(FOR_EVER_S)
        return run_alone(command)


def run_alone(command: Sequence[str]) -> int:
    """Run a command as if there were no daemon."""
    _check(command)
    return _waited(_cold(command))


def environment_of(
    request: LaneRequest,
    path: Path,
    base: Mapping[str, str] = os.environ,
    *,
    warm: bool = False,
    package: Path = PACKAGE,
) -> dict[str, str]:
    """Return an environment in which Python programs share the device.

    A job that is forked needs no hooks in front of its path: it is told when it is forked, and
    puts them there for the programs that it starts.

    Args:
        request: what the program asks for.
        path: the daemon's socket, as the program sees it.
        base: variables that it has anyway.
        warm: whether it is forked.
        package: where it finds our code.
    """
    environment = {
        **ENVIRONMENT,
        **{key: value for key, value in base.items() if key != ATTACHED_VARIABLE},
        HOME_VARIABLE: str(package),
        SOCKET_VARIABLE: str(path),
        REQUEST_VARIABLE: json.dumps(asdict(request)),
    }
    return environment if warm else with_hooks(environment, package)


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


def _expecting(request: LaneRequest, known: MemoryDemand | None) -> LaneRequest:
    if known is None or request.is_declared:
        return request
    return _with_demand(request, known)


def _with_demand(request: LaneRequest, demand: MemoryDemand) -> LaneRequest:
    return replace(
        request,
        persistent_bytes=demand.persistent_bytes,
        ephemeral_bytes=demand.ephemeral_bytes,
    )


class StartedProcess(Protocol):
    """A job's process, started or forked for us."""

    pid: int

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, or minus a signal."""
        ...


def _started(
    command: Sequence[str], request: LaneRequest, path: Path, *, warm: bool
) -> StartedProcess:
    """Start a command in a process group of its own, with our own streams."""
    forked = None
    if warm:
        forked = caller.start(command, environment_of(request, path, warm=True), path.parent)
    return forked or _cold(command, environment_of(request, path))


def _cold(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=environment, process_group=0)
    except OSError as error:
        raise InvalidInput(
            f"{command[0]!r} cannot be run ({error.strerror}); if it is a script, name its "
            "interpreter before it."
        ) from None


def _waited(process: StartedProcess) -> int:
    """Wait for a job; return its exit code as a shell would."""
    with _in_foreground(process.pid), _ends_with_us(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _in_foreground(group: int) -> Iterator[None]:
    """Let the job have the terminal, if we have it, so that it can read and be interrupted."""
    if not sys.stdin.isatty() or os.getsid(group) != os.getsid(0):
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
def _ends_with_us(process: StartedProcess) -> Iterator[None]:
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


def _say_what_it_missed(command: Sequence[str], total: RunReport | None) -> None:
    """Tell the user of a job that never took part in the sharing."""
    if total is None and (option := _option_against_hooks(command)):
        why = f"was started with {option}, which leaves the hooks out"
    elif total is None:
        why = "never imported torch"
    elif not total.iterations:
        why = "never ran an iteration (a model's forward or backward pass, an optimizer's step)"
    else:
        return
    say(
        f"{Path(command[0]).name!r} {why}, so it ran without a lease; "
        "'interlane share run --whole' gives a program the device from start to end."
    )


def _option_against_hooks(command: Sequence[str]) -> str | None:
    """Return the option with which Python does not look for hooks, if there is one."""
    if not Path(command[0]).name.startswith("python"):
        return None
    for word in command[1:]:
        if not word.startswith("-") or word in ("-c", "-m"):
            return None
        if not word.startswith("--") and _HOOKLESS.intersection(word):
            return word
    return None
