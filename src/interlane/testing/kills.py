"""Kill everything again and again while work comes in, and see what is lost: nothing.

    python -m interlane.testing.kills --kills 1000

Servers, shims, watchers of shims, device daemons, fork servers and replicas are killed at
random moments, servers also while they start.  With SQLite a server comes back on its folder,
or one that stands by takes the folder over; with PostgreSQL another server on another folder
takes over.  Now and then a copy of the database is made, and an old one is put back.  In the
end every acknowledged job must have run, once, nothing may be on record that did not run,
nothing may be left of what ran, and fresh schedulers must make the same of the log.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp

from interlane.engines.local.functions.fork_servers import MODULE as FORK_SERVER
from interlane.engines.local.groups import groups_here
from interlane.live.store.record import fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.live.up import database_of
from interlane.testing import crashes, postgres
from interlane.testing.kill_work import Excuses, KeptJob, KillWork, WorkFindings, judged
from interlane.testing.waiting import PATIENCE_S, parent_of, until
from interlane.usecases import state as copies
from interlane.usecases.replay import replay_log

DECK = {
    "server": 2,
    "starting server": 1,
    "shim": 5,
    "watcher": 3,
    "shim and watcher": 3,
    "daemon": 2,
    "replica": 2,
    "fork server": 2,
}
"""Of every twenty kills."""

PUT_BACK_SHARE = 0.3
"""Of kills of servers, those after which an old copy is put back."""

COPY_SHARE = 0.15
"""Of kills of something else, those beside which a copy is made."""

STANDBY_SHARE = 0.5
VICTIM_S = 60.0
"""Seconds for which somebody to be killed is waited for."""

SERVES_S = 900.0
"""Seconds for which a server is waited for, on a machine that others load."""

MOMENT_S = 0.6
ROUND_VARIABLE = "INTERLANE_KILL_ROUND"
ROUND = 40
"""Kills of one round, which begins with empty folders and is judged at its end."""


@dataclass(frozen=True, slots=True)
class KillReport:
    """What a round of kills came to."""

    database: str
    seed: int
    kills: dict[str, int]
    restores: int
    take_overs: int
    work: WorkFindings
    calls: dict[str, int]
    orphans: tuple[str, ...]
    """Processes and control groups that are left though everything has ended."""
    folds: bool
    """Whether the records are what the log says."""
    difference: str | None
    """Between the log and what fresh schedulers make of it."""

    @property
    def faults(self) -> list[str]:
        """What must not be, in words."""
        work = self.work
        found = {
            "lost": work.lost,
            "run twice": work.twice,
            "reported but not run": work.faked,
            "begun after its cancel": work.uncancelled,
            "beside another on its device": work.clashes,
            "left behind": self.orphans,
        }
        said = [f"{what}: {', '.join(names)}" for what, names in found.items() if names]
        said += [] if self.folds else ["the records are not what the log says"]
        said += (
            [] if self.difference is None else [f"the log plays otherwise: {self.difference}"]
        )
        return said + (["a function answered wrongly"] if self.calls.get("wrong") else [])


# -- servers --------------------------------------------------------------------------


class _Server:
    """A server's process, and what it said."""

    def __init__(self, state: Path, *words: str) -> None:
        self.state = state
        self.serves = threading.Event()
        self.stands_by = threading.Event()
        self.over = threading.Event()
        self.said: list[str] = []
        self.process = crashes.up(state, "--no-pages", "--sharing", "turns", *words)
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self.process.wait()  # not for the end of what it says: others may hold that open
        self.over.set()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.said.append(line.decode(errors="replace").rstrip())
                if line.startswith(b"Serving"):
                    self.serves.set()
                elif line.startswith(b"Standing by"):
                    self.stands_by.set()

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.over.wait()

    def end(self) -> None:
        """Ask it to end, and wait until it has; one that does not is killed, and told of."""
        self.process.terminate()
        if not self.over.wait(PATIENCE_S):
            self.kill()
            raise AssertionError(f"A server did not end when it was asked to: {self.said[-3:]}")


@dataclass(slots=True)
class KillSite:
    """The folders of servers that serve one database, one at a time."""

    root: Path
    url: str | None
    """Of PostgreSQL; None for SQLite in the first folder."""
    active: _Server | None = None
    passive: _Server | None = None
    take_overs: int = 0

    @property
    def folders(self) -> list[Path]:
        """Return where servers may be."""
        return [self.root / "a"] if self.url is None else [self.root / "a", self.root / "b"]

    def _up(self, state: Path, *words: str) -> _Server:
        more = () if self.url is None else ("--database-url", self.url)
        return _Server(state, *more, *words)

    def serve(self) -> Path:
        """See to it that a server serves; return its folder."""
        if self.passive is not None:
            self.active, self.passive = self.passive, None
            self.take_overs += 1
        elif self.active is None:
            self.active = self._up(self.folders[0])
        server = self.active
        until(lambda: server.serves.is_set() or server.over.is_set(), "a server", SERVES_S)
        if not server.serves.is_set():
            raise AssertionError(f"The server did not come back: {server.said[-3:]}")
        self._share_token(server.state)
        return server.state

    def stand_by(self) -> None:
        """Have another server wait for the end of this one."""
        assert self.active is not None
        if self.passive is None:
            others = [one for one in self.folders if one != self.active.state]
            self.passive = self._up((others or self.folders)[0], "--standby")
            waiting = self.passive
            until(lambda: waiting.stands_by.is_set() or waiting.over.is_set(), "it", SERVES_S)

    def kill_server(self) -> None:
        """Kill the server that serves."""
        assert self.active is not None
        self.active.kill()
        self.active = None

    def kill_starting(self, rng: Random) -> None:
        """Kill the server that serves, and the next one while it starts."""
        self.kill_server()
        server = self.passive or self._up(self.folders[0])
        self.passive = None
        server.serves.wait(rng.uniform(0.0, 3.0))
        server.kill()

    def end(self, *, kill: bool = False) -> None:
        """End all servers."""
        for server in (self.passive, self.active):
            if server is not None:
                server.kill() if kill else server.end()
        self.active = self.passive = None

    def back_up(self, number: int) -> Path:
        """Copy the database while it is used."""
        copy = self.root / f"copy-{number}"
        if self.url is None:
            copies.back_up(self.folders[0], copy)
        else:
            postgres.dump(self.url, copy)
        return copy

    def put_back(self, copy: Path) -> None:
        """Put a copy of the database back; no server runs."""
        if self.url is None:
            copies.restore(self.folders[0], copy)
        else:
            postgres.put_back(self.url, copy)

    def store(self) -> Store:
        """Return the database, to be read."""
        return Store(database_of(self.folders[0], self.url), only_reads=True)

    def _share_token(self, state: Path) -> None:
        """Let clients find the admin's token in every folder: the database knows it."""
        known = next(one / "token" for one in self.folders if (one / "token").exists())
        if not (state / "token").exists():
            (state / "token").write_text(known.read_text())


# -- who is killed --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    words: tuple[str, ...]

    @property
    def attempt(self) -> tuple[str, int] | None:
        """Return whose shim it is, by job and attempt."""
        if len(self.words) < 2 or not self.words[-2].endswith("/shim.py"):
            return None
        folder = Path(self.words[-1])
        return folder.parent.name.rpartition(".")[0], int(folder.name)


def processes_of(root: Path) -> Iterator[_Process]:
    """Yield the processes that have anything to do with a folder, by what they were told."""
    mark = os.fsencode(root)
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if mark in command or mark in (folder / "environ").read_bytes():
                words = command.decode(errors="replace").rstrip("\0").split("\0")
                yield _Process(int(folder.name), tuple(words))


