"""A live machine for entries that need one: a real driver and store, real processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from interlane.model import Machine

if TYPE_CHECKING:
    from interlane.engines.local.engine import LocalEngine
    from interlane.live.driver import Driver


@contextmanager
def driving(folder: Path, machine: Machine) -> "Iterator[tuple[Driver, LocalEngine]]":
    """Drive a machine with emulated GPUs under FIFO, its state in a folder."""
    from interlane.device.inventory import emulated
    from interlane.engines.local.engine import LocalEngine
    from interlane.kernel.scheduler import Scheduler
    from interlane.live.driver import Driver
    from interlane.live.driver.state import SchedulerPlan
    from interlane.live.store.store import Store
    from interlane.policy.order import Fifo
    from interlane.policy.place import pack
    from interlane.policy.policy import Policy

    store = Store(f"sqlite:///{folder / 'state.db'}")
    engine = LocalEngine(folder, emulated(machine))
    policy = Policy(Fifo(), pack(), name="fifo")
    plan = SchedulerPlan(lambda cluster, workload: Scheduler(cluster, policy))
    driver = Driver(store, plan, engine)
    driver.start()
    try:
        yield driver, engine
    finally:
        driver.close()
        store.close()
