"""What scarce CPUs cost: the published slowdown of training beside busy cores.

A CTR model (DeepFM) on a 48-core host ran 4.40, 4.22, 4.17 and 3.55 steps a second with 40,
20, 10 and no cores idle ("MLaaS in the Wild", NSDI 2022, section 6.2).  Between the points the
slowdown is a straight line; with more idle cores there is none.

Placers that avoid contention and the simulator's ``--slowdown cpu`` both read this curve.
"""

from typing import Final

from interlane.compiling import compiled

CORES: Final = 48
STEPS_PER_S: Final = ((40, 4.40), (20, 4.22), (10, 4.17), (0, 3.55))
"""Idle cores of the host, and the speed that was read off the figure."""

_FASTEST: Final = STEPS_PER_S[0][1]
_AT: Final = tuple(idle / CORES for idle, _ in reversed(STEPS_PER_S))
_SLOWDOWN: Final = tuple(_FASTEST / steps - 1.0 for _, steps in reversed(STEPS_PER_S))

WHEN_FULL: Final = _SLOWDOWN[0]
"""By how much longer work takes when no core is idle."""


@compiled
def slowdown(idle_ratio):
    """Return by how much longer work takes when this share of a host's cores is idle."""
    if idle_ratio <= _AT[0]:
        return _SLOWDOWN[0]
    for point in range(1, len(_AT)):
        if idle_ratio < _AT[point]:
            part = (idle_ratio - _AT[point - 1]) / (_AT[point] - _AT[point - 1])
            return _SLOWDOWN[point - 1] + part * (_SLOWDOWN[point] - _SLOWDOWN[point - 1])
    return 0.0