def _victims(root: Path, kind: str) -> list[tuple[int, ...]]:
    """Return who may be killed, each with whom it is killed together."""
    found = list(processes_of(root))
    if kind == "daemon":
        return [(one.pid,) for one in found if "daemon" in one.words[3:5]]
    pids = {one.pid for one in found if FORK_SERVER in one.words}
    parents = {pid: _parent(pid) for pid in pids}
    if kind == "replica":
        return [(pid,) for pid, parent in parents.items() if parent in pids]
    if kind == "fork server":
        return [(pid,) for pid, parent in parents.items() if parent not in pids]
    shims = {one.pid: _parent(one.pid) for one in found if one.attempt is not None}
    # A program that its shim has forked and that is not executed yet looks like a shim.
    pairs = [
        (worker, watcher)
        for worker, watcher in shims.items()
        if watcher in shims and _session(worker) == watcher
    ]
    pick: dict[str, Callable[[tuple[int, int]], tuple[int, ...]]] = {
        "shim": lambda pair: pair[:1],
        "watcher": lambda pair: pair[1:],
        "shim and watcher": lambda pair: pair,
    }
    return [pick[kind](pair) for pair in pairs]


def _parent(pid: int) -> int:
    try:
        return parent_of(pid)
    except OSError:
        return 0


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


# -- a round --------------------------------------------------------------------------


@dataclass(slots=True)
class KillRound:
    """Kills from one seed, on one database, from empty folders to a judgement."""

    root: Path
    url: str | None
    seed: int
    rng: Random = field(init=False)
    site: KillSite = field(init=False)
    work: KillWork = field(init=False)
    killed: Counter[str] = field(default_factory=Counter)
    shims_killed: set[tuple[str, int]] = field(default_factory=set)
    made: list[tuple[float, Path]] = field(default_factory=list)
    """Copies, with when each was begun."""
    gaps: list[tuple[float, float]] = field(default_factory=list)
    still_ran: set[str] = field(default_factory=set)
    """Jobs that ran when a server had begun on an old copy: they must be on record."""

    def __post_init__(self) -> None:
        os.environ[ROUND_VARIABLE] = str(self.root)  # by which daemons are known as well
        self.rng = Random(self.seed)
        self.site = KillSite(self.root, self.url)
        self.work = KillWork(self.root, self.seed)

    def play(self, kills: int) -> KillReport:
        """Kill this often, and judge."""
        try:
            self._serve()
            self.work.deploy(self.site.folders[0])
            self.work.begin()
            self.made.append((time.time(), self.site.back_up(0)))
            for kind in self._kinds(kills):
                time.sleep(self.rng.uniform(0.0, MOMENT_S))
                self._kill(kind)
            self.work.end()
            self._wait_for_all()
            return self._judged()
        finally:
            self.work.end()
            self.site.end()

    def _kinds(self, kills: int) -> list[str]:
        deck = [kind for kind, count in DECK.items() for _ in range(count)]
        found: list[str] = []
        while len(found) < kills:
            found += self.rng.sample(deck, len(deck))
        return found[:kills]

    def _serve(self) -> None:
        self.work.serving = self.site.serve()

    def _kill(self, kind: str) -> None:
        if kind == "server":
            self._kill_server()
        elif kind == "starting server":
            self.work.serving = None
            self.site.kill_starting(self.rng)
            self._serve()
        else:
            if self.rng.random() < COPY_SHARE:
                at_s = time.time()
                self.made.append((at_s, self.site.back_up(len(self.made))))
            self._kill_one(kind)
        self.killed[kind] += 1

    def _kill_server(self) -> None:
        """Kill the server at a random moment; another takes over, or an old copy comes back."""
        if self.rng.random() < PUT_BACK_SHARE:
            self._put_back()
            return
        if self.rng.random() < STANDBY_SHARE:
            self.site.stand_by()
            time.sleep(self.rng.uniform(0.0, MOMENT_S))
        self.site.kill_server()
        self.work.serving = None
        self._serve()

    def _put_back(self) -> None:
        """Kill the server, and let the next one find an old copy."""
        self.work.pause()  # a key that is asked for meanwhile is two jobs, as nobody can help
        self.site.end(kill=True)
        self.work.serving = None
        made_s, copy = self.rng.choice(self.made)
        self.site.put_back(copy)
        self.gaps.append((made_s, time.time()))
        self._serve()
        shims = (one.attempt for one in processes_of(self.root))
        self.still_ran |= {attempt[0] for attempt in shims if attempt is not None}
        self.work.go_on()

    def _kill_one(self, kind: str) -> None:
        end_s = time.monotonic() + VICTIM_S
        while time.monotonic() < end_s:
            for victims in self.rng.sample(found := _victims(self.root, kind), len(found)):
                self._note_shims(victims)
                for pid in victims:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.05)
        kinds = f"There is no {kind} to be killed."
        raise AssertionError(f"{kinds} {self.site.active and self.site.active.said[-3:]}")

    def _note_shims(self, victims: tuple[int, ...]) -> None:
        for one in processes_of(self.root):
            if one.pid in victims and one.attempt is not None:
                self.shims_killed.add(one.attempt)

    # -- judging ----------------------------------------------------------------------

    def _wait_for_all(self) -> None:
        store = self.site.store()
        until(lambda: not list(store.open_jobs()), "the end of all jobs", SERVES_S)
        store.close()

    def _judged(self) -> KillReport:
        self.site.end()
        store = self.site.store()
        records = {record.id: record for record in store.jobs(JobsWanted(limit=10**9))}
        folds = records == fold(store.whole_log())
        store.close()
        kept = {str(id_): KeptJob(one.state, one.attempt) for id_, one in records.items()}
        excuses = Excuses(frozenset(self.shims_killed), tuple(self.gaps))
        work = judged(self.work.asked.values(), self.work.written(), kept, excuses)
        unknown = tuple(
            f"{job} (ran on, not on record)" for job in self.still_ran - kept.keys()
        )
        replayed = replay_log(self.site.folders[0], self.url)
        return KillReport(
            "sqlite" if self.url is None else "postgresql",
            self.seed,
            dict(self.killed),
            len(self.gaps),
            self.site.take_overs,
            work,
            dict(self.work.answers),
            (*unknown, *self._orphans()),
            folds,
            None if replayed.difference is None else str(replayed.difference),
        )

    def _orphans(self) -> tuple[str, ...]:
        """Return what is left of anything; a daemon without jobs ends by itself."""
        with suppress(AssertionError):
            until(lambda: not list(processes_of(self.root)), "the end of all processes")
        left = [f"{one.pid} {' '.join(one.words)[:80]}" for one in processes_of(self.root)]
        for state in self.site.folders:
            groups = groups_here(state, only_looks=True)
            found = (base.glob(f"{groups.prefix}*") for base in groups.bases.values())
            left += [str(folder) for each in found for folder in each if _has_processes(folder)]
        return tuple(left)


