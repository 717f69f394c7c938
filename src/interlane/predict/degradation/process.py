"""A Gaussian process over ordered pairs: matrix factorisation that also knows features.

What the victim suffers is a sum of three random functions: one of the victim (sensitivity),
one of the aggressor (pressure), one of both.  Workloads are alike as far as their counters and
families are; a part of each is its own, so that what recurs is told apart even from its twin.
A few co-runs of a workload that was never seen therefore say much about the others: probes
need no machinery of their own, they are observations.

Everything is in logarithms, standardised.  The covariance's settings maximise the likelihood
of a sample of the observations, drawn towards sensible values.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from interlane.model import InvalidInput
from interlane.predict.degradation.pairs import Floats, Pairs

MOST: Final = 3000
"""Observations that are conditioned on; the time grows with their cube."""
SAMPLED: Final = 250
"""Observations by which the covariance's settings are judged."""
LEARNABLE: Final = 60
"""Observations below which the settings stay where they begin."""
STEPS: Final = 8
DRAWN: Final = 0.05
"""How strongly settings are drawn to where they begin."""
RATE_START: Final = np.log(0.4)
JITTER: Final = 1e-6

# Places of the settings after the rates of the victim's and the aggressor's counters.
SENSITIVITY, PRESSURE, BOTH, NOISE = range(4)
VICTIM_FAMILY, AGGRESSOR_FAMILY, OTHER_GPU, OTHER_GPU_ALONE, VICTIM_OWN, AGGRESSOR_OWN = range(
    4, 10
)
SETTINGS: Final = 10
_START: Final = np.array([*np.log([0.3, 0.3, 0.5, 0.05]), 0.0, 0.0, 0.0, 1.0, -1.0, -1.0])


