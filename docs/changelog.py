"""Make ``CHANGELOG.md`` of the fragments in ``changes/``: ``python docs/changelog.py``."""

from pathlib import Path
from typing import Final

from interlane import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = ("added", "changed", "fixed", "removed")


def changelog() -> str:
    """Return the change log: what was added, changed, fixed and removed, by alphabet."""
    parts = [
        "# Changes\n",
        "Made by `make changelog` from the fragments in `changes/`, one sentence each.\n",
        f"## {__version__} (not released)\n",
    ]
    for kind in KINDS:
        files = sorted((ROOT / "changes").glob(f"*.{kind}.md"))
        if files:
            told = [" ".join(file.read_text(encoding="utf-8").split()) for file in files]
            parts += [f"### {kind.capitalize()}\n", "".join(f"- {one}\n" for one in told)]
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "CHANGELOG.md").write_text(changelog(), encoding="utf-8")
