"""The processes of one attempt as a group: found, counted and ended as one.

A group lies in control groups where the machine has some that may be used (``groups`` makes
them): a process is born into the group of its parent, and nothing that it does gets it out
without more rights than a job has.  Elsewhere a variable in the environment marks the
processes, which are then found by it, by their session and by their descent; one that clears
its environment after its parents have ended is not found any more.

Shims use this file, too: so it imports the standard library only, and little of that.
"""

import os
import signal
import time

MARKER = "INTERLANE_GROUP"
"""The variable that says to which group a process belongs."""

UNIFIED, MEMORY, PIDS, CPU, FREEZER = "unified", "memory", "pids", "cpu", "freezer"
KINDS = (UNIFIED, PIDS, FREEZER, MEMORY, CPU)
"""Hierarchies of control groups, those first that end a group best."""

FREEZE_S = 0.5
ROUNDS = 50
"""Tries to end a group; each finds what the one before has missed."""

END_AGAIN_S = 0.02
"""Seconds between looks for what is left of a group that was killed."""

PROCS = "cgroup.procs"


class AttemptGroup:
    """All processes of an attempt, whoever has started them."""

    def __init__(self, document: dict) -> None:  # type: ignore[type-arg]
        """Take up a group; ``document`` says what marks it, and where it lies."""
        self.document = document
        self.boot: str = document["boot"]
        self._marker: str = document["marker"]
        self._folders: dict[str, str] = document["folders"]
        first = next((kind for kind in KINDS if kind in self._folders), None)
        self._first = None if first is None else self._folders[first]

    @property
    def is_marked(self) -> bool:
        """Whether its processes are known by their marker alone."""
        return self._first is None

    @property
    def variables(self) -> dict[str, str]:
        """What marks a process, in its environment."""
        return {MARKER: self._marker}

    def join(self) -> None:
        """Let the calling process belong to it, and whatever it starts."""
        for folder in self._folders.values():
            _write(os.path.join(folder, PROCS), "0")

    def processes(self) -> list[int]:
        """Return the processes that have not ended."""
        if self.boot != boot():
            return []
        return _marked(self._marker) if self._first is None else _inside(self._first)

    def kill(self) -> None:
        """Kill everything in it; whatever it starts meanwhile is killed, too."""
        if self.boot != boot() or self._killed_as_one():
            return
        if PIDS in self._folders:  # nobody in there can fork any more
            _try_write(os.path.join(self._folders[PIDS], "pids.max"), "0")
        freezer = self._folders.get(FREEZER)
        if freezer is not None:
            _freeze(freezer)
        for _ in range(ROUNDS):
            found = self.processes()
            for pid in found:
                _kill(pid)
            if not found or freezer is not None:
                break
        if freezer is not None:
            _try_write(os.path.join(freezer, "freezer.state"), "THAWED")

    def _killed_as_one(self) -> bool:
        folder = self._folders.get(UNIFIED)
        return folder is not None and _try_write(os.path.join(folder, "cgroup.kill"), "1")

    def end(self) -> None:
        """Kill everything in it until nothing is left, and remove it."""
        while self.processes():
            self.kill()
            time.sleep(END_AGAIN_S)
        self.remove()

    def memory_kills(self) -> int:
        """Return how many of its processes were killed for all of them having too much memory.

        Those that were killed because the machine had none left do not count.
        """
        if MEMORY in self._folders:
            folder = self._folders[MEMORY]
            told = _told(os.path.join(folder, "memory.oom_control"))
            had = _read(os.path.join(folder, "memory.max_usage_in_bytes"))
            most = _read(os.path.join(folder, "memory.limit_in_bytes"))
            return told.get("oom_kill", 0) if int(had or 0) >= int(most or 1) else 0
        if UNIFIED in self._folders:
            told = _told(os.path.join(self._folders[UNIFIED], "memory.events"))
            return told.get("oom_kill", 0) if told.get("oom") else 0
        return 0

    def remove(self) -> None:
        """Remove what is left of it; one that is not empty stays."""
        for folder in self._folders.values():
            for below, _, _ in os.walk(folder, topdown=False):
                try:
                    os.rmdir(below)
                except OSError:
                    pass


def boot() -> str:
    """Return what tells this start of the machine from all others."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def descendants(of: int) -> list[int]:
    """Return the processes below one that have not ended."""
    parents: dict[int, list[int]] = {}
    for pid, parent, _ in _all():
        parents.setdefault(parent, []).append(pid)
    return _below([of], parents)


def _below(look: list[int], parents: dict[int, list[int]]) -> list[int]:
    found = []
    while look:
        below = parents.get(look.pop(), [])
        found += below
        look += below
    return found


def _all() -> list[tuple[int, int, int]]:
    """Return every process that has not ended, its parent and its session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if words[0] not in (b"Z", b"X"):
                found.append((int(name), int(words[1]), int(words[3])))
    return found


def _marked(marker: str) -> list[int]:
    """Return the processes that carry a marker, and those of their sessions and below them."""
    mark = f"{MARKER}={marker}".encode()
    alive = _all()
    carry = {pid for pid, _, _ in alive if mark in _environment(pid)}
    sessions = {session for pid, _, session in alive if pid in carry}
    found = carry | {pid for pid, _, session in alive if session in sessions}
    parents: dict[int, list[int]] = {}
    for pid, parent, _ in alive:
        parents.setdefault(parent, []).append(pid)
    return sorted(found | set(_below(list(found), parents)))


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _inside(folder: str) -> list[int]:
    """Return the processes in a control group and in those below it."""
    found = []
    for below, _, _ in os.walk(folder):
        try:
            with open(os.path.join(below, PROCS), encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return [pid for pid in found if pid]


def _freeze(folder: str) -> None:
    """Let nothing in a control group run, so that nothing in it can fork."""
    path, end_s = os.path.join(folder, "freezer.state"), time.monotonic() + FREEZE_S
    while _try_write(path, "FROZEN") and time.monotonic() < end_s:
        if _read(path).strip() == "FROZEN":
            return
        time.sleep(0.01)


def _told(path: str) -> dict[str, int]:
    """Return the numbers that a file of a control group tells by name."""
    lines = (line.split() for line in _read(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def _read(path: str) -> str:
    """Return what a file says; nothing where it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _write(path: str, text: str) -> None:
    """Write in one go, to a file that must be there."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _try_write(path: str, text: str) -> bool:
    try:
        _write(path, text)
    except OSError:
        return False
    return True
