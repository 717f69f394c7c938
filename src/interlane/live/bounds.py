"""What one caller, one address and all together may take of the server.

Every bound is a number that ``interlane up --bound NAME=VALUE`` sets.  Together they say how
much memory strangers and users can make the server take (see the guide to operations).
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Self

from interlane.model import InvalidInput, UnknownName


@dataclass(frozen=True, slots=True)
class ServerBounds:
    """See the module's text; a token stands for the name that it was made for."""

    connections: int = 512
    """Open connections, of all; never more than half of the descriptors that there are."""
    connections_per_address: int = 256
    connections_per_s: float = 100.0
    """New ones of one address in the long run, and five seconds' worth of them in a row."""
    header_s: float = 10.0
    """Seconds within which a request's header has come."""
    body_s: float = 30.0
    """Seconds within which its body has come, and one more for every 256 KiB."""
    write_s: float = 60.0
    """Seconds for which a client may leave an answer unread."""
    requests_per_token: int = 256
    """Requests in hand, those that wait for a function included."""
    reads_per_token: int = 8
    """Of those, how many read the store at a time; the others wait."""
    requests_mib: int = 128
    """Bodies of requests in hand, of all."""
    requests_mib_per_token: int = 32
    questions_per_s: float = 10.0
    """Questions (eta, why, plan, trace) of one token, in the long run."""
    questions_waiting: int = 64
    """Different questions that wait to be answered, of all."""
    watchers: int = 512
    watchers_per_token: int = 16
    """Streams of events and open pages."""
    lines: int = 256
    lines_per_token: int = 64
    """Terminals and connections to ports of jobs."""
    pages_per_s: float = 1.0
    """Pages that one token opens in the long run, and thirty seconds' worth in a row."""
    sessions_per_token: int = 20
    """Browsers that are signed in; the oldest makes way."""
    logins_per_minute: float = 30.0
    """Of one address, whether they succeed or not."""
    functions_per_user: int = 100
    answers_mib: int = 256
    """Answers of functions that have not been read, of all."""
    uploads_waiting: int = 4
    """Uploads and what-ifs in hand, one of which is worked on; the others wait."""
    uploads_per_token: int = 2
    """Of those, files that one is sending."""
    upload_memory_share: float = 0.25
    """Of the machine's memory, for the one that is worked on."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if not getattr(self, one.name) > 0:
                raise InvalidInput(f"The bound {one.name} is not above 0; give it a value.")

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        """Return the defaults, but for those named as in ``header_s=5``."""
        usual = cls()
        kinds: dict[str, type[float]] = {
            one.name: type(getattr(usual, one.name)) for one in fields(cls)
        }
        given: dict[str, float] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in kinds:
                raise UnknownName("bound", name, list(kinds))
            try:
                given[name] = kinds[name](value)
            except ValueError:
                like = f"{name}={getattr(usual, name)}"
                raise InvalidInput(
                    f"The bound {word!r} has no number; write it as {like}."
                ) from None
        return replace(usual, **given)  # type: ignore[arg-type] # kinds are those of the fields
