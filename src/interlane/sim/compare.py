"""Several experiments side by side, on as many cores as there are.

Every run is a process of its own, started afresh (``spawn``), so that it inherits no state
and frees all its memory.  It reports through a pipe; when it dies without a word, the pipe
says so.  Results come in the order of the experiments, whatever the order of their ends.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

from interlane.model import InterlaneError, InvalidInput
from interlane.sim.experiment import Experiment, run

REPORTS: Final = 200
"""How often a run says how far it is."""

BEST_IS_LARGEST: Final = frozenset({"gpu_allocated_ratio"})
BEST_IS_SMALLEST: Final = (
    "mean_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "p99_wait_s",
    "makespan_s",
    "fragmentation_ratio",
)

Summary = dict[str, object]
Progress = Callable[[int, int], None]
"""Told the number of an experiment and how many of its jobs have ended."""


def silent(number: int, ended: int) -> None:
    """Say nothing."""


def compare(
    experiments: Sequence[Experiment], processes: int = 1, progress: Progress = silent
) -> list[Summary]:
    """Run all experiments and return their summaries, in the same order."""
    if processes <= 1 or len(experiments) <= 1:
        return [
            run(experiment, _thinned(experiment, partial(progress, number))).summary
            for number, experiment in enumerate(experiments)
        ]
    return _Pool(experiments, progress).run(processes)


def best(summaries: Sequence[Summary]) -> dict[str, list[int]]:
    """Return which runs have the best value of each figure; several when they are equal."""
    winners = {}
    for figure in (*BEST_IS_SMALLEST, *sorted(BEST_IS_LARGEST)):
        values = [summary[figure] for summary in summaries]
        known = [value for value in values if isinstance(value, int | float)]
        if known:
            top = max(known) if figure in BEST_IS_LARGEST else min(known)
            winners[figure] = [at for at, value in enumerate(values) if value == top]
    return winners


def _thinned(experiment: Experiment, tell: Callable[[int], None]) -> Callable[[int], None]:
    """Return a progress function that passes on one call in many."""
    step = max(1, experiment.jobs // REPORTS)
    next_at = step

    def count(ended: int) -> None:
        nonlocal next_at
        if ended >= next_at:
            next_at = ended + step
            tell(ended)

    return count


def _work(experiment: Experiment, pipe: Connection) -> None:
    """Run one experiment and send its summary, or the sentence that says what is wrong."""
    # An interrupt reaches the whole group of processes; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pipe.send(run(experiment, _thinned(experiment, pipe.send)).summary)
    except InvalidInput as error:
        pipe.send(str(error))
    except BrokenPipeError:
        pass


@dataclass(frozen=True, slots=True)
class _Worker:
    number: int
    process: SpawnProcess


class _Pool:
    """Runs at most so many processes at a time."""

    def __init__(self, experiments: Sequence[Experiment], progress: Progress) -> None:
        self._experiments = experiments
        self._progress = progress
        self._context = get_context("spawn")
        self._workers: dict[Connection, _Worker] = {}
        self._summaries: dict[int, Summary] = {}

    def run(self, processes: int) -> list[Summary]:
        """Run all and return the summaries in order."""
        todo = list(reversed(range(len(self._experiments))))
        try:
            while todo or self._workers:
                while todo and len(self._workers) < processes:
                    self._start(todo.pop())
                for pipe in wait(list(self._workers)):
                    assert isinstance(pipe, Connection)
                    self._hear(pipe)
        finally:
            for worker in self._workers.values():
                worker.process.terminate()
        return [self._summaries[number] for number in range(len(self._experiments))]

    def _start(self, number: int) -> None:
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work, args=(self._experiments[number], there), daemon=True
        )
        process.start()
        there.close()
        self._workers[here] = _Worker(number, process)

    def _hear(self, pipe: Connection) -> None:
        worker = self._workers[pipe]
        try:
            message = pipe.recv()
        except EOFError:
            self._bury(pipe, worker)
            return
        if isinstance(message, str):
            raise InvalidInput(message)
        if isinstance(message, int):
            self._progress(worker.number, message)
        else:
            self._summaries[worker.number] = message

    def _bury(self, pipe: Connection, worker: _Worker) -> None:
        pipe.close()
        del self._workers[pipe]
        worker.process.join()
        if worker.number not in self._summaries:
            name = self._experiments[worker.number].choice.name
            raise InterlaneError(
                f"The run of {name} ended without a result (exit {worker.process.exitcode}); "
                "if memory was short, try --processes 1."
            )
