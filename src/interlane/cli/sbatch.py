"""Slurm's batch scripts as jobs: the ``#SBATCH`` lines say what a job file would.

The script runs once, on one machine, under its own interpreter.  What has no meaning here is
named, so that nobody believes that it was heard.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from interlane.model.errors import InvalidInput

MARK: Final = "#SBATCH"
SHEBANG: Final = "#!"
_SHORT: Final = {
    "J": "job-name", "G": "gpus", "c": "cpus-per-task", "t": "time", "N": "nodes",
    "n": "ntasks", "a": "array", "d": "dependency", "b": "begin", "D": "chdir", "H": "hold",
    "p": "partition", "o": "output", "e": "error", "C": "constraint", "A": "account",
    "q": "qos", "L": "licenses", "w": "nodelist", "x": "exclude", "m": "distribution",
}  # fmt: skip
_FLAGS: Final = frozenset(
    {"hold", "requeue", "no-requeue", "exclusive", "parsable", "contiguous"}
)
_QUIET: Final = frozenset({"parsable", "requeue", "account", "qos", "cpus-per-gpu"})
"""Options without which a job is the same here."""

_WHEN: Final = {
    "afterok": "succeeded", "afternotok": "failed", "afterany": "ended", "after": "started",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchScript:
    """A script as a job, and what of it was not understood."""

    document: dict[str, Any]
    ignored: tuple[str, ...]


def is_script(text: str) -> bool:
    """Tell whether a file is a script rather than YAML."""
    return text.startswith(SHEBANG)


def script_job(text: str, name: str) -> BatchScript:
    """Return the job that a script describes."""
    said = dict(_options(text))
    document: dict[str, Any] = {"name": _name(said.pop("job-name", name))}
    ignored = []
    resources = _Resources()
    for option, value in said.items():
        if option in _RESOURCES:
            _RESOURCES[option](resources, value)
        elif option in _FIELDS:
            document |= _FIELDS[option](value)
        elif option not in _QUIET:
            ignored.append(f"--{option}")
    document["resources"] = resources.document()
    document["run"] = _command(text, document["name"])
    return BatchScript(document, tuple(ignored))


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options of the lines before the first command, as Slurm reads them."""
    for line in text.splitlines():
        if line.startswith(MARK):
            words = shlex.split(line[len(MARK) :], comments=True)
            while words:
                yield _option(words)
        elif line.strip() and not line.startswith("#"):
            return


def _option(words: list[str]) -> tuple[str, str]:
    word = words.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
    elif len(word) >= 2 and word[0] == "-" and word[1] in _SHORT:
        name, value = _SHORT[word[1]], word[2:].removeprefix("=")
        equals = value
    else:
        raise InvalidInput(f"#SBATCH has {word!r}, which is no option.")
    if equals or name in _FLAGS:
        return name, value
    if not words:
        raise InvalidInput(f"#SBATCH has --{name} without a value.")
    return name, words.pop(0)


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:63] or "job"


def _command(text: str, name: str) -> str:
    """Return a command line that runs the script under its own interpreter."""
    first = text.splitlines()[0].removeprefix(SHEBANG).strip() or "/bin/sh"
    slurm = (
        'export SLURM_JOB_ID="$INTERLANE_JOB_ID" SLURM_JOB_NAME=' + shlex.quote(name),
        'export SLURM_ARRAY_TASK_ID="$INTERLANE_ARRAY_INDEX" SLURM_SUBMIT_DIR="$PWD"',
    )
    return "\n".join([*slurm, f"exec {first} -c {shlex.quote(text)} {shlex.quote(name)}"])


# -- resources ------------------------------------------------------------------------


@dataclass
class _Resources:
    gpus: int = 0
    type: str | None = None
    cpus: int = 1
    tasks: int = 1
    memory: str | None = None

    def document(self) -> dict[str, Any]:
        gpu: dict[str, Any] = {"count": self.gpus}
        if self.type is not None:
            gpu["type"] = self.type
        asked: dict[str, Any] = {"gpu": gpu, "cpu": self.cpus * self.tasks}
        return asked if self.memory is None else {**asked, "memory": self.memory}

    def gres(self, value: str) -> None:
        for one in value.split(","):
            kind, *rest = one.split(":")
            if kind.removeprefix("gres/") == "gpu":
                self.named_gpus(":".join(rest) or "1")

    def named_gpus(self, value: str) -> None:
        kind, colon, count = value.rpartition(":")
        self.gpus = _count("gpus", count)
        self.type = kind if colon else self.type

    def one_node(self, value: str) -> None:
        if value.partition("-")[0] != "1":
            raise InvalidInput(
                f"#SBATCH --nodes is {value!r}, but a script runs on one machine here; write a "
                "job file with gang: {nodes: N}."
            )

    def set_cpus(self, value: str) -> None:
        self.cpus = _count("cpus-per-task", value)

    def set_tasks(self, value: str) -> None:
        self.tasks = _count("ntasks", value)

    def set_memory(self, value: str) -> None:
        found = re.fullmatch(r"(\d+)([KMGT]?)B?", value, re.IGNORECASE)
        if found is None:
            raise InvalidInput(f"#SBATCH --mem is {value!r}, but it must read like 16G.")
        if int(found[1]):  # 0 is all of a machine's, which is for a whole one
            self.memory = f"{found[1]}{(found[2] or 'M').upper()}iB"


_RESOURCES: Final[Mapping[str, Callable[[_Resources, str], None]]] = {
    "gres": _Resources.gres,
    "gpus": _Resources.named_gpus,
    "gpus-per-node": _Resources.named_gpus,
    "gpus-per-task": _Resources.named_gpus,
    "nodes": _Resources.one_node,
    "cpus-per-task": _Resources.set_cpus,
    "ntasks": _Resources.set_tasks,
    "ntasks-per-node": _Resources.set_tasks,
    "mem": _Resources.set_memory,
}


def _count(option: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise InvalidInput(f"#SBATCH --{option} is {value!r}, but it must be a number.")
    return int(value)


# -- other fields ---------------------------------------------------------------------


def limit_s(value: str) -> int:
    """Return seconds of Slurm's times: minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value)
    if found is None:
        raise InvalidInput(f"#SBATCH --time is {value!r}, but it must read like 2-12:00:00.")
    days, *parts = found.groups()
    numbers = [int(one) for one in parts if one is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 3:
        return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def _dependency(value: str) -> dict[str, Any]:
    after = []
    for part in value.split(","):
        kind, *jobs = part.split(":")
        if kind not in _WHEN or not jobs:
            raise InvalidInput(
                f"#SBATCH --dependency is {value!r}, but it must read like afterok:train-7."
            )
        after += [{"job": job, "when": _WHEN[kind]} for job in jobs]
    return {"after": after}


def _begin(value: str) -> dict[str, Any]:
    found = re.fullmatch(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?", value)
    if found is None:
        return {"time": {"start": value}}
    unit = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
    return {"time": {"start": f"{int(found[1] or 0) * unit[found[2] or 'second']}s"}}


def _export(value: str) -> dict[str, Any]:
    pairs = (one.partition("=") for one in value.split(",") if "=" in one)
    env = {name: said for name, _, said in pairs}
    return {"env": env} if env else {}


_FIELDS: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "time": lambda value: {"time": {"limit": f"{limit_s(value)}s"}},
    "array": lambda value: {"array": value},
    "dependency": _dependency,
    "begin": _begin,
    "chdir": lambda value: {"workdir": value},
    "hold": lambda value: {"hold": True},
    "partition": lambda value: {"queue": _name(value)},
    "export": _export,
}
