"""Slices in which handlers are timed, for use cases."""

from interlane.device.emulated_mig import settings_of
from interlane.engines.local.measuring import (
    HandlerWork,
    OpenSlice,
    emulated_slice,
    model_of_gpu,
    nvidia_slice,
    timed,
)

__all__ = [
    "HandlerWork",
    "OpenSlice",
    "emulated_slice",
    "model_of_gpu",
    "nvidia_slice",
    "settings_of",
    "timed",
]
