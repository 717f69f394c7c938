"""Help that people can scan: commands in groups, examples as they are typed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "Run jobs": (
        *("submit", "run", "sweep", "ps", "describe", "logs", "wait", "cancel"),
        *("hold", "release", "change", "rerun", "attach", "port-forward"),
    ),
    "Ask": ("explain", "eta", "plan", "gpus", "top", "machines", "usage"),
    "Serve": ("up", "down", "pages", "function", "share", "kube", "slurm"),
    "Simulate and plan": (
        *("simulate", "compare", "timeline", "policies", "trace", "predict", "mig"),
        *("reproduce", "demo"),
    ),
    "Administer": (
        *("token", "drain", "undrain", "resolve", "audit", "state", "replay", "doctor"),
        *("compile", "version"),
    ),
}
"""Commands by what people want; one that is in no group is listed at the end."""

OTHERS: Final = "Other"
EXAMPLES: Final = "Examples:"


class GroupedCommands(TyperGroup):
    """Lists its commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the library's own
        """Write a list for every group; summaries are whole."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = {name: one for name, one in found.items() if one is not None and not one.hidden}
        grouped = {name for names in GROUPS.values() for name in names}
        rest = tuple(name for name in shown if name not in grouped)
        for title, names in (*GROUPS.items(), (OTHERS, rest)):
            rows = [(name, _summary(shown[name])) for name in names if name in shown]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _summary(command: Any) -> str:  # noqa: ANN401 - a command of the library
    """Return the first sentence of a command's help."""
    first = (command.short_help or command.help or "").split("\n\n")[0]
    return " ".join(first.split())


class WithExamples(TyperCommand):
    """Shows the examples of its help as they are typed."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the library's own
        """Write the text, and below it the examples, line by line."""
        text, _, examples = (self.help or "").partition(EXAMPLES)
        for paragraph in text.strip().split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(" ".join(paragraph.split()))
        if examples.strip():
            with formatter.section(EXAMPLES.rstrip(":")):
                for line in examples.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")
