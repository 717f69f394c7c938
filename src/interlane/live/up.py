"""Starts the server: its folder, its lock, its socket, and everything behind them."""

import json
import logging
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

import uvicorn
from fastapi import FastAPI

from interlane.live import folder
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
from interlane.live.measure.job_series import SeriesFiles
from interlane.live.measure.slowdown import Beside
from interlane.live.measure.use_history import UseHistory
from interlane.live.notify import POSITION_FILE, Notifier, NotifyRules
from interlane.live.port import Engine
from interlane.live.questions.desk import QuestionDesk
from interlane.live.questions.etas import Etas, PlayForward
from interlane.live.store.database import safe_url
from interlane.live.store.store import Store, StoreFailed
from interlane.live.turn import LOOK_S, Beats, Taking, Turn, Unreachable
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

SWITCH_S: Final = 0.0005
"""Seconds after which threads take turns.  With what Python does by itself, whatever the event
loop sends, receives or takes up waits for ten times as long while another thread computes."""

WAITING_MAX: Final = 2048
"""Connections that may wait to be taken up."""

ADMIN: Final = "admin"
RUNS_FOLDER: Final = "runs"
CLOCK_AHEAD_S: Final = 30 * 86_400.0
"""A server that was off for a month is rarer than a clock that is wrong."""
RESTORE_STATE: Final = (
    "restore it with 'interlane state restore', or say --begin-anew if what it held may be lost"
)


