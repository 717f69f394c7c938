"""What run folders are called, and what claims and ends in them say.

A claim says whose it is: the job's id, the id that no other job ever has, the attempt and a
digest of what the job's user wrote.  It also keeps all that a server must know which finds the
attempt and has no record of it.  Files that cannot be read never stop a server.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from interlane.engines.local import shim
from interlane.live.files.job import JobSpec, Origin
from interlane.live.port import Attempt, Found, Launch
from interlane.live.store.record import document_placement, placement_document
from interlane.model import JobId

_SHIM: Final = os.fsencode(Path(shim.__file__).name)
CANCELLED: Final = "cancelled"
"""The mark in the folder of a job that was stopped for good."""
_NAME: Final = re.compile(r"(?P<job>.+-(?P<serial>\d+))(?:\.(?P<uid>[0-9a-f]{16}))?")


@dataclass(frozen=True, slots=True)
class RunName:
    """What the name of a job's folder says."""

    job_id: JobId
    serial: int
    uid: str


def folder_name(attempt: Attempt) -> str:
    """Return the name of the folder of a job's runs; one of an older version has no uid."""
    return f"{attempt.job_id}.{attempt.uid}" if attempt.uid else attempt.job_id


def run_name(name: str) -> RunName | None:
    """Return what a folder's name says; None if it is none of ours."""
    found = _NAME.fullmatch(name)
    if found is None or len(found["serial"]) > 18:
        return None
    return RunName(JobId(found["job"]), int(found["serial"]), found["uid"] or "")


def is_number(name: str) -> bool:
    """Tell whether a file that anybody may have made is called after a number."""
    return name.isascii() and name.isdigit() and len(name) <= 18


def digest_of(job: JobSpec) -> str:
    """Return a digest of what a job's user wrote."""
    text = json.dumps(job.document, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def identity_of(attempt: Attempt) -> dict[str, Any]:
    """Return what a claim says of whose it is."""
    return {"job_id": attempt.job_id, "uid": attempt.uid, "attempt": attempt.number}


def claim_of(launch: Launch, started_s: float) -> dict[str, Any]:
    """Return what the claim of an attempt says, but for who makes it."""
    return {
        **identity_of(launch.attempt),
        "digest": digest_of(launch.job),
        "holder": launch.attempt.holder,
        "spec": launch.job.document,
        "origin": asdict(launch.origin),
        "placement": placement_document(launch.placement),
        "started_s": started_s,
    }


def read_claim(folder: Path) -> Mapping[str, Any] | None:
    """Return what a claim says, which older versions said in one word; None if unreadable."""
    try:
        text = (folder / shim.CLAIM).read_text()
        if text == shim.FENCED:
            return {"fenced": True}
        said = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(said, int):
        return {"pid": said}
    return said if isinstance(said, dict) else None


def is_foreign(
    said: Mapping[str, Any] | None, attempt: Attempt, digest: str | None = None
) -> bool:
    """Tell whether a claim or an end is of another attempt; older ones do not say."""
    if said is None or "uid" not in said:
        return False
    whose = identity_of(attempt) | ({"digest": digest} if digest and "digest" in said else {})
    return any(said.get(name) != value for name, value in whose.items())


def has_begun(folder: Path) -> bool:
    """Tell whether a shim has let its job begin; those of older versions leave no mark."""
    if (folder / shim.BEGUN).exists():
        return True
    said = read_claim(folder)
    if said is None or said.get(shim.FENCED) is True:
        return False
    version = said.get("format", 0)
    return isinstance(version, int) and version < shim.FORMAT_BEGUN


def mark_cancelled(folder: Path) -> None:
    """Leave a mark that the job is stopped for good, under this attempt; raise ``OSError``."""
    above = folder.parent
    fd = os.open(above / CANCELLED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    shim.sync(str(above))


def is_cancelled(folder: Path) -> bool:
    """Tell whether a mark says that the job of an attempt was stopped for good."""
    return (folder.parent / CANCELLED).exists()


def found_in(folder: Path, attempt: Attempt) -> Found | None:
    """Return all that a claim keeps of its attempt; None if that is not enough."""
    said = read_claim(folder)
    if said is None:
        return None
    try:
        return Found(
            Attempt(attempt.job_id, attempt.number, attempt.uid, str(said["holder"])),
            JobSpec.model_validate(said["spec"]),
            Origin(**said["origin"]),
            document_placement(said["placement"]),
            float(said["started_s"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended."""

    exit_code: int | None
    why: str | None
    cause: str | None = None
    """What lies behind that, where somebody else than the job is to blame."""
    lacks: int | None = None
    """The error for which not all of it could be started, so that nothing was."""


def read_end(folder: Path, attempt: Attempt) -> End | None:
    """Return how an attempt ended; None if nobody wrote it down."""
    try:
        said = json.loads((folder / shim.ENDED).read_text())
        code, why = said["exit_code"], said["why"]
        cause, lacks = said.get("cause"), said.get("lacks")
        if is_foreign(said, attempt):
            return None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return End(None, "How it ended was written down, but cannot be read.")
    is_sound = all(one is None or type(one) is int for one in (code, lacks)) and all(
        one is None or isinstance(one, str) for one in (why, cause)
    )
    if not is_sound:
        return End(None, "How it ended cannot be understood.")
    return End(code, why, cause, lacks)


def shim_of(folder: Path, said: Mapping[str, Any] | None) -> int | None:
    """Return the process that keeps an attempt: what its claim says of that may be a lie."""
    pid, claim = None if said is None else said.get("pid"), folder / shim.CLAIM
    if isinstance(pid, int) and _keeps(pid, claim):
        return pid
    everybody = (int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit())
    return next((one for one in everybody if _keeps(one, claim)), None)


def _keeps(pid: int, claim: Path) -> bool:
    """Tell whether a process is a shim that has a claim open."""
    process = Path(f"/proc/{pid}")
    try:
        words, wanted = (process / "cmdline").read_bytes().split(b"\0"), claim.stat()
        if not any(word.endswith(_SHIM) for word in words):
            return False
        files = list((process / "fd").iterdir())
    except OSError:
        return False
    return any(_is_same(file, wanted) for file in files)


def _is_same(file: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(file.stat(), wanted)
    except OSError:  # closed since
        return False
