"""Says on pods why they wait, in the scheduler's sentence, so that kubectl shows it."""

import logging
import threading
from typing import Final

from interlane.engines.kubernetes.engine import KubernetesEngine
from interlane.live.view import View
from interlane.model import InterlaneError
from interlane.model.lifecycle import JobState

EVERY_S: Final = 5.0
WAITS_S: Final = 2.0
"""Seconds that a pod waits before anybody asks why."""
AT_ONCE: Final = 50
"""Pods that are explained in one round: the scheduler is asked about each."""

log = logging.getLogger("interlane.engines.kubernetes")


class Explaining:
    """Asks why jobs wait that came in as pods, and has it written on them."""

    def __init__(self, view: View, engine: KubernetesEngine, every_s: float = EVERY_S) -> None:
        self._view = view
        self._engine = engine
        self._every_s = every_s
        self._closing = threading.Event()
        self._next = 0

    def start(self) -> None:
        """Begin, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="explaining", daemon=True).start()

    def close(self) -> None:
        """Explain no more."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self.round()
            except Exception as error:  # nothing depends on it
                log.warning("Pods could not be told why they wait: %s", error)

    def round(self) -> None:
        """Explain the pods whose turn it is."""
        before_s = self._view.now_s() - WAITS_S
        waiting = [
            one
            for one in self._view.open_jobs()
            if one.key is not None
            and one.state is JobState.QUEUED
            and one.submitted_s < before_s
        ]
        waiting.sort(key=lambda one: one.serial)
        first = self._next if self._next < len(waiting) else 0
        for record in waiting[first : first + AT_ONCE]:
            try:
                refusal = self._view.why_now(record.id).refusal
            except InterlaneError:  # it has begun or ended in between
                continue
            if refusal is not None and record.key is not None:
                self._engine.explain(record.key, f"{refusal.reason} {refusal.remedy}")
        self._next = first + AT_ONCE
        self._engine.explain_gangs()
