"""Names of things, kept apart by type so that one cannot pass for another."""

from typing import NewType

JobId = NewType("JobId", str)
MachineId = NewType("MachineId", str)
