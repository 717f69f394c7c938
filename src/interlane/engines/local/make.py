"""Words to the engine of this machine."""

from dataclasses import dataclass
from pathlib import Path

from interlane.engines.local.accounts import Accounts
from interlane.engines.local.devices import devices_of
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.functions.replicas import LocalReplicas
from interlane.engines.local.lanes import Lanes, LaneSettings
from interlane.engines.local.launch import JobBounds


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
    """
    found = devices_of(devices)
    uids = frozenset(one.uid for one in accounts.mapped.values())
    lanes = Lanes(LaneSettings(found.shared, state / "lanes", turns, sharing, uids))
    greeting = None
    if found.stands_in:
        count = found.machine.gpus
        greeting = f"There is no GPU here; {count} emulated devices stand in, parts of the CPU."
    gpu_type = found.machine.device(0).type
    engine = LocalEngine(state, found, lanes, keep_s, bounds=bounds, accounts=accounts)
    replicas = LocalReplicas(engine.secrets, lambda: engine.devices, accounts)
    return Local(engine, replicas, gpu_type, greeting)
