"""A stand-in for ``nvidia-smi``: what it prints and how it exits, over the stand-in library.

It knows the options that partition a GPU and those that show what there is; texts and exit
codes are those of NVIDIA's guide and of transcripts of the real program.  It is run as a
script and imports nothing of ours.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import pynvml as nv

CANNOT, NO_SUCH_GPU, NO_DRIVER, NOT_FOUND = 255, 6, 9, 6
CI_SLICES: Final = (1, 2, 3, 4, 7, 8, 6)
PROFILE_SLOTS: Final = range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT)


def main(words: list[str]) -> int:
    """Do what the words say; return the exit code."""
    try:
        nv.nvmlInit()
    except nv.NVMLError as error:
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return int(error.value)
    try:
        return _mig(words[1:]) if words[:1] == ["mig"] else _plain(words)
    finally:
        nv.nvmlShutdown()


# -- which GPUs -----------------------------------------------------------------------


def _value(words: list[str], *names: str) -> str | None:
    """Return the value of an option, as ``-i 3``, ``-i=3`` or ``--id=3``."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            if equals:
                return value
            return words[at + 1] if at + 1 < len(words) else None
    return None


def _has(words: list[str], *names: str) -> bool:
    return any(word.partition("=")[0] in names for word in words)


def _chosen(words: list[str]) -> list[tuple[int, Any]]:
    """Return the GPUs that ``-i`` names by index, identifier or bus; all if there is none."""
    asked = _value(words, "-i", "--id")
    found = []
    for index in range(nv.nvmlDeviceGetCount()):
        try:
            found.append((index, nv.nvmlDeviceGetHandleByIndex(index)))
        except nv.NVMLError as error:
            print(f"Unable to determine the device handle for GPU{index}: {error}")
    if asked is None:
        return found
    chosen = [
        (index, handle)
        for index, handle in found
        for one in asked.split(",")
        if one in (str(index), nv.nvmlDeviceGetUUID(handle), _bus(handle))
    ]
    if not chosen:
        print(f"No devices were found matching {asked}.")
        raise SystemExit(NO_SUCH_GPU)
    return chosen


def _bus(handle: Any) -> str:  # noqa: ANN401 - opaque
    bus = nv.nvmlDeviceGetPciInfo(handle).busId
    return bus.decode() if isinstance(bus, bytes) else str(bus)


def _mode(handle: Any) -> tuple[int, int] | None:  # noqa: ANN401
    try:
        now, pending = nv.nvmlDeviceGetMigMode(handle)
    except nv.NVMLError:
        return None
    return now, pending


# -- without "mig" --------------------------------------------------------------------


def _plain(words: list[str]) -> int:
    if _has(words, "-L", "--list-gpus"):
        return _list()
    if _has(words, "-mig", "--multi-instance-gpu"):
        return _set_mode(words, int(_value(words, "-mig", "--multi-instance-gpu") or -1))
    if _has(words, "-r", "--gpu-reset"):
        return _reset(words)
    query = _value(words, "--query-gpu")
    if query is not None:
        return _query(words, query.split(","))
    if _has(words, "-q", "--query"):
        return _details(words)
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    return CANNOT if words else _list()


def _list() -> int:
    for index, handle in _chosen([]):
        name, uuid = nv.nvmlDeviceGetName(handle), nv.nvmlDeviceGetUUID(handle)
        print(f"GPU {index}: {name} (UUID: {uuid})")
        for number, part in enumerate(_parts(handle)):
            profile = nv.nvmlDeviceGetName(part).rpartition("MIG ")[2]
            uuid = nv.nvmlDeviceGetUUID(part)
            print(f"  MIG {profile:<15} Device {number:>2}: (UUID: {uuid})")
    return 0


def _parts(handle: Any) -> Iterator[Any]:  # noqa: ANN401
    if not (_mode(handle) or (0, 0))[0]:
        return
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nv.NVMLError:
            return


