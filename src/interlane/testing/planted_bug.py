"""What a planted bug is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scripts:
    """Scripts of the fault simulation, played from the first seed until one is broken."""

    part: str
    seeds: int = 40
    events: int = 2_000


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A small change of meaning."""

    module: str
    what: str
    """What is wrong then, in a few words."""
    old: str
    """As the module has it, once."""
    new: str
    breaks: str
    """The invariant that dies."""
    noticed_by: tuple[str, ...] | Scripts
    finding: str = ""
    """What attackers found that it brings back; see ``docs/results/attacks.md``."""
