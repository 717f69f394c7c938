"""What a daemon is told when it starts."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from interlane.device.specs import DeviceSpec

GRACE_S: Final = 3.0
"""How long a new daemon waits for jobs of the one before; jobs knock every 0.4 s."""


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What is shared, how, and where."""

    devices: tuple[DeviceSpec, ...]
    socket: Path
    order: str = "fair"
    sharing: str = "measured"
    hung_after_s: float = 30.0
    kills_hung: bool = True
    grace_s: float = GRACE_S
    leave_after_s: float = inf
    """Without jobs and without questions for so long, the daemon ends by itself."""
