"""Body 2's driver: facts from users and processes in, the kernel's wishes out.

One thread owns the kernel and is the only one that writes the log.  It takes everything that
has come in, tells the kernel, lets it decide, and commits facts and wishes together; only then
does it answer those who wait and carry the wishes out.  So what was acknowledged is stored, an
attempt is on record before anything runs, and a busy server commits for many at a time.

If a commit fails, nothing of it was acknowledged and nothing was started: the books are made
again from the store, and those who waited are told to try again.

The modules, in the order in which a job meets them:

* ``loop``: what other threads may call, and the thread itself.
* ``inbox``: what comes in.  ``clock``: the time that it gets.
* ``batch``: what one cycle writes, and then does.  ``server.books``: what the thread knows.
* ``users`` and ``processes``: what is made of what comes in.
* ``wishes``: what the kernel decides.  ``attempts``: how that is carried out.
* ``recovery``: what an earlier server, or a cycle that failed, has left behind.
"""

from interlane.live.driver.errors import (
    AlreadyEnded,
    KeyReused,
    NoSuchJob,
    NotReady,
    VersionDiffers,
)
from interlane.live.driver.inbox import Key
from interlane.live.driver.loop import Driver

__all__ = [
    "AlreadyEnded",
    "Driver",
    "Key",
    "KeyReused",
    "NoSuchJob",
    "NotReady",
    "VersionDiffers",
]
