"""Runs that are kept: one file an entry, with the commit, the date and the code that ran."""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from interlane.reproduce.base import Basis, Excuse, Kind, Reproduction, Row
from interlane.reproduce.result import Result, summary
from interlane.reproduce.source import fingerprint

GIT_S: Final = 10.0
SOURCE: Final = Path(__file__).parents[1]

Document = Mapping[str, Any]


def store(result: Result, folder: Path) -> Path:
    """Write it into a folder, under the names of entry and variant, and return where."""
    folder.mkdir(parents=True, exist_ok=True)
    variant = f"-{result.choice}" if result.choice else ""
    path = _path(folder, f"{result.entry.name}{variant}")
    text = json.dumps(stored(result), indent=1, ensure_ascii=False)
    # Whoever is interrupted leaves the old run or the new one, and nothing between them.
    part = path.with_suffix(".part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(path)
    return path


def stored(result: Result) -> dict[str, object]:
    """Return the document with what ran, and when."""
    code = fingerprint(result.entry.name)
    return {"commit": commit(), "date": today(), "code": code, **result.document()}


def read(folder: Path, name: str) -> Document | None:
    """Return the last run of an entry; None if there is none."""
    path = _path(folder, name)
    if not path.exists():
        return None
    found: Document = json.loads(path.read_text(encoding="utf-8"))
    return found


def is_stale(document: Document) -> bool:
    """Tell whether the entry's code has changed since this run."""
    return document.get("code") != fingerprint(str(document["name"]))


def cheapest_first(names: Iterable[str], folder: Path) -> list[str]:
    """Return entries by what their last runs cost; those that never ran come last."""

    def cost_s(name: str) -> float:
        found = read(folder, name)
        return float("inf") if found is None else float(found["took_s"])

    return sorted(names, key=cost_s)


def restored(document: Document, entry: Reproduction) -> Result:
    """Return a run as it was when it was kept."""
    return Result(
        entry,
        tuple(_row(one) for one in document["rows"]),
        document["seed"],
        document["variant"],
        document["cpu_s"],
        document["took_s"],
    )


def _row(told: Document) -> Row:
    excuse = told.get("excuse")
    return Row(
        told["what"],
        told["ours"],
        told["published"],
        Kind(told["kind"]),
        told.get("holds", told.get("near")),
        told.get("if_not", ""),
        told.get("constant", ""),
        Excuse(**excuse) if excuse else None,
        told.get("decides", True),
        Basis(told["basis"]),
    )


def together(results: Sequence[Result]) -> Mapping[str, object]:
    """Return one document of many entries."""
    return {
        "summary": summary(results),
        "commit": commit(),
        "date": today(),
        "entries": [one.document() for one in results],
    }


def commit() -> str | None:
    """Return the commit that ran, with a plus if the source differs; None outside of git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if not head:
        return None
    differs = _git("status", "--porcelain", "--untracked-files=no", "--", str(SOURCE))
    return f"{head}+" if differs else head


def _git(*words: str) -> str:
    found = subprocess.run(
        ("git", *words), capture_output=True, text=True, cwd=SOURCE, timeout=GIT_S, check=False
    )
    return found.stdout.strip()


def today() -> str:
    """Return the date, where nobody lives ahead of others."""
    return datetime.now(UTC).date().isoformat()


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
