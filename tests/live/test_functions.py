"""Functions over real HTTP, in real processes: their answers, and what becomes of bad ones."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from interlane.live.auth import Role
from interlane.live.functions.gateway import FunctionSettings
from interlane.live.store.rows import FunctionRow
from interlane.predict.arrivals.series import Floats
from interlane.testing.live import driving, serving
from interlane.testing.waiting import PATIENCE_S, is_alive, parent_of, until

HERE = str(Path(__file__).parent)
ECHO = {"name": "new", "handler": "handlers:echo", "path": HERE}


class Client(httpx.Client):
    """Deploys, calls and looks."""

    def deploy(self, name: str, does: str, **more: Any) -> httpx.Response:  # noqa: ANN401
        spec = {"name": name, "handler": f"handlers:{does}", "path": HERE, **more}
        return self.post("/functions", json=spec)

    def ready(self, name: str, does: str, **more: Any) -> None:  # noqa: ANN401
        assert self.deploy(name, does, **more).status_code == 201
        until(lambda: self.look(name)["state"] == "warm", name)

    def call(self, name: str, asked: object = None, **headers: str) -> httpx.Response:
        return self.post(f"/functions/{name}/invoke", json=asked, headers=headers)

    def look(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/functions/{name}").json()
        return found

    def pids(self, name: str) -> list[int]:
        return [one["pid"] for one in self.look(name)["replicas"] if one["pid"] is not None]


def client_of(url: str, token: str) -> Client:
    return Client(
        base_url=f"{url}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE_S,
        limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),  # the server's is 5 s
    )


@contextmanager
def gateway(folder: Path, **settings: Any) -> Iterator[Client]:  # noqa: ANN401
    functions = FunctionSettings(**{"slot_s": 3600.0, **settings})
    with (
        driving(folder) as driver,
        serving(driver, functions) as (url, tokens),
        client_of(url, tokens[Role.USER]) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("state")
    with gateway(folder) as client:
        own = folder / "secrets" / "of" / "user"
        own.mkdir(parents=True, exist_ok=True)
        (own / "KEY").write_text("opensesame\n")
        yield client


@pytest.fixture
def user(machine: Client) -> Iterator[Client]:
    yield machine
    for one in machine.get("/functions").json()["functions"]:
        machine.delete(f"/functions/{one['name']}")


def said(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    sentence: str = answer.json()["detail"]
    return sentence


# -- what they answer ---------------------------------------------------------------------


def test_a_function_answers_what_its_handler_returns(user: Client) -> None:
    user.ready("echo", "echo")

    answer = user.call("echo", {"a": [1, None, "é"]})

    assert answer.json() == {"a": [1, None, "é"]}
    assert answer.headers["content-type"] == "application/json"
    assert user.look("echo")["answered"] == 1


def test_what_is_loaded_once_is_called_many_times(user: Client) -> None:
    user.ready("twice", "times", load="handlers:doubler")

    answers = [user.call("twice", number).json() for number in range(20)]

    assert answers == [2 * number for number in range(20)]
    assert user.get("/functions/twice/log").text == "loading twice two\n"


def test_coroutines_are_handlers_too(user: Client) -> None:
    user.ready("later", "later", concurrency=4)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: user.call("later", n).json(), range(40))) == [
            *range(1, 41)
        ]


def test_a_replica_knows_its_function_its_device_and_its_secrets(user: Client) -> None:
    user.ready("who", "whoami", env={"COLOUR": "red"}, secrets=["KEY"])

    told = user.call("who").json()

    assert told["INTERLANE_FUNCTION"] == "who"
    assert told["INTERLANE_DEVICES"] in ("0", "1")
    assert told["CUDA_VISIBLE_DEVICES"] == ""
    assert (told["COLOUR"], told["KEY"]) == ("red", "opensesame")
    assert "opensesame" not in user.get("/functions").text
    assert b"opensesame" not in Path(f"/proc/{told['pid']}/cmdline").read_bytes()


def test_inputs_that_come_together_are_answered_together(user: Client) -> None:
    user.ready("sizes", "sizes", batch={"max": 4, "window": "10m"}, deadline="10m")

    with ThreadPoolExecutor(4) as pool:
        answers = [one.json() for one in pool.map(user.call, ["sizes"] * 4, range(4))]

    assert answers == [4] * 4


def test_an_input_waits_for_others_until_the_window_closes(user: Client) -> None:
    user.ready("sizes", "sizes", batch={"max": 4, "window": "1s"})

    begin_s = time.monotonic()
    assert user.call("sizes", 0).json() == 1
    assert time.monotonic() - begin_s >= 0.9


def test_one_that_is_no_json_does_not_spoil_its_batch(user: Client) -> None:
    user.ready("sizes", "sizes", batch={"max": 2, "window": "10m"}, deadline="10m")

    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(user.call, "sizes", 1)
        bad = pool.submit(user.post, "/functions/sizes/invoke", content=b"{")

    assert good.result().json() == 1
    assert "Expecting property name" in said(bad.result(), 422)


def test_a_function_is_stored_and_survives_a_restart(tmp_path: Path) -> None:
    with gateway(tmp_path) as client:
        client.ready("echo", "echo", deadline="7s")
        before = client.look("echo")
        (replica,) = client.pids("echo")

    assert not is_alive(replica)
    with gateway(tmp_path) as client:
        after = client.look("echo")
        assert (after["state"], after["spec"]) == ("cold", before["spec"])
        assert client.call("echo", 1).json() == 1
        assert client.look("echo")["cold_starts"] == 1
        assert client.delete("/functions/echo").status_code == 204
    with gateway(tmp_path) as client:
        assert client.get("/functions").json() == {"functions": []}


def test_a_function_that_can_no_longer_be_read_costs_nobody_else(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        for name, spec in (("old", '{"name": "old"}'), ("new", json.dumps(ECHO))):
            driver.store.put_function(FunctionRow(name, "user", 1, 0.0, spec))

    with gateway(tmp_path) as client:
        assert [one["name"] for one in client.get("/functions").json()["functions"]] == ["new"]
        assert client.call("new", 1).json() == 1


def test_a_new_version_takes_over_without_losing_a_request(user: Client) -> None:
    user.ready("it", "sleeps")

    with ThreadPoolExecutor(4) as pool:
        old = pool.submit(user.call, "it", 0.5)
        until(lambda: user.look("it")["replicas"][0]["state"] == "busy")
        user.deploy("it", "echo")
        new = user.call("it", 0.5)

    assert new.json() == 0.5
    assert old.result().json() > 1
    assert user.look("it")["version"] == 2


def test_a_function_belongs_to_who_deployed_it(tmp_path: Path) -> None:
    with (
        driving(tmp_path) as driver,
        serving(driver) as (url, tokens),
        client_of(url, tokens[Role.ADMIN]) as admin,
        client_of(url, tokens[Role.USER]) as other,
    ):
        admin.deploy("it", "echo")
        assert "only they or an admin" in said(other.deploy("it", "raises"), 403)
        assert "only they or an admin" in said(other.delete("/functions/it"), 403)
        assert other.call("it", 1).json() == 1


# -- how long they take -------------------------------------------------------------------


def test_a_request_has_failed_at_its_deadline(user: Client) -> None:
    user.ready("slow", "sleeps", deadline="30s")

    # The handler would take longer than this client waits.
    assert "The deadline of 0.2 s passed." in said(
        user.call("slow", 2 * PATIENCE_S, **{"X-Deadline": "200ms"}), 504
    )

    assert user.look("slow")["deadline_misses"] == 1
    assert "X-Deadline" in said(user.call("slow", 1, **{"X-Deadline": "soon"}), 422)


@contextmanager
def gated(user: Client, gate: Path, names: dict[str, str]) -> Iterator[list[Future[int]]]:
    """Have calls with these deadlines wait, one after the other; then open their gate."""
    with ThreadPoolExecutor(len(names)) as pool:
        answers = []
        for name, deadline in names.items():
            asked, head = {"gate": str(gate), "name": name}, {"X-Deadline": deadline}
            answers.append(
                pool.submit(lambda a, h: user.call("slow", a, **h).status_code, asked, head)
            )
            until(lambda: user.look("slow")["requests"] == len(answers))
        yield answers
        (gate / "open").touch()


def test_a_queue_that_is_full_says_when_to_try_again(user: Client, tmp_path: Path) -> None:
    user.ready("slow", "passes", queue=1, replicas={"max": 1}, deadline="10m")

    with gated(user, tmp_path, {"a": "10m", "b": "10m"}) as answers:
        refused = user.call("slow", {})

    assert [one.result() for one in answers] == [200, 200]
    assert "wait for slow already" in said(refused, 503)
    assert int(refused.headers["retry-after"]) >= 1


def test_those_with_the_nearest_deadline_go_first(user: Client, tmp_path: Path) -> None:
    user.ready("slow", "passes", replicas={"max": 1}, deadline="10m")

    with gated(user, tmp_path, {"a": "10m", "b": "10m", "c": "5m"}):
        pass

    assert (tmp_path / "passed").read_text() == "acb"


def test_more_replicas_come_when_one_takes_too_long(user: Client) -> None:
    user.ready("slow", "sleeps", replicas={"max": 3}, deadline="10m")
    pids: set[int] = set()

    def are_three() -> bool:
        with ThreadPoolExecutor(12) as pool:
            pids.update(one.json() for one in pool.map(user.call, ["slow"] * 12, [0.2] * 12))
        return len(pids) >= 3

    until(are_three, "three replicas")

    assert len(pids) == 3


def test_a_thousand_requests_at_once_are_all_answered(user: Client) -> None:
    user.ready("echo", "echo", queue=2_000, deadline="10m")

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda n: user.call("echo", n).json(), range(1_000)))

    assert answers == list(range(1_000))


def test_what_nobody_asks_for_is_let_go(tmp_path: Path) -> None:
    with gateway(tmp_path, slot_s=0.2, first_s=0.0) as client:
        client.deploy("echo", "echo", keep="3s")
        client.call("echo")
        begin_s = time.monotonic()
        assert client.call("echo").status_code == 200

        until(lambda: client.look("echo")["state"] == "cold")

        assert time.monotonic() - begin_s >= 2.4
        cold_starts = client.look("echo")["cold_starts"]
        assert client.call("echo", 1).json() == 1
        assert client.look("echo")["cold_starts"] == cold_starts + 1


class Told:
    """A forecast that says what it is told to."""

    def __init__(self) -> None:
        self.chance = 0.0

    def chances(self) -> Floats:
        return np.array([self.chance])

    def quantiles(self, levels: Floats) -> Floats:
        return np.ones(1)

    def passed(self, counts: Floats) -> None:
        pass


def test_what_will_be_asked_is_loaded_ahead(tmp_path: Path) -> None:
    told = Told()
    with gateway(
        tmp_path, slot_s=0.2, first_s=0.0, forecast=lambda name, now_s: told
    ) as client:
        client.deploy("echo", "echo")
        until(lambda: client.look("echo")["state"] == "cold")

        told.chance = 1.0

        until(lambda: client.look("echo")["loads"] >= 2, "a load that nobody asked for")
        assert client.look("echo")["requests"] == 0


# -- beside jobs --------------------------------------------------------------------------


def test_a_function_makes_way_for_a_job_and_comes_back_when_it_has_ended(user: Client) -> None:
    user.ready("big", "sleeps", memory="12GiB", deadline="3s")
    user.ready("other", "sleeps", memory="12GiB")
    job = {
        "name": "train",
        "run": "sleep 1000",
        "resources": {"gpu": {"count": 2, "memory": "8GiB"}},
    }
    job_id = user.post("/jobs", json=job).json()["id"]

    until(lambda: not user.look("big")["replicas"] and not user.look("other")["replicas"])
    late = user.call("big", 0)

    # It waits for a place until its deadline, and is told why there was none.
    waited = "passed while it waited for a replica (No GPU that was looked at has the memory"
    assert waited in said(late, 504)
    assert user.look("big")["evicted"] == 1
    until(lambda: user.get(f"/jobs/{job_id}").json()["state"] == "running")
    user.delete(f"/jobs/{job_id}")
    until(lambda: user.call("big", 0).status_code == 200, "the function's return")


def test_who_finds_no_place_is_told_so_at_its_deadline(tmp_path: Path) -> None:
    told = Told()
    told.chance = 1.0
    with gateway(
        tmp_path, slot_s=0.2, first_s=0.0, forecast=lambda name, now_s: told
    ) as client:
        job = {"name": "train", "run": "sleep 1000", "resources": {"gpu": {"count": 2}}}
        job_id = client.post("/jobs", json=job).json()["id"]
        until(lambda: client.get(f"/jobs/{job_id}").json()["state"] == "running")
        client.deploy("echo", "echo", deadline="3s")
        until(lambda: len(client.look("echo")["slots"]) > 3, "actions to load it ahead")

        assert "while it waited for a replica" in said(client.call("echo"), 504)


def test_an_idle_function_makes_way_for_one_that_is_asked(user: Client) -> None:
    for name in ("one", "two", "three"):
        user.ready(name, "echo", memory="10GiB")

    assert [user.call(name, name).json() for name in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]

    warm = [
        one["name"] for one in user.get("/functions").json()["functions"] if one["replicas"]
    ]
    assert len(warm) == 2


# -- bad ones -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("raises", "ValueError: not <b>today</b>"),
        ("returns_what_is_not_json", "TypeError: Object of type object is not JSON"),
    ],
)
def test_what_a_handler_raises_is_told_and_it_lives_on(
    user: Client, handler: str, says: str
) -> None:
    user.ready("bad", handler)
    before = user.pids("bad")

    assert says in said(user.call("bad"), 502)

    assert user.pids("bad") == before
    assert user.look("bad")["raised"] == 1
    assert "Traceback" in user.get("/functions/bad/log").text


def test_one_bad_member_hurts_nobody_else_in_its_batch(user: Client) -> None:
    user.ready("picky", "picky", batch={"max": 8, "window": "10m"}, deadline="10m")
    pids = user.pids("picky")
    deep = b"[" * 100_000
    bodies = [deep, b'"bad"', b'"odd"', b"1" * 10_000, b"\xff", b"5", b"6", b"7"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda body: user.post("/functions/picky/invoke", content=body), bodies)
        )

    assert [one.status_code for one in answers] == [422, 502, 502, 422, 422, 200, 200, 200]
    assert [one.json() for one in answers[-3:]] == [5, 6, 7]
    assert user.pids("picky") == pids


def test_a_call_whose_caller_is_gone_is_dropped(user: Client, tmp_path: Path) -> None:
    user.ready("gate", "passes", deadline="10m", replicas={"max": 1})
    gate = {"gate": str(tmp_path)}

    def call_and_leave(name: str) -> None:
        with pytest.raises(httpx.ReadTimeout):
            user.post("/functions/gate/invoke", json={**gate, "name": name}, timeout=1.0)

    call_and_leave("begun")
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: call_and_leave(f"left-{n}"), range(20)))
    until(lambda: user.look("gate")["abandoned"] == 21, "the end of all who left")
    assert user.look("gate")["waiting"] == 0
    (tmp_path / "open").touch()
    assert user.call("gate", {**gate, "name": "last"}).status_code == 200
    assert (tmp_path / "passed").read_text() == "begunlast"


def test_a_user_has_so_many_functions_and_no_more(tmp_path: Path) -> None:
    with gateway(tmp_path, functions_per_user=2) as client:
        for name in ("a", "b", "b"):
            assert client.deploy(name, "echo").status_code == 201
        assert "has 2 functions" in said(client.deploy("c", "echo"), 409)
        assert client.delete("/functions/a").status_code == 204
        assert client.deploy("c", "echo").status_code == 201


def test_answers_that_nobody_reads_are_bounded_for_all(tmp_path: Path) -> None:
    with gateway(tmp_path, answers_mib=20) as client:
        client.ready("long", "long", memory="1GB", replicas={"max": 2})
        with client.stream("POST", "/functions/long/invoke", json=15 << 20) as unread:
            assert unread.status_code == 200
            assert "wait to be sent" in said(client.call("long", 15 << 20), 503)
            assert len(unread.read()) == (15 << 20) + 2
        assert client.call("long", 15 << 20).status_code == 200


def test_fork_servers_without_a_replica_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.engines.local.functions.fork_servers.IDLE_MAX", 2)
    others = _fork_servers()
    with gateway(tmp_path, slot_s=0.2, first_s=0.0) as client:
        for number in range(5):
            client.deploy(f"f{number}", "echo", env={"N": str(number)}, keep="0s")
            assert client.call(f"f{number}", number).json() == number
        until(lambda: len(_fork_servers() - others) <= 2, "the end of idle fork servers")
        assert client.call("f0", 7).json() == 7  # and comes back when it is needed


def _fork_servers() -> set[int]:
    """The fork servers of this process."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                parent_of(int(folder.name)) == os.getpid()
                and b"fork_server" in (folder / "cmdline").read_bytes()
            ):
                found.add(int(folder.name))
    return found


