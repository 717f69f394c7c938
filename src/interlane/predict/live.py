"""Estimates while jobs come and go: asked at submission, told at the end."""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from interlane.predict import bands, compiled
from interlane.predict.estimates import LOW, EstimateBasis
from interlane.predict.recall import Recall
from interlane.predict.runs import Runs


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """How long one job will run, as far as anybody knows."""

    seconds: float
    low_s: float
    high_s: float
    basis: EstimateBasis

    def __str__(self) -> str:
        return (
            f"about {self.seconds:,.0f} s, eight times in ten {self.low_s:,.0f} to "
            f"{self.high_s:,.0f} s, from {self.basis.words}"
        )


class OnlinePredictor:
    """A predictor at work; the one that it was given, if any, stays as it was."""

    def __init__(self, predictor: Recall | None = None) -> None:
        self.predictor = Recall() if predictor is None else deepcopy(predictor)
        self._open: dict[str, tuple[Runs, float, float, int]] = {}
        """Job -> itself, the raw edges told at its submission, and what they rest on."""

    def submitted(self, job_id: str, run: Runs) -> DurationEstimate:
        """Return the estimate for a job that is submitted; nothing ended later is known."""
        estimates, low, high = self.predictor.asked(run)
        basis = int(estimates.basis[0])
        self._open[job_id] = (run, float(low[0]), float(high[0]), basis)
        return DurationEstimate(
            float(estimates.seconds[0]),
            float(estimates.low_s[0]),
            float(estimates.high_s[0]),
            EstimateBasis(basis),
        )

    def finished(self, job_id: str, ran_s: float) -> None:
        """Learn how long a job ran; a job that was never asked about is passed over."""
        if job_id not in self._open:
            return
        run, low, high, basis = self._open.pop(job_id)
        log_s = float(np.log(max(ran_s, 1.0)))
        offsets = self.predictor.offsets_
        compiled.adjust(offsets, basis, log_s, low, high, bands.STEP, LOW)
        self.predictor.history_.note_one(run, log_s)

    def forget(self, job_id: str) -> None:
        """Drop a job that will not end by itself: refused, cancelled or lost."""
        self._open.pop(job_id, None)
