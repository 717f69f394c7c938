"""What a pod asks of GPUs, in the words of several schedulers and device plugins.

Each reader knows one spelling and returns what it finds, or None.  A pod must speak one of
them: what two readers understand in different ways is refused with both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any, Final

from interlane.engines.kubernetes.annotations import (
    GPU_COUNT,
    GPU_FRACTION,
    GPU_MEMORY,
    GPU_TYPE,
    NVIDIA_GPU,
    NVIDIA_MIG,
    SHARE,
    SHARES_PER_GPU,
)
from interlane.engines.kubernetes.requests import Amounts
from interlane.model import MILLI, InvalidField, InvalidInput, amounts

GPUS_MAX: Final = 62
"""As many as a machine has at most."""
KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
KAI_DEVICES: Final = "gpu-fraction-num-devices"
HAMI_MEMORY: Final = "nvidia.com/gpumem"
HAMI_PERCENT: Final = "nvidia.com/gpumem-percentage"
HAMI_CORES: Final = "nvidia.com/gpucores"
GPUSHARE_MEMORY: Final = "aliyun.com/gpu-mem"
GPUSHARE_COUNT: Final = "aliyun.com/gpu-count"
OPENB_MILLI: Final = "alibabacloud.com/gpu-milli"
OPENB_COUNT: Final = "alibabacloud.com/gpu-count"
OPENB_MODEL: Final = "alibabacloud.com/gpu-card-model"
GIB_MIB: Final = 1024
SLICE: Final = "mig-"
"""How the types of devices begin that are slices."""


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """What one pod asks of GPUs."""

    count: int
    milli: int | None = None
    """Thousandths of each; None for as much as its memory is of the GPU's, or all."""
    memory_mib: int = 0
    types: tuple[str, ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether it asks for slices, each of which is a device of its own."""
        return any(one.startswith(SLICE) for one in self.types)


Reader = Callable[[Mapping[str, str], Amounts], GpuAsk | None]


def gpus_of(pod: Mapping[str, Any], asked: Amounts) -> GpuAsk:
    """Return what a pod asks of GPUs, or raise what is wrong with it."""
    said: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    found = {name: ask for name, read in READERS.items() if (ask := read(said, asked))}
    if len(set(found.values())) > 1:
        both = " and ".join(f"{name} ({_told(ask)})" for name, ask in found.items())
        raise InvalidInput(
            f"The pod asks for GPUs in two ways that do not agree: {both}; keep one of them."
        )
    ask = next(iter(found.values()), GpuAsk(0))
    types = tuple(one.strip() for one in said.get(GPU_TYPE, "").split(",") if one.strip())
    if types and ask.count and not ask.is_slice:
        ask = GpuAsk(ask.count, ask.milli, ask.memory_mib, types)
    if ask.count > GPUS_MAX:
        raise InvalidField("number of GPUs", ask.count, f"a pod may have at most {GPUS_MAX}")
    return ask


def _told(ask: GpuAsk) -> str:
    share = "" if ask.milli is None else f", {ask.milli}m of each"
    memory = f", {ask.memory_mib} MiB of each" if ask.memory_mib else ""
    return f"{ask.count} GPUs{share}{memory}"


def _whole(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    count = _count(asked, NVIDIA_GPU)
    is_hami = any(name in asked for name in (HAMI_MEMORY, HAMI_PERCENT, HAMI_CORES))
    return None if not count or is_hami else GpuAsk(count)


def _slices(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    profiles = {
        name.removeprefix(NVIDIA_MIG): _count(asked, name)
        for name in asked
        if name.startswith(NVIDIA_MIG) and asked[name]
    }
    if not profiles:
        return None
    if len(profiles) > 1:
        raise InvalidInput(
            f"The pod asks for slices of {len(profiles)} profiles ({', '.join(profiles)}); a "
            "pod may have slices of one."
        )
    ((profile, count),) = profiles.items()
    return GpuAsk(count, types=(f"{SLICE}{profile}",))


def _shares(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    """Read hundredths of GPUs, as our device plugin counts them."""
    shares = _count(asked, SHARE)
    if not shares:
        return None
    count = _said_count(GPU_COUNT, said) or max(1, shares // SHARES_PER_GPU)
    if shares % count or shares > count * SHARES_PER_GPU:
        rule = (
            f"it must be {SHARES_PER_GPU} for each of {count} GPUs at most, and divide evenly"
        )
        raise InvalidField(SHARE, shares, rule)
    memory_mib = _memory(GPU_MEMORY, said)
    return GpuAsk(count, shares // count * MILLI // SHARES_PER_GPU, memory_mib)


def _ours(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    if GPU_FRACTION not in said or _count(asked, SHARE):
        return None
    count = _said_count(GPU_COUNT, said) or 1
    return GpuAsk(count, _fraction(GPU_FRACTION, said), _memory(GPU_MEMORY, said))


def _kai(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    count = _said_count(KAI_DEVICES, said) or 1
    if KAI_FRACTION in said:
        return GpuAsk(count, _fraction(KAI_FRACTION, said))
    if KAI_MEMORY in said:
        return GpuAsk(count, None, _whole_number(KAI_MEMORY, said[KAI_MEMORY]))
    return None


def _hami(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    count = _count(asked, NVIDIA_GPU)
    if not count or not any(one in asked for one in (HAMI_MEMORY, HAMI_PERCENT, HAMI_CORES)):
        return None
    percent = _count(asked, HAMI_CORES) or _count(asked, HAMI_PERCENT)
    if percent > 100:
        field = HAMI_CORES if HAMI_CORES in asked else HAMI_PERCENT
        raise InvalidField(field, percent, "it must be 1 to 100")
    milli = percent * MILLI // 100 if percent else None
    return GpuAsk(count, milli, _count(asked, HAMI_MEMORY))


def _gpushare(said: Mapping[str, str], asked: Amounts) -> GpuAsk | None:
    gib = asked.get(GPUSHARE_MEMORY)
    if gib:
        count = _count(asked, GPUSHARE_COUNT) or 1
        return GpuAsk(count, None, ceil(gib * GIB_MIB))
    if OPENB_MILLI in said:
        milli = _whole_number(OPENB_MILLI, said[OPENB_MILLI])
        if not 1 <= milli <= MILLI:
            raise InvalidField(OPENB_MILLI, milli, f"it must be 1 to {MILLI}")
        models = tuple(one for one in said.get(OPENB_MODEL, "").split("|") if one)
        return GpuAsk(_said_count(OPENB_COUNT, said) or 1, milli, types=models)
    return None


READERS: Final[Mapping[str, Reader]] = {
    NVIDIA_GPU: _whole,
    f"{NVIDIA_MIG}*": _slices,
    SHARE: _shares,
    GPU_FRACTION: _ours,
    KAI_FRACTION: _kai,
    "HAMi's resources": _hami,
    "gpushare's resources": _gpushare,
}


def _count(asked: Amounts, name: str) -> int:
    amount = asked.get(name, Decimal(0))
    if amount != int(amount):
        raise InvalidField(name, amount, "it must be a whole number")
    return int(amount)


def _fraction(field: str, said: Mapping[str, str]) -> int:
    try:
        share = Decimal(said[field])
    except InvalidOperation:
        share = Decimal(-1)
    if not share.is_finite() or not 0 < share <= 1:
        rule = "it must be above 0 and at most 1, as in 0.5; ask for more GPUs by count"
        raise InvalidField(field, said[field], rule)
    return max(1, round(share * MILLI))


def _memory(field: str, said: Mapping[str, str]) -> int:
    return amounts.memory_mib(field, said[field]) if field in said else 0


def _said_count(field: str, said: Mapping[str, str]) -> int:
    return _whole_number(field, said[field]) if field in said else 0


def _whole_number(field: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:12]) <= 10**9:
        raise InvalidField(field, text, "it must be a whole number above 0")
    return int(text)
