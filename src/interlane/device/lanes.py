"""The device daemon of an engine: a process of its own, which outlives it as shims do.

The engine, or its agent on a node, starts it, adopts the one that it finds, starts it again
when it dies, and asks it once a second how the devices are.  Jobs find it by the socket in
their environment; those that run go on without it, and those that start wait for it.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from interlane import __version__
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import environment_of, status
from interlane.device.link import NoDaemon
from interlane.device.rendezvous import SOCKET_PATH_BYTES, admit_users, make_directory
from interlane.device.specs import DeviceSpec
from interlane.lanes.order import make_order
from interlane.lanes.report import DaemonReport, RunReport, UnreadableReport
from interlane.lanes.sharing import MeasuredSlowDown, make_sharing

LOOK_EVERY_S: Final = 1.0
LOOK_SOON_S: Final = 0.1
"""Between looks for a daemon that is on its way."""

LEAVE_AFTER_S: Final = 10.0
"""After which a daemon ends by itself that has no jobs and that no server asks."""

SILENT_MAX: Final = 3
"""Looks in a row, of some seconds each, after which a daemon that is silent is killed."""

PATIENCE_S: Final = 120.0
"""For which a job that starts waits for the daemon."""

LOG_BYTES_MAX: Final = 1 << 20
"""A log of daemons that has grown beyond this begins anew with the next one."""

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """What the daemon shares, how, and where it is."""

    devices: tuple[DeviceSpec, ...]
    folder: Path
    order: str = "fair"
    sharing: str = "measured"
    uids: frozenset[int] = frozenset()
    """Accounts other than the server's own whose jobs share the devices."""
    everybody: bool = False
    """Whether it serves whoever gets to the socket: then what may reach that folder decides."""
    known_by: str = ""
    """What servers of one database have in common: whichever serves, there is one daemon."""

    def __post_init__(self) -> None:
        make_order(self.order)
        make_sharing(self.sharing, MeasuredSlowDown())

    @property
    def socket(self) -> Path:
        """Where jobs find the daemon: in the folder, unless its path is too long for that.

        Jobs of other accounts could not reach it there either, and a server that takes over
        would have a daemon of its own beside that of the jobs that run.
        """
        path = self.folder / "lanes.sock"
        is_short = len(os.fsencode(path)) <= SOCKET_PATH_BYTES
        if is_short and not self.uids and not self.known_by:
            return path
        name = sha256(os.fsencode(self.known_by or self.folder)).hexdigest()[:16]
        return short_folder() / f"{name}.sock"

    def is_kept_by(self, found: DaemonReport) -> bool:
        """Tell whether a daemon does what these settings say."""
        mine = [
            (one.name, one.capacity_bytes, tuple(sorted(one.cores))) for one in self.devices
        ]
        theirs = [(one.name, one.capacity_bytes, one.cores) for one in found.devices]
        said = (found.version, found.order, found.sharing)
        return said == (__version__, self.order, self.sharing) and mine == theirs

    @property
    def command(self) -> tuple[str, ...]:
        """How to start such a daemon."""
        words = [word for one in self.devices for word in ("--device", _word(one))]
        return (
            *(sys.executable, "-m", "interlane", "share", "daemon", *words),
            *("--socket", str(self.socket), "--order", self.order, "--sharing", self.sharing),
            *("--leave-after", str(LEAVE_AFTER_S)),
        )


def short_folder() -> Path:
    """Return where sockets lie whose path would be too long in the state folder."""
    if os.getuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/interlane")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"interlane-{os.getuid()}"


