"""An attempt is a group: nothing of it outlives it, whoever is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interlane.engines.local import shim
from interlane.engines.local.attempt_group import UNIFIED, AttemptGroup, boot, descendants
from interlane.engines.local.claims import identity_of
from interlane.engines.local.groups import (
    AttemptGroups,
    GroupLimits,
    group_in,
    groups_here,
    keep_group,
)
from interlane.engines.local.runner import (
    LOST,
    WENT_DOWN,
    JobProcess,
    ProcessRunner,
    ShimOrder,
)
from interlane.live.port import Attempt, Begun, Ended, NeverBegan
from interlane.model import JobId
from interlane.testing.waiting import is_alive, until

ENV = {"PATH": os.environ["PATH"]}
ATTEMPT = Attempt(JobId("a-1"), 1)
HIDES = "(setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &) ; echo $$ >> {pids}; sleep 1000"
"""A job that leaves a process in another session, the child of nobody who lives."""


def only(groups: AttemptGroups, kinds: set[str]) -> AttemptGroups:
    """Return what makes groups in some hierarchies only."""
    bases = {kind: base for kind, base in groups.bases.items() if kind in kinds}
    return replace(groups, bases=bases)


@pytest.fixture(params=["best", "version 1", "freezer", "marked"])
def groups(request: pytest.FixtureRequest, tmp_path: Path) -> AttemptGroups:
    here = groups_here(tmp_path)
    if request.param == "marked":
        return AttemptGroups()
    kinds = {
        "best": {*here.bases},
        "version 1": {*here.bases} - {UNIFIED},
        "freezer": {"freezer"},
    }[request.param]
    found = only(here, kinds)
    if not found.bases:
        pytest.skip(f"no control groups may be used here ({request.param})")
    return found


NO_LIMITS = GroupLimits()


class Told(list[Ended | NeverBegan]):
    """What a runner told, and who was left of the job at that moment."""

    def __init__(self, pids: Path) -> None:
        self.pids = pids
        self.left: list[int] = []

    def append(self, report: Ended | NeverBegan) -> None:
        self.left += [pid for pid in self.noted() if is_alive(pid)]
        super().append(report)

    def noted(self) -> list[int]:
        words = self.pids.read_text().split() if self.pids.exists() else []
        return [int(word) for word in words]

    def one(self) -> Ended | NeverBegan:
        until(lambda: len(self), "a report")
        assert not self.left, "the end was told while something was left"
        (report,) = self
        return report


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path / "pids")


@pytest.fixture
def runner(tmp_path: Path, told: Told, groups: AttemptGroups) -> Iterator[ProcessRunner]:
    runner = ProcessRunner(tmp_path / "runs", told.append, look_again_s=0.05, groups=groups)
    yield runner
    runner.close()
    for base in groups.bases.values():
        assert not list(base.glob(f"{groups.prefix}*")), "a group was left behind"


def order_for(*commands: str, limits: GroupLimits = NO_LIMITS, number: int = 1) -> ShimOrder:
    processes = tuple(JobProcess(("/bin/sh", "-c", command), ENV) for command in commands)
    attempt = replace(ATTEMPT, number=number)
    return ShimOrder(attempt, processes, signal.SIGTERM, 5.0, limits=limits)


def hiding(runner: ProcessRunner, told: Told) -> None:
    """Start a job that hides a process, and wait until it has."""
    runner.start(order_for(HIDES.format(pids=told.pids)))
    until(lambda: len(told.noted()) == 2, "both processes")


def watcher_of(runner: ProcessRunner) -> int:
    return int(json.loads((runner.folder(ATTEMPT) / shim.CLAIM).read_text())["pid"])


def worker_of(runner: ProcessRunner) -> int:
    """Return the shim that the watcher watches: the job's own processes lead sessions."""
    (worker,) = (
        pid for pid in descendants(watcher_of(runner)) if os.getsid(pid) == watcher_of(runner)
    )
    return worker


def test_a_killed_shim_leaves_nothing_behind(runner: ProcessRunner, told: Told) -> None:
    hiding(runner, told)

    os.kill(worker_of(runner), signal.SIGKILL)

    cause = "Its shim was killed by SIGKILL."
    assert told.one() == Ended(ATTEMPT, None, "cut off", cause=cause)


def test_a_killed_watcher_leaves_nothing_behind(runner: ProcessRunner, told: Told) -> None:
    hiding(runner, told)

    os.kill(watcher_of(runner), signal.SIGKILL)

    report = told.one()
    assert isinstance(report, Ended)
    assert report.was_cut_off
    assert report.cause == "The watcher of its shim was killed."


def test_a_killed_shim_and_watcher_leave_nothing_behind(
    runner: ProcessRunner, told: Told
) -> None:
    hiding(runner, told)
    watcher, worker = watcher_of(runner), worker_of(runner)
    os.kill(watcher, signal.SIGSTOP)  # so that neither can act on the other's end
    os.kill(worker, signal.SIGSTOP)

    os.kill(worker, signal.SIGKILL)
    os.kill(watcher, signal.SIGKILL)

    assert told.one() == Ended(ATTEMPT, None, "cut off", cause=LOST)


