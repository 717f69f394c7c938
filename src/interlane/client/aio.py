"""The same client for programs that await: calls run in threads of the loop's pool."""

from asyncio import to_thread
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interlane.client.client import (
    MOST,
    Client,
    JobAnswer,
    LiveJob,
    StartMoments,
    WaitReason,
)


class AsyncLiveJob:
    """One job of a server."""

    def __init__(self, job: LiveJob) -> None:
        self._job = job
        self.id = job.id

    async def status(self) -> JobAnswer:
        """Return where it stands now."""
        return await to_thread(self._job.status)

    async def wait(self, timeout_s: float | None = None) -> JobAnswer:
        """Wait until it has ended and return how; ``TimeoutError`` if that takes longer."""
        return await to_thread(self._job.wait, timeout_s)

    async def logs(self) -> str:
        """Return what it has printed so far."""
        return await to_thread(self._job.logs)

    async def follow(self) -> AsyncIterator[str]:
        """Yield what it prints, until it has ended."""
        parts = self._job.follow()
        while (part := await to_thread(next, parts, None)) is not None:
            yield part

    async def cancel(self) -> None:
        """Cancel it."""
        await to_thread(self._job.cancel)

    async def why(self) -> WaitReason:
        """Return why it waits."""
        return await to_thread(self._job.why)

    async def eta(self) -> StartMoments:
        """Return when it is likely to start."""
        return await to_thread(self._job.eta)

    def __repr__(self) -> str:
        return f"<Async{repr(self._job)[1:]}"


class AsyncClient:
    """Speaks to one server; takes what ``Client`` takes."""

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        state: Path | None = None,
        ca: Path | None = None,
    ) -> None:
        self._client = Client(server, token=token, state=state, ca=ca)

    async def submit(
        self, job: Mapping[str, Any] | str | Path, *, key: str | None = None
    ) -> AsyncLiveJob:
        """Submit a job, as a mapping or a file."""
        return AsyncLiveJob(await to_thread(self._client.submit, job, key=key))

    def job(self, job_id: str) -> AsyncLiveJob:
        """Return a handle of a job."""
        return AsyncLiveJob(self._client.job(job_id))

    async def jobs(
        self, *, states: Sequence[str] = (), user: str | None = None, most: int = MOST
    ) -> list[JobAnswer]:
        """Return jobs, the newest first."""
        return await to_thread(
            lambda: list(self._client.jobs(states=states, user=user, most=most))
        )

    async def plan(self, job: Mapping[str, Any] | str | Path) -> dict[str, Any]:
        """Return whether a job would start now; nothing changes."""
        return await to_thread(self._client.plan, job)

    async def gpus(self) -> list[dict[str, Any]]:
        """Return the devices, and who holds them."""
        return await to_thread(self._client.gpus)

    async def summary(self) -> dict[str, Any]:
        """Return how many jobs are in which state."""
        return await to_thread(self._client.summary)

    async def invoke(self, function: str, payload: object) -> Any:  # noqa: ANN401 - it is JSON
        """Call a function and return its answer."""
        return await to_thread(self._client.invoke, function, payload)
