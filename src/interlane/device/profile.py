"""What a training step will need, computed before anything is allocated.

The step runs on fake tensors, which have shapes and no memory, while torch's own tracker adds
up what real ones would occupy.  So a job that needs more than this machine has can be profiled
on it.  What is seen is tensors: not the workspaces of libraries, not fragmentation (a
CNN was measured to need a fifth more), not the Python objects of a data loader.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.lanes.actions import MemoryDemand
from interlane.model import InvalidInput

STEPS: Final = 2
"""The first step makes the optimizer's state; the second needs its own memory besides."""

Step = Callable[[], object]
Builder = Callable[[], Step]


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """What a job needs, and what fills its peak, in bytes by kind of tensor."""

    demand: MemoryDemand
    at_peak: dict[str, int]


def builder_of(name: str, folder: Path) -> Builder:
    """Return the function that ``module:function`` names; modules in the folder come first."""
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise InvalidInput(f"{name!r} must read like module:function, as in train:build.")
    sys.path.insert(0, str(folder))
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise InvalidInput(f"{name!r} cannot be imported: {error}.") from None
    finally:
        sys.path.remove(str(folder))
    if not callable(found):
        raise InvalidInput(f"module {module!r} has no function {function!r}.")
    builder: Builder = found
    return builder


def profile(build: Builder) -> MemoryProfile:
    """Build a job with fake tensors, run its step, and add up.

    ``build`` makes model, optimizer and a batch, and returns a function of no arguments that
    runs one iteration.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode(allow_non_fake_inputs=True), MemTracker() as tracker:
        step = build()
        if not callable(step):
            raise InvalidInput(
                f"{_name(build)} returned {type(step).__name__}, but it must return a function "
                "of no arguments that runs one iteration."
            )
        for _ in range(STEPS):
            _run(step, build)
            tracker.reset_mod_stats()
        now = _total(tracker.get_tracker_snapshot("current"))
        peak = tracker.get_tracker_snapshot("peak")
    return MemoryProfile(MemoryDemand(now, max(0, _total(peak) - now)), _by_kind(peak))


def _run(step: Step, build: Builder) -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException

    try:
        step()
    except DataDependentOutputException as error:
        what = f"asks for the value of a tensor ({error}), and fake tensors have none"
    except NotImplementedError as error:
        what = f"does what the tracker cannot follow: {str(error).rstrip('.')}"
    else:
        return
    raise InvalidInput(
        f"the step of {_name(build)} {what}; leave that out, or let the first run be measured."
    )


def _name(build: Builder) -> str:
    return getattr(build, "__qualname__", repr(build))


def _total(snapshot: dict[Any, dict[Any, int]]) -> int:
    return sum(kinds["Total"] for kinds in snapshot.values())


_KINDS: Final = {
    "PARAM": "parameters",
    "BUFFER": "buffers",
    "GRAD": "gradients",
    "ACT": "activations",
    "TEMP": "temporaries",
    "OPT": "optimizer",
    "OTH": "other",
}


def _by_kind(snapshot: dict[Any, dict[Any, int]]) -> dict[str, int]:
    """Return the bytes of every kind; what torch has not named is other."""
    named = {
        told: sum(
            size
            for kinds in snapshot.values()
            for kind, size in kinds.items()
            if getattr(kind, "name", None) == name
        )
        for name, told in _KINDS.items()
    }
    named["other"] += _total(snapshot) - sum(named.values())
    return named
