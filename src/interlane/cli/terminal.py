"""``interlane run --pty`` and ``attach``: a job's terminal is this one."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from interlane.cli.client import ApiClient, Failure, ServerOptions, job_path
from interlane.cli.completion import LiveJob
from interlane.cli.job_output import LOOK_AT_MOST_S, LOOK_FIRST_S
from interlane.cli.options import takes
from interlane.cli.output import say
from interlane.cli.ps import OPEN
from interlane.client.connection import heard
from interlane.model.errors import InvalidInput, Unreachable

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

AGAIN_S: Final = 30.0
"""Seconds for which a server that went away is looked for: the job waits a little longer."""

CHUNK_BYTES: Final = 1 << 15
REFUSED: Final = 4000
END_OF_INPUT: Final = b"\x04"
SHELL: Final = 'exec "${SHELL:-$(command -v bash || echo sh)}" -i'
"""What runs where no command was given."""


@takes(ServerOptions)
def attach(job: LiveJob, *, options: ServerOptions) -> None:
    """Be at the terminal of a job that was started with `run --pty`.

    Examples:
      interlane run --pty --keep -- bash
      interlane attach bash-7
    """
    client = ApiClient(options)
    found = client.get(job_path(job)).document()
    if found["spec"].get("terminal") is None:
        raise InvalidInput(f"Job {job} has no terminal; 'interlane run --pty' makes one.")
    raise typer.Exit(attended(client, job))


def window() -> dict[str, int]:
    """Return the size of this terminal; what is usual, if there is none."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return {"rows": 24, "columns": 80}
    return {"rows": max(1, size.lines), "columns": max(1, size.columns)}


def attended(client: ApiClient, job: str) -> int:
    """Be at a job's terminal until it ends; return its exit code."""
    from websockets.exceptions import ConnectionClosed

    end_s = time.monotonic() + AGAIN_S
    while True:
        try:
            with client.dial(f"{job_path(job)}/terminal") as line:
                _Session(line).run()
            break
        except ConnectionClosed as closed:
            code = None if closed.rcvd is None else closed.rcvd.code
            if code == REFUSED and closed.rcvd is not None:
                raise Failure(closed.rcvd.reason, 1) from None
            end_s = max(end_s, time.monotonic() + AGAIN_S) if code else end_s
        except Unreachable:
            if time.monotonic() > end_s:
                raise
        time.sleep(LOOK_AT_MOST_S)
    return _code(client, job)


def _code(client: ApiClient, job: str) -> int:
    """Return a job's exit code once it is known; the terminal closes a moment before."""
    pause_s = LOOK_FIRST_S
    while (found := client.get(job_path(job)).document())["state"] in OPEN:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
    if found["exit_code"] is not None:
        return int(found["exit_code"])
    if found["reason"]:
        say(f"{found['id']} {found['state']}: {found['reason']}")
    return 0 if found["state"] == "succeeded" else 1


class _Session:
    """One line to a terminal."""

    def __init__(self, line: "ClientConnection") -> None:
        self._line = line
        self._woken, self._wake = os.pipe()
        self._over = threading.Event()
        self._typing = threading.Thread(target=self._type, daemon=True)

    def run(self) -> None:
        """Show what the job prints and send what is typed, until the line closes."""
        with _resized(self._wake):
            began = False
            try:
                for message in heard(self._line):
                    if isinstance(message, bytes):
                        _write_all(message)
                    elif json.loads(message)["state"] != "running":
                        say(f"waiting: {json.loads(message)['state']}")
                    elif not began:
                        began = True
                        with _raw():
                            self._shown()
                        return
            finally:
                self._end()

    def _shown(self) -> None:
        self._send_window()
        self._typing.start()
        for message in heard(self._line):
            if isinstance(message, bytes):
                _write_all(message)

    def _end(self) -> None:
        self._over.set()
        with suppress(OSError):
            os.write(self._wake, b".")
        if self._typing.is_alive():
            self._typing.join(1.0)
        os.close(self._woken)
        os.close(self._wake)

    def _send_window(self) -> None:
        self._line.send(json.dumps(window()))

    def _type(self) -> None:
        """Send what is typed, and the window's size when it changes."""
        import select

        from websockets.exceptions import ConnectionClosed

        typed = sys.stdin.fileno()
        readers = [typed, self._woken]
        with suppress(ConnectionClosed, OSError):
            while not self._over.is_set():
                ready, _, _ = select.select(readers, [], [])
                if self._woken in ready:
                    os.read(self._woken, CHUNK_BYTES)
                    if not self._over.is_set():
                        self._send_window()
                if typed in ready:
                    data = os.read(typed, CHUNK_BYTES)
                    self._line.send(data or END_OF_INPUT)
                    if not data:
                        readers.remove(typed)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Let every key go to the job, Control-C too, if this is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before: Any = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead counts
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _resized(wake: int) -> Iterator[None]:
    """Be told when the window gets another size."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda *_: os.write(wake, b"."))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
