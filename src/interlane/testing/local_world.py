"""The world behind the engine of this machine: real processes that files control."""

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from interlane.engines.local.engine import LocalEngine
from interlane.live.driver.clock import Clock, Timed
from interlane.live.port import Attempt, Engine
from interlane.model import JobId, Machine, MachineId, Occupied, Placement, Spot
from interlane.testing.engines import Limits
from interlane.testing.live import make_engine, this_machine
from interlane.testing.waiting import is_alive

STEP_S: Final = 0.05
"""Seconds in which something may happen."""

_COMMAND: Final = """
at={folder}/$INTERLANE_JOB_ID.$INTERLANE_JOB_UID.$INTERLANE_ATTEMPT
trap 'exit 143' TERM
echo $$ $INTERLANE_NODE_RANK $INTERLANE_DEVICES >> $at.ranks
while [ ! -e $at.exit ]; do sleep 0.02; done
exit $(cat $at.exit)
"""


class LocalWorld:
    """The machine that this runs on: it does not vanish, but processes are killed."""

    def __init__(self, rng: Random, folder: Path, gpus: int = 2) -> None:
        self.limits = Limits(gpus_max=gpus, nodes_max=2, elastic=False)
        self._rng = rng
        self._folder = folder
        self._gpus = gpus
        self._notes = folder / "notes"
        self._notes.mkdir()
        self._exits: dict[Attempt, int | None] = {}

    def engine(self) -> Engine:
        """Return a new engine on the same folder."""
        return make_engine(self._folder, gpus=self._gpus)

    def engine_died(self, engine: Engine) -> None:
        """Let its threads end; shims and their jobs go on."""
        assert isinstance(engine, LocalEngine)
        engine.close()

    def clock(self, at_least_s: float) -> Timed:
        """Return real time."""
        return Clock(at_least_s)

    def wait(self, seconds: float) -> None:
        """Wait for a moment, however long the script would."""
        time.sleep(min(seconds, 4 * STEP_S))

    def command(self) -> str:
        """Return what writes down that it runs, and ends with the code that a file has."""
        return _COMMAND.format(folder=self._notes).strip()

    def running(self) -> Mapping[Attempt, Placement]:
        """Return what has written itself down and is alive."""
        found = {}
        for attempt, ranks in self._ranks().items():
            alive = [spot for pid, _, spot in ranks if is_alive(pid)]
            if alive:
                found[attempt] = Placement(tuple(alive))
        return found

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often the first instance of each attempt has begun."""
        return {
            attempt: max(Counter(rank for _, rank, _ in ranks).values())
            for attempt, ranks in self._ranks().items()
        }

    def _ranks(self) -> dict[Attempt, list[tuple[int, int, Spot]]]:
        (machine,) = this_machine(self._gpus)
        found: dict[Attempt, list[tuple[int, int, Spot]]] = {}
        for path in sorted(self._notes.glob("*.ranks")):
            job_id, uid, number = path.stem.rsplit(".", 2)
            for line in path.read_text().splitlines():
                pid, rank, *devices = line.split()
                gpus = tuple(map(int, devices[0].split(","))) if devices else ()
                spot = Spot(machine.id, gpus)
                attempt = Attempt(JobId(job_id), int(number), uid)
                found.setdefault(attempt, []).append((int(pid), int(rank), spot))
        return found

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return the exit codes that attempts were told."""
        return self._exits

    def struck(self) -> frozenset[Attempt]:
        """Return none: nobody here ends a part of an attempt."""
        return frozenset()

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return this machine."""
        return {machine.id: machine for machine in this_machine(self._gpus)}

    def drained(self) -> frozenset[MachineId]:
        """Return nothing: nobody drains this machine but our operators."""
        return frozenset()

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return nothing."""
        return {}

    def withdrawn(self) -> frozenset[str]:
        """Return nothing: nothing comes in through this engine."""
        return frozenset()

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Tell all processes of an attempt to end; the first word counts."""
        path = self._notes / f"{attempt.job_id}.{attempt.uid}.{attempt.number}.exit"
        if attempt not in self._exits:
            self._exits[attempt] = exit_code
            made = path.with_suffix(".made")
            made.write_text(f"{exit_code}")
            made.rename(path)

    def work(self) -> bool:
        """Give the engine's threads a moment; nobody can tell whether they are idle."""
        time.sleep(STEP_S)
        return False

    def mishap(self) -> None:
        """Kill the first process of an attempt."""
        running = sorted(self._ranks().items(), key=str)
        if running:
            attempt, ranks = self._rng.choice(running)
            if is_alive(ranks[0][0]) and attempt not in self._exits:
                self._exits[attempt] = 128 + signal.SIGKILL
                with suppress(ProcessLookupError):
                    os.kill(ranks[0][0], signal.SIGKILL)

    def calm(self) -> None:
        """Do nothing: what goes wrong here is what the script does."""

    def restore(self) -> None:
        """Do nothing: this machine has not gone."""