def test_a_job_that_kills_its_shim_leaves_nothing_behind(
    runner: ProcessRunner, told: Told
) -> None:
    hides = "(setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &) ; echo $$ >> {pids}"
    waits = "while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.02; done"
    command = f"{hides}; {waits}; kill -9 $PPID; sleep 1000".format(pids=told.pids)

    runner.start(order_for(command))

    report = told.one()
    assert isinstance(report, Ended)
    assert report.was_cut_off


def test_what_was_killed_while_no_server_looked_is_gone_before_the_next_says_so(
    tmp_path: Path, told: Told, groups: AttemptGroups
) -> None:
    first = ProcessRunner(tmp_path / "runs", lambda report: None, groups=groups)
    hiding(first, told)
    watcher, worker = watcher_of(first), worker_of(first)
    first.close()
    for pid in (watcher, worker):
        os.kill(pid, signal.SIGSTOP)
    for pid in (worker, watcher):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(watcher, 0)

    second = ProcessRunner(tmp_path / "runs", told.append, look_again_s=0.05, groups=groups)
    found = second.find(ATTEMPT)

    assert found == Begun(ATTEMPT)
    assert told.one() == Ended(ATTEMPT, None, "cut off", cause=LOST)
    second.close()


def test_an_attempt_of_before_the_machine_went_down_was_lost_with_it(
    tmp_path: Path, told: Told
) -> None:
    runner = ProcessRunner(tmp_path / "runs", told.append, groups=AttemptGroups())
    folder = runner.folder(ATTEMPT)
    folder.mkdir(parents=True)
    held = shim.claim(str(folder), "999999999")
    assert held is not None
    os.close(held)
    group = {"marker": "0" * 32, "boot": "another", "folders": {}}
    (folder / "group").write_text(json.dumps(group))

    found = runner.find(ATTEMPT)

    assert found == Ended(ATTEMPT, None, "lost", cause=WENT_DOWN)
    assert found.was_lost
    runner.close()


def test_no_process_of_a_gang_begins_before_all_are_there(tmp_path: Path) -> None:
    if "pids" not in groups_here(tmp_path).bases:
        pytest.skip("the number of processes cannot be limited here")
    around = only(groups_here(tmp_path), {"pids"}).make("around", GroupLimits(processes=8))
    folder = tmp_path / "run"
    folder.mkdir()
    order = {
        "processes": [
            {"argv": ["/usr/bin/touch", str(tmp_path / f"ran{rank}")], "env": ENV}
            | {"memory_bytes_max": None}
            for rank in range(20)
        ],
        "signal": signal.SIGTERM,
        "grace_s": 1.0,
        "limit_s": None,
        "workdir": "/",
        "log_file_bytes": 1_000,
        "claim": identity_of(ATTEMPT),
        "descriptors": 1024,
        "account": None,
        "group": {"marker": "f" * 32, "boot": boot(), "folders": {}},
    }
    command = (sys.executable, "-I", "-S", shim.__file__, str(folder))
    try:
        subprocess.run(
            command,
            input=json.dumps(order).encode(),
            preexec_fn=around.join,
            check=True,
            timeout=60,
        )
        left = around.processes()
    finally:
        around.kill()
        until(lambda: not around.processes(), "the end of all")
        around.remove()

    assert not left
    assert not list(tmp_path.glob("ran*"))
    runner = ProcessRunner(tmp_path, lambda report: None)
    (tmp_path / "a-1").mkdir()
    folder.rename(tmp_path / "a-1" / "1")
    found = runner.find(ATTEMPT)
    runner.close()
    assert isinstance(found, NeverBegan)
    assert found.lacks == "processes"


