"""Why the driver does not do what it was asked."""

from interlane.model import InterlaneError


class NoSuchJob(InterlaneError):
    """There is no job of this name."""


class NoSuchMachine(InterlaneError):
    """There is no machine of this name."""


class VersionDiffers(InterlaneError):
    """The job has changed since it was looked at."""


class NotUnknown(InterlaneError):
    """It is known what has become of the job, so that nobody need decide it."""


class NotWaiting(InterlaneError):
    """The job does not wait, so that it can be neither held nor changed."""


class AlreadyEnded(InterlaneError):
    """The job has ended, so that nothing can be done about it."""


class KeyReused(InterlaneError):
    """An idempotency key came back with another job."""


class NotReady(InterlaneError):
    """The server cannot take this in now; try again."""
