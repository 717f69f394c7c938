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
from interlane.predict.slowdown.pairs import Floats, Ints, Pairs
from interlane.predict.threads import one_thread

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
class GaussianProcess:
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
        return float(self.pairs.log_throughput.mean())

    @cached_property
    def _scale(self) -> float:
        return float(self.pairs.log_throughput.std()) or 1.0

    @cached_property
    def _standard(self) -> Floats:
        return (self.pairs.log_throughput - self._middle) / self._scale

    @cached_property
    def _inverse(self) -> Floats:
        covariance = self._covariance(self.pairs, self.pairs)
        covariance[np.diag_indices_from(covariance)] += np.exp(self._plain[NOISE]) + JITTER
        with one_thread():  # so that it is the same, bit for bit, in a model that was stored
            return _inverted(covariance)

    @cached_property
    def _weights(self) -> Floats:
        with one_thread():
            weights: Floats = self._inverse @ self._standard
        return weights

    @property
    def _plain(self) -> Floats:
        """The settings that are not rates."""
        return self.settings[-SETTINGS:]

    def _covariance(self, rows: Pairs, columns: Pairs) -> Floats:
        """Return how alike pairs are, read off how alike workloads are."""
        (victims, by_victim), (aggressors, by_aggressor) = self._sides
        at_row, at_column = self._places(rows), self._places(columns)

        def spread(small: Floats, side: int) -> Floats:
            return small[at_row[side]][:, at_column[side]]

        found = spread(by_victim, 0) + spread(by_aggressor, 1)
        found += spread(victims, 0) * spread(aggressors, 1)
        return np.asarray(found)

    @cached_property
    def _sides(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """How alike workloads on GPU types are, as victims and as aggressors.

        The first of each is a factor of what both sides do, the second what one does alone.
        """
        weights, likeness = np.exp(self._plain[: BOTH + 1]), _odds(self._plain)
        rates = np.exp(self.settings[:-SETTINGS]).reshape(2, -1)
        gpus, workloads, _ = self._counters.shape
        gpu = np.repeat(np.arange(gpus), workloads)
        same_gpu = gpu[:, None] == gpu
        alone = np.where(same_gpu, 1.0, likeness[OTHER_GPU_ALONE])
        together = weights[BOTH] * np.where(same_gpu, 1.0, likeness[OTHER_GPU])
        victims = self._alike(rates[0], likeness[VICTIM_FAMILY], likeness[VICTIM_OWN])
        aggressors = self._alike(rates[1], likeness[AGGRESSOR_FAMILY], likeness[AGGRESSOR_OWN])
        return (
            (victims * together, weights[SENSITIVITY] * victims * alone),
            (aggressors, weights[PRESSURE] * aggressors * alone),
        )

    def _places(self, pairs: Pairs) -> tuple[Ints, Ints]:
        """Return where victims and aggressors are among all workloads on all GPU types."""
        first = pairs.gpu * self._counters.shape[1]
        return first + pairs.victim, first + pairs.aggressor

    def _alike(self, rates: Floats, across: float, own: float) -> Floats:
        """Return how alike workloads are by counters (Matérn 3/2) and family.

        A part of every workload is its own.
        """
        gpus, workloads, counters = self._counters.shape
        scaled = (self._counters * rates).reshape(-1, counters)
        distance = _distances(scaled, scaled)
        family = np.tile(self.pairs.profiles.family_numbers, gpus)
        workload = np.tile(np.arange(workloads), gpus)
        same = np.where(family[:, None] == family, 1.0, across)
        found = (1.0 - own) * (1.0 + distance) * np.exp(-distance) * same
        return np.asarray(found + own * (workload[:, None] == workload))

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


def condition(pairs: Pairs, settings: Floats) -> GaussianProcess:
    """Return a process that has seen these pairs: all of them, or the latest it can hold."""
    return GaussianProcess(
        pairs.take(np.arange(max(0, len(pairs) - MOST), len(pairs))), settings
    )


def start(pairs: Pairs) -> Floats:
    """Return the settings before anything is known."""
    return np.concatenate([np.full(2 * len(pairs.profiles.counters), RATE_START), _START])


def learn_settings(pairs: Pairs, seed: int) -> Floats:
    """Return the settings under which a sample of the pairs is likeliest."""
    first = start(pairs)
    if len(pairs) < LEARNABLE:
        return first
    rng = np.random.default_rng(seed)
    sample = pairs.take(rng.permutation(len(pairs))[:SAMPLED])

    def cost(settings: Floats) -> float:
        drawn = DRAWN * float(((settings - first) ** 2).sum())
        return GaussianProcess(sample, settings).surprise() + drawn

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


def _inverted(covariance: Floats) -> Floats:
    """Return the inverse of a symmetric matrix that is positive definite; it is overwritten."""
    from scipy.linalg import lapack

    factor, failed = lapack.dpotrf(covariance, lower=1, overwrite_a=1)
    if failed:
        raise InvalidInput("What was measured contradicts itself; look for doubled rows.")
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def _odds(settings: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-settings))


def _distances(rows: Floats, columns: Floats) -> Floats:
    squares = (rows**2).sum(1)[:, None] + (columns**2).sum(1) - 2.0 * rows @ columns.T
    found: Floats = np.sqrt(3.0 * np.maximum(squares, 0.0) + 1e-12)
    return found
