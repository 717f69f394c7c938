"""Read a trace of any supported format; one module per format."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from interlane.model import InvalidFile, UnknownName
from interlane.traces.read import dlrm, helios, openb, own, pai2020, pai_sim, philly, sacct
from interlane.traces.read.source import Options, Source, must_exist
from interlane.traces.schema import Trace

FORMATS: Final[Mapping[str, Callable[[Source, Options], Trace]]] = MappingProxyType(
    {
        "interlane": own.read,
        "pai-sim": pai_sim.read,
        "pai2020": pai2020.read,
        "openb": openb.read,
        "philly": philly.read,
        "helios": helios.read,
        "dlrm": dlrm.read,
        "sacct": sacct.read,
    }
)
"""Format -> its reader."""

_HEADERS: Final = (
    ("interlane", own.recognises),
    ("openb", openb.recognises),
    ("dlrm", dlrm.recognises),
    ("philly", philly.recognises),
    ("pai-sim", pai_sim.recognises),
    ("helios", helios.recognises),
)


def read_trace(
    path: Path,
    *,
    fmt: str | None = None,
    skip_bad: bool = False,
    extra_gpu_types: frozenset[str] = frozenset(),
) -> Trace:
    """Read a trace; the format is told from the file unless it is named.

    The first bad row is an error, or with ``skip_bad`` bad rows are left out and counted.
    ``extra_gpu_types`` are types that the cluster knows and the catalogue does not.
    """
    if fmt is not None and fmt not in FORMATS:
        raise UnknownName("trace format", fmt, FORMATS)
    must_exist(path)
    source = Source(path)
    name = fmt or detect(source)
    if path.is_dir() and name != "pai2020":
        raise InvalidFile(str(path), f"this is a directory, but {name} is one file; name it.")
    return FORMATS[name](source, Options(skip_bad, extra_gpu_types))


def detect(source: Source) -> str:
    """Return the format of a file by its header, of a directory by its tables."""
    if source.path.is_dir():
        return "pai2020"
    if source.is_parquet:
        return "interlane"
    if philly.is_log(source):
        return "philly"
    if sacct.is_export(source):
        return "sacct"
    header = frozenset(source.header)
    for name, recognises in _HEADERS:
        if recognises(header):
            return name
    raise InvalidFile(
        source.file,
        f"the header {','.join(source.header)[:80]!r} is of no known format; name one of "
        f"{', '.join(FORMATS)} with --format.",
    )
