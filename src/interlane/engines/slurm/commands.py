"""Slurm's programs: run with lists of arguments, never through a shell, and counted."""

import json
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from interlane.model import InterlaneError
from interlane.model.errors import Unreachable

PATIENCE_S: Final = 60.0
"""Seconds after which a program of Slurm's is killed; it waits for its controller itself."""
MINUTE_S: Final = 60.0
SAID_MAX: Final = 300
UNREACHABLE: Final = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "connect failure",
    "Zero Bytes were transmitted",
    "Protocol authentication error",
    "Unexpected message received",
)
"""What they say when nobody answers, rather than when somebody says no."""
KEPT: Final = ("PATH", "SLURM_CONF", "LANG", "TZ")
"""Variables that programs of Slurm's get, and jobs through them: others may hold tokens, or
change what is asked."""
DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL")


class SlurmSaysNo(InterlaneError):
    """Slurm understood, and does not do it."""


class SlurmSilent(Unreachable):
    """Nobody answers for Slurm; what was asked may have been done."""


class SlurmCommands:
    """Runs programs of Slurm's; any thread may."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._calls: deque[float] = deque()

    def run(self, *words: str, text: str | None = None, fds: Sequence[int] = ()) -> str:
        """Run a program and return what it printed.

        It dies with us: what a server that is gone has asked for must not arrive later.
        """
        self._count()
        try:
            done = subprocess.run(
                (*DIES_WITH_US, *words),
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=self._patience_s,
                check=False,
                pass_fds=fds,
                env=_environment(words[0]),
            )
        except subprocess.TimeoutExpired:
            said = f"{words[0]} did not answer in {self._patience_s:g} s."
            raise SlurmSilent(said) from None
        except OSError as error:
            raise SlurmSilent(f"{words[0]} cannot be run ({error.strerror}).") from None
        if done.returncode:
            said = " ".join(done.stderr.split())[:SAID_MAX] or f"code {done.returncode}"
            is_silent = any(one in said for one in UNREACHABLE)
            raise (SlurmSilent if is_silent else SlurmSaysNo)(f"{words[0]} says: {said}.")
        return done.stdout

    def json(self, *words: str) -> Any:  # noqa: ANN401 - a document of Slurm's
        """Run a program that prints JSON."""
        said = self.run(*words, "--json")
        try:
            document = json.loads(said)
        except ValueError as error:
            raise SlurmSilent(f"{words[0]} printed no JSON ({error}).") from None
        errors = document.get("errors") if isinstance(document, dict) else None
        if errors:  # without a controller it lists nothing, says why and claims success
            first = errors[0] if isinstance(errors, list) else errors
            if isinstance(first, dict):
                first = first.get("description") or first.get("error")
            raise SlurmSilent(f"{words[0]} says: {first}.")
        return document

    @property
    def calls_last_minute(self) -> int:
        """How many programs were run in the last minute."""
        with self._lock:
            self._forget_old()
            return len(self._calls)

    def _count(self) -> None:
        with self._lock:
            self._calls.append(time.monotonic())
            self._forget_old()

    def _forget_old(self) -> None:
        before_s = time.monotonic() - MINUTE_S
        while self._calls and self._calls[0] < before_s:
            self._calls.popleft()


def _environment(program: str) -> dict[str, str]:
    """Return what a program may know; ``sbatch`` hands on to jobs what it knows."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "SLURM_TIME_FORMAT": "%s"} if program == "squeue" else kept
