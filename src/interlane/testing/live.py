"""Builders for the live machine: real stores, real processes, a real server."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import uvicorn
from fastapi import FastAPI

from interlane.device.inventory import emulated
from interlane.device.lanes import Lanes, LaneSettings
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.functions.replicas import LocalReplicas
from interlane.engines.local.launch import Secrets
from interlane.kernel.scheduler import Scheduler
from interlane.live.audit import AuditLog
from interlane.live.auth import Role, Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.connections import BoundedServer, Connections
from interlane.live.driver import Driver
from interlane.live.driver.machines import MachinesSeen
from interlane.live.driver.state import MakeScheduler, SchedulerPlan, Snapshot
from interlane.live.files.job import JobSpec, Origin, read_spec, request_of
from interlane.live.functions.gateway import FunctionSettings, Gateway
from interlane.live.http.app import make_app
from interlane.live.http.service import LiveService
from interlane.live.measure.use_history import UseHistory
from interlane.live.port import Attempt, Engine, Launch, Traits
from interlane.live.questions.desk import QuestionDesk
from interlane.live.questions.etas import Etas
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store
from interlane.live.view import View
from interlane.model import Cluster, JobId, Machine, MachineId, Placement
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


def snapshot_of(cluster: Cluster, *records: JobRecord, now_s: float = 0.0) -> Snapshot:
    """Return jobs on machines, as a driver of one machine has them stored."""
    traits = Traits("test", "test", keeps_record=False, spans_machines=False, grows=False)
    machines = MachinesSeen("test", {machine.id: machine for machine in cluster})
    return Snapshot(now_s, records, machines, traits, make_scheduler())


def make_scheduler(order: Order | None = None) -> MakeScheduler:
    """Return how drivers make schedulers here."""
    policy = Policy(order or Fifo(), pack(), name="test")
    return lambda cluster, workload: Scheduler(cluster, policy)


def launch_of(job: JobSpec, placement: Placement, machine: Machine) -> Launch:
    """Return the first attempt at a job on a machine."""
    request = request_of(job, Cluster("one", (machine,)))
    attempt = Attempt(JobId(f"{job.name}-1"), 1)
    return Launch(attempt, job, request, placement, 9.0, Origin(1, "ann", 0.0))


def make_engine(folder: Path, *, gpus: int = 2, lanes: Lanes | None = None) -> LocalEngine:
    """Return an engine of real processes on a folder; it has not begun."""
    return LocalEngine(folder, emulated(this_machine(gpus).machines[0]), lanes)


def make_driver(
    folder: Path,
    *,
    gpus: int = 2,
    order: Order | None = None,
    store: Store | None = None,
    engine: Engine | None = None,
    lanes: Lanes | None = None,
    observe_every_s: float = 30.0,
) -> Driver:
    """Return a driver on a folder, with real processes; it has not begun."""
    folder.mkdir(exist_ok=True)
    return Driver(
        store or Store(f"sqlite:///{folder / 'state.db'}"),
        SchedulerPlan(make_scheduler(order)),
        engine or make_engine(folder, gpus=gpus, lanes=lanes),
        observe_every_s=observe_every_s,
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


def ended(driver: Driver, record: JobRecord) -> JobRecord:
    """Wait until a job has ended, and return it."""
    until(lambda: driver.open_record(record.id) is None, f"the end of {record.id}")
    found = driver.store.job(record.id)
    assert found is not None
    return found


def view_of(driver: Driver) -> View:
    """Return the read side of a driver."""
    return View(driver, Etas(driver.snapshot, driver.store, played_starts))


def make_service(
    driver: Driver,
    functions: FunctionSettings | None = None,
    bounds: ServerBounds | None = None,
    folder: Path | None = None,
) -> tuple[Mapping[Role, str], FastAPI]:
    """Return a token for every role, and the API of a driver."""
    tokens = Tokens(driver.store, driver.now_s)
    made = {role: tokens.make(role.word, role, same_account=True)[0] for role in Role}
    kept = bounds or ServerBounds()
    audit, scratch = AuditLog(folder, driver.now_s), str(folder or gettempdir())
    desk = QuestionDesk(kept)
    view = view_of(driver)
    uses = UseHistory(view)
    service = LiveService(view, driver, tokens, desk, kept, audit, scratch, uses)
    (machine,) = driver.snapshot().cluster
    groups = driver.engine.groups if isinstance(driver.engine, LocalEngine) else None
    replicas = LocalReplicas(secrets_of(driver), lambda: emulated(machine), groups=groups)
    app = make_app(service, lambda: Gateway(driver, replicas, functions or FunctionSettings()))
    return made, app


def secrets_of(driver: Driver) -> Secrets:
    """Return the secrets of a driver's engine, or none if it has no processes."""
    engine = driver.engine
    return engine.secrets if isinstance(engine, LocalEngine) else Secrets(Path("/nonexistent"))


@contextmanager
def serving(
    driver: Driver,
    functions: FunctionSettings | None = None,
    bounds: ServerBounds | None = None,
    folder: Path | None = None,
) -> Iterator[tuple[str, Mapping[Role, str]]]:
    """Serve a driver over HTTP; yields the address and a token for every role."""
    made, app = make_service(driver, functions, bounds, folder)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server = BoundedServer(config, Connections(bounds or ServerBounds()))
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until(lambda: server.started, "the server")
    try:
        yield f"http://127.0.0.1:{port}", made
    finally:
        server.should_exit = True
        thread.join()