def _set_mode(words: list[str], wanted: int) -> int:
    for _, handle in _chosen(words):
        bus = _bus(handle)
        word = "enable" if wanted else "disable"
        try:
            status = nv.nvmlDeviceSetMigMode(handle, wanted)
        except nv.NVMLError as error:
            print(f"Unable to {word} MIG Mode for GPU {bus}: {error}")
            return int(error.value)
        if status == nv.NVML_ERROR_IN_USE:
            print(
                f"Warning: MIG mode is in pending {word} state for GPU {bus}:"
                f"{nv.nvmlErrorString(status)}\n{bus} is currently being used by one or more "
                "other processes (e.g. CUDA application or a monitoring application such as "
                "another instance of nvidia-smi). Please first kill all processes using the "
                "device and retry the command or reboot the system to make MIG mode effective."
            )
        elif status:
            print(
                f"Warning: MIG mode is in pending {word} state for GPU {bus}:"
                f"{nv.nvmlErrorString(status)}\nReboot the system or try nvidia-smi "
                f"--gpu-reset to make MIG mode effective on GPU {bus}"
            )
        else:
            print(f"{word.capitalize()}d MIG Mode for GPU {bus}")
    print("All done.")
    return 0


def _reset(words: list[str]) -> int:
    library, code = ctypes.CDLL("libnvidia-ml.so.1"), 0
    for index, handle in _chosen(words):
        bus = _bus(handle)
        error = int(library.standinReset(index))
        if error:
            print(
                f"\nThe following GPUs could not be reset:\n  GPU {bus}: "
                f"{nv.nvmlErrorString(error)}\n\n1 device is currently being used by one or "
                "more other processes (e.g., Fabric Manager, CUDA application, graphics "
                "application such as an X server, or a monitoring application such as another "
                "instance of nvidia-smi). Please first kill all processes using this device "
                "and all compute applications running in the system."
            )
            code = CANNOT
        else:
            print(f"GPU {bus} was successfully reset.")
    if not code:
        print("All done.")
    return code


def _query(words: list[str], fields: list[str]) -> int:
    form = (_value(words, "--format") or "").split(",")
    known: dict[str, Callable[[int, Any], object]] = {
        "index": lambda index, handle: index,
        "name": lambda index, handle: nv.nvmlDeviceGetName(handle),
        "uuid": lambda index, handle: nv.nvmlDeviceGetUUID(handle),
        "pci.bus_id": lambda index, handle: _bus(handle),
        "driver_version": lambda index, handle: nv.nvmlSystemGetDriverVersion(),
        "memory.total": lambda index, handle: _mib(handle, "total"),
        "memory.used": lambda index, handle: _mib(handle, "used"),
        "memory.free": lambda index, handle: _mib(handle, "free"),
        "mig.mode.current": lambda index, handle: _mode_word(handle, 0),
        "mig.mode.pending": lambda index, handle: _mode_word(handle, 1),
        "utilization.gpu": lambda index, handle: _busy(handle),
    }
    for field in fields:
        if field not in known:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    if "noheader" not in form:
        print(", ".join(fields))
    for index, handle in _chosen(words):
        print(", ".join(str(known[field](index, handle)) for field in fields))
    return 0


def _mib(handle: Any, field: str) -> str:  # noqa: ANN401
    return f"{getattr(nv.nvmlDeviceGetMemoryInfo(handle), field) >> 20} MiB"


def _mode_word(handle: Any, at: int) -> str:  # noqa: ANN401
    modes = _mode(handle)
    return "[N/A]" if modes is None else ("Enabled" if modes[at] else "Disabled")


def _busy(handle: Any) -> str:  # noqa: ANN401
    try:
        return f"{nv.nvmlDeviceGetUtilizationRates(handle).gpu} %"
    except nv.NVMLError:
        return "[N/A]"


def _details(words: list[str]) -> int:
    chosen = _chosen(words)
    print("\n==============NVSMI LOG==============\n")
    print(f"{'Driver Version':<42}: {nv.nvmlSystemGetDriverVersion()}")
    print(f"{'Attached GPUs':<42}: {nv.nvmlDeviceGetCount()}")
    for _, handle in chosen:
        print(f"GPU {_bus(handle)}")
        print(f"    {'Product Name':<38}: {nv.nvmlDeviceGetName(handle)}")
        print("    MIG Mode")
        print(f"        {'Current':<34}: {_mode_word(handle, 0).strip('[]')}")
        print(f"        {'Pending':<34}: {_mode_word(handle, 1).strip('[]')}")
        print(f"    {'GPU UUID':<38}: {nv.nvmlDeviceGetUUID(handle)}")
        for one in nv.nvmlDeviceGetComputeRunningProcesses(handle):
            print(f"        {'Process ID':<34}: {one.pid}")
    return 0


