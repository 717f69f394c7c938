import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from interlane.live.auth import Role

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), "")
GPUS = 4
PATIENCE_MS = 60_000
"""For what must appear in a page; browsers are slow on a busy machine."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Machine:
    """A real server with its pages, and a token for every role."""

    url: str
    link: str
    tokens: Mapping[Role, str] = field(repr=False)

    def api(self, role: Role = Role.ADMIN) -> httpx.Client:
        """Return a client of its API."""
        # To learn whom to trust takes longer than most requests, and nothing is encrypted here.
        head = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers=head, timeout=60, verify=False
        )

    @contextmanager
    def browserlike(self, role: Role | None = None) -> Iterator[httpx.Client]:
        """Ask for pages as a browser does, with a session if a role is named."""
        head = {"Accept": "text/html"}
        with httpx.Client(base_url=self.url, headers=head, timeout=60, verify=False) as client:
            if role is not None:
                answer = client.post("/login", data={"token": self.tokens[role]})
                assert answer.status_code == 200
            yield client

    def sign_in(self, context: BrowserContext, role: Role) -> None:
        """Give a browser a session of its own."""
        with self.browserlike(role) as client:
            ((name, value),) = client.cookies.items()
        context.add_cookies([{"name": name, "value": value, "url": self.url}])

    def submit(self, role: Role = Role.USER, **spec: Any) -> str:  # noqa: ANN401
        """Hand in a job; return its id."""
        with self.api(role) as api:
            answer = api.post("/jobs", json=spec)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def state_of(self, job: str) -> str:
        """Return where a job stands."""
        with self.api() as api:
            return str(api.get(f"/jobs/{job}").json()["state"])


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    state = tmp_path_factory.mktemp("machine")
    command = [sys.executable, "-m", "interlane", "up", "--port", "0", "--state", str(state)]
    command += ["--devices", f"cpu:{GPUS}:16GB", "--trust-users"]
    command += ["--bound", "logins_per_minute=10000", "--bound", "pages_per_s=10000"]
    # So that it is known who is where.
    command += ["--order", "fifo", "--placer", "pack", "--queue", "skip"]
    env = {**os.environ, "INTERLANE_STATE": str(state)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("Serving"):
                break
        # Whoever has nobody to listen falls silent in the end, and waits.
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        try:
            yield _known(state, "".join(said))
        finally:
            process.terminate()
            rest.join()


def _known(state: Path, said: str) -> Machine:
    url = json.loads((state / "server.json").read_text())["url"]
    link = next(word for word in said.split() if "/login?ticket=" in word)
    tokens = {Role.ADMIN: (state / "token").read_text().strip()}
    machine = Machine(url, link, tokens)
    with machine.api() as api:
        for role in (Role.VIEWER, Role.USER):
            made = api.post("/tokens", json={"name": role.word, "role": role.word})
            tokens[role] = made.json()["token"]
    return machine


@pytest.fixture(autouse=True)
def no_jobs_left(machine: Machine) -> Iterator[None]:
    yield
    with machine.api() as api:

        def open_jobs() -> list[str]:
            states = [("state", one) for one in ("queued", "starting", "running", "stopping")]
            found = api.get("/jobs", params=[*states, ("limit", "500")]).json()["jobs"]
            return [job["id"] for job in found]

        with ThreadPoolExecutor(16) as pool:
            while jobs := open_jobs():
                list(pool.map(lambda job: api.delete(f"/jobs/{job}"), jobs))


# -- the browser ----------------------------------------------------------------------


@pytest.fixture(scope="package")  # while it is open, no test can run a loop in this thread
def browser() -> Iterator[Browser]:
    if not BROWSER:
        pytest.skip("no Chromium here; `make test` installs it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield launched
        launched.close()


@dataclass
class Watched:
    """What went wrong in a browser, and whom it spoke to."""

    own: str
    wrong: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("pageerror", self._failed)
        page.on("console", self._heard)
        page.on("request", self._asked)

    def leave(self, page: Page) -> None:
        """Listen to a page no longer."""
        page.remove_listener("pageerror", self._failed)
        page.remove_listener("console", self._heard)
        page.remove_listener("request", self._asked)

    def _failed(self, error: Any) -> None:  # noqa: ANN401
        self.wrong.append(str(error))

    def _heard(self, message: Any) -> None:  # noqa: ANN401
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:  # noqa: ANN401
        if not request.url.startswith((self.own, "data:", "blob:", "about:")):
            self.strangers.append(request.url)


Open = Callable[..., Page]


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Page:
    """A tab that stays open: a new one costs twice as much, for it begins with nothing."""
    return browser.new_context().new_page()


@pytest.fixture
def open_page(tab: Page, machine: Machine) -> Iterator[Open]:
    """Opens a page as somebody of a role; whatever goes wrong in the browser fails the test."""
    watched = Watched(machine.url)
    watched.watch(tab)
    size = tab.viewport_size
    assert size is not None

    def opened(path: str, role: Role = Role.ADMIN) -> Page:
        machine.sign_in(tab.context, role)
        tab.goto(f"{machine.url}{path}")
        tab.get_by_role("navigation", name="Pages").wait_for()
        return tab

    yield opened
    tab.goto("about:blank")
    tab.context.clear_cookies()
    tab.emulate_media(color_scheme="null")
    tab.set_viewport_size(size)
    watched.leave(tab)
    assert watched.wrong == []
    assert watched.strangers == []
