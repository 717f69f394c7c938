"""Attempts at jobs, on the devices of this machine."""

from dataclasses import dataclass

from interlane.engines.local.devices import Devices
from interlane.engines.local.lanes import Lanes
from interlane.engines.local.launch import Secrets, attempt_of, launch_of, run_number
from interlane.engines.local.runner import Runner
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec
from interlane.live.measure import occupancy
from interlane.live.measure.monitor import Monitor, Use
from interlane.live.store.record import Record
from interlane.model import Cluster, Placement


@dataclass(frozen=True, slots=True)
class Attempts:
    """Starts and stops attempts, and says what they used."""

    runner: Runner
    secrets: Secrets
    hardware: Devices
    cluster: Cluster
    monitor: Monitor
    lanes: Lanes | None

    def start(self, record: Record, placement: Placement) -> None:
        """Start the attempt on record, or raise ``OSError`` or ``InterlaneError``."""
        launch = launch_of(
            record,
            placement,
            self.secrets,
            self.hardware,
            lanes=self.lanes,
            share_milli=occupancy.share_milli(record, self.cluster),
        )
        self.runner.start(launch)

    def stop(self, record: Record) -> None:
        """Ask the attempt on record to stop."""
        self.runner.stop(attempt_of(record))

    def used(self, record: Record) -> Use | None:
        """Return what the last attempt at a job did on its device, if it was on one."""
        if self.lanes is None or not spec.takes_lane(JobSpec.model_validate(record.spec)):
            return None
        told = self.lanes.run(run_number(record))
        if told is None:
            return None
        return self.monitor.over_all(record.id, told)
