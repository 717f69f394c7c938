"""What can go wrong, as one small tree.

* InterlaneError
  x InvalidInput         the caller gave us something we cannot accept
    + InvalidField       one field of a request, machine or policy breaks its rule
    + InvalidFile        a file, at a line where we know it
    + UnknownName        a name that no catalogue holds
  x IllegalTransition    an event arrived that the job's state does not allow
  x CapacityViolated     a bookkeeping invariant broke; always our bug
  x Unreachable          nobody answers where somebody should
  x Rejected             somebody who decides said no, for good

"No" is not here: a job that does not fit now gets a ``Refusal``, which is a value.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class InterlaneError(Exception):
    """Anything this package raises on purpose."""


class InvalidInput(InterlaneError):
    """The caller gave us something we cannot accept; the caller must act."""


class InvalidField(InvalidInput):
    """A field breaks its rule: the sentence names field, value and rule."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field} is {value!r}, but {rule}.")
        self.field = field
        self.value = value
        self.rule = rule


class InvalidFile(InvalidInput):
    """A file cannot be read as what it should be; names the line where it is known."""

    def __init__(self, file: str, what: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {what}")
        self.file = file
        self.line = line
        self.what = what


class UnknownName(InvalidInput):
    """A name that its catalogue does not hold; lists what would have been understood."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        super().__init__(f"{kind} {name!r} is not known; {hint}known are: {', '.join(names)}.")
        self.kind = kind
        self.name = name


class IllegalTransition(InterlaneError):
    """An event arrived that the state does not allow."""

    def __init__(self, subject: str, state: str, event: str) -> None:
        super().__init__(f"{subject} is {state}, where {event} cannot happen.")


class CapacityViolated(InterlaneError):
    """The state does not balance: more is held than exists, or returned than was held."""


class Unreachable(InterlaneError):
    """Nobody answers where somebody should."""


class Rejected(InterlaneError):
    """Somebody who decides said no, for good."""
