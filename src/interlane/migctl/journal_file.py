"""A journal on disk: a record is safe there before anybody acts on it."""

import fcntl
import json
import os
from pathlib import Path
from typing import Self

from interlane.mig.documents import plan_document, read_state
from interlane.mig.plan import PartitionPlan
from interlane.mig.transition.journal import Read, Record, line_of, read_journal
from interlane.model import InvalidFile, InvalidInput


class JournalFile:
    """A journal that one process at a time may write.

    Half a line at its end, which a crash in the middle of writing leaves, is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        is_new = not path.exists()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.read = self._claimed()
        except BaseException:
            os.close(self._fd)
            raise
        if is_new:
            _sync_folder(path.parent)

    def _claimed(self) -> Read:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(
                f"{self._path} is being written by another process; let it finish."
            ) from None
        read = read_journal(self._path.read_bytes(), str(self._path))
        os.ftruncate(self._fd, read.length)
        os.lseek(self._fd, read.length, os.SEEK_SET)
        return read

    def write(self, record: Record) -> None:
        """Write a record, and return when it is on disk."""
        left = line_of(record).encode()
        while left:
            left = left[os.write(self._fd, left) :]
        os.fsync(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class StateFile:
    """What simulated GPUs hold, kept from run to run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, default: PartitionPlan) -> PartitionPlan:
        """Return what was kept; the default if nothing was."""
        if not self._path.exists():
            return default
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise InvalidFile(
                str(self._path), "the state of the simulated GPUs is damaged; restore it."
            ) from None
        return read_state(document, str(self._path))

    def write(self, state: PartitionPlan) -> None:
        """Keep a state; after a crash the old or the new one is there, never half of it."""
        text = json.dumps({"gpus": plan_document(state)})
        beside = self._path.with_name(f"{self._path.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        _sync_folder(self._path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
