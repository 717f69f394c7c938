"""What if: recent jobs, or synthetic ones, under other policies, with all waiting times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane import wiring
from interlane.model import Cluster, InvalidInput
from interlane.policy.catalogue import needs_estimate
from interlane.policy.policy import Discipline
from interlane.sim.compare import best
from interlane.sim.experiment import Choice, Experiment, run
from interlane.traces.schema import Trace
from interlane.traces.synth import synthesize

POINTS: Final = 101
SYNTHETIC_JOBS: Final = 600
SYNTHETIC_LOAD: Final = 0.9


@dataclass(frozen=True, slots=True)
class PlayedPolicy:
    """What became of the jobs under one policy."""

    policy: str
    summary: dict[str, object]
    is_best: frozenset[str]
    """Figures in which no other policy is better."""
    waits_s: tuple[float, ...]
    """Quantiles of the waiting times, from the least to the most."""
    jcts_s: tuple[float, ...]
    """The same of the completion times."""


def played_live(text: str, cluster: Cluster, policies: Sequence[str]) -> list[PlayedPolicy]:
    """Play what a machine ran lately, as a trace in CSV."""
    with TemporaryDirectory(prefix="interlane-whatif-") as folder:
        path = Path(folder) / "live.csv"
        path.write_text(text, encoding="utf-8")
        trace = wiring.trace_of(path, cluster)
    return _played(trace, cluster, policies, estimate="live")


def played_synthetic(
    cluster: Cluster, seed: int, policies: Sequence[str]
) -> list[PlayedPolicy]:
    """Play jobs like those of PAI's trace, as many as keep the cluster busy."""
    trace = synthesize(jobs=SYNTHETIC_JOBS, cluster=cluster, load=SYNTHETIC_LOAD, seed=seed)
    return _played(trace, cluster, policies, estimate="group")


def _played(
    trace: Trace, cluster: Cluster, policies: Sequence[str], estimate: str
) -> list[PlayedPolicy]:
    results = [run(Experiment(trace, cluster, _choice(one, estimate))) for one in policies]
    if not all(result.outcomes.done.any() for result in results):
        raise InvalidInput("No job of this trace can run on this machine; choose another.")
    winners = best([result.summary for result in results])
    return [
        PlayedPolicy(
            policy,
            result.summary,
            frozenset(figure for figure, numbers in winners.items() if number in numbers),
            _quantiles(result.outcomes.wait_s[result.outcomes.done]),
            _quantiles(result.outcomes.jct_s[result.outcomes.done]),
        )
        for number, (policy, result) in enumerate(zip(policies, results, strict=True))
    ]


def _choice(policy: str, estimate: str) -> Choice:
    """Return a policy; where it wants estimates, those that were there at submission."""
    words = wiring.policy_words(policy, wiring.PolicyWords())
    if words.estimate is None and needs_estimate(
        words.order.split(":")[0], Discipline(words.queue)
    ):
        words = wiring.policy_words(f"{policy},estimate={estimate}", wiring.PolicyWords())
    return wiring.choice_of(words)


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0.0, 1.0, POINTS)).tolist())
