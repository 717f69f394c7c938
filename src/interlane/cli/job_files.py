"""Job files: what users wrote, and what the words of a command change in it.

A file holds one document or several, each a job.  Values of ``env`` are taken as they are
written, so that ``LEVEL: 1.10`` is not the number 1.1.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlane.cli.sbatch import is_script, script_job
from interlane.model.errors import InvalidInput

if TYPE_CHECKING:
    from yaml import MappingNode, SafeLoader

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...", help="Job files (YAML) or scripts with #SBATCH lines; - reads stdin."
    ),
]
FilesOption = Annotated[
    list[Path] | None,
    typer.Option("-f", "--file", metavar="FILE", help="The same, as an option; repeatable."),
]


@dataclass(frozen=True)  # without slots, so that a command can have other options, too
class Overrides:
    """What a command says instead of, or on top of, a file."""

    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None
    gpus: Annotated[
        str | None, typer.Option(metavar="N", help="GPUs: 2, or a share of one as in 0.5.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("-e", "--env", metavar="NAME=VALUE", help="A variable; repeatable."),
    ] = None
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:WHEN]",
            help="Run after this job has succeeded, or :ended, :failed, :started; repeatable.",
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option(metavar="RANGE", help="As many jobs: 0-99, or 0-99%8 for 8 at a time."),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Not before: 2h, 08:00 or '2026-11-18 08:00'."),
    ] = None
    hold: Annotated[bool, typer.Option("--hold", help="Wait until `interlane release`.")] = (
        False
    )
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Any other field, as in time.limit=2h or priority=80; repeatable.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job of a file."""

    where: str
    """The file, and the number of the document if there are several."""
    document: dict[str, Any]
    ignored: tuple[str, ...] = ()
    """Options of a batch script that mean nothing here."""


def files_of(given: list[Path] | None, named: list[Path] | None) -> list[Path]:
    """Return the files of a command, as arguments and as options."""
    files = [*(given or ()), *(named or ())]
    if not files:
        raise InvalidInput("No job file is given; name one, as in 'job.yaml', or - for stdin.")
    return files


def one_job(files: Sequence[Path]) -> FoundJob:
    """Return the only job of files."""
    found = [job for file in files for job in jobs_in(file)]
    if len(found) > 1:
        raise InvalidInput(f"{files[0]} holds {len(found)} jobs; give one at a time here.")
    return found[0]


def jobs_in(file: Path) -> list[FoundJob]:
    """Return the jobs of a file; they run in this folder unless they say where."""
    text, here = _text_of(file), {"workdir": str(Path.cwd())}
    if is_script(text):
        script = script_job(text, file.stem)
        return [FoundJob(str(file), {**here, **script.document}, script.ignored)]
    documents = _documents(text, file, "job")
    found = []
    for number, document in enumerate(documents, 1):
        where = str(file) if len(documents) == 1 else f"{file}, document {number}"
        found.append(FoundJob(where, {**here, **document}))
    return found


def document_in(file: Path, what: str) -> dict[str, Any]:
    """Return the only document of a file."""
    documents = _documents(_text_of(file), file, what)
    if len(documents) > 1:
        raise InvalidInput(f"{file} holds {len(documents)} documents; give one {what}.")
    return documents[0]


def _documents(text: str, file: Path, what: str) -> list[dict[str, Any]]:
    """Return the documents of a file, each with fields of its own."""
    documents = _parsed(text, file)
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise InvalidInput(
            f"{file} holds no {what}; it must begin with fields such as name: ..."
        )
    return documents


def _text_of(file: Path) -> str:
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{file} is not text in UTF-8 (byte {error.start:,} is "
            f"{data[error.start]:#04x}); save it as UTF-8."
        ) from None


def _parsed(text: str, file: Path) -> list[Any]:
    import yaml

    loader = _loader()(text)
    loader.name = str(file)  # which errors name
    documents = []
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            document = loader.get_data()
            if document is not None:  # nothing stands between two lines of dashes
                documents.append(document)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file} is not YAML: {error}") from None
    finally:
        loader.dispose()
    return documents


