"""The verbs of the command line for programs: submit, wait, logs, cancel, why, when."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from interlane.client.connection import Connection, job_path
from interlane.model.errors import InvalidInput, Unreachable
from interlane.model.states import ENDED, JobState

LOOK_FIRST_S: Final = 0.05
LOOK_AT_MOST_S: Final = 1.0
"""Seconds between looks at a job that is waited for: few at first, then more."""

CHUNK_BYTES: Final = 1 << 20
MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """Where a job of a server stands, as it was when it was asked for."""

    id: str
    name: str
    user: str
    state: JobState
    reason: str | None
    """Why it ended or was refused, in a sentence."""
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    exit_code: int | None
    document: Mapping[str, Any] = field(repr=False)
    """All that the server shows."""

    @property
    def has_ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state in ENDED

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "JobAnswer":
        """Read what a server shows of a job."""
        return cls(
            document["id"],
            document["name"],
            document["user"],
            JobState(document["state"]),
            document["reason"],
            document["submitted_s"],
            document["started_s"],
            document["ended_s"],
            document["exit_code"],
            document,
        )


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a job waits, and who is ahead of it; None in all where it does not wait."""

    tier: str | None
    """How fundamental the reason is, as in ``capacity``."""
    sentence: str | None
    remedy: str | None
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartMoments:
    """When a job is likely to start, in seconds since 1970; None where nothing is known."""

    p50_s: float | None
    p90_s: float | None


class LiveJob:
    """One job of a server: a handle that asks when it is asked."""

    def __init__(self, client: "Client", job_id: str) -> None:
        self._client = client
        self.id = job_id

    def status(self) -> JobAnswer:
        """Return where it stands now."""
        return JobAnswer.of(self._client.get(job_path(self.id)).document())

    def wait(self, timeout_s: float | None = None) -> JobAnswer:
        """Wait until it has ended and return how; ``TimeoutError`` if that takes longer."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = LOOK_FIRST_S
        while not (now := self.status()).has_ended:
            if end_s is not None and time.monotonic() >= end_s:
                raise TimeoutError(f"Job {self.id} is {now.state.value} after {timeout_s:g} s.")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
        return now

    def logs(self) -> str:
        """Return what it has printed so far."""
        return b"".join(self._printed(follow=False)).decode(errors="replace")

    def follow(self) -> Iterator[str]:
        """Yield what it prints, until it has ended."""
        for part in self._printed(follow=True):
            yield part.decode(errors="replace")

    def cancel(self) -> None:
        """Cancel it."""
        self._client.delete(job_path(self.id))

    def why(self) -> WaitReason:
        """Return why it waits."""
        said = self._client.get(f"{job_path(self.id)}/why").document()
        return WaitReason(said["tier"], said["why"], said["remedy"], tuple(said["ahead"]))

    def eta(self) -> StartMoments:
        """Return when it is likely to start."""
        said = self._client.get(f"{job_path(self.id)}/eta").document()
        return StartMoments(said["p50_s"], said["p90_s"])

    def _printed(self, *, follow: bool) -> Iterator[bytes]:
        begin, pause_s = 0, LOOK_FIRST_S
        while True:
            answer = self._client.get(
                f"{job_path(self.id)}/log", offset=begin, limit=CHUNK_BYTES
            )
            if answer.body:
                yield answer.body
            end = int(answer.header("X-Next-Offset"))
            if end == begin:
                if not follow or JobState(answer.header("X-Job-State")) in ENDED:
                    return
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_AT_MOST_S)
            else:
                begin, pause_s = end, LOOK_FIRST_S

    def __repr__(self) -> str:
        return f"<LiveJob {self.id} on {self._client.url}>"


class Client(Connection):
    """Speaks to one server.

    Without arguments it finds the server as the command line does: ``INTERLANE_SERVER`` and
    ``INTERLANE_TOKEN``, else the state folder of this machine.
    """

    def submit(self, job: Mapping[str, Any] | str | Path, *, key: str | None = None) -> LiveJob:
        """Submit a job, as a mapping or a file; an answer that was lost is asked for again."""
        from secrets import token_hex

        document = dict(job) if isinstance(job, Mapping) else _job_in(Path(job))
        document.setdefault("workdir", str(Path.cwd()))
        headers = {"Idempotency-Key": key or token_hex(16)}
        try:
            made = self.post("/jobs", document, headers).document()
        except Unreachable:
            time.sleep(LOOK_AT_MOST_S)
            made = self.post("/jobs", document, headers).document()
        return LiveJob(self, made["id"])

    def job(self, job_id: str) -> LiveJob:
        """Return a handle of a job."""
        return LiveJob(self, job_id)

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        user: str | None = None,
        most: int = MOST,
    ) -> Iterator[JobAnswer]:
        """Yield jobs, the newest first."""
        for document in self.pages(most, state=list(states) or None, user=user):
            yield JobAnswer.of(document)

    def plan(self, job: Mapping[str, Any] | str | Path) -> dict[str, Any]:
        """Return whether a job would start now; nothing changes."""
        document = dict(job) if isinstance(job, Mapping) else _job_in(Path(job))
        return self.post("/plan", document).document()

    def gpus(self) -> list[dict[str, Any]]:
        """Return the devices, and who holds them."""
        found: list[dict[str, Any]] = self.get("/gpus").document()["gpus"]
        return found

    def summary(self) -> dict[str, Any]:
        """Return how many jobs are in which state."""
        return self.get("/summary").document()

    def invoke(self, function: str, payload: object) -> Any:  # noqa: ANN401 - it is JSON
        """Call a function and return its answer."""
        import json
        from urllib.parse import quote

        path = f"/functions/{quote(function, safe='')}/invoke"
        return json.loads(self.post(path, payload).body)


def _job_in(file: Path) -> dict[str, Any]:
    import yaml

    try:
        said = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not YAML: {error}") from None
    if not isinstance(said, dict):
        raise InvalidInput(f"{file} holds no job; it must begin with fields such as name: ...")
    return said
