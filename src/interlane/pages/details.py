"""What entries of the log tell, in a few words."""

from interlane.model import (
    Grow,
    GrowFailed,
    LogEntry,
    Placement,
    Preempt,
    Recovered,
    Refuse,
    Requeue,
    Start,
    StartFailed,
)
from interlane.pages.queue import place_words


def detail(entry: LogEntry) -> str:
    """Return what an entry says beside its kind."""
    said = entry.detail
    match entry.what:
        case (
            Start(_, placement) | Grow(_, placement) | Recovered(_, _, Placement() as placement)
        ):
            return f"on {place_words(placement)}"
        case Preempt(_, in_favour_of):
            return f"it makes way for job {in_favour_of}"
        case Requeue(_, why) | StartFailed(_, why) | GrowFailed(_, why):
            return why
        case Refuse(_, refusal):
            return str(refusal)
        case _ if said.get("cancelled_by"):
            return f"by {said['cancelled_by']}"
        case _ if said.get("reason"):
            return str(said["reason"])
        case _:
            code = said.get("exit_code")
            return "" if code is None else f"exit code {code}"
