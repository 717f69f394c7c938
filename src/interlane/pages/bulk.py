"""What is done to several jobs at once: cancelled, held, released, run again, moved up."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from nicegui import ui

from interlane.live.auth import Caller, Role
from interlane.live.http import acting
from interlane.model import InterlaneError, InvalidInput
from interlane.pages import words
from interlane.pages.frame import Handler, action
from interlane.pages.site import Visit

NAMED_MAX: Final = 5
"""Jobs that a question names."""

PRIORITY_MAX: Final = 100

OneJob = Callable[[str, Caller], Awaitable[Any]]
Picked = Callable[[], Sequence[str]]


def bulk_bar(visit: Visit, picked: Picked) -> None:
    """Show what can be done to the jobs that are picked; everybody's own, all for admins."""
    the = visit.site.service

    def each(done: str, act: OneJob) -> Handler:
        async def all_of_them(caller: Caller) -> None:
            await _to_each(visit, picked(), caller, done, act)

        return action(visit, Role.USER, all_of_them)

    with ui.element("div").classes("line bulk").props('role="group" aria-label="Picked jobs"'):
        _canceller(visit, picked)
        _plain("Hold", each("held", lambda one, who: acting.hold(the, one, who, held=True)))
        _plain(
            "Release", each("released", lambda one, who: acting.hold(the, one, who, held=False))
        )
        _plain("Run again", each("run again", lambda one, who: acting.run_again(the, one, who)))
        value = ui.number("Priority", value=50, min=0, max=PRIORITY_MAX, precision=0)
        value.props("dense outlined").classes("short")

        async def set_priority(one: str, caller: Caller) -> None:
            await acting.change(the, one, caller, {"priority": int(value.value or 0)})

        _plain("Set priority", each("changed", set_priority))


def _plain(said: str, handler: Handler) -> None:
    ui.button(said, on_click=handler).props("dense no-caps outline")


def _canceller(visit: Visit, picked: Picked) -> None:
    """Show the button that cancels, and asks first which jobs are meant."""
    chosen: list[str] = []

    async def one_cancelled(one: str, caller: Caller) -> None:
        await acting.cancel(visit.site.service, one, caller, visit.address)

    async def cancel(caller: Caller) -> None:
        dialog.close()
        await _to_each(visit, chosen, caller, "cancelled", one_cancelled)

    with ui.dialog() as dialog, ui.card():
        question = ui.label()
        with ui.element("div").classes("line"):
            ui.button("Keep", on_click=dialog.close).props("dense no-caps flat")
            sure = ui.button("Cancel jobs", on_click=action(visit, Role.USER, cancel))
            sure.props("dense no-caps unelevated color=negative")

    async def ask(_: Caller) -> None:
        chosen[:] = _some(picked())
        named = ", ".join(chosen[:NAMED_MAX]) + (" ..." if len(chosen) > NAMED_MAX else "")
        question.text = f"Cancel {words.count(len(chosen), 'job')}: {named}?"
        dialog.open()

    _plain("Cancel", action(visit, Role.USER, ask))


def _some(picked: Sequence[str]) -> list[str]:
    if not picked:
        raise InvalidInput("No job is picked; tick those that are meant.")
    return list(picked)


async def _to_each(
    visit: Visit, jobs: Sequence[str], caller: Caller, done: str, act: OneJob
) -> None:
    """Do something to every job, and say what came of it; one refusal stops no others."""
    refused: list[str] = []
    for one in _some(jobs):
        try:
            await act(one, caller)
        except InterlaneError as error:
            refused.append(str(error))
    count = len(jobs) - len(refused)
    if count:
        ui.notify(f"{words.count(count, 'job')} {done}.", type="positive")
    if refused:
        more = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
        ui.notify(f"{refused[0]}{more}", type="negative", multi_line=True)
