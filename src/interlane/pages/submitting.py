"""Submit: a job is written, and while it is one sees whether, where and when it would start."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import yaml
from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller, Role
from interlane.live.http import acting
from interlane.live.http.documents import shown_spec
from interlane.live.questions.desk import TooManyRequests
from interlane.model import InterlaneError, InvalidInput
from interlane.pages.frame import (
    LiveMarkup,
    action,
    button,
    job_link,
    plain_yaml,
    title,
)
from interlane.pages.site import Visit

WRITTEN_MAX: Final = 256 * 1024
TYPED_MS: Final = 400
"""Milliseconds without a key after which it is looked at what was written."""


async def submit(visit: Visit) -> None:
    """Show the form."""
    title("Submit", "What would become of a job is said while it is written.")
    first = _copied(visit)
    with ui.element("section").classes("card form"):
        form = _Form(visit, first)
        form.build()
    shown = LiveMarkup(Markup(""))
    shown.props('role="status" aria-live="polite"')
    await form.follow(shown)


def _copied(visit: Visit) -> dict[str, Any]:
    """Return the job that the page's address names; values of others' variables are theirs."""
    job_id, caller = visit.asked("job"), visit.caller
    if not job_id or caller is None:
        return {}
    record = visit.site.view.job(job_id)
    owns = caller.owns(record.user)
    document = shown_spec(record.job.document, whole=owns)
    for name in ("after", "hold", "array", *(() if owns else ("env", "secrets"))):
        document.pop(name, None)
    return written(document)


def written(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job as people write it: a GPU of which nothing is said is one."""
    gpu = document.get("resources", {}).get("gpu")
    if gpu != {}:
        return dict(document)
    return {**document, "resources": {**document["resources"], "gpu": 1}}


class _Form:
    """The fields that most jobs need, and a place for everything else."""

    def __init__(self, visit: Visit, first: Mapping[str, Any]) -> None:
        self._visit = visit
        self._first = dict(first)
        self._shown: LiveMarkup

    def build(self) -> None:
        """Show the fields."""
        first = dict(self._first)
        resources = dict(first.pop("resources", {}))
        gpu = resources.pop("gpu", 1 if not self._first else 0)
        count = gpu if isinstance(gpu, int | float) else gpu.get("count", 1)
        memory = "" if isinstance(gpu, int | float) else gpu.get("memory", "")
        rest = {} if isinstance(gpu, int | float) else dict(gpu)
        for name in ("count", "memory"):
            rest.pop(name, None)
        times = dict(first.pop("time", {}))
        with ui.element("div").classes("line"):
            self._name = _text("Name", first.pop("name", "")).classes("grow")
            self._gpus = ui.number("GPUs", value=count, min=0, max=62, step=1)
            self._gpus.props(f"dense outlined debounce={TYPED_MS}").classes("short")
            self._memory = _text("Memory of each GPU", memory).props('placeholder="all"')
            self._expected = _text("Expected time", times.pop("expected", ""))
            self._expected.props('placeholder="2h"')
        self._run = _area("Command", first.pop("run", ""), 4)
        more = first | {
            name: value
            for name, value in (
                ("resources", resources | ({"gpu": rest} if rest else {})),
                ("time", times),
            )
            if value
        }
        self._more = _area("More fields of a job file (YAML)", _yaml(more), 5)
        with ui.element("div").classes("line"):
            button("Submit job", action(self._visit, Role.USER, self._submit))

    async def follow(self, shown: LiveMarkup) -> None:
        """Say what would become of the job, now and whenever it is changed."""
        self._shown = shown
        for one in (
            self._name,
            self._gpus,
            self._memory,
            self._expected,
            self._run,
            self._more,
        ):
            one.on_value_change(self._plan)
        await self._plan()

    def _written(self) -> list[Mapping[str, Any]]:
        """Return what is written, part by part; raises if it cannot be read."""
        try:
            said = yaml.safe_load(self._more.value or "") or {}
        except yaml.YAMLError as error:
            line = getattr(getattr(error, "problem_mark", None), "line", None)
            where = "" if line is None else f", line {line + 1}"
            raise InvalidInput(f"More fields{where}: this is not YAML; mend it.") from None
        if not isinstance(said, dict):
            raise InvalidInput("More fields: write fields, as in 'priority: 60'.")
        named = {"name": self._name.value or "", "run": self._run.value or ""}
        parts: list[Mapping[str, Any]] = [said, named]
        gpus, memory = self._gpus.value, (self._memory.value or "").strip()
        if gpus:
            count = int(gpus) if float(gpus).is_integer() else float(gpus)
            gpu: dict[str, Any] = {"count": count} | ({"memory": memory} if memory else {})
            parts.append({"resources": {"gpu": gpu}})
        expected = (self._expected.value or "").strip()
        if expected:
            parts.append({"time": {"expected": expected}})
        return parts

    async def _plan(self, *_: Any) -> None:  # noqa: ANN401 - whatever the event carries
        if not (self._name.value or self._run.value):
            self._shown.show(Markup('<p class="soft">Give it a name and a command.</p>'))
            return
        try:
            caller = self._visit.insist(Role.USER)
            job = acting.job_of(*self._written())
            found = await acting.plan(self._visit.site.service, job, caller)
            self._shown.show(plan_words(found))
        except TooManyRequests:
            pass  # the next key asks again
        except InterlaneError as error:
            self._shown.show(Markup('<p class="alert" role="alert">{}</p>').format(error))

    async def _submit(self, caller: Caller) -> None:
        job = acting.job_of(*self._written())
        made = await acting.submit(self._visit.site.service, job, caller)
        ui.navigate.to(f"/jobs/{quote(made.id, safe='')}")


def _text(label: str, value: object) -> ui.input:
    return ui.input(label, value=str(value)).props(f"dense outlined debounce={TYPED_MS}")


def _area(label: str, value: str, rows: int) -> ui.textarea:
    area = ui.textarea(label, value=value).classes("code")
    return area.props(
        f"outlined dense rows={rows} maxlength={WRITTEN_MAX} spellcheck=false "
        f"debounce={TYPED_MS}"
    )


def _yaml(document: Mapping[str, Any]) -> str:
    return plain_yaml(document) if document else ""


def plan_words(found: Mapping[str, Any]) -> Markup:
    """Return what would become of a job, as ``interlane plan`` says it."""
    if found["answer"] == "never":
        said = Markup(
            '<p class="alert" role="alert"><strong>It could never run here.</strong> {} {}</p>'
        )
        return said.format(found["why"], found["remedy"])
    if found["answer"] == "waits":
        ahead = f" Jobs ahead of it: {found['ahead_count']:,}." if found["ahead_count"] else ""
        waits = Markup(
            '<p><span class="state queued"><strong>It would wait</strong></span>: {}: {}{}</p>'
            '<p class="soft">{}</p>'
        )
        return waits.format(found["tier"], found["why"], ahead, found["remedy"] or "")
    spots = ", ".join(
        f"{spot['machine']} GPU {'/'.join(map(str, spot['gpus'])) or 'none'}"
        for spot in found["placement"]
    )
    beside = Markup(", ").join(map(job_link, found["beside"])) if found["beside"] else "nobody"
    slow = found["slowdown"]
    slower = "" if slow is None or slow == 1.0 else f" Predicted slowdown {slow:.2f}."
    return Markup(
        '<p><span class="state succeeded"><strong>It would start now</strong></span> on {}, '
        "beside {}.{}</p>"
    ).format(spots, beside, slower)
