"""Columns for predictors of slowdown, of co-runs as readers give them."""

from interlane.predict.slowdown.pairs import Pairs, Profiles, pairs_of
from interlane.traces.colocation.coruns import CoRuns


def profiles_of(coruns: CoRuns) -> Profiles:
    """Return what is known of the workloads alone."""
    return Profiles(
        coruns.workloads, coruns.families, coruns.gpu_types, coruns.counters, coruns.values
    )


def pairs_by_way(coruns: CoRuns) -> dict[str, Pairs]:
    """Return the co-runs of each way to share, named ``mode/target``."""
    profiles = profiles_of(coruns)
    return {
        "/".join(way): pairs_of(profiles, runs) for way, runs in coruns.coruns.items() if runs
    }