class Lanes:
    """Keeps a daemon alive, and passes on what it tells."""

    def __init__(self, settings: LaneSettings) -> None:
        self.settings = settings
        self.heard: Callable[[DaemonReport, float], None] = lambda found, now_s: None
        """Told what the daemon reports, with the time on the machine's monotonic clock."""
        self._pid: int | None = None
        """Of the daemon that was started here, until its end is known."""
        self._known_pid: int | None = None
        """Of the daemon that answered last; None once it is known to be gone."""
        self._silent = 0
        """Looks in a row that were not answered though that daemon lives."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lanes", daemon=True)

    def start(self) -> None:
        """Look for the daemon, start it if need be, and go on looking."""
        self.settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_directory(self.settings.socket.parent)
        admit_users(
            self.settings.socket,
            self.settings.uids,
            everybody=self.settings.everybody,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop looking; the daemon ends by itself when it has no jobs."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def share(self, devices: tuple[DeviceSpec, ...]) -> None:
        """Share other devices from the next look on: another daemon takes over then."""
        self.settings = replace(self.settings, devices=devices)

    def environment(self, base: Mapping[str, str], request: LaneRequest) -> dict[str, str]:
        """Return an environment in which Python programs share the devices."""
        return environment_of(request, self.settings.socket, base)

    def run(self, number: int) -> RunReport | None:
        """Return what became of an attempt that had this number; None if nobody knows."""
        if self._silent:
            return None  # whoever asks must not wait for it
        with suppress(NoDaemon, UnreadableReport, OSError):
            return status(self.settings.socket, number).run
        return None

    # -- looking ----------------------------------------------------------------------

    def _watch(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            try:
                pause_s = self._look()
            except Exception as error:  # whatever it is, jobs count on the next look
                log.error("The look at the device daemon failed.", exc_info=error)
                pause_s = LOOK_EVERY_S

    def _look(self) -> float:
        """Ask the daemon, or start it; return how long to wait for the next look."""
        try:
            found = status(self.settings.socket)
        except (NoDaemon, OSError):
            return self._press() if _lives(self._known_pid) else self._begin()
        except UnreadableReport as error:
            return self._replace(error.pid)
        self._known_pid, self._silent = found.pid, 0
        if not self.settings.is_kept_by(found):
            return self._replace(found.pid)
        self.heard(found, time.monotonic())
        return LOOK_EVERY_S

    def _replace(self, pid: int | None) -> float:
        """End a daemon of other settings or of another version; jobs find the next one."""
        log.warning("The device daemon shares something else; another takes its place.")
        self._known_pid, self._silent = pid, 0
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return LOOK_SOON_S

    def _press(self) -> float:
        """Kill a daemon that lives and does not answer; jobs go on, and find the next one."""
        assert self._known_pid is not None
        self._silent += 1
        if self._silent >= SILENT_MAX:
            log.warning("The device daemon does not answer and is killed.")
            with suppress(ProcessLookupError):
                os.kill(self._known_pid, signal.SIGKILL)
            self._known_pid, self._silent = None, 0
        return LOOK_SOON_S

    def _begin(self) -> float:
        """Start a daemon unless one is on its way."""
        self._known_pid, self._silent = None, 0
        if self._pid is None:
            self._pid = self._spawned()
            return LOOK_SOON_S
        pid, code = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return LOOK_SOON_S
        self._pid = None
        log.warning(
            "The device daemon ended with code %s; another is started.",
            os.waitstatus_to_exitcode(code),
        )
        return LOOK_EVERY_S

    def _spawned(self) -> int:
        """Start a daemon in a session of its own; return its number."""
        errors = os.open(
            self.settings.folder / "daemon.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            if os.fstat(errors).st_size > LOG_BYTES_MAX:
                os.ftruncate(errors, 0)
            return os.posix_spawn(
                sys.executable,
                self.settings.command,
                os.environ,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                ),
                setsid=True,
            )
        finally:
            os.close(errors)


def _lives(pid: int | None) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return words[0] != b"Z"


def _word(spec: DeviceSpec) -> str:
    """Return a device as ``share daemon`` reads it."""
    cores = ",".join(map(str, sorted(spec.cores)))
    return f"{spec.name}:{spec.capacity_bytes}" + (f":{cores}" if cores else "")
