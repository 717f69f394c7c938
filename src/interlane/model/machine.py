"""A machine: what one host offers when nothing runs on it."""

from dataclasses import dataclass

from interlane.model.errors import InvalidField
from interlane.model.gpu import NO_GPU
from interlane.model.ids import MachineId
from interlane.model.units import MILLI

GPUS_PER_MACHINE_MAX = 62
"""GPUs of a machine that are told apart; a set of them is one machine word."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What one host offers.

    A *pooled* machine does not tell its GPUs apart: any request takes its share of one
    divisible amount, as the published PAI simulator counts.  Real hosts are not pooled.
    """

    id: MachineId
    gpu_type: str = NO_GPU
    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    pooled: bool = False

    def __post_init__(self) -> None:
        for field in ("gpus", "cpu_milli", "memory_mib", "gpu_memory_mib"):
            if getattr(self, field) < 0:
                raise InvalidField(
                    f"{field} of machine {self.id}",
                    getattr(self, field),
                    "it must be 0 or more",
                )
        if not self.pooled and self.gpus > GPUS_PER_MACHINE_MAX:
            raise InvalidField(
                f"gpus of machine {self.id}",
                self.gpus,
                f"at most {GPUS_PER_MACHINE_MAX} are told apart; mark it pooled",
            )

    @property
    def gpu_milli(self) -> int:
        """All GPU share this machine has."""
        return self.gpus * MILLI
