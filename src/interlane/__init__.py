"""Share GPUs in deep-learning clusters, in space and in time.

    import interlane as il

    run = il.simulate("jobs.csv", "lab.yaml", "order=sjf,estimate=group_dur")
    run.summary, run.frame(), run.plot()
    il.compare("jobs.csv", "lab.yaml", ["order=fifo", "order=sjf"]).frame()
    il.Client().submit({"name": "train", "run": "python train.py"}).wait()

The names in ``__all__`` are stable; they are loaded when they are first used, and
``__init__.pyi`` has their types.
"""

from importlib import import_module

from interlane._compiled_cache import use_own_cache

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncLiveJob",
    "Client",
    "Comparison",
    "InterlaneError",
    "InvalidInput",
    "LiveJob",
    "Simulation",
    "Unreachable",
    "__version__",
    "compare",
    "simulate",
]

_WHERE = {
    "AsyncClient": "interlane.client.aio",
    "AsyncLiveJob": "interlane.client.aio",
    "Client": "interlane.client.client",
    "Comparison": "interlane.api.run",
    "InterlaneError": "interlane.model.errors",
    "InvalidInput": "interlane.model.errors",
    "LiveJob": "interlane.client.client",
    "Simulation": "interlane.api.run",
    "Unreachable": "interlane.model.errors",
    "compare": "interlane.api.run",
    "simulate": "interlane.api.run",
}

use_own_cache()


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interlane' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
