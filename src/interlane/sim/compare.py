"""Several experiments side by side, on as many cores as there are.

Workers are processes started afresh (``spawn``), so that they inherit no state; each gets all
experiments once, which share their trace, and then the number of one after another.  It
reports through a pipe; when it dies without a word, the pipe says so.  Results come in the
order of the experiments, whatever the order of their ends.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Final

from interlane.model import InterlaneError, InvalidInput
from interlane.sim.experiment import Experiment, compile_first, run

REPORTS: Final = 200
"""How often a run says how far it is."""

BEST_IS_LARGEST: Final = frozenset({"gpu_allocated_ratio", "best_effort_gpu_h"})
BEST_IS_SMALLEST: Final = (
    "mean_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "p99_wait_s",
    "makespan_s",
    "fragmentation_ratio",
    "p99_latency_s",
    "cold_starts",
    "deadline_miss_ratio",
    "job_slowdown_mean",
    "job_hours_over_limit_ratio",
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
    compile_first(experiments)
    return _Pool(experiments, progress).run(processes)


def judged(summary: Mapping[str, object]) -> list[str]:
    """Return the figures of a run by which it can be better than another."""
    return [one for one in (*BEST_IS_SMALLEST, *sorted(BEST_IS_LARGEST)) if one in summary]


def best(summaries: Sequence[Summary]) -> dict[str, list[int]]:
    """Return which runs have the best value of each figure; several when they are equal."""
    winners = {}
    for figure in judged(summaries[0]):
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


def _work(experiments: Sequence[Experiment], pipe: Connection) -> None:
    """Run the experiments whose numbers come in; send how far each is, then its summary.

    A text is sent instead of a summary when the input is bad: the sentence that says so.
    """
    # An interrupt reaches the whole group of processes; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError):
        while True:
            experiment = experiments[pipe.recv()]
            try:
                pipe.send(run(experiment, _thinned(experiment, pipe.send)).summary)
            except InvalidInput as error:
                pipe.send(str(error))


class _Worker:
    """A process that runs one experiment after another."""

    def __init__(self, experiments: Sequence[Experiment]) -> None:
        context = get_context("spawn")
        self.pipe, there = context.Pipe()
        self.number = -1
        """The experiment that it runs."""
        self.process = context.Process(target=_work, args=(experiments, there), daemon=True)
        self.process.start()
        # Only the worker holds the other end now, so that its death closes the pipe.
        there.close()

    def begin(self, number: int) -> None:
        """Let it run an experiment."""
        self.number = number
        self.pipe.send(number)


class _Pool:
    """So many workers, and the experiments that are still to be run."""

    def __init__(self, experiments: Sequence[Experiment], progress: Progress) -> None:
        self._experiments = experiments
        self._progress = progress
        self._todo = list(reversed(range(len(experiments))))
        self._workers: dict[object, _Worker] = {}
        """Workers that run something, by their pipes."""
        self._summaries: dict[int, Summary] = {}

    def run(self, processes: int) -> list[Summary]:
        """Run all and return the summaries in order."""
        try:
            for _ in range(min(processes, len(self._experiments))):
                worker = _Worker(self._experiments)
                self._workers[worker.pipe] = worker
                worker.begin(self._todo.pop())
            while self._workers:
                for pipe in wait([worker.pipe for worker in self._workers.values()]):
                    self._hear(self._workers[pipe])
        finally:
            for worker in self._workers.values():
                worker.process.terminate()
        return [self._summaries[number] for number in range(len(self._experiments))]

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death(worker) from None
        if isinstance(message, str):
            raise InvalidInput(message)
        if isinstance(message, int):
            self._progress(worker.number, message)
            return
        self._summaries[worker.number] = message
        if self._todo:
            worker.begin(self._todo.pop())
        else:
            del self._workers[worker.pipe]
            worker.pipe.close()
            worker.process.join()

    def _death(self, worker: _Worker) -> InterlaneError:
        worker.process.join()
        name = self._experiments[worker.number].name
        return InterlaneError(
            f"The run of {name} ended without a result (exit {worker.process.exitcode}); "
            "if memory was short, try --processes 1."
        )
