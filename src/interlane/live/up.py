"""Starts the server: its folder, its lock, its socket, and everything behind them."""

import fcntl
import json
import logging
import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

import uvicorn
from fastapi import FastAPI

from interlane.live.archive import Archive
from interlane.live.audit import AuditLog
from interlane.live.auth import Role, Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.connections import BoundedServer, Connections
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan
from interlane.live.functions.gateway import FunctionSettings, Gateway
from interlane.live.http.app import make_app
from interlane.live.http.service import LiveService
from interlane.live.keeping import Keeping
from interlane.live.measure.coruns import CoRunFiles
from interlane.live.measure.slowdown import Beside
from interlane.live.port import Engine
from interlane.live.questions.desk import QuestionDesk
from interlane.live.questions.etas import Etas, PlayForward
from interlane.live.store.store import Store, StoreFailed
from interlane.live.view import View
from interlane.model import InterlaneError, InvalidInput
from interlane.model.gpu import NO_GPU
from interlane.predict.recall import Recall

DATABASE_FILE: Final = "state.db"
ARCHIVE_FOLDER: Final = "archive"
SCRATCH_FOLDER: Final = "scratch"
TOKEN_FILE: Final = "token"
ADDRESS_FILE: Final = "server.json"
GOODBYE_S: Final = 3
"""Seconds that open connections get when the server ends."""

WAITING_MAX: Final = 2048
"""Connections that may wait to be taken up."""

ADMIN: Final = "admin"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate and its key, in PEM."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Where the server keeps things, and where it listens."""

    state: Path
    host: str
    port: int
    """0 for any that is free."""
    functions: FunctionSettings
    database_url: str | None = None
    beside: Beside | None = None
    """Predicts slowdown of jobs that run beside each other."""
    greeting: str | None = None
    """What is said of the engine when it serves."""
    keep_s: float = inf
    """Seconds after which jobs that have ended are moved to the archive."""
    bounds: ServerBounds = field(default_factory=ServerBounds)
    tls: TlsFiles | None = None
    behind_proxy: bool = False
    """Somebody else encrypts, and says where requests come from."""

    @property
    def scheme(self) -> str:
        """How clients speak to it."""
        return "http" if self.tls is None else "https"


Say = Callable[[str], None]


class Door(Protocol):
    """An application of web pages and the API behind them."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Answer a request."""
        ...

    def login_path(self, token: str) -> str | None:
        """Return the path of a link that lets its bearer in once; None without a token."""
        ...


Mount = Callable[[LiveService, FastAPI], Door]
MakeGateway = Callable[[Driver, FunctionSettings], Gateway]


def serve(
    settings: UpSettings,
    engine: Engine,
    trained: Recall | None,
    replicas: MakeGateway,
    plan: SchedulerPlan,
    play: PlayForward,
    say: Say,
    mount: Mount | None = None,
) -> None:
    """Serve until told to end, with web pages if they are mounted; jobs run on."""
    _must_be_safe(settings)
    prepare(settings.state)
    with locked(settings.state), _listening(settings) as listener:
        address = f"{settings.scheme}://{settings.host}:{listener.getsockname()[1]}"
        archive = Archive(settings.state / ARCHIVE_FOLDER)
        store = _store(settings, archive, say)
        driver = Driver(store, plan, engine, trained=trained)
        driver.start()
        gpu_type = min(driver.snapshot().cluster.gpu_types, default=NO_GPU)
        driver.monitor.tell = CoRunFiles(settings.state / "coruns", gpu_type).add
        if settings.beside is not None:
            driver.monitor.beside = settings.beside
        tokens = Tokens(store, driver.now_s)
        _first_token(tokens, settings.state, say)
        _write_private(
            settings.state / ADDRESS_FILE, json.dumps({"url": address, "pid": os.getpid()})
        )
        etas = Etas(driver.snapshot, store, play)
        etas.start()
        keeping = Keeping(store, archive, settings.keep_s, driver.now_s)
        keeping.start()
        service = LiveService(
            View(driver, etas),
            driver,
            tokens,
            QuestionDesk(settings.bounds),
            settings.bounds,
            AuditLog(settings.state, driver.now_s),
            str(_emptied(settings.state / SCRATCH_FOLDER)),
        )
        app: FastAPI | Door = make_app(service, lambda: replicas(driver, settings.functions))
        if mount is not None:
            assert isinstance(app, FastAPI)
            app = mount(service, app)
            _say_link(app, settings.state, address, say)
        if settings.greeting is not None:
            say(settings.greeting)
        say(f"Serving at {address}; state in {settings.state}. Control-C ends it; jobs run on.")
        try:
            _run(service, app, listener, settings)
        finally:
            keeping.close()
            etas.close()
            driver.close()
            store.close()
    if driver.stopped_because is not None:
        raise driver.stopped_because