def test_answers_are_bounded(user: Client) -> None:
    user.ready("long", "long", answer_max="1MiB")
    assert len(user.call("long", 1_000_000).json()) == 1_000_000
    assert "may be sent" in said(user.call("long", 1 << 20), 502)
    batch = {"max": 2, "window": "10m"}
    user.ready("longs", "longs", batch=batch, deadline="10m", answer_max="64MiB", memory="2GB")
    with ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(lambda n: user.call("longs", n).status_code, [40 << 20] * 2))
    assert sorted(sizes) == [200, 502]


def test_a_batch_whose_answers_do_not_match_fails(user: Client) -> None:
    user.ready("bad", "too_few", batch={"max": 4})

    assert "1 inputs gave 0 outputs" in said(user.call("bad"), 502)


def test_one_that_hangs_is_replaced(user: Client) -> None:
    user.ready("slow", "sleeps", deadline="500ms")
    (hung,) = user.pids("slow")

    assert said(user.call("slow", 1000), 504)
    until(lambda: not is_alive(hung), "the end of one that hangs")

    assert user.call("slow", 0).json() != hung
    assert user.look("slow")["killed"] == 1


def test_one_that_takes_too_much_memory_is_replaced(user: Client) -> None:
    user.ready("hungry", "takes_memory", memory="64MB")
    (before,) = user.pids("hungry")

    assert user.call("hungry", 100).json() == 1
    until(lambda: not is_alive(before), "the end of one that takes too much")

    assert user.call("hungry", 1).json() == 1
    assert user.look("hungry")["killed"] == 1


