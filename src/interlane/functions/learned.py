"""What objects have learned, as plain arrays, so that it can be kept and come back.

A class says with ``LEARNED`` which of its attributes those are; ``parts`` are objects inside it
that learn, too.  Nothing that is kept is ever run, and what does not fit is refused.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidInput

Learned = Mapping[str, NDArray[Any]]
"""Name -> array; what is inside a part has the part's name before it."""


def learned_of(one: object) -> dict[str, NDArray[Any]]:
    """Return a copy of what an object has learned."""
    found = {
        name: np.array(getattr(one, name), np.float64) for name in getattr(one, "LEARNED", ())
    }
    for key, part in getattr(one, "parts", {}).items():
        found |= {f"{key}/{name}": array for name, array in learned_of(part).items()}
    return found


def take_up(one: object, learned: Learned) -> None:
    """Let an object go on from what another of its kind has learned."""
    for name in getattr(one, "LEARNED", ()):
        old, new = np.asarray(getattr(one, name)), learned.get(name)
        if new is None or new.shape != old.shape or not np.isfinite(new).all():
            raise InvalidInput(f"What was learned of {name} is of another kind or damaged.")
        value = new.astype(old.dtype)
        setattr(one, name, value if old.shape else value.item())
    for key, part in getattr(one, "parts", {}).items():
        inside = {
            name.removeprefix(f"{key}/"): array
            for name, array in learned.items()
            if name.startswith(f"{key}/")
        }
        take_up(part, inside)
