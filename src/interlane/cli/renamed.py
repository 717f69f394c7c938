"""Names of the version before: they work for one more version, with a notice."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from interlane.cli.output import say

OPTIONS: Final = MappingProxyType({"--guess": "--estimate"})
COMMANDS: Final = MappingProxyType(
    {
        ("story",): ("timeline",),
        ("predict", "degradation"): ("predict", "slowdown"),
    }
)


def with_new_names(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the names of this version; tell of each that was replaced."""
    words = list(arguments)
    for old, new in COMMANDS.items():
        if tuple(words[: len(old)]) == old:
            _tell(" ".join(old), " ".join(new))
            words[: len(old)] = new
    return [_option(word) for word in words]


def _option(word: str) -> str:
    name, equals, value = word.partition("=")
    if name not in OPTIONS:
        return word
    _tell(name, OPTIONS[name])
    return OPTIONS[name] + equals + value


def _tell(old: str, new: str) -> None:
    say(f"interlane: {old} is called {new} now; the old name goes with the next version.")
