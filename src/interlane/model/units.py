"""Quantities that are summed are whole numbers; these are their units."""

from typing import Final

MILLI: Final = 1000
"""Thousandths in one whole: a GPU is 1000 ``gpu_milli``, a core 1000 ``cpu_milli``."""

MIB_PER_GIB: Final = 1024