@dataclass(frozen=True, slots=True)
class Begin:
    """What an operator accepts when a server begins."""

    taking: Taking = Taking.REFUSE
    """Whether another server's database and work are taken over."""
    anew: bool = False
    """Whether a folder that was used may get another database."""
    clock_is_right: bool = False
    """Whether the clock may be far from the log."""


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
    begin: Begin = Begin()
    """What is accepted at the start."""
    unreachable: Unreachable = lambda holder: None
    """What the engine says of attempts that others hold."""
    bounds: ServerBounds = field(default_factory=ServerBounds)
    tls: TlsFiles | None = None
    behind_proxy: bool = False
    """Somebody else encrypts, and says where requests come from."""
    notify: NotifyRules | None = None
    """Whom the server may tell of jobs; nobody if not given."""
    serves: Callable[[View], None] = lambda view: None
    """Told what can be asked, once the driver works."""

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
    with (
        locked(settings, say),
        _opened(settings, engine, say) as opened,
        _listening(settings) as listener,
    ):
        address = f"{settings.scheme}://{settings.host}:{listener.getsockname()[1]}"
        store, archive = opened.store, opened.archive
        driver = Driver(store, plan, engine, trained=trained)
        driver.start()
        beats = Beats(store, driver.now_s, driver.give_up)
        beats.start()
        gpu_type = min(driver.snapshot().cluster.gpu_types, default=NO_GPU)
        driver.monitor.tell = CoRunFiles(settings.state / "coruns", gpu_type).add
        if settings.beside is not None:
            driver.monitor.beside = settings.beside
        tokens = Tokens(store, driver.now_s)
        _first_token(tokens, settings.state, say)
        folder.write_private(
            settings.state / ADDRESS_FILE, json.dumps({"url": address, "pid": os.getpid()})
        )
        etas = Etas(driver.snapshot, store, play)
        etas.start()
        keeping = Keeping(store, archive, settings.keep_s, driver.now_s)
        keeping.start()
        notifier = _notifier(settings, driver)
        view = View(driver, etas, notifier.counts)
        settings.serves(view)
        service = LiveService(
            view,
            driver,
            tokens,
            QuestionDesk(settings.bounds),
            settings.bounds,
            AuditLog(settings.state, driver.now_s),
            str(_emptied(settings.state / SCRATCH_FOLDER)),
            UseHistory(view, SeriesFiles(settings.state / "series")),
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
            notifier.close()
            keeping.close()
            etas.close()
            driver.close()
            beats.close()
    if driver.stopped_because is not None:
        raise driver.stopped_because


def _notifier(settings: UpSettings, driver: Driver) -> Notifier:
    """Begin to tell others of jobs, as far as that is allowed."""
    rules = settings.notify or NotifyRules()
    driver.check_more = rules.check
    made = Notifier(
        driver.store,
        rules,
        settings.state / POSITION_FILE,
        driver.store.ends().seq,
    )
    made.start()
    return made


def database_of(state: Path, database_url: str | None) -> str:
    """Return the address of a server's database."""
    return database_url or f"sqlite:///{state / DATABASE_FILE}"


@dataclass(frozen=True, slots=True)
class _Opened:
    store: Store
    archive: Archive


@contextmanager
def _opened(settings: UpSettings, engine: Engine, say: Say) -> Iterator[_Opened]:
    """Open the store, and take it over when it is our turn."""
    archive = Archive(settings.state / ARCHIVE_FOLDER)
    store = _store(settings, archive, say)
    try:
        _check_identity(settings, store, say)
        begin = settings.begin
        mine = folder.holder_in(engine.traits.holder)
        if not begin.clock_is_right:
            _check_clock(store.ends().at_s)
        Turn(store, mine, settings.unreachable, begin.taking, say).take()
        folder.note_database(settings.state, store.life().identity)
        yield _Opened(store, archive)
    finally:
        store.close()


def _check_identity(settings: UpSettings, store: Store, say: Say) -> None:
    """Refuse a database that does not know what this folder has run."""
    known = folder.identified(settings.state).database
    runs = _used_runs(settings.state)
    is_new = known is None and not runs
    is_ours = known == store.life().identity if known else store.ends().serial > 0
    if is_new or is_ours:
        return
    if not settings.begin.anew:
        raise InvalidInput(
            f"{settings.state} was used with another database than {safe_url(store.url)}, and "
            f"has {runs} folders of jobs in {RUNS_FOLDER}/; {RESTORE_STATE}."
        )
    say(f"Beginning anew; {runs} folders of earlier jobs stay, and what runs is taken up.")


def _used_runs(state: Path) -> int:
    runs = state / RUNS_FOLDER
    return sum(1 for _ in runs.iterdir()) if runs.is_dir() else 0


def _check_clock(last_s: float) -> None:
    """Refuse a clock that is far ahead of the log: all that follows would be ahead for good.

    One that is behind does no harm, since time on record never goes back.
    """
    ahead_s = time.time() - last_s
    if last_s and ahead_s > CLOCK_AHEAD_S:
        raise InvalidInput(
            f"The clock is {ahead_s / 86_400:,.0f} days after the last moment on record; set "
            "it, or say --clock-is-right if it is (after a long pause, say)."
        )


def _store(settings: UpSettings, archive: Archive, say: Say) -> Store:
    """Open the store; what is wrong with it is said with the copies that there are."""
    file = settings.state / DATABASE_FILE
    if settings.database_url is None:
        _must_hold_something(file, settings)
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


def _must_hold_something(file: Path, settings: UpSettings) -> None:
    """Refuse a file that is gone or was cut to nothing: SQLite would begin anew in it."""
    is_there = file.exists()
    if is_there and file.stat().st_size:
        return
    used = file.with_name(TOKEN_FILE).exists() or _used_runs(file.parent) > 0
    if used and not settings.begin.anew:
        what = "is empty" if is_there else "is not there"
        raise InvalidInput(f"{file} {what}, but a server has worked here; {RESTORE_STATE}.")
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))  # SQLite keeps its mode


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
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
    server.run(sockets=[listener])


@contextmanager
def locked(settings: UpSettings, say: Say) -> Iterator[None]:
    """Hold a folder for its owner alone, so that no two servers use it."""
    state = settings.state
    folder.prepare(state)
    file = folder.lock(state)
    if file is None and settings.begin.taking is Taking.WAIT:
        say(f"Standing by: another server uses {state}.")
        while file is None:
            time.sleep(LOOK_S)
            file = folder.lock(state)
    if file is None:
        raise InvalidInput(
            f"Another server uses {state}; end it, or name another folder with --state."
        )
    with file:
        folder.close_to_others(state)
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
    folder.write_private(state / TOKEN_FILE, token)
    say(f"Admin token, shown this once: {token}")
