"""How answers are printed, the same for every command: data on stdout, talk on stderr."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Final

import typer


class OutputFormat(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[OutputFormat, typer.Option("-o", "--output", help="How to print.")]


def say(text: str) -> None:
    """Talk to the user, beside the data; where nobody can hear it, that is all the same."""
    with suppress(OSError):
        typer.echo(harmless(text), err=True)


def say_to_people(text: str) -> None:
    """Talk where somebody watches, and nowhere else: programs need no patience."""
    if sys.stderr.isatty():
        say(text)


def harmless(text: str) -> str:
    """Return text in which nothing commands a terminal, but for styles of our own.

    What others named, wrote or printed may hold sequences that move the cursor, change the
    title or answer as if the reader had typed.
    """
    parts = _OWN.split(text)
    return "".join(one if _OWN.fullmatch(one) else _COMMANDS.sub(_seen, one) for one in parts)


RawOption = Annotated[
    bool, typer.Option("--raw", help="Let what was printed command the terminal, too.")
]


def as_shown(text: str, *, raw: bool = False) -> str:
    """Return what others printed: harmless on a terminal, as it is elsewhere."""
    if raw or not sys.stdout.isatty():
        return text
    return "\r".join(map(harmless, text.split("\r")))  # bars that count up need it


def _seen(found: "re.Match[str]") -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def emit(answer: Mapping[str, object], output: OutputFormat, table: str | None = None) -> None:
    """Print an answer; ``table`` is what people read, aligned lines unless given."""
    text = printed(answer, output) if table is None else _chosen(answer, output, table)
    typer.echo(harmless(text))


def _chosen(answer: Mapping[str, object], output: OutputFormat, table: str) -> str:
    return table if output is OutputFormat.TABLE else printed(answer, output)


def printed(answer: Mapping[str, object], output: OutputFormat) -> str:
    """Return an answer as text."""
    if output is OutputFormat.JSON:
        import json

        return json.dumps(answer, indent=2)
    if output is OutputFormat.YAML:
        import yaml

        text: str = yaml.safe_dump(dict(answer), sort_keys=False, allow_unicode=True)
        return text.rstrip()
    return "\n".join(lines(answer))


def lines(answer: Mapping[str, object]) -> list[str]:
    """Lay an answer out as aligned lines, one per number or per group of numbers."""
    width = max(len(name) for name in answer) + 2
    laid = []
    for name, value in answer.items():
        if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
            laid += [f"{name}:".ljust(width)]
            laid += [f"  {key}".ljust(width) + flat(one) for key, one in value.items()]
        else:
            laid.append(name.ljust(width) + flat(value))
    return laid


def flat(value: object) -> str:
    """Return a value as people read it."""
    if isinstance(value, dict):
        return "  ".join(f"{key} {flat(one)}" for key, one in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:,.10g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def grid(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    right: Collection[int] | None = None,
) -> str:
    """Return a table in plain text.

    The first ``left`` columns are words, the rest numbers, unless ``right`` names those that
    are numbers.
    """
    widths = [
        max(len(bare(cell)) for cell in column) for column in zip(head, *rows, strict=True)
    ]
    numbers = range(left, len(widths)) if right is None else right
    return "\n".join(_grid_line(cells, widths, numbers) for cells in (head, *rows))


def _grid_line(cells: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> str:
    padded = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - len(bare(cell)))
        padded.append(space + cell if at in numbers else cell + space)
    return "  ".join(padded).rstrip()


_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_OWN: Final = re.compile("(\x1b\\[(?:[01]|0;2|0;3[1-6])m)")
"""Styles that we write ourselves: they change how words look, and nothing else."""

_COMMANDS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Controls but for tab and new line, and marks that turn the direction of writing."""


def strong(text: str) -> str:
    """Return the text in bold where that can be seen and is wanted."""
    return f"{_BOLD}{text}{_PLAIN}" if colours(sys.stdout.isatty()) else text


def colours(is_terminal: bool) -> bool:  # noqa: FBT001 - there is nothing else to ask
    """Tell whether output may be styled: on a terminal, unless ``NO_COLOR`` is set."""
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str | None) -> str:
    """Return the text in a colour where that can be seen and is wanted."""
    if colour is None or not colours(sys.stdout.isatty()):
        return text
    return f"\x1b[0;{colour}m{text}{_PLAIN}"


def bare(cell: str) -> str:
    """Return text without the styles that we write ourselves."""
    return _OWN.sub("", cell)