def test_jobs_start_when_everything_else_has_used_all_descriptors(tmp_path: Path) -> None:
    script = """
import os, resource, signal, sys, time
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
from interlane.engines.local.runner import JobProcess, ProcessRunner, ShimOrder
from interlane.live.port import Attempt
told = []
runner = ProcessRunner(Path(sys.argv[1]), told.append)
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError as error:
    said = error.strerror
command = "ulimit -n"
process = JobProcess(("/bin/sh", "-c", command), {})
runner.start(ShimOrder(Attempt("a-1", 1), (process,), 15, 5.0))
while not told:
    time.sleep(0.02)
os.closerange(60, 128)
print(said, told[0].exit_code, runner.output(Attempt("a-1", 1), 0, 100).data.decode().strip())
"""
    ran = subprocess.run(
        (sys.executable, "-c", script, str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ran.stdout.strip() == "Too many open files 0 64", ran.stderr


def test_a_shim_without_room_on_its_disk_says_what_is_lacking(
    tmp_path: Path, told: Told
) -> None:
    runner = ProcessRunner(tmp_path / "runs", told.append, look_again_s=0.05)
    script = tmp_path / "shim.py"
    script.write_text(
        "import errno, os, sys\n"
        f"sys.path.insert(0, {str(Path(shim.__file__).parents[3])!r})\n"
        "import interlane.engines.local.shim as shim\n"
        "def full(*args): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "shim.claim = full\n"
        "sys.exit(shim.main(sys.argv[1]))\n"
    )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("interlane.engines.local.runner.SHIM", script)
        runner.start(order_for("true"))
        report = told.one()
    runner.close()

    assert isinstance(report, NeverBegan)
    assert report.lacks == "room on the disk"


# -- what a group may have ------------------------------------------------------------


def needs(groups: AttemptGroups, what: str) -> None:
    if what not in groups.limits:
        pytest.skip(f"{what} of a group cannot be limited here")


HOG = (
    "import mmap, os, sys, time\n"
    "children = int(sys.argv[1]); size = int(sys.argv[2]) << 20\n"
    "for _ in range(children):\n"
    "    if os.fork() == 0:\n"
    "        m = mmap.mmap(-1, size)\n"
    "        for at in range(0, size, 4096): m[at] = 1\n"
    "        time.sleep(2); os._exit(0)\n"
    "for _ in range(children): os.wait()\n"
)


@pytest.mark.parametrize(("children", "mib"), [(1, 300), (8, 40)])
def test_memory_of_all_processes_together_is_limited_shared_or_not(
    tmp_path: Path, told: Told, children: int, mib: int
) -> None:
    groups = groups_here(tmp_path)
    needs(groups, "memory")
    runner = ProcessRunner(tmp_path / "runs", told.append, groups=groups)
    hog = tmp_path / "hog.py"
    hog.write_text(HOG)
    command = f"{sys.executable} -I -S {hog} {children} {mib}"

    runner.start(order_for(command, limits=GroupLimits(memory_bytes=200 << 20)))

    report = told.one()
    assert isinstance(report, Ended)
    assert report.why == "memory"
    runner.close()


def test_a_fork_bomb_meets_its_bound_and_ends(tmp_path: Path, told: Told) -> None:
    groups = groups_here(tmp_path)
    needs(groups, "pids")
    runner = ProcessRunner(tmp_path / "runs", told.append, groups=groups)
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    order = order_for(
        f"echo up; exec {sys.executable} -I -S -c '{bomb}'", limits=GroupLimits(processes=40)
    )
    runner.start(order)
    group = group_in(runner.folder(ATTEMPT))
    assert group is not None
    until(lambda: len(group.processes()) == 40, "the bound")

    runner.kill(ATTEMPT)

    report = told.one()
    assert isinstance(report, Ended)
    assert report.was_stopped
    assert not group.processes()
    runner.close()


def test_who_asks_for_more_cores_weighs_more(tmp_path: Path) -> None:
    groups = groups_here(tmp_path)
    needs(groups, "cpu")
    little, much = (groups.make("a", GroupLimits(cpu_milli=one)) for one in (500, 4000))

    def weight(group: AttemptGroup) -> int:
        folders = group.document["folders"]
        folder = Path(folders.get("cpu", folders.get(UNIFIED)))
        file = "cpu.shares" if "cpu" in folders else "cpu.weight"
        return int((folder / file).read_text())

    assert weight(much) == 8 * weight(little)
    for group in (little, much):
        group.remove()


def test_jobs_are_the_first_to_go_when_the_machine_runs_out_of_memory(
    runner: ProcessRunner, told: Told
) -> None:
    runner.start(order_for("cat /proc/self/oom_score_adj"))

    told.one()
    assert runner.output(ATTEMPT, 0, 100).data.strip() == b"500"


def test_only_old_groups_are_tidied_away(tmp_path: Path) -> None:
    groups = groups_here(tmp_path)
    if not groups.bases:
        pytest.skip("no control groups may be used here")
    group = groups.make("new", GroupLimits())
    folders = [Path(folder) for folder in group.document["folders"].values()]

    groups.tidy()
    assert all(folder.is_dir() for folder in folders)

    groups.tidy(after_s=-1.0)
    assert not any(folder.is_dir() for folder in folders)


def test_an_attempt_whose_group_is_gone_never_begins(
    runner: ProcessRunner, told: Told, groups: AttemptGroups, tmp_path: Path
) -> None:
    if not groups.bases:
        pytest.skip("marked processes join nothing")
    make = AttemptGroups.make

    def made(self: AttemptGroups, name: str, limits: GroupLimits) -> AttemptGroup:
        group = make(self, name, limits)
        group.remove()
        return group

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AttemptGroups, "make", made)
        runner.start(order_for(f"touch {tmp_path}/ran"))
        report = told.one()

    assert isinstance(report, NeverBegan)
    assert report.lacks == "what a start takes (No such file or directory)"
    assert not (tmp_path / "ran").exists()


def test_the_group_of_an_attempt_that_was_fenced_off_is_removed(
    tmp_path: Path, runner: ProcessRunner, groups: AttemptGroups
) -> None:
    folder = runner.folder(ATTEMPT)
    folder.mkdir(parents=True)
    keep_group(folder, groups.make("a", GroupLimits()))

    found = runner.find(ATTEMPT)

    assert isinstance(found, NeverBegan)  # the fixture sees that no group is left
