"""What users write about a function, and the terms that it means."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from interlane.live.files.fields import (
    CALLABLE,
    MODULE,
    Amount,
    Line,
    MemoryText,
    Strict,
    Variable,
    VariableText,
    Word,
)
from interlane.live.files.job import SECRETS_MAX
from interlane.model import InvalidField, amounts

AUTO: Final = "auto"
DEADLINE_S_MAX: Final = 3_600.0
KEEP_S_MAX: Final = 86_400.0
MEMORY_MIB_MAX: Final = 1 << 30
ANSWER_MIB_MAX: Final = 64
"""Also what the answers of one batch may be together."""

Callable = Annotated[str, Field(max_length=512, pattern=CALLABLE)]
Module = Annotated[str, Field(max_length=256, pattern=MODULE)]


class BatchFields(Strict):
    """How many requests the handler gets together, and how long the first one waits."""

    max: int = Field(default=1, ge=1, le=1_024)
    window: Amount = 0


class ReplicaFields(Strict):
    """How many replicas there may be."""

    max: int = Field(default=4, ge=1, le=256)


class FunctionSpec(Strict):
    """A function as users write it."""

    kind: Literal["function"] = "function"
    name: Word
    handler: Callable = Field(description="module:callable, called with the input.")
    load: Callable | None = Field(
        default=None,
        description="module:callable, called once; the handler gets what it returns first.",
    )
    path: Line | None = Field(
        default=None, description="Absolute path of the folder in which modules are found."
    )
    preload: list[Module] = Field(
        default_factory=list,
        max_length=64,
        description="Installed modules that are imported once for all replicas.",
    )
    memory: MemoryText = Field(default="512MB", description="Device memory of one replica.")
    deadline: Amount = Field(default="30s", description="After it, a request has failed.")
    load_deadline: Amount = Field(default="120s", description="After it, a load has failed.")
    concurrency: int = Field(
        default=1, ge=1, le=256, description="Calls at a time in one replica."
    )
    batch: BatchFields = BatchFields()
    replicas: ReplicaFields = ReplicaFields()
    keep: Amount = Field(
        default=AUTO,
        description="auto: forecasts decide; else how long replicas stay after a request.",
    )
    queue: int = Field(default=1_000, ge=0, le=100_000, description="Requests that may wait.")
    answer_max: str = Field(default="16MiB", description="Bytes of an answer, as JSON.")
    env: dict[Variable, VariableText] = Field(default_factory=dict, max_length=100)
    secrets: list[Variable] = Field(
        default_factory=list,
        max_length=SECRETS_MAX,
        description="Variables whose values lie in the server's folder of secrets.",
    )


@dataclass(frozen=True, slots=True)
class FunctionAmounts:
    """The amounts of a function."""

    memory_mib: int
    deadline_s: float
    load_deadline_s: float
    batch_window_s: float
    keep_s: float | None
    """Seconds that replicas stay after a request; None where forecasts decide."""
    answer_mib: int
    """What an answer may be at most."""


def terms_of(spec: FunctionSpec) -> FunctionAmounts:
    """Return the amounts of a function, or say which cannot be."""
    memory_mib = amounts.memory_mib("memory", spec.memory)
    if not 0 < memory_mib <= MEMORY_MIB_MAX:
        raise InvalidField("memory", spec.memory, "it must be more than nothing, up to 1PiB")
    if spec.path is not None and not spec.path.startswith("/"):
        raise InvalidField("path", spec.path, "it must be an absolute path")
    twice = set(spec.secrets) & set(spec.env)
    if twice:
        raise InvalidField("secrets", min(twice), "env gives it a value already")
    return FunctionAmounts(
        memory_mib,
        _span("deadline", spec.deadline),
        _span("load_deadline", spec.load_deadline),
        _window(spec),
        None if spec.keep == AUTO else _keep(spec.keep),
        _answer_mib(spec.answer_max),
    )


def _answer_mib(text: str) -> int:
    answer_mib = amounts.memory_mib("answer_max", text)
    if not 0 < answer_mib <= ANSWER_MIB_MAX:
        raise InvalidField("answer_max", text, f"it must be 1 to {ANSWER_MIB_MAX} MiB")
    return answer_mib


def _span(field: str, text: Amount) -> float:
    span_s = amounts.seconds(field, text)
    if not 0 < span_s <= DEADLINE_S_MAX:
        raise InvalidField(field, text, f"it must be above 0 s, and at most {DEADLINE_S_MAX:g}")
    return span_s


def _window(spec: FunctionSpec) -> float:
    window_s = amounts.seconds("batch.window", spec.batch.window)
    if window_s > amounts.seconds("deadline", spec.deadline):
        raise InvalidField("batch.window", spec.batch.window, "it must be within the deadline")
    return window_s


def _keep(text: Amount) -> float:
    keep_s = amounts.seconds("keep", text)
    if keep_s > KEEP_S_MAX:
        raise InvalidField("keep", text, f"it must be {AUTO}, or at most {KEEP_S_MAX:g} s")
    return keep_s
