"""The world behind the engine of Slurm: real daemons, and processes that files control."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from interlane.engines.slurm.engine import SlurmEngine
from interlane.engines.slurm.session import SlurmSettings
from interlane.live.driver.clock import Timed
from interlane.live.port import Attempt, Engine
from interlane.model import (
    Device,
    JobId,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Spot,
    TakenGpu,
    with_devices,
)
from interlane.testing.engines import Limits
from interlane.testing.slurm_cluster import GPU_TYPE, PARTITIONS, SlurmCluster
from interlane.testing.waiting import AheadClock, is_alive, until

STEP_S: Final = 0.1
"""Seconds in which something may happen."""
MOMENT_S: Final = 1.0
OURS: Final = PARTITIONS[0]

_COMMAND: Final = """
at={notes}/our.$INTERLANE_JOB_ID.$INTERLANE_JOB_UID.$INTERLANE_ATTEMPT
trap 'exit 143' TERM
echo $$ $INTERLANE_NODE_RANK $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> $at.ranks
while [ ! -e $at.exit ]; do sleep 0.05; done
exit $(cat $at.exit)
"""
_BROUGHT: Final = """#!/bin/sh
trap 'exit 143' TERM
claim=$(scontrol --oneliner show job $SLURM_JOB_ID | sed 's/.*AdminComment=interlane //')
at={notes}/their.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
echo "$claim" > $at.claim
echo $$ 0 $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> $at.ranks
while [ ! -e $at.exit ]; do sleep 0.05; done
exit $(cat $at.exit)
"""
_CLAIM: Final = re.compile(r"n=(\d+) r=(\d+) .*b=([01])")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    rank: int
    spot: Spot
    path: Path


class SlurmWorld:
    """A private Slurm: nodes are lost and return, and others use them, too."""

    limits = Limits(gpus_max=2, nodes_max=2, elastic=False)

    def __init__(self, rng: Random, folder: Path, cluster: SlurmCluster) -> None:
        self._rng = rng
        self._folder = folder
        self._cluster = cluster
        self._notes = folder / "notes"
        self._notes.mkdir(mode=0o777)
        self._home = folder / "home"
        self._home.mkdir()
        self._exits: dict[Attempt, int | None] = {}
        self._keys: dict[str, str] = {}
        """Of users' jobs, by number."""
        self._withdrawn: set[str] = set()
        self._drained: set[str] = set()
        self._away: set[str] = set()
        self._others: dict[str, Occupied] = {}
        """Jobs of another partition, by number."""
        self._mishaps = True
        self._ahead_s = 0.0
        self._clear()

    def _clear(self) -> None:
        """Let nothing of an earlier script be left."""
        self._run("scancel", "--quiet", "--user=root")
        until(lambda: not self._run("squeue", "--noheader", "--all").strip(), "an empty queue")

    def _run(self, *words: str) -> str:
        return self._cluster.run(*words)

    # -- the engine -------------------------------------------------------------------

    def engine(self) -> Engine:
        """Return a new engine on the same Slurm."""
        settings = SlurmSettings(
            frozenset({OURS}),
            trusts_users=True,
            idle_s=1.0,
            busy_s=0.1,
            share=1.0,
            launch_s=6.0,
        )
        return SlurmEngine(self._folder / "state", settings)

    def engine_died(self, engine: Engine) -> None:
        """Let its threads end; Slurm goes on."""
        assert isinstance(engine, SlurmEngine)
        engine.close()

    def clock(self, at_least_s: float) -> Timed:
        """Return real time, and what was let pass."""
        return AheadClock(lambda: self._ahead_s, at_least_s)

    def wait(self, seconds: float) -> None:
        """Let time pass, of which a moment is real: Slurm needs it."""
        self._ahead_s += seconds
        time.sleep(min(seconds, MOMENT_S))

    def work(self) -> bool:
        """Give everybody a moment; nobody can tell whether they are idle."""
        time.sleep(STEP_S)
        return False

    def command(self) -> str:
        """Return what writes down that it runs, and ends with the code that a file has."""
        return _COMMAND.format(notes=self._notes).strip()

    # -- what there is ----------------------------------------------------------------

    def running(self) -> Mapping[Attempt, Placement]:
        """Return what has written itself down and is alive."""
        found = {}
        for attempt, processes in self._processes().items():
            alive = sorted((one.rank, one.spot) for one in processes if is_alive(one.pid))
            if alive:
                found[attempt] = Placement(tuple(spot for _, spot in alive))
        return found

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often an instance of each attempt has begun."""
        return {
            attempt: max(Counter(one.rank for one in processes).values())
            for attempt, processes in self._processes().items()
        }

    def _processes(self) -> dict[Attempt, list[_Process]]:
        found: dict[Attempt, list[_Process]] = {}
        for path in sorted(self._notes.glob("*.ranks")):
            attempt = self._attempt(path)
            for line in path.read_text().splitlines():
                pid, rank, node, *gpus = line.split()
                numbers = tuple(map(int, gpus[0].split(","))) if gpus else ()
                spot = Spot(MachineId(node), numbers)
                process = _Process(int(pid), int(rank), spot, path)
                found.setdefault(attempt, []).append(process)
        return found

    def _attempt(self, path: Path) -> Attempt:
        whose, rest = path.stem.split(".", 1)
        if whose == "our":
            job_id, uid, number = rest.rsplit(".", 2)
            return Attempt(JobId(job_id), int(number), uid)
        number, restarts = rest.split(".")
        claim = _CLAIM.search(path.with_suffix(".claim").read_text())
        asked, after, begins = map(int, claim.groups()) if claim is not None else (0, 0, 0)
        nth = asked + 2 * (int(restarts) - after) + (0 if begins else 2)
        return Attempt(JobId(number), nth, self._keys[number])

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return the exit codes that attempts were told."""
        return self._exits

    def struck(self) -> frozenset[Attempt]:
        """Return none: nobody here ends a part of an attempt."""
        return frozenset()

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return the nodes that there are."""
        shape = self._cluster.shape
        devices = [Device(GPU_TYPE)] * shape.gpus
        return {
            MachineId(name): with_devices(
                MachineId(name),
                devices,
                cpu_milli=shape.cpus * 1000,
                memory_mib=shape.memory_mib,
            )
            for name in shape.names
            if name not in self._away
        }

    def drained(self) -> frozenset[MachineId]:
        """Return the nodes that somebody drained."""
        return frozenset(MachineId(one) for one in self._drained - self._away)

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return what jobs of another partition have, of those that run."""
        found: dict[MachineId, Occupied] = {}
        for number, taken in self._others.items():
            if self._cluster.state(number) == "RUNNING":
                found[taken.machine_id] = taken
        return found

    def withdrawn(self) -> frozenset[str]:
        """Return the keys of jobs that their users cancelled."""
        return frozenset(self._withdrawn)

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Tell all processes of an attempt to end; the first word counts."""
        processes = self._processes().get(attempt)
        if processes and attempt not in self._exits:
            self._exits[attempt] = exit_code
            for path in {one.path for one in processes}:
                made = path.with_suffix(".made")
                made.write_text(f"{exit_code}")
                made.rename(path.with_suffix(".exit"))

    # -- mishaps ----------------------------------------------------------------------

    def mishap(self) -> None:
        """Let one of many things happen."""
        if self._mishaps:
            mishaps = (
                self._kill,
                self._lose_node,
                self._return_node,
                self._drain,
                self._occupy,
                self._vacate,
                self._want,
                self._want,
                self._withdraw,
                self._admin_releases,
                self._admin_changes,
                self._restart_controller,
            )
            self._rng.choice(mishaps)()

    def _kill(self) -> None:
        """Kill the first process of an attempt."""
        running = sorted(self._processes().items(), key=str)
        if running:
            attempt, processes = self._rng.choice(running)
            if is_alive(processes[0].pid) and attempt not in self._exits:
                self._exits[attempt] = 128 + signal.SIGKILL
                with suppress(ProcessLookupError):
                    os.kill(processes[0].pid, signal.SIGKILL)

    def _lose_node(self) -> None:
        there = sorted(set(self._cluster.shape.names) - self._away)
        if len(there) > 1:
            node = self._rng.choice(there)
            self._away.add(node)
            self._cluster.kill(node)
            self._run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
            self._cluster.end_jobs(node)

    def _return_node(self) -> None:
        for node in sorted(self._away):
            self._cluster.start_node(node)
            until(partial(self._resumes, node), f"node {node}")
            self._away.discard(node)
            self._drained.discard(node)

    def _resumes(self, node: str) -> bool:
        """Let a node take work again, if it is not up by itself; tell whether it is."""
        with suppress(AssertionError):  # it need not be resumed
            self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        words = ("sinfo", "--noheader", f"--nodes={node}", "--partition=gpu", "--format=%T")
        return self._run(*words).strip() in ("idle", "mixed", "allocated", "completing")

    def _drain(self) -> None:
        there = sorted(set(self._cluster.shape.names) - self._away)
        node = self._rng.choice(there)
        if node in self._drained:
            until(partial(self._resumes, node), f"node {node}")
            self._drained.discard(node)
        else:
            self._run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
            self._drained.add(node)

    def _occupy(self) -> None:
        """Let another partition have a part of a node that nobody else of it has."""
        used = {taken.machine_id for taken in self._others.values()}
        there = sorted(set(self._cluster.shape.names) - self._away - self._drained - used)
        if not there:
            return
        node = self._rng.choice(there)
        gpu = self._rng.random() < 0.5
        gres = (f"--gres=shard:{GPU_TYPE}.0:300",) if gpu else ()
        words = (f"--partition={PARTITIONS[1]}", f"--nodelist={node}", "--mem=100M")
        number = self._cluster.submit(*words, *gres, "--no-requeue")
        taken = (TakenGpu(0, 300),) if gpu else ()
        self._others[number] = Occupied(MachineId(node), 1_000, 100, taken)

    def _vacate(self) -> None:
        while self._others:
            number, _ = self._others.popitem()
            self._run("scancel", "--quiet", number)

    def _want(self) -> None:
        """Let a user submit a job that is held for us."""
        asks = self._rng.choice(((), ("--gres=gpu:1",), ("--gres=shard:250",)))
        number = self._cluster.submit(
            "--hold",
            "--comment=interlane",
            "--mem=100M",
            *asks,
            script=_BROUGHT.format(notes=self._notes),
        )
        words = ("squeue", "--noheader", f"--jobs={number}", "--format=%V")
        said = subprocess.run(
            words,
            env={**self._cluster.env, "SLURM_TIME_FORMAT": "%s"},
            capture_output=True,
            text=True,
            check=True,
        )
        self._keys[number] = f"{number}.{said.stdout.strip()}"

    def _withdraw(self) -> None:
        """Let a user cancel a job, whatever has become of it."""
        left = sorted(key for key in self._keys.values() if key not in self._withdrawn)
        if left:
            key = self._rng.choice(left)
            number = key.partition(".")[0]
            if self._cluster.state(number) in ("PENDING", "RUNNING"):
                self._withdrawn.add(key)
                self._run("scancel", "--quiet", number)

    def _admin_releases(self) -> None:
        """Let an administrator release a job behind our back."""
        held = [one for one in sorted(self._keys) if self._cluster.state(one) == "PENDING"]
        if held:
            with suppress(AssertionError):  # it was released in this moment
                self._run("scontrol", "release", self._rng.choice(held))

    def _admin_changes(self) -> None:
        """Let an administrator hold a job, requeue it, or say how long it may run."""
        there = ("PENDING", "RUNNING")
        jobs = [one for one in sorted(self._keys) if self._cluster.state(one) in there]
        if jobs:
            job = self._rng.choice(jobs)
            changes = (
                ("hold", job),
                ("requeue", job),
                ("update", f"JobId={job}", "TimeLimit=60"),
            )
            with suppress(AssertionError):  # Slurm does not let everybody have everything
                self._run("scontrol", *self._rng.choice(changes))

    def _restart_controller(self) -> None:
        self._cluster.stop_controller()
        time.sleep(STEP_S)
        self._cluster.start_controller()

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self._mishaps = False

    def restore(self) -> None:
        """Let all nodes be there, and nobody but us use them."""
        self._return_node()
        for node in sorted(self._drained):
            until(partial(self._resumes, node), f"node {node}")
        self._drained.clear()
        self._vacate()

    def close(self) -> None:
        """Leave the cluster as it was."""
        self.restore()
        self._clear()
        shutil.rmtree(self._notes, ignore_errors=True)
