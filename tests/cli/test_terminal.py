"""``run --pty``, ``attach`` and ``port-forward`` against a real server, on real terminals."""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlane.live.driver import Driver
from interlane.testing.waiting import PATIENCE_S, until

Call = Callable[..., Any]
READY = "here> "


@dataclass
class Seat:
    """Somebody at a terminal."""

    process: "subprocess.Popen[bytes]"
    master: int
    seen: str = ""

    def type(self, words: str) -> None:
        """Press keys."""
        os.write(self.master, words.encode())

    def wait_for(self, words: str) -> str:
        """Read until something is shown; return what was shown up to there."""
        end_s = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                try:
                    self.seen += os.read(self.master, 65_536).decode(errors="replace")
                except OSError:
                    break
            assert time.monotonic() < end_s, self.seen
        assert words in self.seen, self.seen
        before, _, self.seen = self.seen.partition(words)
        return before

    def resize(self, rows: int, columns: int) -> None:
        """Drag the window's corner."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)


@contextmanager
def seated(*words: str, rows: int = 30, columns: int = 100) -> Iterator[Seat]:
    """Run a command at a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-m", "interlane", *words]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield Seat(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


def begun(seat: Seat) -> str:
    """Return the job's id once its shell waits for a command."""
    return named(seat.wait_for(READY))


def named(shown: str) -> str:
    """Return the id of the job that was submitted."""
    found = re.search(r"(\S+-\d+) (?:queued|starting|running)", shown)
    assert found is not None, shown
    return found[1]


SHELL = ("run", "--pty", "--env", f"PS1={READY}", "--", "bash --norc --noprofile -i")


def test_a_shell_has_a_terminal_its_size_its_signals_and_its_exit_code(
    call: Call, files: Path
) -> None:
    with seated(*SHELL) as seat:
        begun(seat)
        seat.type("tty; stty size; echo $INTERLANE_JOB_ID.\n")
        assert "/dev/pts/" in seat.wait_for("30 100")
        seat.resize(40, 120)
        seat.wait_for(READY)
        until(lambda: _size(seat) == "40 120")
        seat.type("sleep 1000\n")
        time.sleep(0.2)  # it may be typed too early, and then it is pressed again
        seat.type("\x03")
        seat.wait_for("^C")
        seat.type("echo st''ill; exit 7\n")
        seat.wait_for("still")

        assert seat.process.wait(PATIENCE_S) == 7


def _size(seat: Seat) -> str:
    seat.type("echo size=$(stty size).\n")
    seat.wait_for("size=")
    while not (found := re.match(r"\d+ \d+(?=\.)", seat.seen)):
        seat.wait_for("size=")
    return found[0]


def test_a_shell_waits_its_turn_and_ends_with_its_client(
    machine: tuple[Driver, str, str], call: Call, files: Path
) -> None:
    job = call("submit", "long.yaml").out.split()[0]
    with seated(*SHELL) as seat:
        shell = named(seat.wait_for("waiting: queued"))
        call("cancel", job)
        seat.wait_for(READY)
        seat.type("sleep 1000 &\n")
        seat.wait_for(READY)

        seat.process.kill()  # no word of farewell

        until(lambda: call("ps", "-A", "--status", "cancelled", "-o", "name").out.count(shell))


def test_who_gives_up_waiting_takes_the_job_back(call: Call, files: Path) -> None:
    long = call("submit", "long.yaml").out.split()[0]
    with seated(*SHELL) as seat:
        shell = named(seat.wait_for("waiting: queued"))
        seat.process.send_signal(signal.SIGINT)

        assert seat.process.wait(PATIENCE_S) == 130
    assert shell in call("ps", "-A", "--status", "cancelled", "-o", "name").out
    call("cancel", long)


def test_a_shell_that_is_kept_is_attached_to_again(call: Call, files: Path) -> None:
    words = (*SHELL[:2], "--keep", *SHELL[2:])
    with seated(*words) as seat:
        job = begun(seat)
        seat.type("kept=yes\n")
        seat.wait_for(READY)
        seat.process.kill()
    with seated("attach", job) as seat:
        seat.wait_for("kept=yes")  # what was on the screen is there again
        seat.wait_for(READY)
        seat.type("echo is $kept.\n")
        seat.wait_for("is yes.")
        seat.type("exit 0\n")

        assert seat.process.wait(PATIENCE_S) == 0
    assert call("wait", job).code == 0


def test_others_are_not_led_to_a_terminal(
    machine: tuple[Driver, str, str], call: Call, files: Path
) -> None:
    plain = call("submit", "quick.yaml").out.split()[0]

    said = call("attach", plain)

    assert "has no terminal" in said.error


def test_a_port_of_a_job_is_reached_and_no_other(call: Call, files: Path) -> None:
    port, other = _free(), _free()
    served = files / "served"
    served.mkdir()
    (served / "page").write_text("from the job")
    command = f"exec {sys.executable} -m http.server --bind 127.0.0.1 {port}"
    (files / "web.yaml").write_text(
        f"name: web\nrun: {command}\nworkdir: {served}\nports: [{port}, {other}]\n"
    )
    job = call("submit", "web.yaml").out.split()[0]
    assert "names no port 1 " in call("port-forward", job, 1).error

    with socket.create_server(("127.0.0.1", other)), _forwarded(job, port) as at:
        until(lambda: _page(at) == "from the job")
        with _forwarded(job, other) as elsewhere:
            assert _page(elsewhere) is None  # somebody listens there, but not the job
    call("cancel", job)


@contextmanager
def _forwarded(job: str, port: int) -> Iterator[str]:
    command = [sys.executable, "-m", "interlane", "port-forward", job, f"0:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[0]
        finally:
            process.kill()


def _page(at: str) -> str | None:
    try:
        return httpx.get(f"{at}/page", timeout=PATIENCE_S, trust_env=False).text
    except httpx.HTTPError:
        return None


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.parametrize("words", [("run",), ("run", "--keep", "--", "true")])
def test_what_makes_no_sense_is_said(call: Call, files: Path, words: tuple[str, ...]) -> None:
    assert "--pty" in call(*words).error
