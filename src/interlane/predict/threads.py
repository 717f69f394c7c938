"""How many threads learn."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """Hold scikit-learn and SciPy to one thread: on a busy machine, threads wait for others.

    Eight times slower was seen, and the sums of one thread are the same every time.
    """
    import scipy.linalg  # noqa: F401 - what is loaded later is not held
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits
