"""Nouns and nothing else: jobs, machines, placements, events and actions.

They are loaded when the first of them is asked for: a command that only asks a server needs
the errors alone, and is to answer at once.
"""

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlane.model.nouns import *  # noqa: F403 - they are listed there
else:

    def __getattr__(name: str) -> object:
        if name.islower() and not name.startswith("_"):
            # ``from interlane.model import amounts`` asks here first, and means a module.
            with suppress(ModuleNotFoundError):
                return import_module(f"{__name__}.{name}")
        if not name.startswith("_"):
            nouns = import_module("interlane.model.nouns")
            globals().update({one: getattr(nouns, one) for one in nouns.__all__})
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
