"""The driver: events from users and the engine in, the scheduler's actions out.

One thread owns the scheduler and is the only one that writes the log.  It takes all that has
come in, tells the scheduler, lets it decide, and commits events and actions together; only then
does it answer those who wait and ask the engine to act, which returns at once.  So what was
acknowledged is stored, an attempt is on record before anything runs, and a busy server commits
for many at a time.

If a commit fails, nothing of it was acknowledged and nothing was started: the state is made
again from the store, and those who waited are told to try again.

The modules, in the order in which a job meets them:

* ``loop``: what other threads may call, and the thread itself.
* ``inbox``: what comes in.  ``clock``: the time that it gets.
* ``observer``: looks at the engine, so that nothing stays lost.
* ``batch``: what one cycle writes, and then does.  ``state``: what the thread knows.
* ``users``, ``reports`` and ``machines``: what is made of what comes in.
* ``adoption``: takes up what runs and is not on record.
* ``actions``: what the scheduler decides.  ``endings``: what must end before it is begun.
"""

from interlane.live.driver.errors import (
    AlreadyEnded,
    KeyReused,
    NoSuchJob,
    NoSuchMachine,
    NotReady,
    NotUnknown,
    NotWaiting,
    VersionDiffers,
)
from interlane.live.driver.inbox import Key, Resolution
from interlane.live.driver.loop import Driver

__all__ = [
    "AlreadyEnded",
    "Driver",
    "Key",
    "KeyReused",
    "NoSuchJob",
    "NoSuchMachine",
    "NotReady",
    "NotUnknown",
    "NotWaiting",
    "Resolution",
    "VersionDiffers",
]
