"""Traces: upload one, and read what is in it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from markupsafe import Markup
from nicegui import events, ui

from interlane.live.auth import Caller
from interlane.model import InvalidInput
from interlane.pages.frame import LiveMarkup, button, title, worked
from interlane.pages.reports import PATH, UPLOAD_BYTES_MAX, rendered
from interlane.pages.site import Visit

LIMIT_S: Final = 300.0
ENDINGS: Final = (".csv", ".csv.gz", ".parquet", ".txt")
MIB: Final = 1 << 20


async def traces(visit: Visit) -> None:
    """Take a trace in, and show the report on it."""
    title("Traces", "Upload a trace: how jobs arrive, run, wait and recur, and what is odd.")
    with ui.element("section").classes("card"):
        what = f"A file ({', '.join(ENDINGS)}; {UPLOAD_BYTES_MAX // MIB} MiB at most)"
        reads = Markup("<p>{} in any format that <code>trace report</code> reads.</p>")
        LiveMarkup(reads.format(what))

        async def take(event: events.UploadEventArguments) -> None:
            async def report(_: Caller) -> Markup:
                return _framed(await _reported(visit, event), event.file.name)

            await worked(visit, shown, f"Reading {event.file.name} ...", report)()

        upload = ui.upload(
            max_file_size=UPLOAD_BYTES_MAX,
            auto_upload=True,
            on_upload=take,
            on_rejected=lambda: ui.notify(f"Not taken: {what}.", type="negative"),
        )
        upload.props(f'accept="{",".join(ENDINGS)}"').classes("away")
        # The framework's own box nests one control in another; this button stands for it.
        button("Choose a trace").on(
            "click", js_handler=f"() => getElement({upload.id}).pickFiles()"
        )
    shown = LiveMarkup(Markup(""))


async def _reported(visit: Visit, event: events.UploadEventArguments) -> str:
    """Make a report; return the address of its page."""
    ending = next((one for one in ENDINGS if event.file.name.lower().endswith(one)), None)
    if ending is None:
        raise InvalidInput(f"Files end in {', '.join(ENDINGS)}; {event.file.name!r} does not.")
    site = visit.site
    with site.away.room(), TemporaryDirectory(dir=site.service.scratch) as folder:
        path = Path(folder) / f"trace{ending}"
        await event.file.save(path)
        page = await site.away.run_in_room(LIMIT_S, rendered, path, event.file.name)
    return f"{PATH}/{visit.site.reports.add(page)}"


def _framed(address: str, name: str) -> Markup:
    return Markup(
        '<p><a href="{}" target="_blank" rel="noopener">Open the report by itself</a></p>'
        '<iframe class="report" src="{}" sandbox="allow-scripts" title="Report on {}"></iframe>'
    ).format(address, address, name)
