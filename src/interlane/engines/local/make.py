"""Words to the engine of this machine."""

from dataclasses import dataclass
from pathlib import Path

from interlane.device.inventory import Devices, devices_of
from interlane.device.lanes import Lanes, LaneSettings
from interlane.engines.local.accounts import Accounts
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.functions.replicas import LocalReplicas
from interlane.engines.local.launch import JobBounds
from interlane.model import amounts


@dataclass(frozen=True, slots=True)
class Local:
    """The engine, and what is worth knowing of it before it runs."""

    engine: LocalEngine
    replicas: LocalReplicas
    gpu_type: str
    greeting: str | None


def local(
    state: Path,
    devices: str,
    turns: str,
    sharing: str,
    keep_s: float,
    accounts: Accounts,
    bounds: JobBounds,
    database_url: str | None = None,
) -> Local:
    """Return the engine of this machine, which keeps everything in a folder.

    Args:
        state: the folder.
        devices: as ``devices_of`` reads it.
        turns: whose turn it is on a device that jobs share.
        sharing: how jobs share a device.
        keep_s: seconds for which folders of jobs that have ended are kept.
        accounts: as whom jobs run.
        bounds: what a job may have of the machine, whatever it asks for.
        database_url: of a database that other servers of this host may serve in turn.
    """
    found = devices_of(devices, state)
    uids = frozenset(one.uid for one in accounts.mapped.values())
    settings = LaneSettings(
        found.shared, state / "lanes", turns, sharing, uids, known_by=database_url or ""
    )
    lanes = Lanes(settings)
    greeting = _greeting(found, state)
    gpu_type = found.machine.device(0).type
    engine = LocalEngine(state, found, lanes, keep_s, bounds=bounds, accounts=accounts)
    replicas = LocalReplicas(
        engine.secrets, lambda: engine.devices, accounts, engine.groups, bounds
    )
    return Local(engine, replicas, gpu_type, greeting)


def _greeting(devices: Devices, state: Path) -> str | None:
    """Return what is worth saying of devices that are not what they seem."""
    machine = devices.machine
    if devices.cpu_milli:
        return (
            f"{machine.gpus} emulated GPUs or slices, parts of the CPU; they are cut with "
            f"'interlane mig cut --gpus {state}'."
        )
    if devices.stands_in:
        count = machine.gpus
        return f"There is no GPU here; {count} emulated devices stand in, parts of the CPU."
    if devices.emulated and machine.gpu_memory_mib > machine.memory_mib:
        each, all_of_it = (
            amounts.written(one << 20) for one in (machine.gpu_memory_mib, machine.memory_mib)
        )
        return (
            f"Each emulated device has {each}, but this machine has {all_of_it}: a job that "
            "uses what it may is killed."
        )
    return None
