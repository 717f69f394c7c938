"""Builders for the live machine: real stores, real processes, a real server."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from interlane.engines.local.devices import emulated
from interlane.engines.local.functions.replicas import LocalReplicas
from interlane.engines.local.lanes import Lanes, LaneSettings
from interlane.engines.local.launch import Secrets
from interlane.engines.local.runner import Attempt, Launch, ProcessRunner, Ran, Runner, Tell
from interlane.kernel.scheduler import Scheduler
from interlane.live.auth import Role, Tokens
from interlane.live.driver import Driver
from interlane.live.files.job import JobSpec, read_spec
from interlane.live.functions.gateway import FunctionSettings
from interlane.live.http.app import make_app
from interlane.live.http.service import Service
from interlane.live.questions.etas import Etas
from interlane.live.store.record import Record
from interlane.live.store.store import Store
from interlane.model import Cluster, Machine, MachineId
from interlane.policy.base import Order
from interlane.policy.order import Fifo
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.testing.waiting import until
from interlane.wiring import played_starts


def spec(name: str = "a", run: str = "true", *, gpus: int = 1, **more: Any) -> JobSpec:  # noqa: ANN401
    """Return a job for whole GPUs."""
    return read_spec({"name": name, "run": run, "resources": {"gpu": {"count": gpus}}, **more})


def this_machine(gpus: int = 2) -> Cluster:
    """Return a machine with emulated GPUs."""
    return Cluster(
        "this machine",
        (Machine(MachineId("here"), "EMULATED", gpus, 64_000, 65_536, 16_384),),
    )


class PretendRunner:
    """Runs nothing: every attempt ends well at once, having printed nothing."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def start(self, launch: Launch) -> None:
        """Tell that the attempt has ended."""
        self._tell(Ran(launch.attempt, 0))

    def recover(self, attempt: Attempt) -> bool:
        """Tell that the attempt has ended."""
        self._tell(Ran(attempt, 0))
        return True

    def stop(self, attempt: Attempt) -> None:
        """Do nothing: it has ended."""

    def output(self, attempt: Attempt, begin: int, size: int) -> tuple[int, bytes]:
        """Return nothing."""
        return begin, b""

    def printed_bytes(self, attempt: Attempt) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def make_driver(
    folder: Path,
    *,
    gpus: int = 2,
    order: Order | None = None,
    store: Store | None = None,
    runner: Callable[[Tell], Runner] | None = None,
    lanes: Lanes | None = None,
) -> Driver:
    """Return a driver on a folder, with real processes; it has not begun."""
    cluster = this_machine(gpus)
    policy = Policy(order or Fifo(), pack(), name="test")
    folder.mkdir(exist_ok=True)
    return Driver(
        store or Store(f"sqlite:///{folder / 'state.db'}"),
        lambda: Scheduler(cluster, policy),
        runner or (lambda tell: ProcessRunner(folder / "runs", tell)),
        Secrets(folder / "secrets"),
        hardware=emulated(cluster.machines[0]),
        lanes=lanes,
    )


def make_lanes(folder: Path, *, gpus: int = 1, order: str = "fair") -> Lanes:
    """Return lanes on the devices of ``this_machine``, in turns; they have not begun."""
    (machine,) = this_machine(gpus)
    return Lanes(LaneSettings(emulated(machine).shared, folder / "lanes", order, "turns"))


@contextmanager
def driving(folder: Path, **settings: Any) -> Iterator[Driver]:  # noqa: ANN401
    """Drive a machine; jobs that still run at the end are cancelled."""
    driver = make_driver(folder, **settings)
    driver.start()
    try:
        yield driver
    finally:
        clear(driver)
        driver.close()


def clear(driver: Driver) -> None:
    """Cancel every job, and wait until none is left."""
    for record in driver.open_records():
        driver.cancel(record.id, "test")
    until(lambda: not driver.open_records(), "the end of all jobs")


def ended(driver: Driver, record: Record) -> Record:
    """Wait until a job has ended, and return it."""
    until(lambda: driver.open_record(record.id) is None, f"the end of {record.id}")
    found = driver.store.job(record.id)
    assert found is not None
    return found


@contextmanager
def serving(
    driver: Driver, functions: FunctionSettings | None = None
) -> Iterator[tuple[str, Mapping[Role, str]]]:
    """Serve a driver over HTTP; yields the address and a token for every role."""
    tokens = Tokens(driver.store, driver.now_s)
    made = {role: tokens.make(role.word, role)[0] for role in Role}
    service = Service(
        driver,
        tokens,
        True,
        Etas(driver, played_starts),
        LocalReplicas(driver.secrets, driver.hardware),
        functions or FunctionSettings(),
    )
    config = uvicorn.Config(
        make_app(service), port=0, log_level="critical", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, "the server")
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", made
    finally:
        server.should_exit = True
        thread.join()