# -- nvidia-smi mig -------------------------------------------------------------------


def _mig(words: list[str]) -> int:
    listing = {"-lgi": _list_instances, "-lgip": _list_profiles, "-lgipp": _list_places}
    changing = {
        "-cgi": _create,
        "-cci": _create_parts,
        "-dci": _destroy_parts,
        "-dgi": _destroy,
    }
    enabled = [(i, handle) for i, handle in _chosen(words) if (_mode(handle) or (0, 0))[0]]
    if not enabled:
        print("No MIG-enabled devices found.")
        return NOT_FOUND
    for option, act in {**listing, **changing}.items():
        if _has(words, option):
            return act(words, enabled)
    print("Option is not recognized. Please run 'nvidia-smi mig -h'.")
    return 2


Chosen = list[tuple[int, Any]]


def _profiles(handle: Any) -> list[Any]:  # noqa: ANN401
    found = []
    for slot in PROFILE_SLOTS:
        try:
            found.append(nv.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot))
        except nv.NVMLError:
            continue
    return found


def _name(profile: Any) -> str:  # noqa: ANN401
    name = profile.name
    return name.decode() if isinstance(name, bytes) else str(name)


def _instances(handle: Any) -> list[tuple[Any, Any, Any]]:  # noqa: ANN401
    """Return handle, profile and info of every GPU instance, in the order of their numbers."""
    found = []
    for profile in _profiles(handle):
        room = (nv.c_nvmlGpuInstance_t * max(1, profile.instanceCount))()
        count = ctypes.c_uint(0)
        nv.nvmlDeviceGetGpuInstances(handle, profile.id, room, ctypes.byref(count))
        found += [
            (room[at], profile, nv.nvmlGpuInstanceGetInfo(room[at]))
            for at in range(count.value)
        ]
    return found


def _list_instances(words: list[str], gpus: Chosen) -> int:
    rows = [
        (index, profile, info)
        for index, handle in gpus
        for _, profile, info in _instances(handle)
    ]
    if not rows:
        print("No GPU instances found: Not Found")
        return NOT_FOUND
    line = "+-------------------------------------------------------+"
    print(line)
    print("| GPU instances:                                        |")
    print("| GPU   Name             Profile  Instance   Placement  |")
    print("|                          ID       ID       Start:Size |")
    print("|=======================================================|")
    for index, profile, info in rows:
        place = f"{info.placement.start}:{info.placement.size}"
        print(
            f"|{index:>4}  {_name(profile):<18} {profile.id:>3}  {info.id:>7} {place:>12}     |"
        )
        print(line)
    return 0


def _list_profiles(words: list[str], gpus: Chosen) -> int:
    line = f"+{'-' * 79}+"
    print(line)
    print(f"| {'GPU instance profiles:':<78}|")
    print("| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |")
    print("|                                Free/Total   GiB              CE    JPEG  OFA  |")
    print(f"|{'=' * 79}|")
    for index, handle in gpus:
        for one in _profiles(handle):
            left = nv.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, one.id)
            count = f"{left}/{one.instanceCount}"
            print(
                f"|{index:>4}  {_name(one):<18} {one.id:>3}     {count:<8} "
                f"{one.memorySizeMB / 1024:>7.2f}      No   {one.multiprocessorCount:>4}  "
                f"{one.decoderCount:>4}  {one.encoderCount:>4}   |"
            )
            print(
                f"|{'':<60}{one.copyEngineCount:>4}  {one.jpegCount:>4}  {one.ofaCount:>4}   |"
            )
            print(line)
    return 0


def _list_places(words: list[str], gpus: Chosen) -> int:
    for index, handle in gpus:
        for one in _profiles(handle):
            room = (nv.c_nvmlGpuInstancePlacement_t * 32)()
            count = ctypes.c_uint(32)
            nv.nvmlDeviceGetGpuInstancePossiblePlacements(
                handle, one.id, room, ctypes.byref(count)
            )
            starts = ",".join(str(room[at].start) for at in range(count.value))
            print(
                f"GPU  {index} Profile ID {one.id:>2} Placements: {{{starts}}}:{room[0].size}"
            )
    return 0


