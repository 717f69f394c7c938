"""Write what is made from the code: states of a job, commands, README's table of results.

python docs/generate.py          write them
python docs/generate.py --check  exit 1 if a page is out of date
"""

import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

import results_table

from interlane import cli
from interlane.model.lifecycle import DECIDED, ENDED, NEXT, JobState

HERE: Final = Path(__file__).resolve().parent
BEGIN: Final = "<!-- made by docs/generate.py: {} -->"
END: Final = "<!-- end -->"

BORN: Final = (("[*]", "queued", "Submitted"), ("[*]", "refused", "Refuse decided"))
"""Steps into the table; ``DECIDED`` and ``NEXT`` have all others."""

COMMANDS: Final = (
    (),
    ("demo",),
    ("simulate",),
    ("compare",),
    ("up",),
    ("down",),
    ("replay",),
    ("pages",),
    ("submit",),
    ("run",),
    ("sweep",),
    ("sweep", "start"),
    ("sweep", "status"),
    ("sweep", "resume"),
    ("sweep", "cancel"),
    ("ps",),
    ("describe",),
    ("explain",),
    ("eta",),
    ("plan",),
    ("wait",),
    ("logs",),
    ("cancel",),
    ("hold",),
    ("release",),
    ("change",),
    ("rerun",),
    ("attach",),
    ("port-forward",),
    ("resolve",),
    ("gpus",),
    ("top",),
    ("machines",),
    ("usage",),
    ("drain",),
    ("undrain",),
    ("timeline",),
    ("function",),
    ("function", "deploy"),
    ("function", "list"),
    ("function", "describe"),
    ("function", "invoke"),
    ("function", "logs"),
    ("function", "delete"),
    ("reproduce",),
    ("policies",),
    ("trace",),
    ("trace", "convert"),
    ("trace", "describe"),
    ("trace", "report"),
    ("trace", "synth"),
    ("predict",),
    ("predict", "duration"),
    ("predict", "duration", "train"),
    ("predict", "duration", "evaluate"),
    ("predict", "duration", "show"),
    ("predict", "duration", "apply"),
    ("predict", "slowdown"),
    ("predict", "slowdown", "measure"),
    ("predict", "slowdown", "train"),
    ("predict", "slowdown", "evaluate"),
    ("predict", "slowdown", "table"),
    ("predict", "slowdown", "show"),
    ("predict", "arrivals"),
    ("predict", "arrivals", "train"),
    ("predict", "arrivals", "evaluate"),
    ("predict", "arrivals", "forecast"),
    ("mig",),
    ("mig", "profiles"),
    ("mig", "layouts"),
    ("mig", "optimisers"),
    ("mig", "plan"),
    ("mig", "transition"),
    ("mig", "apply"),
    ("mig", "table"),
    ("mig", "table", "synth"),
    ("mig", "table", "convert"),
    ("share",),
    ("share", "daemon"),
    ("share", "run"),
    ("share", "status"),
    ("share", "bench"),
    ("share", "profile"),
    ("share", "simulate"),
    ("slurm",),
    ("slurm", "manifests"),
    ("slurm", "doctor"),
    ("doctor",),
    ("kube",),
    ("kube", "manifests"),
    ("kube", "status"),
    ("kube", "doctor"),
    ("kube", "agent"),
    ("kube", "extender"),
    ("token",),
    ("token", "create"),
    ("token", "list"),
    ("token", "revoke"),
    ("token", "rotate"),
    ("audit",),
    ("state",),
    ("state", "backup"),
    ("state", "restore"),
    ("state", "check"),
    ("compile",),
    ("version",),
)
"""Commands in the order of the page."""


def states_diagram() -> str:
    """Return the life of a job as a Mermaid diagram."""
    lines = [f"    {old} --> {new}: {why}" for old, new, why in BORN]
    lines += [
        f"    {old.value} --> {new.value}: {action.__name__} decided"
        for (old, action), new in DECIDED.items()
    ]
    lines += [
        f"    {old.value} --> {new.value}: {event.__name__}"
        for (old, event), new in NEXT.items()
    ]
    lines.append("    running --> failed: Finished with another exit code than 0")
    ends = sorted(state.value for state in ENDED)
    lines += [f"    {state} --> [*]" for state in ends]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def states_table() -> str:
    """Return which event leads where, one row per state."""
    events = sorted({event.__name__ for _, event in NEXT})
    states = list(dict.fromkeys(state for state, _ in NEXT))
    head = ["state", *events]
    rows = [[state.value, *(_after(state, event) for event in events)] for state in states]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _after(state: JobState, event: str) -> str:
    found = [
        new.value for (old, kind), new in NEXT.items() if (old, kind.__name__) == (state, event)
    ]
    return found[0] if found else ""


def commands() -> str:
    """Return the help of every command."""
    return "\n\n".join(_helps())


def _helps() -> Iterator[str]:
    for words in COMMANDS:
        said = StringIO()
        with redirect_stdout(said):
            cli.run([*words, "--help"])
        title = " ".join(("interlane", *words))
        yield f"## {title}\n\n```text\n{said.getvalue().rstrip()}\n```"


PAGES: Final = {
    "concepts/jobs-and-states.md": {"diagram": states_diagram, "table": states_table},
    "reference/commands.md": {"help": commands},
    "../README.md": {
        "results": results_table.table,
        "reserving": results_table.reserving,
    },
}
"""Page -> its made parts."""


def made(page: str) -> str:
    """Return a page with its made parts as the code has them now."""
    os.environ["COLUMNS"] = "80"
    text = (HERE / page).read_text(encoding="utf-8")
    for name, make in PAGES[page].items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    """Write the pages, or say which are out of date."""
    check = "--check" in sys.argv[1:]
    stale = [page for page in PAGES if made(page) != (HERE / page).read_text(encoding="utf-8")]
    for page in stale:
        print(f"docs/{page} {'is out of date' if check else 'written'}")
        if not check:
            (HERE / page).write_text(made(page), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
