"""GPU models that the supported traces and clusters name, with their memory."""

from types import MappingProxyType
from typing import Final

GPU_MEMORY_MIB: Final = MappingProxyType(
    {
        # Alibaba PAI v2020.  MISC is a mixed bag of older cards (K40m, K80, M60).
        "MISC": 8 * 1024,
        "T4": 16 * 1024,
        "P100": 16 * 1024,
        "V100": 16 * 1024,
        "V100M32": 32 * 1024,
        # Alibaba v2023 ("openb"); G1-G3 are undisclosed models.
        "G1": 16 * 1024,
        "G2": 24 * 1024,
        "G3": 80 * 1024,
        "V100M16": 16 * 1024,
        "A10": 24 * 1024,
        # Others that users' own traces name.
        "K80": 12 * 1024,
        "GTX1080TI": 11 * 1024,
        "RTX2080TI": 11 * 1024,
        "RTX3090": 24 * 1024,
        "RTX4090": 24 * 1024,
        "L4": 24 * 1024,
        "L40S": 48 * 1024,
        "A30": 24 * 1024,
        "A100": 40 * 1024,
        "A100M80": 80 * 1024,
        "A800": 80 * 1024,
        "H100": 80 * 1024,
        "H200": 141 * 1024,
        "B200": 180 * 1024,
    }
)
"""GPU type -> memory of one card.  A cluster file may name types that are not here."""

NO_GPU: Final = "CPU"
"""The type of a machine without GPUs, as the PAI tables spell it."""
