"""The client against a real server: the verbs of the command line, sync and async."""

import asyncio
from collections.abc import Iterator

import pytest

import interlane as il
from interlane.live.auth import Role
from interlane.live.driver import Driver
from interlane.model.lifecycle import JobState
from interlane.testing.live import clear, driving, serving
from interlane.testing.waiting import until

QUICK = {"name": "quick", "run": "echo hello; exit 3"}
LONG = {"name": "long", "run": "exec sleep 1000", "resources": {"gpu": {"count": 2}}}


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Driver, str, str]]:
    with (
        driving(tmp_path_factory.mktemp("state")) as driver,
        serving(driver) as (url, tokens),
    ):
        yield driver, url, tokens[Role.USER]


@pytest.fixture
def client(machine: tuple[Driver, str, str]) -> Iterator[il.Client]:
    driver, url, token = machine
    yield il.Client(url, token=token)
    clear(driver)


def test_a_job_is_submitted_waited_for_and_read(client: il.Client) -> None:
    job = client.submit(QUICK)

    ended = job.wait()

    assert (ended.state, ended.exit_code) == (JobState.FAILED, 3)
    assert job.logs() == "hello\n"
    assert "".join(job.follow()) == "hello\n"
    assert ended.id in [one.id for one in client.jobs(states=["failed"])]


def test_the_same_key_makes_one_job(client: il.Client) -> None:
    first, second = (client.submit(LONG, key="once") for _ in range(2))

    assert first.id == second.id


def test_a_job_that_waits_says_why_and_may_be_cancelled(client: il.Client) -> None:
    running = client.submit(LONG)
    waiting = client.submit(LONG)
    until(lambda: running.status().state is JobState.RUNNING)

    why = waiting.why()
    with pytest.raises(TimeoutError, match="is queued after 0 s"):
        waiting.wait(timeout_s=0)
    waiting.cancel()

    assert why.tier == "capacity"
    assert "GPU" in (why.sentence or "")
    assert waiting.wait().state is JobState.CANCELLED
    assert {gpu["gpu"] for gpu in client.gpus()} >= {0, 1}


def test_a_refusal_of_the_server_is_its_sentence(client: il.Client) -> None:
    with pytest.raises(il.InterlaneError, match=r"resources\.gpus is not a field"):
        client.submit({**QUICK, "resources": {"gpus": 1}})


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(il.Unreachable, match="does not answer"):
        il.Client("http://127.0.0.1:9", token="t").summary()


def test_many_jobs_are_awaited_together(machine: tuple[Driver, str, str]) -> None:
    _, url, token = machine

    async def work() -> list[int | None]:
        client = il.AsyncClient(url, token=token)
        jobs = await asyncio.gather(*(client.submit(QUICK) for _ in range(4)))
        ends = await asyncio.gather(*(job.wait() for job in jobs))
        assert [part async for part in jobs[0].follow()] == ["hello\n"]
        return [end.exit_code for end in ends]

    assert asyncio.run(work()) == [3, 3, 3, 3]
