"""What strangers and users may take of the server, tried with real sockets."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from interlane.live.auth import Caller, Role
from interlane.live.bounds import ServerBounds
from interlane.live.driver import Driver
from interlane.live.http.feed import Feed
from interlane.live.http.news import News
from interlane.live.questions.desk import QuestionDesk, TooManyQuestions
from interlane.model import Cancelled, InvalidInput, JobId, LogEntry, UnknownName
from interlane.testing.live import driving, serving, spec
from interlane.testing.waiting import PATIENCE_S, until
from interlane.wiring import played_starts

JOB = {"name": "a", "run": "true", "resources": {"gpu": {"count": 1}}}
HALF = b"GET /api/v1/summary HTTP/1.1\r\nHost: x\r\n"


@dataclass(frozen=True)
class Served:
    driver: Driver
    url: str
    tokens: dict[Role, str]

    def client(self, role: Role | None = Role.USER) -> httpx.Client:
        head = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=head, timeout=PATIENCE_S)

    def socket(self) -> socket.socket:
        parts = urlsplit(self.url)
        made = socket.create_connection((parts.hostname, parts.port), PATIENCE_S)
        return made

    def head(self, method: str, path: str, role: Role | None, length: int) -> bytes:
        token = "" if role is None else f"Authorization: Bearer {self.tokens[role]}\r\n"
        said = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{token}Content-Length: {length}\r\n\r\n"
        return said.encode()


@contextmanager
def served(folder: Path, **bounds: float) -> Iterator[Served]:
    given = ServerBounds(**bounds)  # type: ignore[arg-type]
    with driving(folder) as driver, serving(driver, bounds=given) as (url, tokens):
        yield Served(driver, url, dict(tokens))


def answer(connection: socket.socket) -> bytes:
    """All that a server says before it ends a connection; empty if it just ends it."""
    said = b""
    try:
        while more := connection.recv(1 << 16):
            said += more
    except ConnectionResetError:
        pass
    return said


# -- bounds by name -----------------------------------------------------------------------


def test_a_bound_is_named_and_a_number() -> None:
    assert ServerBounds.of(["header_s=2.5", "connections=7"]) == ServerBounds(
        connections=7, header_s=2.5
    )
    assert ServerBounds.of([]) == ServerBounds()
    with pytest.raises(UnknownName, match="headers"):
        ServerBounds.of(["headers=3"])
    for wrong in ("header_s", "header_s=", "connections=1.5", "connections=x"):
        with pytest.raises(InvalidInput, match="no number"):
            ServerBounds.of([wrong])
    for wrong in ("connections=0", "header_s=-1", "header_s=nan"):
        with pytest.raises(InvalidInput, match="above 0"):
            ServerBounds.of([wrong])


# -- connections --------------------------------------------------------------------------


def test_half_open_connections_keep_nobody_out(tmp_path: Path) -> None:
    with served(tmp_path, connections=64, header_s=PATIENCE_S) as server, ExitStack() as held:
        for _ in range(300):
            held.enter_context(server.socket()).sendall(HALF)
        with server.client() as user:
            assert user.post("/api/v1/jobs", json=JOB).status_code == 201
            for _ in range(20):
                assert user.get("/healthz").text == "ok\n"


@pytest.mark.parametrize("with_token", [False, True], ids=["strangers", "another user"])
def test_who_opens_many_connections_loses_their_own(tmp_path: Path, with_token: bool) -> None:  # noqa: FBT001
    bounds = {"connections": 40, "header_s": PATIENCE_S}
    with (
        served(tmp_path, **bounds) as server,
        server.client(Role.USER) as user,
        ExitStack() as held,
    ):
        assert user.get("/api/v1/summary").status_code == 200
        pool = user._transport._pool  # type: ignore[attr-defined]
        before = pool.connections
        for number in range(200):
            many = held.enter_context(server.socket())
            if number % 20 == 0:  # none is kept open for ever
                assert user.get("/api/v1/summary").status_code == 200
            if with_token:
                many.sendall(server.head("GET", "/api/v1/cluster", Role.VIEWER, 0))
                many.recv(1 << 16)
            else:
                many.sendall(HALF)
        assert user.get("/api/v1/summary").status_code == 200
        assert pool.connections == before


def test_who_watches_on_all_connections_keeps_nobody_out(tmp_path: Path) -> None:
    bounds = {"connections": 12, "watchers_per_token": 12}
    with served(tmp_path, **bounds) as server, ExitStack() as held:

        def watch(role: Role) -> socket.socket:
            made = held.enter_context(server.socket())
            made.sendall(server.head("GET", "/api/v1/watch", role, 0))
            assert made.recv(12) == b"HTTP/1.1 200"
            return made

        mine = watch(Role.ADMIN)
        many = [watch(Role.VIEWER) for _ in range(11)]
        with server.client(Role.USER) as user:
            assert user.post("/api/v1/jobs", json=JOB).status_code == 201
        answer(many[-1])  # the newest of who has most has ended
        server.driver.submit(spec("later"), "ann").result()
        said = b""
        while b"later" not in said:  # who has one keeps it
            more = mine.recv(1 << 16)
            assert more
            said += more


def test_one_address_has_a_bound_of_its_own(tmp_path: Path) -> None:
    bounds = {"connections_per_address": 4, "header_s": PATIENCE_S}
    with served(tmp_path, **bounds) as server, ExitStack() as held:
        first = [held.enter_context(server.socket()) for _ in range(6)]
        assert [answer(one) for one in first[:2]] == [b"", b""]


def test_who_connects_again_and_again_is_turned_away_and_nobody_else(tmp_path: Path) -> None:
    with served(tmp_path, connections_per_s=0.4) as server:
        parts = urlsplit(server.url)

        def asked(source: str) -> bytes:
            address = (parts.hostname, parts.port)
            with socket.create_connection(address, PATIENCE_S, (source, 0)) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return answer(line).split(b"\r\n")[0]

        often = [asked("127.0.0.2") for _ in range(30)]

        assert often[0] == b"HTTP/1.1 200 OK"
        assert b"HTTP/1.1 503 Service Unavailable" in often
        assert asked("127.0.0.1") == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "said", [b"", HALF, b"\r\n", b"G"], ids=["nothing", "half a header", "a line", "a letter"]
)
def test_a_header_that_does_not_come_ends_the_connection(tmp_path: Path, said: bytes) -> None:
    with served(tmp_path, header_s=0.2) as server, server.socket() as slow:
        slow.sendall(said)
        assert answer(slow).startswith(b"HTTP/1.1 408 ")


def test_a_header_that_comes_drop_by_drop_ends_the_connection(tmp_path: Path) -> None:
    with served(tmp_path, header_s=0.3) as server, server.socket() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.recv(1 << 16)
        until(lambda: _is_closed_after(slow, b"\r\n"), "the end of the connection")
    with served(tmp_path, header_s=0.3) as server, server.socket() as slow:
        slow.sendall(HALF)
        until(lambda: _is_closed_after(slow, b"X: y\r\n"), "the end of the connection")


def _is_closed_after(connection: socket.socket, drop: bytes) -> bool:
    connection.settimeout(0.05)
    try:
        connection.sendall(drop)
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.socket() as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        _send_until_it_is_closed(endless, b"X: " + b"y" * 8_000 + b"\r\n")


def _send_until_it_is_closed(connection: socket.socket, said: bytes) -> None:
    def keep_on() -> None:
        while True:
            connection.sendall(said)
            time.sleep(0.001)

    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        keep_on()


def test_a_body_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    with served(tmp_path, body_s=0.3) as server, server.socket() as slow:
        slow.sendall(server.head("POST", "/api/v1/jobs", Role.USER, 1_000))
        assert answer(slow) == b""


def test_an_answer_that_is_not_read_ends_the_connection(tmp_path: Path) -> None:
    with served(tmp_path, write_s=0.3) as server, server.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asks = server.head("GET", "/api/v1/openapi.json", Role.VIEWER, 0)
        deaf.sendall(asks * 200)  # more than fits on the way
        _send_until_it_is_closed(deaf, b"\r\n")


def test_a_request_that_takes_long_is_not_cut_off(tmp_path: Path) -> None:
    bounds = {"header_s": 0.2, "body_s": 0.2, "write_s": 0.2}
    with (
        served(tmp_path, **bounds) as server,
        server.client() as user,
        user.stream("GET", "/api/v1/watch") as news,
    ):
        time.sleep(1.0)
        server.driver.submit(spec(), "ann").result()
        assert next(news.iter_lines()).startswith("id: ")


# -- who calls is known first -------------------------------------------------------------


def test_nothing_is_read_of_strangers(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for path in ("/api/v1/jobs", "/api/v1/plan", "/api/v1/functions/f/invoke", "/metrics"):
            with server.socket() as stranger:
                stranger.sendall(server.head("POST", path, None, 1 << 20))
                said = answer(stranger)  # though nothing of the body was sent
                assert said.startswith(b"HTTP/1.1 401 ")
                assert b"connection: close" in said
        with server.client(None) as nobody:
            malformed = nobody.post("/api/v1/jobs", content=b"{")
            assert malformed.status_code == 401


def test_a_document_of_too_many_values_is_refused_before_it_is_checked(tmp_path: Path) -> None:
    many = {**JOB, "tasks": [{"name": f"t{number}"} for number in range(20_000)]}
    full = {**JOB, "run": "true " + "," * 30_000}
    with served(tmp_path) as server, server.client() as user:
        for path in ("/jobs", "/plan", "/functions"):
            refused = user.post(f"/api/v1{path}", json=many)
            assert refused.status_code == 422
            assert "more than 4,000 values" in refused.json()["detail"]
        assert user.post("/api/v1/jobs", json=full).status_code == 201


def test_requests_in_hand_are_bounded_by_number_and_by_bytes(tmp_path: Path) -> None:
    bounds = {"requests_per_token": 3, "requests_mib_per_token": 1, "requests_mib": 2}
    with served(tmp_path, **bounds) as server, ExitStack() as held:

        def send(role: Role, length: int) -> socket.socket:
            made = held.enter_context(server.socket())
            made.sendall(server.head("POST", "/api/v1/plan", role, length))
            return made

        kept = send(Role.USER, (1 << 20) - 100)
        until(lambda: b" 429 " in answer(send(Role.USER, 200)), "the bound on bytes")
        send(Role.USER, 10), send(Role.USER, 10)
        with server.client(Role.USER) as user, server.client(Role.ADMIN) as admin:
            until(lambda: user.get("/api/v1/summary").status_code == 429, "the bound")
            refused = user.get("/api/v1/summary")
            assert refused.headers["retry-after"] == "1"
            assert admin.get("/api/v1/summary").status_code == 200
            send(Role.ADMIN, 1 << 20)
            until(lambda: b" 503 " in answer(send(Role.VIEWER, 1 << 20)), "the bound of all")
            kept.close()
            until(lambda: user.get("/api/v1/summary").status_code == 200, "room again")


# -- questions ----------------------------------------------------------------------------


def test_etas_share_one_play_and_probes_do_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, plays = threading.Event(), []

    def slow(make: Any, known: Any, ids: Any, now_s: float) -> Any:  # noqa: ANN401
        plays.append(len(ids))
        assert go.wait(PATIENCE_S)
        return played_starts(make, known, ids, now_s)

    monkeypatch.setattr("interlane.testing.live.played_starts", slow)
    with served(tmp_path) as server, server.client(Role.VIEWER) as viewer:
        server.driver.submit(spec("runs", "sleep 1000", gpus=2), "ann").result()
        waits = [server.driver.submit(spec("w", gpus=2), "ann").result() for _ in range(30)]
        with ThreadPoolExecutor(60) as pool:
            paths = [f"/api/v1/jobs/{one.id}/eta" for one in waits * 2]
            asked = pool.map(viewer.get, paths)
            until(lambda: plays, "a play")
            for _ in range(20):
                assert viewer.get("/healthz").text == "ok\n"
                assert viewer.get("/readyz").text == "ready\n"
            go.set()
            found = list(asked)

    assert {one.status_code for one in found} == {200}
    assert all(one.json()["p50_s"] is not None for one in found)
    assert plays == [30]


def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    with served(tmp_path, questions_per_s=0.001) as server, server.client(Role.USER) as user:
        asked = user.post("/api/v1/plan", json=JOB)
        assert (asked.status_code, asked.headers["retry-after"]) == (429, "990")
        assert user.get("/api/v1/summary").status_code == 200


def test_a_question_whose_caller_is_gone_is_not_begun() -> None:
    async def play() -> tuple[list[str], str]:
        desk, go, begun = QuestionDesk(ServerBounds()), threading.Event(), []

        def find(word: str) -> str:
            begun.append(word)
            go.wait(PATIENCE_S)
            return word

        first = asyncio.create_task(desk.answer("eta", 1, lambda: find("first")))
        left = [asyncio.create_task(desk.answer("eta", 2, lambda: find("left")))]
        left += [asyncio.create_task(desk.answer("eta", 2, lambda: find("left")))]
        stays = asyncio.create_task(desk.answer("eta", 3, lambda: find("stays")))
        goes = asyncio.create_task(desk.answer("eta", 3, lambda: find("goes")))
        await asyncio.sleep(0)
        for one in (*left, goes):
            one.cancel()
        await asyncio.sleep(0)
        other = await desk.answer("plan", 1, lambda: "another kind does not wait")
        go.set()
        assert [await first, await stays] == ["first", "stays"]
        assert await desk.answer("eta", 2, lambda: "asked anew") == "asked anew"
        desk.close()
        return begun, other

    begun, other = asyncio.run(play())
    assert begun == ["first", "stays"]
    assert other == "another kind does not wait"


def test_who_asks_the_same_shares_the_answer() -> None:
    async def play() -> tuple[list[str], int]:
        desk, go, begun = QuestionDesk(ServerBounds()), threading.Event(), list[int]()

        def find() -> str:
            begun.append(1)
            go.wait(PATIENCE_S)
            return "found"

        asked = [asyncio.create_task(desk.answer("eta", 1, find)) for _ in range(20)]
        await asyncio.sleep(0)
        go.set()
        told = await asyncio.gather(*asked)
        desk.close()
        return told, len(begun)

    assert asyncio.run(play()) == (["found"] * 20, 1)


def test_questions_that_wait_are_bounded() -> None:
    async def play() -> None:
        desk, go = QuestionDesk(ServerBounds(questions_waiting=2)), threading.Event()
        asked = [
            asyncio.create_task(desk.answer("eta", one, lambda: go.wait(PATIENCE_S)))
            for one in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyQuestions):
            await desk.answer("eta", 2, lambda: True)
        go.set()
        await asyncio.gather(*asked)
        desk.close()

    asyncio.run(play())


# -- watchers -----------------------------------------------------------------------------


def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.client(Role.ADMIN) as admin:
        made = admin.post("/api/v1/tokens", json={"name": "eve", "role": "viewer"}).json()
        head = {"Authorization": f"Bearer {made['token']}"}
        server.driver.submit(spec("early"), "ann").result()
        watch = f"{server.url}/api/v1/watch?after=0"
        with httpx.stream("GET", watch, headers=head, timeout=PATIENCE_S) as news:
            lines = news.iter_lines()
            assert next(lines).startswith("id: ")
            assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
            server.driver.submit(spec("later"), "ann").result()
            assert not any("later" in line for line in lines)  # it ends


def test_watchers_share_one_reader_and_miss_nothing(tmp_path: Path) -> None:
    with served(tmp_path, watchers_per_token=40) as server, ExitStack() as held:
        reads, real = [], server.driver.store.log

        def noted(*words: Any, **more: Any) -> Any:  # noqa: ANN401
            reads.append(words)
            return real(*words, **more)

        watching = []
        for _ in range(40):
            client = held.enter_context(server.client(Role.VIEWER))
            path = "/api/v1/watch?after=0"
            watching.append(held.enter_context(client.stream("GET", path)).iter_lines())
        server.driver.submit(spec("first"), "ann").result()
        seen = [_numbers(lines, 5) for lines in watching]
        server.driver.store.log = noted  # type: ignore[method-assign]
        for number in range(5):
            server.driver.submit(spec(f"a{number}"), "ann").result()
        seen = [one + _numbers(lines, 15) for one, lines in zip(seen, watching, strict=True)]
        server.driver.store.log = real  # type: ignore[method-assign]

    assert all(one == list(range(1, 21)) for one in seen)
    assert len(reads) < 40  # as many as there were rounds, whoever watches


class _Everybody:
    """Tokens that never end."""

    def must_have_room(self, name: str) -> None: ...

    def watching(self, name: str) -> nullcontext[None]:
        return nullcontext()

    async def end(self, caller: Caller) -> None:
        await asyncio.Event().wait()


class _Log:
    """A log that grows when told to."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []

    def last_seq(self) -> int:
        return len(self.entries)

    def log(self, after: int, limit: int) -> list[LogEntry]:
        return self.entries[after : after + limit]


