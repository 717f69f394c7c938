"""Time a handler on every size of slice, and fill the table that plans are made from."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.mig.interpolation import completed
from interlane.mig.profiles import BASE_ONLY, MigProfile, gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables import own
from interlane.model import InvalidField, InvalidInput
from interlane.usecases.documents import from_file
from interlane.usecases.mig import measurements
from interlane.usecases.reporter import SILENT, Reporter
from interlane.wiring import measuring
from interlane.wiring.measuring import HandlerWork as HandlerWork
from interlane.wiring.measuring import OpenSlice

NVIDIA: Final = "nvidia:"


@dataclass(frozen=True, slots=True)
class MeasureTarget:
    """Where a handler is timed."""

    gpu: str
    """GPU model, as the catalogue calls it."""
    word: str

    @property
    def is_emulated(self) -> bool:
        """Whether it is no GPU."""
        return not self.word.startswith(NVIDIA)

    def open(self, profile: MigProfile) -> AbstractContextManager[OpenSlice]:
        """Open a slice."""
        if self.is_emulated:
            return measuring.emulated_slice(measuring.settings_of(self.word), profile)
        return measuring.nvidia_slice(self.word.removeprefix(NVIDIA), profile)


def target_of(word: str) -> MeasureTarget:
    """Return what ``mig:A100-40GB:4`` or ``nvidia:gpu-0`` names."""
    if word.startswith(NVIDIA):
        return MeasureTarget(measuring.model_of_gpu(word.removeprefix(NVIDIA)), word)
    return MeasureTarget(measuring.settings_of(word).model, word)


@dataclass(frozen=True, slots=True)
class MeasuredHandler:
    """What a measurement came to."""

    table: Path
    rows: tuple[Measurement, ...]
    """Of this handler on this GPU model, with those of earlier runs and interpolated ones."""
    new: int
    failures: tuple[str, ...]
    emulated: bool

    @property
    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": str(self.table),
            "measured": self.new,
            "emulated": self.emulated,
            "failed": list(self.failures),
            "rows": [
                {
                    "profile": row.profile,
                    "batch": row.batch,
                    "throughput_per_s": row.throughput_per_s,
                    "latency_ms": row.latency_ms,
                    "interpolated": row.interpolated,
                }
                for row in self.rows
            ],
        }


def measure(
    work: HandlerWork,
    name: str,
    table: Path,
    target: MeasureTarget,
    *,
    profiles: Sequence[str] = (),
    batches: Sequence[int] = (1,),
    reporter: Reporter = SILENT,
) -> MeasuredHandler:
    """Time a handler on each size and batch that the table does not have yet."""
    model = gpu_model(target.gpu)
    sizes = [model.profile(one) for one in profiles] or list(model.of_kinds(BASE_ONLY))
    _check(work, batches)
    rows = list(measurements(from_file(table))) if table.exists() else []
    have = {
        (row.profile, row.batch)
        for row in rows
        if (row.model, row.gpu) == (name, target.gpu) and not row.interpolated
    }
    left = {size: [one for one in batches if (size.name, one) not in have] for size in sizes}
    total, done, failures = sum(map(len, left.values())), 0, list[str]()
    with reporter.steps("measuring", total, "batches") as tell:
        for size, missing in left.items():
            if not missing:
                continue
            with target.open(size) as within:
                for one in measuring.timed(work, missing, within):
                    done += 1
                    tell(done)
                    if one.failed is not None:
                        failures.append(f"{size.name}, batch {one.batch}: {one.failed}")
                        continue
                    rate = one.batch * one.calls / one.seconds
                    latency_ms = 1e3 * one.seconds / one.calls
                    rows.append(
                        Measurement(name, target.gpu, size.name, one.batch, 1, rate, latency_ms)
                    )
                    _write(table, rows)  # whoever goes on needs not begin anew
    if not any(row.model == name for row in rows):
        raise InvalidInput(f"{work.handler} ran on no size: {failures[0]}.")
    every = _write(table, rows)
    mine = tuple(row for row in every if (row.model, row.gpu) == (name, target.gpu))
    new = done - len(failures)
    return MeasuredHandler(table, mine, new, tuple(failures), target.is_emulated)


def _check(work: HandlerWork, batches: Sequence[int]) -> None:
    if any(one < 1 for one in batches):
        raise InvalidField("--batch", min(batches), "it must be 1 or more")
    module, _, function = work.handler.partition(":")
    if not module or not function:
        raise InvalidField("HANDLER", work.handler, "it must read like module:function")


def _write(path: Path, rows: Iterable[Measurement]) -> list[Measurement]:
    """Write measured rows, and those that follow from them, in one go."""
    every = completed(rows)
    lines = own.write(PerformanceTable(every, str(path)))
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    beside.replace(path)
    return every
