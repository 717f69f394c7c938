"""How hot loops are compiled; every module that has any is named in ``_compiled_cache``."""

from numba import njit

compiled = njit(cache=True, error_model="numpy")
"""Compile a function on first use and keep the result on disk."""

inlined = njit(cache=True, error_model="numpy", inline="always")
"""The same for a leaf of the hottest loops: a call that passes tables costs more than it."""
