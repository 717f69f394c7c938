"""Makes a group for every attempt, in the control groups that may be used here.

What may be used is found by trying.  A machine has one hierarchy for everything (version 2), or
one for each controller (version 1), or both; each is used as far as it goes.  Groups lie below
the one that the server itself is in, so that what holds for the server holds for its jobs.
"""

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from interlane.engines.local.attempt_group import (
    CPU,
    FREEZER,
    MEMORY,
    PIDS,
    PROCS,
    UNIFIED,
    AttemptGroup,
    boot,
)

GROUP_FILE: Final = "group"
"""In the folder of an attempt: what marks its group, and where it lies."""

TIDY_AFTER_S: Final = 3600.0
CONTROLLERS: Final = (MEMORY, PIDS, CPU)
OURS: Final = "interlane-"
FUNCTIONS: Final = "+"
"""How the names of groups of functions begin; no job is called so."""
SLICES: Final = "+slice."
"""How the names of groups begin in which those of attempts lie."""

WEIGHT: Final = 100
"""CPU weight of a job for each core that it asks for, and of one that asks for none."""

SHARES: Final = 1024
"""The same in version 1."""


PERIOD_US: Final = 100_000
QUOTA_US_MIN: Final = 1_000
"""The least that kernels take."""


@dataclass(frozen=True, slots=True)
class CoreSlice:
    """A part of the machine's cores that several attempts may share, and nobody exceeds."""

    name: str
    cpu_milli: int
    """Cores, in thousandths."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What all processes of an attempt may have together."""

    memory_bytes: int | None = None
    processes: int | None = None
    """Threads count, too."""
    cpu_milli: int = 0
    """Cores that it asked for: who asked for more gets more when all want some."""
    slice: CoreSlice | None = None
    """Within which it has them, whatever else is idle."""


@dataclass(frozen=True, slots=True)
class AttemptGroups:
    """Makes groups in hierarchies of control groups; without any, they are marked only."""

    bases: Mapping[str, Path] = field(default_factory=dict)
    """The group that those of all attempts lie in, in each hierarchy that may be used."""
    prefix: str = OURS
    """How the names of groups begin that were made for one state folder."""
    in_unified: frozenset[str] = frozenset()
    """Controllers that the hierarchy for everything has."""

    @property
    def document(self) -> dict[str, Any]:
        """What another process needs to make groups, as JSON."""
        bases = {kind: str(base) for kind, base in self.bases.items()}
        return {"bases": bases, "prefix": self.prefix, "in_unified": sorted(self.in_unified)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return what makes the same groups as whoever wrote this."""
        bases = {kind: Path(base) for kind, base in document["bases"].items()}
        return cls(bases, document["prefix"], frozenset(document["in_unified"]))

    @property
    def limits(self) -> frozenset[str]:
        """What is limited for an attempt as a whole: memory, pids, cpu."""
        return self.in_unified | (self.bases.keys() & set(CONTROLLERS))

    @property
    def kind(self) -> str:
        """What ends an attempt, in words."""
        if UNIFIED in self.bases:
            return "control groups, version 2"
        if self.bases:
            return "control groups, version 1"
        return "marked processes and a second watcher"

    def make(self, name: str, limits: GroupLimits) -> AttemptGroup:
        """Make a group without processes, or raise ``OSError`` and leave nothing behind."""
        marker = secrets.token_hex(16)
        folders = {
            kind: self._within(kind, limits.slice) / f"{self.prefix}{name}.{marker[:8]}"
            for kind in self.bases
        }
        said = {kind: str(folder) for kind, folder in folders.items()}
        group = AttemptGroup({"marker": marker, "boot": boot(), "folders": said})
        try:
            for folder in folders.values():
                folder.mkdir()
            self._limit(folders, limits)
        except OSError:
            group.remove()
            raise
        return group

    def _within(self, kind: str, part: CoreSlice | None) -> Path:
        """Return where an attempt's group lies: in that of its slice, where cores count."""
        base = self.bases[kind]
        is_counted = kind == CPU or (kind == UNIFIED and CPU in self.in_unified)
        if part is None or not is_counted:
            return base
        folder = base / f"{self.prefix}{SLICES}{part.name}"
        folder.mkdir(exist_ok=True)
        quota_us = max(QUOTA_US_MIN, PERIOD_US * part.cpu_milli // 1000)
        if kind == CPU:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            _passed_on(folder, sorted(self.in_unified))
        return folder

    def _limit(self, folders: Mapping[str, Path], limits: GroupLimits) -> None:
        unified = folders.get(UNIFIED)
        if limits.memory_bytes is not None:
            if MEMORY in folders:
                _limit_memory(folders[MEMORY], limits.memory_bytes)
            elif unified is not None and MEMORY in self.in_unified:
                (unified / "memory.max").write_text(str(limits.memory_bytes))
                for file, text in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                    with suppress(OSError):  # not every kernel has both
                        (unified / file).write_text(text)
        pids = folders.get(PIDS, unified if PIDS in self.in_unified else None)
        if pids is not None and limits.processes is not None:
            (pids / "pids.max").write_text(str(limits.processes))
        cores_milli = limits.cpu_milli or 1000
        if CPU in folders:
            shares = min(max(2, SHARES * cores_milli // 1000), 1 << 18)
            (folders[CPU] / "cpu.shares").write_text(str(shares))
        elif unified is not None and CPU in self.in_unified:
            weight = min(max(1, WEIGHT * cores_milli // 1000), 10_000)
            (unified / "cpu.weight").write_text(str(weight))

    def end_functions(self) -> None:
        """End what functions have left behind: nothing of theirs outlives its server."""
        found: dict[str, dict[str, str]] = {}
        for kind, base in self.bases.items():
            for folder in base.glob(f"{self.prefix}{FUNCTIONS}*"):
                found.setdefault(folder.name, {})[kind] = str(folder)
        for folders in found.values():
            AttemptGroup({"marker": "", "boot": boot(), "folders": folders}).end()

    def tidy(self, after_s: float = TIDY_AFTER_S) -> None:
        """Remove groups without processes that whoever made them has left behind.

        Only old ones: a new one may belong to an attempt that is just about to begin.
        """
        before_s = time.time() - after_s
        for base in self.bases.values():
            slices = base.glob(f"{self.prefix}{SLICES}*/*")
            for folder in (*slices, *base.glob(f"{self.prefix}*")):
                with suppress(OSError):
                    if folder.stat().st_mtime < before_s:
                        folder.rmdir()


def groups_here(state: Path, *, only_looks: bool = False) -> AttemptGroups:
    """Return what makes groups for the attempts of a state folder, as far as that is allowed.

    A server that comes back finds the same groups again.  Whoever only looks changes nothing,
    and believes that controllers which may be passed on will be.
    """
    prefix = f"{OURS}{sha256(os.fsencode(state.absolute())).hexdigest()[:12]}."
    bases: dict[str, Path] = {}
    in_unified: frozenset[str] = frozenset()
    for kind, own in _own_groups().items():
        if kind == UNIFIED:
            found = _usable_unified(own, prefix, only_looks=only_looks)
            if found is not None:
                bases[kind], in_unified = found
        elif kind in (MEMORY, PIDS, CPU, FREEZER) and _is_usable(own, prefix):
            bases[kind] = own
    return AttemptGroups(bases, prefix, in_unified - bases.keys())


def keep_group(folder: Path, group: AttemptGroup) -> None:
    """Write down which group an attempt has, for a server that comes later."""
    beside = folder / f"{GROUP_FILE}.new"
    beside.write_text(json.dumps(group.document))
    beside.replace(folder / GROUP_FILE)


def group_in(folder: Path) -> AttemptGroup | None:
    """Return the group of the attempt that a folder is of; None if it never had one."""
    try:
        return AttemptGroup(json.loads((folder / GROUP_FILE).read_text()))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, KeyError):
        return None


# -- looking --------------------------------------------------------------------------


def _own_groups() -> dict[str, Path]:
    """Return the folder of the group that this process is in, in each hierarchy."""
    mounts = _mounts()
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        kinds = [UNIFIED] if number == "0" and not controllers else controllers.split(",")
        for kind in kinds:
            if kind in mounts:
                root, point = mounts[kind]
                below = path.removeprefix(root) if root != "/" else path
                found[kind] = Path(point) / below.lstrip("/")
    return found


def _mounts() -> dict[str, tuple[str, str]]:
    """Return what each hierarchy shows, and where."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found[UNIFIED] = (root, point)
        elif kind == "cgroup":
            for word in options.split()[-1].split(","):
                found[word] = (root, point)
    return found


def _is_usable(base: Path, prefix: str) -> bool:
    """Try whether groups can be made below one."""
    probe = base / f"{prefix}probe"
    try:
        probe.mkdir(exist_ok=True)
        is_usable = os.access(probe / PROCS, os.W_OK)
        probe.rmdir()
    except OSError:
        return False
    return is_usable


def _usable_unified(
    own: Path, prefix: str, *, only_looks: bool
) -> tuple[Path, frozenset[str]] | None:
    """Try the hierarchy for everything; return where, and which controllers it has for us.

    Controllers pass on only from a group without processes of its own, so that a server which
    is alone in its group moves into one below.
    """
    if own.name == _SERVER:
        own = own.parent
    if not _is_usable(own, prefix):
        return None
    wanted = [one for one in CONTROLLERS if one in _words(own / "cgroup.controllers")]
    if only_looks:
        may = os.access(own / "cgroup.subtree_control", os.W_OK)
        return own, frozenset(wanted if may else ())
    if wanted and not _passed_on(own, wanted) and _is_alone_in(own):
        with suppress(OSError):
            (own / _SERVER).mkdir(exist_ok=True)
            (own / _SERVER / PROCS).write_text("0")
            _passed_on(own, wanted)
    return own, frozenset(wanted) & set(_words(own / "cgroup.subtree_control"))


_SERVER: Final = "interlane-server"


def _passed_on(folder: Path, controllers: Iterable[str]) -> bool:
    try:
        for one in controllers:
            (folder / "cgroup.subtree_control").write_text(f"+{one}")
    except OSError:
        return False
    return True


def _is_alone_in(folder: Path) -> bool:
    return _words(folder / PROCS) == [str(os.getpid())]


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _limit_memory(folder: Path, memory_bytes: int) -> None:
    """Limit memory in version 1, and with it what is swapped out."""
    (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))
    with suppress(OSError):  # not every kernel counts swap
        (folder / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))