@dataclass(frozen=True, eq=False)
class Process:
    """Observations and a covariance; what follows from them is computed when asked for."""

    pairs: Pairs
    settings: Floats
    """Logarithms of rates and weights, then log-odds of likenesses."""

    def predict(self, asked: Pairs) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of the logarithm of what is retained."""
        across = self._covariance(asked, self.pairs)
        mean = self._middle + self._scale * (across @ self._weights)
        explained = np.einsum("ij,jk,ik->i", across, self._inverse, across, optimize=True)
        prior = np.exp(self._plain[: BOTH + 1]).sum()
        spread = np.sqrt(np.maximum(prior + np.exp(self._plain[NOISE]) - explained, JITTER))
        return mean, self._scale * spread

    def left_out(self) -> tuple[Floats, Floats]:
        """Return the same for each observation as if it were not one."""
        variance = 1.0 / np.diag(self._inverse)
        mean = self._standard - self._weights * variance
        return self._middle + self._scale * mean, self._scale * np.sqrt(variance)

    @cached_property
    def _middle(self) -> float:
        return float(self.pairs.log_retained.mean())

    @cached_property
    def _scale(self) -> float:
        return float(self.pairs.log_retained.std()) or 1.0

    @cached_property
    def _standard(self) -> Floats:
        return (self.pairs.log_retained - self._middle) / self._scale

    @cached_property
    def _inverse(self) -> Floats:
        covariance = self._covariance(self.pairs, self.pairs)
        covariance[np.diag_indices_from(covariance)] += np.exp(self._plain[NOISE]) + JITTER
        return np.asarray(np.linalg.inv(covariance), np.float64)

    @cached_property
    def _weights(self) -> Floats:
        weights: Floats = self._inverse @ self._standard
        return weights

    @property
    def _plain(self) -> Floats:
        """The settings that are not rates."""
        return self.settings[-SETTINGS:]

    def _covariance(self, rows: Pairs, columns: Pairs) -> Floats:
        weights, likeness = np.exp(self._plain[: BOTH + 1]), _odds(self._plain)
        rates = np.exp(self.settings[:-SETTINGS]).reshape(2, -1)
        same_gpu = rows.gpu[:, None] == columns.gpu
        victims = self._alike(rows, columns, "victim", rates[0], likeness[VICTIM_FAMILY])
        aggressors = self._alike(
            rows, columns, "aggressor", rates[1], likeness[AGGRESSOR_FAMILY]
        )
        victims = _with_own(victims, rows.victim, columns.victim, likeness[VICTIM_OWN])
        aggressors = _with_own(
            aggressors, rows.aggressor, columns.aggressor, likeness[AGGRESSOR_OWN]
        )
        alone = weights[SENSITIVITY] * victims + weights[PRESSURE] * aggressors
        alone *= np.where(same_gpu, 1.0, likeness[OTHER_GPU_ALONE])
        both = weights[BOTH] * victims * aggressors
        found: Floats = alone + both * np.where(same_gpu, 1.0, likeness[OTHER_GPU])
        return found

    def _alike(
        self, rows: Pairs, columns: Pairs, side: str, rates: Floats, across: float
    ) -> Floats:
        """Return how alike one side of pairs is by counters (Matérn 3/2) and family."""
        one, other = getattr(rows, side), getattr(columns, side)
        counters = self._counters * rates
        distance = _distances(counters[rows.gpu, one], counters[columns.gpu, other])
        family = self.pairs.profiles.family_numbers
        same = family[one][:, None] == family[other]
        found: Floats = (1.0 + distance) * np.exp(-distance) * np.where(same, 1.0, across)
        return found

    @cached_property
    def _counters(self) -> Floats:
        """The counters of every workload, standardised."""
        filled = self.pairs.profiles.filled
        deviation = filled.std(axis=(0, 1))
        scale = np.where(deviation > 0, deviation, 1.0)
        return np.asarray((filled - filled.mean(axis=(0, 1))) / scale)

    def surprise(self) -> float:
        """Return the negative logarithm of the likelihood, up to a constant."""
        covariance = self._covariance(self.pairs, self.pairs)
        covariance[np.diag_indices_from(covariance)] += np.exp(self._plain[NOISE]) + JITTER
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e9
        white = np.linalg.solve(factor, self._standard)
        return float(0.5 * white @ white + np.log(np.diag(factor)).sum())


def condition(pairs: Pairs, settings: Floats) -> Process:
    """Return a process that has seen these pairs: all of them, or the latest it can hold."""
    return Process(pairs.take(np.arange(max(0, len(pairs) - MOST), len(pairs))), settings)


def start(pairs: Pairs) -> Floats:
    """Return the settings before anything is known."""
    return np.concatenate([np.full(2 * len(pairs.profiles.counters), RATE_START), _START])


def learn_settings(pairs: Pairs, seed: int) -> Floats:
    """Return the settings under which a sample of the pairs is likeliest."""
    first = start(pairs)
    if len(pairs) < LEARNABLE:
        return first
    dice = np.random.default_rng(seed)
    sample = pairs.take(dice.permutation(len(pairs))[:SAMPLED])

    def cost(settings: Floats) -> float:
        drawn = DRAWN * float(((settings - first) ** 2).sum())
        return Process(sample, settings).surprise() + drawn

    bounds = [(value - 6.0, value + 6.0) for value in first]
    found: Floats = _minimised(cost, first, bounds)
    return found


def _minimised(cost: Any, first: Floats, bounds: list[tuple[float, float]]) -> Any:  # noqa: ANN401 - scipy has no types
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    return minimize(cost, first, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS}).x


def _odds(settings: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-settings))


def _with_own(alike: Floats, rows: Any, columns: Any, own: float) -> Floats:  # noqa: ANN401 - columns of numbers
    """Give every workload a part that it shares with nobody."""
    found: Floats = (1.0 - own) * alike + own * (rows[:, None] == columns)
    return found


def _distances(rows: Floats, columns: Floats) -> Floats:
    squares = (rows**2).sum(1)[:, None] + (columns**2).sum(1) - 2.0 * rows @ columns.T
    found: Floats = np.sqrt(3.0 * np.maximum(squares, 0.0) + 1e-12)
    return found
