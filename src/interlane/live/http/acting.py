"""What users do to jobs, from the API and from pages alike: one way, and one set of rights."""

import asyncio
from collections.abc import Mapping
from typing import Any

from interlane.live.auth import Caller, Denied, Role
from interlane.live.driver.users import digest_of
from interlane.live.files.fields import merged
from interlane.live.files.job import JobSpec, check_spec, read_spec
from interlane.live.http.service import LiveService
from interlane.live.store.record import JobRecord
from interlane.model import JobId


def job_of(said: Mapping[str, Any], *more: Mapping[str, Any]) -> JobSpec:
    """Return a job as somebody wrote it in several places; what comes later counts."""
    for one in more:
        said = merged(said, one)
    return read_spec(said)


async def submit(the: LiveService, job: JobSpec, caller: Caller) -> JobRecord:
    """Store a job."""
    check_spec(job)
    is_admin = caller.role >= Role.ADMIN
    return await asyncio.wrap_future(the.driver.submit(job, caller.name, is_admin=is_admin))


async def plan(the: LiveService, job: JobSpec, caller: Caller) -> dict[str, Any]:
    """Say whether a job would start now, where and beside whom; nothing is changed."""
    the.desk.must_not_hurry(caller.name)
    check_spec(job)
    asked = digest_of(job), caller.name
    return await the.desk.answer("plan", asked, lambda: the.view.plan(job, caller.name))


async def cancel(
    the: LiveService, job_id: str, caller: Caller, address: str, version: int | None = None
) -> JobRecord:
    """Cancel a job: out of the queue at once, or with its signal and grace if it runs."""
    record = await asyncio.to_thread(the.view.job, job_id)
    caller.insist_may_cancel(record)
    answer = await asyncio.wrap_future(the.driver.cancel(record.id, caller.name, version))
    if record.user != caller.name:
        said = {"job": record.id, "of": record.user}
        await asyncio.to_thread(the.note, "job cancelled", caller, address, **said)
    return answer


async def change(
    the: LiveService, job_id: str, caller: Caller, changes: Mapping[str, Any]
) -> JobRecord:
    """Change what a job that waits says: fields given replace those there, null drops one."""
    record = await asyncio.to_thread(the.view.job, job_id)
    caller.insist_may_change(record)
    job = read_spec(merged(record.job.document, changes))
    is_admin = caller.role >= Role.ADMIN
    asked = the.driver.change(record.id, job, record.user, caller.name, is_admin=is_admin)
    return await asyncio.wrap_future(asked)


async def hold(the: LiveService, job_id: str, caller: Caller, *, held: bool) -> JobRecord:
    """Let a job that waits go on waiting until it is released, or release it."""
    record = await asyncio.to_thread(the.view.job, job_id)
    caller.insist_may_change(record)
    return await asyncio.wrap_future(the.driver.hold(JobId(record.id), caller.name, held=held))


async def run_again(the: LiveService, job_id: str, caller: Caller) -> JobRecord:
    """Submit a job once more as it was, as one's own; it waits for nobody."""
    record = await asyncio.to_thread(the.view.job, job_id)
    if not caller.owns(record.user):
        raise Denied(
            f"Job {record.id} is {record.user}'s; only they or an admin may run it again, "
            "because values of its variables are theirs."
        )
    document = {**record.job.document, "after": [], "hold": False}
    return await submit(the, read_spec(document), caller)
