"""Whom to tell what of a job: fields of a job file."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from interlane.live.files.fields import Strict


class NotifyOn(StrEnum):
    """What somebody is told of."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    ENDED = "ended"
    """Any of the four before."""


class NotifyFields(Strict):
    """An address to which a document is sent."""

    url: Annotated[str, Field(min_length=1, max_length=2_000)]
    on: list[NotifyOn] = Field(default_factory=lambda: [NotifyOn.ENDED], max_length=6)

    def wants(self, what: NotifyOn) -> bool:
        """Tell whether this is to be told."""
        return what in self.on or (what is not NotifyOn.STARTED and NotifyOn.ENDED in self.on)


def _url_in_short(said: object) -> object:
    return {"url": said} if isinstance(said, str) else said


Notify = Annotated[
    NotifyFields,
    BeforeValidator(_url_in_short, json_schema_input_type=NotifyFields | str),
]