def test_one_that_asks_for_all_memory_at_once_gets_none(user: Client) -> None:
    user.ready("hungry", "takes_memory", memory="64MB")

    assert "MemoryError" in said(user.call("hungry", 4_000), 502)


def test_one_that_ends_loses_its_request_and_is_replaced(user: Client) -> None:
    user.ready("bad", "ends")

    assert "Its replica has ended" in said(user.call("bad"), 502)
    assert "Its replica has ended" in said(user.call("bad"), 502)

    assert user.look("bad")["lost"] == 2


def test_one_that_is_killed_while_idle_costs_nobody_a_request(user: Client) -> None:
    user.ready("echo", "echo")
    for number in range(20):
        for pid in user.pids("echo"):
            os.kill(pid, signal.SIGKILL)
        assert user.call("echo", number).json() == number


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"load": "handlers:has_no_weights"}, "FileNotFoundError: there are no weights"),
        ({"load": "handlers:never_loads", "load_deadline": "300ms"}, "within 0.3 s"),
        ({"preload": ["no_such_module"]}, "ModuleNotFoundError: No module named"),
        ({"handler": "no_such_module:f"}, "ModuleNotFoundError: No module named"),
        ({"handler": "handlers:HERE"}, "AttributeError"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    user: Client, more: dict[str, object], says: str
) -> None:
    user.deploy("bad", "times", **more)
    until(lambda: user.look("bad")["state"] == "failed")

    refused = user.call("bad", 1)

    assert says in said(refused, 503)
    assert int(refused.headers["retry-after"]) >= 1
    assert says in user.look("bad")["reason"]