def test_others_have_their_turn_while_watchers_are_told() -> None:
    count, turns, seen_at = 100, 0, []
    log, news = _Log(), News()

    async def watch(feed: Feed) -> None:
        ann = Caller("ann", Role.VIEWER, "id")
        async for _ in feed.events(ann, 0):
            seen_at.append(turns)

    async def played() -> None:
        nonlocal turns
        feed = Feed(log, _Everybody(), news)  # type: ignore[arg-type] # as much as it needs
        watching = [asyncio.create_task(watch(feed)) for _ in range(count)]
        await asyncio.sleep(0.1)
        log.entries.append(LogEntry(1, 0.0, Cancelled(JobId("a-1"))))
        news.tell()
        async with asyncio.timeout(PATIENCE_S):
            while len(seen_at) < count:
                turns += 1
                await asyncio.sleep(0)
        for task in watching:
            task.cancel()

    asyncio.run(played())

    most = max(Counter(seen_at).values())
    assert most < count / 4, f"{most} of {count} were told before anybody else had a turn"


def _numbers(lines: Iterator[str], count: int) -> list[int]:
    found = (int(line[4:]) for line in lines if line.startswith("id: "))
    return [next(found) for _ in range(count)]


def test_watchers_are_bounded(tmp_path: Path) -> None:
    with served(tmp_path, watchers_per_token=2, watchers=3) as server, ExitStack() as held:

        def watch(role: Role) -> httpx.Response:
            client = held.enter_context(server.client(role))
            return held.enter_context(client.stream("GET", "/api/v1/watch"))

        first = [watch(Role.USER) for _ in range(2)]
        until(lambda: watch(Role.USER).status_code == 429, "the bound of one")
        assert watch(Role.ADMIN).status_code == 200
        until(lambda: watch(Role.VIEWER).status_code == 429, "the bound of all")
        first[0].close()
        until(lambda: watch(Role.VIEWER).status_code == 200, "room again")