def _has_processes(folder: Path) -> bool:
    try:
        return bool((folder / "cgroup.procs").read_text().split())
    except OSError:
        return False


def kill_round(kills: int, seed: int = 0, url: str | None = None) -> KillReport:
    """Play a round in a folder of its own, which stays if anything is wrong."""
    root = Path(mkdtemp(prefix="interlane-kills-"))
    report = KillRound(root, url, seed).play(kills)
    if not report.faults:
        rmtree(root, ignore_errors=True)
    return report


# -- from the command line ------------------------------------------------------------


def _rounds(kills: int, seed: int, databases: list[str]) -> Iterator[KillReport]:
    for number in range(-(-kills // ROUND)):
        size = min(ROUND, kills - number * ROUND)
        if databases[number % len(databases)] == "sqlite":
            yield kill_round(size, seed + number)
        else:
            with postgres.postgres_served() as url:
                yield kill_round(size, seed + number, url)


def main() -> int:
    """Kill as often as asked; print a line of JSON for every round, and what went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    options = parser.parse_args()
    databases = options.database or ["sqlite", "postgresql"]
    kills: Counter[str] = Counter()
    acknowledged, faults = 0, 0
    for report in _rounds(options.kills, options.seed, databases):
        print(json.dumps(asdict(report)), flush=True)
        kills.update(report.kills)
        acknowledged += report.work.acknowledged
        faults += len(report.faults)
        for fault in report.faults:
            again = f"--kills {ROUND} --seed {report.seed} --database {report.database}"
            print(f"{fault}\n  python -m interlane.testing.kills {again}", file=sys.stderr)
        told = f"{sum(kills.values())} of {options.kills} kills, {acknowledged} acknowledged"
        print(f"{told}, {faults} faults", file=sys.stderr, flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