def _create(words: list[str], gpus: Chosen) -> int:
    for index, handle in gpus:
        for asked in (_value(words, "-cgi") or "").split(","):
            named, _, start = asked.partition(":")
            profile = _profile(handle, named)
            try:
                if start:
                    place = nv.c_nvmlGpuInstancePlacement_t(int(start), 0)
                    made = nv.nvmlDeviceCreateGpuInstanceWithPlacement(
                        handle, profile.id, ctypes.byref(place)
                    )
                else:
                    made = nv.nvmlDeviceCreateGpuInstance(handle, profile.id)
            except nv.NVMLError as error:
                print(
                    f"Unable to create a GPU instance on GPU {index:>2} using profile "
                    f"{profile.id}: {error}"
                )
                _failed("create GPU instances", error)
            number = nv.nvmlGpuInstanceGetInfo(made).id
            print(
                f"Successfully created GPU instance ID {number:>2} on GPU {index:>2} using "
                f"profile {_name(profile)} (ID {profile.id:>2})"
            )
            if _has(words, "-C", "--default-compute-instance"):
                _create_part(index, made, number, profile)
    return 0


def _profile(handle: Any, named: str) -> Any:  # noqa: ANN401
    for one in _profiles(handle):
        if named in (str(one.id), _name(one), _name(one).removeprefix("MIG ")):
            return one
    print(f"Invalid GPU instance profile: {named}")
    raise SystemExit(2)


def _create_part(index: int, gi: Any, number: int, profile: Any) -> None:  # noqa: ANN401
    wanted = CI_SLICES.index(profile.sliceCount)
    try:
        nv.nvmlGpuInstanceCreateComputeInstance(gi, wanted)
    except nv.NVMLError as error:
        print(
            f"Unable to create a compute instance on GPU {index:>2} GPU instance ID "
            f"{number:>2} using profile {wanted}: {error}"
        )
        _failed("create compute instances", error)
    print(
        f"Successfully created compute instance ID  0 on GPU {index:>2} GPU instance ID "
        f"{number:>2} using profile {_name(profile)} (ID {wanted:>2})"
    )


def _create_parts(words: list[str], gpus: Chosen) -> int:
    for index, gi, profile, info in _named(words, gpus):
        _create_part(index, gi, info.id, profile)
    return 0


def _destroy_parts(words: list[str], gpus: Chosen) -> int:
    for index, gi, _, info in _named(words, gpus):
        for slot in range(len(CI_SLICES)):
            room = (nv.c_nvmlComputeInstance_t * 8)()
            count = ctypes.c_uint(0)
            nv.nvmlGpuInstanceGetComputeInstances(gi, slot, room, ctypes.byref(count))
            for at in range(count.value):
                owner = f"GPU {index:>2} GPU instance ID {info.id:>2}"
                where = f"compute instance ID  {at} from {owner}"
                try:
                    nv.nvmlComputeInstanceDestroy(room[at])
                except nv.NVMLError as error:
                    print(f"Unable to destroy {where}: {error}")
                    _failed("destroy compute instances", error)
                print(f"Successfully destroyed {where}")
    return 0


def _destroy(words: list[str], gpus: Chosen) -> int:
    for index, gi, _, info in _named(words, gpus):
        where = f"GPU instance ID {info.id:>2} from GPU {index:>2}"
        try:
            nv.nvmlGpuInstanceDestroy(gi)
        except nv.NVMLError as error:
            print(f"Unable to destroy {where}: {error}")
            _failed("destroy GPU instances", error)
        print(f"Successfully destroyed {where}")
    return 0


def _named(words: list[str], gpus: Chosen) -> Iterator[tuple[int, Any, Any, Any]]:
    """Return the GPU instances that ``-gi`` names; all if there is none."""
    asked = _value(words, "-gi", "--gpu-instance-id")
    numbers = None if asked is None else {int(one) for one in asked.split(",")}
    found = [
        (index, gi, profile, info)
        for index, handle in gpus
        for gi, profile, info in _instances(handle)
        if numbers is None or info.id in numbers
    ]
    if not found:
        print("No GPU instances found: Not Found")
        raise SystemExit(NOT_FOUND)
    return iter(found)


def _failed(what: str, error: Any) -> NoReturn:  # noqa: ANN401
    print(f"Failed to {what}: {error}")
    raise SystemExit(int(error.value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
