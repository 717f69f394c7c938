"""What jobs of Slurm's printed."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from interlane.engines.slurm.reading import SlurmJob
from interlane.live.port import Output
from interlane.model import InvalidInput

_PATTERN: Final = re.compile(r"%([a-zA-Z%])")


def printed_to(job: SlurmJob) -> str:
    """Return where a job prints to, with Slurm's patterns filled in."""
    known = {
        "%": "%",
        "j": str(job.number),
        "J": str(job.number),
        "A": str(job.array or job.number),
        "a": str(job.task or 0),
        "x": job.name,
        "u": job.user,
        "N": job.nodes[0] if job.nodes else "",
    }
    return _PATTERN.sub(lambda found: known.get(found[1], found[0]), job.output)


def read_printed(path: Path, begin: int, size: int, uid: int) -> Output:
    """Read a part of what a job printed; its file must be its user's, and no link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read from here ({error.strerror}); nodes that share no folder "
            "with the server keep what jobs print."
        ) from None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid:
            raise InvalidInput(f"{path} is not a file of the job's user.")
        first = max(0, found.st_size + begin) if begin < 0 else min(begin, found.st_size)
        file.seek(first)
        return Output(first, file.read(size))
