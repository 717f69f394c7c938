"""NVIDIA GPUs that are not there: the library and the program by which others know of GPUs.

``nvml.c`` has the C symbols of ``libnvidia-ml.so.1``, ``smi.py`` is what ``nvidia-smi`` is, and
both see the GPUs of one file.  ``NvidiaHost`` makes all three.
"""

from interlane.testing.nvidia.host import NvidiaHost

__all__ = ["NvidiaHost"]
