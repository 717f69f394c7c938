"""Share GPUs in deep-learning clusters, in space and in time."""

__version__ = "0.1.0"
