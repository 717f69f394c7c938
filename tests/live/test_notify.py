"""Others are told of jobs: those that may be, as often as it takes, and nobody waits for it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from interlane.live.driver import Driver
from interlane.live.files.job import JobSpec
from interlane.live.http.documents import shown_spec
from interlane.live.notify import Notifier, NotifyRules, rules_of
from interlane.model import InvalidInput
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving
from interlane.testing.waiting import until

HERE = "127.0.0.1"
NOW = (0.01,) * 3
"""Waits between tries."""


@dataclass
class Listener:
    """Somebody who is told."""

    url: str = ""
    heard: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """What is answered, one after another; then 204."""


@contextmanager
def listening() -> Iterator[Listener]:
    made = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.heard.append(json.loads(body))
            code = made.answers.pop(0) if made.answers else 204
            self.send_response(code)
            if code == 302:
                self.send_header("Location", f"{made.url}elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HERE, 0), Handler) as server:
        made.url = f"http://{HERE}:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


def allowing(listener: Listener, **more: Any) -> NotifyRules:  # noqa: ANN401
    return rules_of([listener.url.removeprefix("http://").rstrip("/")], **{"url": None} | more)


@contextmanager
def notifying(driver: Driver, rules: NotifyRules, folder: Path) -> Iterator[Notifier]:
    driver.check_more = rules.check
    made = Notifier(
        driver.store, rules, folder / "told", driver.store.ends().seq, waits_s=NOW, look_s=0.02
    )
    made.start()
    yield made
    made.close()


def ran(driver: Driver, **said: Any) -> str:  # noqa: ANN401
    job = JobSpec.model_validate({"name": "a", "run": "true", **said})
    record = driver.submit(job, "ann").result(60)
    until(lambda: (found := driver.store.job(record.id)) is not None and not found.is_open)
    return record.id


def test_a_job_tells_of_its_start_and_end_and_of_nothing_private(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, listening() as listener:
        rules = allowing(listener)
        with notifying(driver, rules, tmp_path):
            notify = {"url": listener.url, "on": ["started", "failed"]}
            job = ran(driver, run="exit 3", env={"TOKEN": "x"}, notify=notify)
            quiet = ran(driver, notify=notify)
            until(lambda: len(listener.heard) == 3)

    assert [(one["event"], one["job"]["id"]) for one in listener.heard] == [
        ("started", job),
        ("failed", job),
        ("started", quiet),
    ]
    assert listener.heard[1]["job"]["exit_code"] == 3
    assert "TOKEN" not in json.dumps(listener.heard)


def test_the_operators_address_is_told_of_everybodys_ends(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, listening() as listener:
        rules = allowing(listener, url=listener.url)
        with notifying(driver, rules, tmp_path):
            job = ran(driver)
            until(lambda: [one["job"]["id"] for one in listener.heard] == [job])
    assert listener.heard[0]["event"] == JobState.SUCCEEDED.value


def test_who_is_away_is_told_again_and_who_refuses_is_not(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, listening() as listener:
        rules = allowing(listener, url=listener.url)
        listener.answers = [503, 429, 204, 400, 302]
        with notifying(driver, rules, tmp_path) as made:
            ran(driver)
            until(lambda: made.counts["sent"] == 1)
            assert len(listener.heard) == 3
            ran(driver)
            ran(driver)
            until(lambda: made.counts["failed"] == 2)

    assert len(listener.heard) == 5  # neither the one that refused nor another is asked again


def test_what_a_server_could_not_tell_the_next_one_tells(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, listening() as listener:
        rules = allowing(listener, url=listener.url)
        listener.answers = [503] * 100
        with notifying(driver, rules, tmp_path) as made:
            made.waits_s = (1_000.0,)
            job = ran(driver)
            until(lambda: listener.heard)
        listener.answers.clear()
        listener.heard.clear()
        with notifying(driver, rules, tmp_path):
            until(lambda: [one["job"]["id"] for one in listener.heard] == [job])


@pytest.mark.parametrize(
    ("url", "said"),
    {
        "nobody's": ("https://hooks.example.org/x", "allowed are: hooks.example.com"),
        "inside": ("http://169.254.169.254/latest", "allowed are"),
        "the server": ("http://127.0.0.1:7411/api", "allowed are"),
        "another port": ("https://hooks.example.com:8443/", "allowed are"),
        "a parent": ("https://example.net/", "allowed are"),
        "a look-alike": ("https://evilexample.net/", "allowed are"),
        "somebody's name": ("https://a:b@hooks.example.com/", "must read like"),
        "a file": ("file:///etc/passwd", "must read like"),
        "nothing": ("https://", "must read like"),
        "no port": ("https://hooks.example.com:x/", "must read like"),
    }.values(),
    ids=lambda case: str(case)[:24],
)
def test_only_allowed_addresses_are_told(url: str, said: str) -> None:
    rules = rules_of(["hooks.example.com", "*.example.net"], None)
    job = JobSpec.model_validate({"name": "a", "run": "true", "notify": url})

    with pytest.raises(InvalidInput, match=said):
        rules.check(job)
    assert rules.of(job) is None


@pytest.mark.parametrize("url", ["https://hooks.example.com/x", "https://a.b.example.net"])
def test_allowed_addresses_are(url: str) -> None:
    rules = rules_of(["hooks.example.com", "*.example.net"], None)

    rules.check(JobSpec.model_validate({"name": "a", "run": "true", "notify": url}))


def test_an_address_is_shown_to_its_owner_only() -> None:
    said = {"name": "a", "run": "true", "notify": {"url": "https://h/secret"}}

    assert "secret" not in json.dumps(shown_spec(said, whole=False))
    assert "secret" in json.dumps(shown_spec(said, whole=True))


@pytest.mark.parametrize("allowed", ["http://a/", "*", "a*.b", ""])
def test_an_operator_is_told_what_an_allowed_address_reads_like(allowed: str) -> None:
    with pytest.raises(InvalidInput, match="must read like"):
        rules_of([allowed], None)