@cache
def _loader() -> "type[SafeLoader]":
    """Return how job files are read: no key twice, and variables as they are written."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: "MappingNode", deep: bool = False) -> Any:  # noqa: ANN401, FBT001 - the library's own
            seen: dict[object, int] = {}
            for key, value in node.value:
                name, line = getattr(key, "value", None), key.start_mark.line + 1
                if isinstance(name, str) and name in seen:
                    raise InvalidInput(
                        f"{self.name} says {name!r} twice, in lines {seen[name]} and {line}; "
                        "leave one of them out."
                    )
                seen[name if isinstance(name, str) else key] = line
                if name == "env" and isinstance(value, yaml.MappingNode):
                    value.value = [(one, _as_text(of)) for one, of in value.value]
            return super().construct_mapping(node, deep)

    # Moments stay text: the server says what is wrong with one.
    Loader.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _as_text(node: Any) -> Any:  # noqa: ANN401 - any node
    import yaml

    if isinstance(node, yaml.ScalarNode):
        node.tag = "tag:yaml.org,2002:str"
    return node


# -- what a command changes -----------------------------------------------------------


def changed(document: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return a job with what a command says in place of what its file says."""
    made = dict(document)
    if overrides.name is not None:
        made["name"] = overrides.name
    if overrides.gpus is not None:
        resources = dict(_fields(made, "resources"))
        resources["gpu"] = _gpus(overrides.gpus, resources.get("gpu"))
        made["resources"] = resources
    if overrides.env:
        made["env"] = {**_fields(made, "env"), **dict(_pairs("--env", overrides.env))}
    if overrides.after:
        made["after"] = [*(made.get("after") or ()), *overrides.after]
    if overrides.array is not None:
        made["array"] = overrides.array
    if overrides.start is not None:
        made["time"] = {**_fields(made, "time"), "start": _start(overrides.start)}
    if overrides.hold:
        made["hold"] = True
    for path, value in _pairs("--set", overrides.set or ()):
        made = _with(made, path.split("."), _value(path, value), path)
    return made


def after_named(document: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return a job that names others by their ids, where it has named them by their names."""
    after = document.get("after")
    if not isinstance(after, list):
        return dict(document)
    return {**document, "after": [_with_id(one, ids) for one in after]}


def _with_id(after: object, ids: Mapping[str, str]) -> object:
    if isinstance(after, str):
        name, colon, when = after.partition(":")
        return f"{ids.get(name, name)}{colon}{when}"
    if isinstance(after, dict) and isinstance(after.get("job"), str):
        return {**after, "job": ids.get(after["job"], after["job"])}
    return after


def _start(text: str) -> str:
    """Return a start as the server reads it: times of the clock here get their zone."""
    from datetime import datetime, time, timedelta

    now = datetime.now().astimezone()
    try:
        at = datetime.combine(now.date(), time.fromisoformat(text))
        at += timedelta(days=at.astimezone() < now)  # the next time that a clock shows it
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
    return (at.astimezone() if at.tzinfo is None else at).isoformat()


def _fields(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    said = document.get(name) or {}
    if not isinstance(said, dict):
        raise InvalidInput(f"{name} is {said!r}, but it must have fields.")
    return said


def _gpus(text: str, before: object) -> object:
    """Return what ``resources.gpu`` becomes; type and memory stay as the file says."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise InvalidInput(f"--gpus is {text!r}, but it must be a number such as 2.")
    count: int | float = int(number) if number.is_integer() else number
    return {**before, "count": count} if isinstance(before, dict) else count


def _pairs(option: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{option} is {text!r}, but it must read like NAME=VALUE.")
        yield name, value


def _value(path: str, text: str) -> object:
    import yaml

    if path.startswith("env."):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _with(whole: Any, path: Sequence[str], value: object, told: str) -> Any:  # noqa: ANN401 - any part of a document
    """Return a part of a document with the value at a path changed."""
    first, *rest = path
    if isinstance(whole, list):
        if not (first.isascii() and first.isdigit() and int(first) < len(whole)):
            raise InvalidInput(f"--set {told}: there is no item {first!r}; the first is 0.")
        made = list(whole)
        at = int(first)
        made[at] = _with(made[at], rest, value, told) if rest else value
        return made
    if whole is not None and not isinstance(whole, dict):
        raise InvalidInput(f"--set {told}: {first!r} would be inside {whole!r}.")
    inside = dict(whole or {})
    inside[first] = _with(inside.get(first), rest, value, told) if rest else value
    return inside