def test_nothing_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    words = ("up", "--devices", "cpu:2", "--port", "0", "--no-pages", "--state", str(tmp_path))
    with subprocess.Popen(
        (sys.executable, "-m", "interlane", *words), stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        while not server.stderr.readline().startswith("Serving"):
            assert server.poll() is None
        url = json.loads((tmp_path / "server.json").read_text())["url"]
        with client_of(url, (tmp_path / "token").read_text()) as client:
            client.ready("slow", "sleeps", preload=["json"])
            client.ready("parent", "leaves_a_child")
            children = [
                client.call("parent").json(),
                *client.pids("parent"),
                *client.pids("slow"),
            ]
            threading.Thread(target=_call_in_vain, args=(client,)).start()
            until(lambda: client.look("slow")["replicas"][0]["state"] == "busy")
            fork_servers = {parent_of(pid) for pid in children[1:]}
            server.kill()

    for pid in (*children, *fork_servers):
        until(lambda: not is_alive(pid), f"the end of process {pid}")  # noqa: B023
    assert len(fork_servers) == 2


def _call_in_vain(client: Client) -> None:
    with suppress(httpx.HTTPError):
        client.call("slow", 1000)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"handler": "../../etc/passwd:f"}, "handler is '../../etc/passwd:f', but"),
        ({"path": "relative"}, "path is 'relative', but"),
        ({"path": "/no/such/folder"}, "path is '/no/such/folder', but"),
        ({"memory": "0MB"}, "memory is '0MB', but"),
        ({"deadline": "0s"}, "deadline is '0s', but"),
        ({"batch": {"max": 0}}, "batch.max is 0, but"),
        ({"batch": {"max": 2, "window": "1h"}}, "batch.window is '1h', but"),
        ({"keep": "for ever"}, "keep is 'for ever', but"),
        ({"secrets": ["NONE"]}, "secrets names 'NONE', which has no value"),
        ({"colour": "red"}, "colour is not a field of a function"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_sentence(
    user: Client, spec: dict[str, object], says: str
) -> None:
    assert says in said(user.deploy("bad", "echo", **spec), 422)


def test_one_more_than_there_may_be_is_refused(tmp_path: Path) -> None:
    with gateway(tmp_path, functions_max=1) as client:
        client.ready("one", "echo")

        assert (
            said(client.deploy("two", "echo"), 409)
            == "There are 1 functions; delete one first."
        )
        assert client.deploy("one", "echo").status_code == 201


def test_a_function_that_is_not_there_is_not_found(user: Client) -> None:
    for answer in (
        user.call("none"),
        user.get("/functions/none"),
        user.get("/functions/none/log"),
        user.delete("/functions/none"),
        user.call("%2e%2e%2ftokens"),
    ):
        assert said(answer, 404)


def test_figures_are_shown_to_prometheus(user: Client) -> None:
    user.ready("echo", "echo")
    user.call("echo")

    page = user.get(f"{user.base_url.copy_with(path='/metrics')}").text

    assert 'interlane_function_requests_total{function="echo"} 1.0' in page
    assert 'interlane_function_cold_starts_total{function="echo"} 0.0' in page
    assert 'interlane_function_replicas{function="echo",state="idle"} 1.0' in page
    assert 'interlane_function_latency_seconds_count{function="echo"} 1.0' in page
