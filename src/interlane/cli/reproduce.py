"""``interlane reproduce``: published results, the paper's number beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from interlane.cli.options import DataOption, ProcessesOption
from interlane.cli.output import OutputFormat, OutputOption, emit, flat, grid, say
from interlane.cli.progress import progress

if TYPE_CHECKING:
    from interlane.reproduce.base import Reproduction, Row, Setting
    from interlane.reproduce.result import Result

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
    *,
    everything: Annotated[bool, typer.Option("--all", help="Run all results.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write NAME.json there, with commit and date; with --all also report.html "
            "and report.json.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="With --all and --report: keep the runs that are there already, unless the "
            "code of their entry has changed since.",
        ),
    ] = False,
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

    if listed is not None and (name is None or not listed):
        _list(REPRODUCTIONS[name or listed] if name or listed else None, output)
        return 0
    if everything and (name is not None or listed is not None):
        raise InvalidInput("--all runs every result; leave the name out.")
    if resume and (not everything or report is None):
        raise InvalidInput("--resume goes on with --all --report DIR; give both.")
    setting = _setting(data, seed, processes)
    if everything:
        return _run_all(_Runs(setting, seed, report, resume), output)
    if name is None:
        raise InvalidInput(
            f"Name the result to reproduce: {', '.join(REPRODUCTIONS)}, --list them, or run "
            "--all."
        )
    entry = REPRODUCTIONS[name]
    if listed is not None and listed not in entry.variants:
        raise UnknownName(f"variant of {name}", listed, entry.variants or ["none"])
    return _run_one(entry, replace(setting, choice=listed or None), seed, report, output)


def _setting(data: Path | None, seed: int | None, processes: int | None) -> "Setting":
    from interlane import wiring
    from interlane.reproduce.base import Setting
    from interlane.usecases.simulate import cores

    return Setting(wiring.data_of(data), seed or 0, processes or cores())


def _run_one(
    entry: "Reproduction",
    setting: "Setting",
    seed: int | None,
    report: Path | None,
    output: OutputFormat,
) -> int:
    from interlane.reproduce.result import run
    from interlane.reproduce.stored import store

    with progress(entry.name, 1, "steps") as tell:
        result = run(
            entry,
            replace(
                setting,
                seed=entry.seed if seed is None else seed,
                progress=lambda done, total, what: tell(done, total),
            ),
        )
    if report is not None:
        say(f"{store(result, report)} is written.")
    emit(result.document(), output, _table(result))
    return 1 if result.fails else 0


@dataclass(frozen=True, slots=True)
class _Runs:
    """How all entries are run."""

    setting: "Setting"
    seed: int | None
    report: Path | None
    resume: bool


def _run_all(runs: _Runs, output: OutputFormat) -> int:
    from interlane.reproduce.catalogue import REPRODUCTIONS
    from interlane.reproduce.page import write_report
    from interlane.reproduce.result import summary
    from interlane.reproduce.stored import cheapest_first, together

    names = list(REPRODUCTIONS)
    if runs.report is not None:
        names = cheapest_first(names, runs.report)
    found: dict[str, Result] = {}
    for number, name in enumerate(names, 1):
        where = f"{number} of {len(names)}, {name}"
        found[name] = _kept(runs, name, where) or _ran(runs, name, where)
    results = [found[name] for name in REPRODUCTIONS]
    if runs.report is not None:
        say(f"{write_report(results, runs.report)} is written.")
    lines = [summary(results), "", *(f"{one.entry.name}: {one.verdict}" for one in results)]
    emit(together(results), output, "\n".join(lines))
    return 1 if any(one.fails for one in results) else 0


def _kept(runs: _Runs, name: str, where: str) -> "Result | None":
    """Return the run that is there already, if it may stay."""
    from interlane.reproduce.catalogue import REPRODUCTIONS
    from interlane.reproduce.stored import is_stale, read, restored

    document = read(runs.report, name) if runs.resume and runs.report is not None else None
    if document is None:
        return None
    told = f"run at {document['commit']} on {document['date']}"
    entry = REPRODUCTIONS[name]
    if is_stale(document):
        say(f"{where}: {told}, before its code changed; run again.")
        return None
    if document["seed"] != (entry.seed if runs.seed is None else runs.seed):
        return None
    result = restored(document, entry)
    say(f"{where}: {result.verdict} Kept, {told}.")
    return result


def _ran(runs: _Runs, name: str, where: str) -> "Result":
    from interlane.reproduce.catalogue import REPRODUCTIONS
    from interlane.reproduce.result import run_or_say
    from interlane.reproduce.stored import store

    entry = REPRODUCTIONS[name]
    with progress(where, 1, "steps") as tell:
        chosen = replace(
            runs.setting,
            seed=entry.seed if runs.seed is None else runs.seed,
            progress=lambda done, total, what: tell(done, total),
        )
        result = run_or_say(entry, chosen)
    say(f"{where}: {result.verdict} {result.took_s:,.0f} s")
    if runs.report is not None and not result.error:
        store(result, runs.report)
    return result


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


def _table(result: "Result") -> str:
    entry = result.entry
    cells = [
        [row.what, row.kind.value, said(row), flat(row.ours), flat(row.published)]
        for row in result.rows
    ]
    table = grid(["what", "kind", "holds", "ours", "published"], cells, left=3)
    teaches = [f"What it teaches: {entry.teaches}"] if entry.teaches else []
    return "\n".join(
        [
            f"{result.verdict} Rests on: {entry.basis.value}.",
            entry.claim,
            *teaches,
            "",
            table,
            *_notes(result),
        ]
    )


def said(row: "Row") -> str:
    """Return what a row comes to, in a word."""
    from interlane.reproduce.base import Kind

    if row.holds is None:
        return "-"
    if row.is_excused:
        return "excused"
    if row.kind is Kind.CALIBRATED:
        return "as set" if row.holds else "NOT AS SET"
    return "yes" if row.holds else "NO"


def _notes(result: "Result") -> list[str]:
    """Return what would be wrong, what is excused how far, and what was set from the paper."""
    from interlane.reproduce.base import Kind

    notes = []
    for row in result.rows:
        if row.is_excused and row.excuse is not None:
            within = f"(known: {row.excuse.low:g} to {row.excuse.high:g})"
            notes.append(f"{row.what}: {row.excuse.why} {within}")
        elif row.holds is False:
            wrong = row.if_not or row.constant or result.entry.if_not
            notes.append(f"{row.what}: {wrong}")
    constants = dict.fromkeys(
        row.constant for row in result.rows if row.kind is Kind.CALIBRATED
    )
    if constants:
        notes.append(f"Calibrated rows were set by: {'; '.join(constants)}.")
    return ["", *notes] if notes else []
