"""When a job may start, and what becomes of it when it fails: fields of a job file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from interlane.live.files.fields import Amount, Short, Strict
from interlane.model import InvalidField, amounts

ARRAY_MAX: Final = 1_000
AFTER_MAX: Final = 100
RETRY_TIMES_MAX: Final = 100
RETRY_WAIT_S_MAX: Final = 86_400.0
INDEX_MAX: Final = 10**9
_INDICES: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


class AfterWhen(StrEnum):
    """What another job must have done first."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ENDED = "ended"
    STARTED = "started"


class AfterFields(Strict):
    """Another job, and what it must have done first."""

    job: Short = Field(description="Its id; the first job of an array stands for all of it.")
    when: AfterWhen = AfterWhen.SUCCEEDED


def _after_in_short(said: object) -> object:
    """Return the fields that ``a-1`` or ``a-1:ended`` means."""
    if not isinstance(said, str):
        return said
    job, colon, when = said.partition(":")
    return {"job": job, "when": when} if colon else {"job": job}


After = Annotated[
    AfterFields,
    BeforeValidator(_after_in_short, json_schema_input_type=AfterFields | str),
]


class RetryFields(Strict):
    """How often a job that fails is tried again, and when."""

    times: int = Field(default=1, ge=0, le=RETRY_TIMES_MAX)
    codes: list[Annotated[int, Field(ge=1, le=255)]] = Field(
        default_factory=list, max_length=255, description="Exit codes that count; any but 0."
    )
    wait: Amount = Field(default="10s", description="Before the first; doubles each time.")
    wait_max: Amount = Field(default="10m", description="The longest wait.")

    def wait_s(self, failures: int) -> float:
        """Return how long to wait after so many failures."""
        first_s = amounts.seconds("retry.wait", self.wait)
        most_s = amounts.seconds("retry.wait_max", self.wait_max)
        return min(most_s, first_s * 2.0 ** min(failures - 1, 60))

    def counts(self, exit_code: int) -> bool:
        """Tell whether a job that ended so is tried again."""
        return exit_code != 0 and (not self.codes or exit_code in self.codes)


def check_retry(retry: RetryFields) -> None:
    """Refuse waits that make no sense."""
    for field in ("wait", "wait_max"):
        said = getattr(retry, field)
        if amounts.seconds(f"retry.{field}", said) > RETRY_WAIT_S_MAX:
            raise InvalidField(f"retry.{field}", said, "it must be at most 1d")


class EnvironmentFields(Strict):
    """What is made ready before a job's command runs, on the machine where it does."""

    venv: Short | None = Field(default=None, description="Folder of a virtual environment.")
    conda: Short | None = Field(default=None, description="Name or folder of a conda one.")
    setup: Annotated[str, Field(max_length=1 << 16)] | None = Field(
        default=None, description="Commands that run first; if they fail, the job has."
    )

    def before(self, command: str) -> str:
        """Return a command line that makes everything ready, and then runs a command."""
        return "\n".join([*self._lines(), command])

    def _lines(self) -> Iterator[str]:
        from shlex import quote

        if self.venv is not None:
            folder = quote(self.venv)
            yield f'VIRTUAL_ENV={folder}; PATH="$VIRTUAL_ENV/bin:$PATH"'
            yield "export VIRTUAL_ENV PATH; unset PYTHONHOME"
            said = f"interlane: {folder} is no virtual environment"
            yield f'[ -x "$VIRTUAL_ENV/bin/python" ] || {{ echo {said} >&2; exit 127; }}'
        if self.conda is not None:
            yield 'eval "$(conda shell.posix hook)" || exit 127'
            yield f"conda activate {quote(self.conda)} || exit 127"
        if self.setup is not None:
            yield f"{{ {self.setup}\n}} || exit $?"


# -- moments --------------------------------------------------------------------------


def start_s(field: str, said: Any, submitted_s: float) -> float:  # noqa: ANN401 - an amount or text
    """Return the moment that a start means: a time with its zone, or so long from now."""
    text = str(said).strip()
    if "T" not in text and not re.match(r"\d{4}-", text):
        return submitted_s + amounts.seconds(field, said)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        rule = "it must read like 2h, or 2026-11-18T08:00+01:00"
        raise InvalidField(field, said, rule) from None
    if at.tzinfo is None:
        raise InvalidField(field, said, "it needs its zone, as in 2026-11-18T08:00Z")
    return at.timestamp()


def moment_told(at_s: float) -> str:
    """Return a moment as sentences of the server name it."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


# -- arrays ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayRange:
    """The indices of an array, and how many of its jobs may run at a time."""

    indices: tuple[int, ...]
    at_a_time: int | None = None

    def one(self, index: int) -> str:
        """Return what the job of one index says."""
        return f"{index}" if self.at_a_time is None else f"{index}%{self.at_a_time}"


def array_of(text: str) -> ArrayRange:
    """Return the array of ``0-99``, ``0-99:10``, ``1,3,5`` or ``0-99%8``."""
    rule = "it must read like 0-99, 0-99:10, 1,3,5 or 0-99%8"
    indices, percent, most = text.partition("%")
    if percent and not (most.isascii() and most.isdigit() and 0 < int(most[:9]) <= ARRAY_MAX):
        raise InvalidField("array", text, f"1 to {ARRAY_MAX:,} may run at a time")
    found: dict[int, None] = {}
    for part in indices.split(","):
        match = _INDICES.fullmatch(part.strip())
        if match is None:
            raise InvalidField("array", text, rule)
        first, last, step = (None if one is None else int(one) for one in match.groups())
        assert first is not None
        last = first if last is None else last
        if last < first or step == 0 or last > INDEX_MAX:
            raise InvalidField("array", text, rule)
        several = range(first, last + 1, step or 1)
        if len(several) + len(found) > ARRAY_MAX:
            raise InvalidField("array", text, f"an array has at most {ARRAY_MAX:,} jobs")
        found |= dict.fromkeys(several)
    return ArrayRange(tuple(found), int(most) if percent else None)
