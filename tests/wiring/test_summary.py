from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlane.metrics.kinds import typical_kinds
from interlane.metrics.summary import mean, quantile
from interlane.model import Demand, Request, one_task
from interlane.policy.base import TypeRule
from interlane.policy.typical import typical_demands

COUNTED = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 50)), min_size=1, max_size=40
)


@given(COUNTED, st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_numpys_of_the_repeated_list(
    counted: list[tuple[int, int]], q: float
) -> None:
    values = np.array([value for value, _ in counted], np.float64)
    counts = np.array([count for _, count in counted], np.int64)

    assert quantile(values, counts, q) == np.quantile(np.repeat(values, counts), q)


def test_nothing_has_no_mean_and_no_quantile() -> None:
    nothing = np.array([]), np.array([], np.int64)

    assert mean(*nothing) is None
    assert quantile(*nothing, 0.5) is None


WHOLE, HALF, RARE, CPU = Demand(1), Demand(1, 500), Demand(8), Demand(cpu_milli=1000)


def test_typical_kinds_cover_95_percent_of_instances_by_falling_count() -> None:
    counts: Counter[Request] = Counter(
        {one_task(WHOLE, 5): 10, one_task(HALF): 30, one_task(CPU): 18, one_task(RARE): 2}
    )

    kinds = typical_kinds(counts.items())

    # 50 + 30 + 18 of 100 instances; without the CPU work it would be 80.
    assert kinds == ((WHOLE, 50 / 98), (HALF, 30 / 98), (CPU, 18 / 98))


def test_memory_does_not_tell_kinds_apart() -> None:
    fat, thin = Demand(1, memory_mib=9), Demand(1, gpu_memory_mib=5)

    assert typical_kinds([(one_task(fat), 1), (one_task(thin), 2)]) == ((WHOLE, 1.0),)


def test_types_that_do_not_bind_do_not_tell_kinds_apart() -> None:
    t4, v100 = (Demand(1, gpu_types=frozenset({name})) for name in ("T4", "V100"))
    counts = [(one_task(t4), 1), (one_task(v100), 3)]

    assert [kind.demand for kind in typical_demands(counts)] == [v100, t4]
    assert [kind.demand for kind in typical_demands(counts, TypeRule.V100_ONLY)] == [
        v100,
        WHOLE,
    ]
    assert [kind.demand for kind in typical_demands(counts, TypeRule.ANY)] == [WHOLE]