def database_of(state: Path, database_url: str | None) -> str:
    """Return the address of a server's database."""
    return database_url or f"sqlite:///{state / DATABASE_FILE}"


def _store(settings: UpSettings, archive: Archive, say: Say) -> Store:
    """Open the store; what is wrong with it is said with the copies that there are."""
    file = settings.state / DATABASE_FILE
    if settings.database_url is None and file.exists():
        _must_hold_something(file)
    try:
        store = Store(database_of(settings.state, settings.database_url), archive)
    except (InvalidInput, StoreFailed) as error:
        copies = sorted(file.parent.glob(f"{file.name}.version-*"))
        if settings.database_url is None and copies:
            raise type(error)(
                f"{error} A copy of an earlier version is {copies[-1]}."
            ) from None
        raise
    if store.said is not None:
        say(store.said)
    return store


def _must_hold_something(file: Path) -> None:
    """Refuse a file that was cut to nothing: SQLite would begin anew in it."""
    if not file.stat().st_size and file.with_name(TOKEN_FILE).exists():
        raise InvalidInput(
            f"{file} is empty, but a server has worked here; restore it from a copy, or remove "
            "it to begin anew."
        )


def _say_link(door: Door, state: Path, address: str, say: Say) -> None:
    """Say where the pages are, with a link for whoever started the server."""
    file = state / TOKEN_FILE
    path = door.login_path(file.read_text().strip()) if file.exists() else None
    if path is None:
        say(f"Web pages at {address}; sign in with a token.")
    else:
        say(f"Web pages, by a link that lets one browser in: {address}{path}")


def _must_be_safe(settings: UpSettings) -> None:
    """Refuse to let tokens travel in the open, and files that encrypt nothing."""
    if settings.tls is not None:
        must_be_certificate(settings.tls)
    elif not (settings.behind_proxy or _is_loopback(settings.host)):
        raise InvalidInput(
            f"Whoever speaks to {settings.host} would send their token in the open; give "
            "--tls-cert and --tls-key, or --behind-proxy if something in front of it encrypts."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def must_be_certificate(tls: TlsFiles) -> None:
    """Refuse files that are no certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key, lambda: "")
    except OSError as error:
        said = getattr(error, "reason", None) or error.strerror or error
        raise InvalidInput(
            f"{tls.cert} and {tls.key} are no certificate and its key without a password "
            f"({said}); give both in PEM."
        ) from None


def _emptied(folder: Path) -> Path:
    """Return a folder in which nothing is left of servers before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _run(
    service: LiveService, app: FastAPI | Door, listener: socket.socket, settings: UpSettings
) -> None:
    tls = settings.tls
    config = uvicorn.Config(
        app,
        log_level=logging.WARNING,
        access_log=False,
        timeout_graceful_shutdown=GOODBYE_S,
        server_header=False,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips="*" if settings.behind_proxy else None,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
    )
    held = Connections(service.bounds, count_addresses=not settings.behind_proxy)
    server = BoundedServer(config, held)

    def end() -> None:
        server.should_exit = True

    service.driver.on_give_up = end
    server.run(sockets=[listener])


def prepare(state: Path) -> None:
    """Make the folder in which the server keeps things, for its owner alone."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold a folder, so that no two servers use it."""
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(
                f"Another server uses {state}; end it, or name another folder with --state."
            ) from None
        yield


@contextmanager
def _listening(settings: UpSettings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(WAITING_MAX)  # who comes before the first answer waits for it
        except OSError as error:
            raise InterlaneError(
                f"{settings.host}:{settings.port} cannot be listened on ({error.strerror}); "
                "choose another with --host and --port."
            ) from None
        yield listener


def _first_token(tokens: Tokens, state: Path, say: Say) -> None:
    """Make the first admin token and show it; the command line finds it in the folder."""
    if len(tokens):
        return
    token, _ = tokens.make(ADMIN, Role.ADMIN)
    _write_private(state / TOKEN_FILE, token)
    say(f"Admin token, shown this once: {token}")


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    beside.replace(path)
