"""``interlane reproduce``: published results, the paper's number beside ours."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from interlane.cli.options import DataOption, ProcessesOption
from interlane.cli.output import OutputFormat, OutputOption, emit, flat, grid
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.reproduce.base import Reproduction, Row

LIST: Final = "--list"


class Command(TyperCommand):
    """A command whose ``--list`` may stand alone or be followed by a name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        """Give a ``--list`` that stands alone an empty value."""
        return super().parse_args(ctx, filled(args))


def filled(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--list=`` for a ``--list`` that nothing follows."""
    following = [*arguments[1:], "-"]
    return [
        f"{LIST}=" if one == LIST and after.startswith("-") else one
        for one, after in zip(arguments, following, strict=False)
    ]


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which result; see --list.")
    ] = None,
    listed: Annotated[
        str | None,
        typer.Option(
            LIST,
            metavar="[LIST]",
            help="List the results, or the variants of NAME; with NAME and a variant, run it.",
        ),
    ] = None,
    data: DataOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Another seed.", show_default="the published one")
    ] = None,
    processes: ProcessesOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Run a published result by name; exit 0 only if every row holds that decides."""
    from interlane.model import InvalidInput, UnknownName
    from interlane.reproduce.catalogue import REPRODUCTIONS
    from interlane.usecases.simulate import cores

    if listed is not None and (name is None or not listed):
        _list(REPRODUCTIONS[name or listed] if name or listed else None, output)
        return 0
    if name is None:
        raise InvalidInput(
            f"Name the result to reproduce: {', '.join(REPRODUCTIONS)}, or --list them."
        )
    entry = REPRODUCTIONS[name]
    if listed is not None and listed not in entry.variants:
        raise UnknownName(f"variant of {name}", listed, entry.variants or ["none"])
    begin_s = _cpu_s()
    chosen = entry.seed if seed is None else seed
    rows = _run(entry, listed, data, chosen, processes or cores())
    answer = {
        "name": name,
        "rows": [_as_json(row) for row in rows],
        "seed": chosen,
        "cpu_s": round(_cpu_s() - begin_s, 3),
    }
    emit(answer, output, _table(entry, rows))
    return 1 if any(row.decides and not row.holds for row in rows) else 0


def _run(
    entry: "Reproduction", variant: str | None, data: Path | None, seed: int, processes: int
) -> "list[Row]":
    from interlane import wiring
    from interlane.reproduce.base import Setting

    with progress(entry.name, 1, "steps") as tell:
        return entry.run(
            Setting(
                wiring.data_of(data),
                seed,
                processes,
                lambda done, total, what: tell(done, total),
                variant or None,
            )
        )


def _as_json(row: "Row") -> dict[str, object]:
    """Return a row's fields; the reason only where there is something to excuse."""
    fields = asdict(row)
    if row.holds or not row.why_not:
        del fields["why_not"]
    if row.decides:
        del fields["decides"]
    return fields


def _cpu_s() -> float:
    """Return the CPU seconds so far, those of processes that were waited for included."""
    return sum(os.times()[:4])


def _list(entry: "Reproduction | None", output: OutputFormat) -> None:
    from interlane.reproduce.catalogue import REPRODUCTIONS

    if entry is None:
        claims = {name: one.claim for name, one in REPRODUCTIONS.items()}
        width = max(map(len, claims)) + 2
        emit(claims, output, "\n".join(f"{name:<{width}}{claims[name]}" for name in claims))
        return
    variants = list(entry.variants)
    answer = {"name": entry.name, "claim": entry.claim, "variants": variants}
    emit(answer, output, "\n".join([f"{entry.name}: {entry.claim}", *variants]))


def _table(entry: "Reproduction", rows: "Sequence[Row]") -> str:
    cells = [
        [row.what, "yes" if row.holds else "NO", flat(row.ours), flat(row.published)]
        for row in rows
    ]
    table = grid(["what", "holds", "ours", "published"], cells, left=2)
    held = sum(row.holds for row in rows)
    verdict = f"{held} of {len(rows)} rows hold."
    if any(row.decides and not row.holds for row in rows):
        verdict += f" {entry.if_not}"
    reasons = [f"{row.what}: {row.why_not}" for row in rows if row.why_not and not row.holds]
    return "\n".join([entry.claim, "", table, "", verdict, *reasons])
