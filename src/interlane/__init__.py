"""Share GPUs in deep-learning clusters, in space and in time."""

from interlane._compiled_cache import use_own_cache

__version__ = "0.1.0"

use_own_cache()
