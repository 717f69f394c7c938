"""The NVIDIA GPUs of this host, cut up by ``nvidia-smi`` and read through NVIDIA's library.

Changes are commands, because that is what operators can read, log and give themselves; what
there is comes from the library, which says it without tables to be parsed.  ``nvidia-smi`` may
say that all is done while a mode only waits for a reset: so the mode is read back.

There is no GPU where this was written; it was tried on stand-ins for both (``testing.nvidia``).
"""

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from interlane.device.nvml import Nvml, installed, there
from interlane.mig.layouts import SlicePlace
from interlane.mig.partition import GpuMode, GpuState, SliceState, gpu_named
from interlane.mig.profiles import GpuModel, gpu_models
from interlane.mig.transition import nvidia
from interlane.mig.transition.run import StepFailed
from interlane.model import InterlaneError, InvalidInput

LIMIT_S: Final = 600.0
"""Seconds after which a command is given up."""

Runner = Callable[[Sequence[str]], str]
"""Runs a command and returns what it printed; raises ``StepFailed``."""


def run_command(command: Sequence[str]) -> str:
    """Run a command on this host."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise InterlaneError(
            f"{command[0]} is not on this host; --dry-run prints steps."
        ) from None
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(command)} took more than {LIMIT_S:g} s.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise StepFailed(f"{' '.join(command)} failed ({done.returncode}): {said[-1]}")
    return done.stdout


class NvidiaGpus:
    """Reads and changes the GPUs of this host; see ``mig.partition.Partitioner``."""

    def __init__(self, nvml: Nvml | None = None, run: Runner = run_command) -> None:
        found = nvml or installed()
        if found is None:
            raise InvalidInput(
                "The GPUs of this host are read through nvidia-ml-py, which is not installed: "
                "pip install 'interlane[gpu]'."
            )
        self._nvml: Any = found
        self._run = run

    # -- reading ----------------------------------------------------------------------

    def look(self) -> tuple[GpuState, ...]:
        """Return the GPUs that the driver lists; those that are lost it does not."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            try:
                return tuple(state for _, state in there(nvml, self._state))
            finally:
                nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            raise InvalidInput(
                f"The GPUs of this host cannot be read ({error}); is NVIDIA's driver loaded?"
            ) from None

    def _state(self, index: int, handle: Any) -> GpuState:  # noqa: ANN401 - opaque to us
        nvml = self._nvml
        model = self._model(handle)
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        now, pending = self._modes(handle)
        sliced = now is GpuMode.SLICED and model is not None
        return GpuState(
            f"gpu-{index}",
            nvml.nvmlDeviceGetUUID(handle),
            nvml.nvmlDeviceGetName(handle),
            "" if model is None else model.name,
            now,
            pending,
            tuple(self._slices(handle, model, running)) if sliced and model else (),
            tuple(sorted({one.pid for one in running})),
        )

    def _model(self, handle: Any) -> GpuModel | None:  # noqa: ANN401
        """Return what the catalogue knows of a GPU, by the number on its bus."""
        found = self._nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId
        numbers = {int(pci, 16): model for model in gpu_models().values() for pci in model.pci}
        return numbers.get(found)

    def _modes(self, handle: Any) -> tuple[GpuMode, GpuMode]:  # noqa: ANN401
        try:
            now, pending = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError_NotSupported:  # a GPU without that mode
            return GpuMode.WHOLE, GpuMode.WHOLE
        both = (GpuMode.WHOLE, GpuMode.SLICED)
        return both[bool(now)], both[bool(pending)]

    def _slices(
        self,
        handle: Any,  # noqa: ANN401
        model: GpuModel,
        running: Sequence[Any],
    ) -> list[SliceState]:
        uuids = dict(self._uuids(handle))
        found = []
        for profile in model.profiles:
            for number, start in self._instances(handle, profile.profile_id, profile.max_count):
                held = {one.pid for one in running if one.gpuInstanceId == number}
                place = SlicePlace(start, profile.name)
                uuid = uuids.get(number, "")
                found.append(SliceState(place, uuid, tuple(sorted(held)), number))
        return sorted(found, key=lambda one: one.place)

    def _uuids(self, handle: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401
        """Yield instances in which something can run, with what programs call them."""
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except nvml.NVMLError_NotFound:
                continue
            yield nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetUUID(part)

    def _instances(self, handle: Any, profile: int, most: int) -> Iterator[tuple[int, int]]:  # noqa: ANN401
        """Yield number and start of the instances of a profile."""
        nvml = self._nvml
        room = (nvml.c_nvmlGpuInstance_t * most)()
        count = ctypes.c_uint(0)
        try:
            nvml.nvmlDeviceGetGpuInstances(handle, profile, room, ctypes.byref(count))
        except nvml.NVMLError_NotSupported:  # a profile that this driver does not have
            return
        for at in range(count.value):
            info = nvml.nvmlGpuInstanceGetInfo(room[at])
            yield info.id, info.placement.start

    # -- changing ---------------------------------------------------------------------

    def set_mode(self, gpu: str, mode: GpuMode) -> None:
        """Put a GPU into a mode, resetting it if the mode waits for that."""
        self._run(nvidia.mode_command(gpu, sliced=mode is GpuMode.SLICED))
        now = gpu_named(self.look(), gpu)
        if now.mode is not mode and not now.processes:
            self.reset(gpu)
            now = gpu_named(self.look(), gpu)
        if now.mode is not mode:
            held = f"process {now.processes[0]} holds it" if now.processes else "it is pending"
            raise StepFailed(f"its mode is still {now.mode.value}: {held}.")

    def reset(self, gpu: str) -> None:
        """Reset a GPU."""
        self._run(nvidia.reset_command(gpu))

    def create(self, gpu: str, place: SlicePlace) -> None:
        """Make an instance at its place, and a compute instance over all of it."""
        state = gpu_named(self.look(), gpu)
        half = state.slice_at(place)
        if half is not None:
            self._run(nvidia.complete_command(gpu, str(half.number)))
        else:
            self._run(nvidia.create_command(gpu, state.model, place))

    def destroy(self, gpu: str, place: SlicePlace) -> None:
        """Destroy the compute instance, then the instance."""
        found = gpu_named(self.look(), gpu).slice_at(place)
        if found is None:
            raise StepFailed(f"{gpu} has no {place}.")
        whole, half = nvidia.destroy_commands(gpu, str(found.number))
        for command in (whole, half) if found.uuid else (half,):
            self._run(command)
