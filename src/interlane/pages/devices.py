"""The device map: every GPU to scale, with what holds it."""

from collections.abc import Iterable
from typing import Any, Final

from markupsafe import Markup

from interlane.model import MILLI
from interlane.pages import words
from interlane.pages.frame import live, title
from interlane.pages.site import Site, Visit
from interlane.server.picture import gpu_documents
from interlane.server.record import HOLDING

BAR_H: Final = 30
MEMORY_H: Final = 10
HUES: Final = 8
"""Colours of the style sheet; a job keeps its own."""


async def devices(visit: Visit) -> None:
    """Show the devices, and who holds what of them."""
    title("Devices", "Every GPU to scale: above, shares of its compute; below, its memory.")
    await live(visit, lambda: _map(visit.site))


def _map(site: Site) -> Markup:
    holders = [one for one in site.driver.open_records() if one.state in HOLDING]
    shown = gpu_documents(site.driver.cluster, holders, emulated=site.service.emulated)
    machines: dict[str, list[dict[str, Any]]] = {}
    for device in shown:
        machines.setdefault(device["machine"], []).append(device)
    cards = [_machine(name, found) for name, found in machines.items()]
    return Markup('<div class="stack">{}</div>').format(Markup("").join(cards))


def _machine(name: str, found: Iterable[dict[str, Any]]) -> Markup:
    devices = list(found)
    kind = "emulated" if devices[0]["emulated"] else devices[0]["type"]
    return Markup(
        '<section class="card"><h2>{} <span class="soft">{}, {}</span></h2>{}</section>'
    ).format(
        name,
        words.count(len(devices), "GPU"),
        kind,
        Markup("").join(map(_device, devices)),
    )


def _device(device: dict[str, Any]) -> Markup:
    told = f"GPU {device['gpu']}: {words.percent(device['held_milli'] / MILLI)} allocated"
    jobs = device["jobs"]
    compute = _bar(
        [(job["id"], job["milli"], words.percent(job["milli"] / MILLI)) for job in jobs],
        MILLI,
        0,
        BAR_H,
    )
    memory = _bar(
        [(job["id"], job["memory_mib"], words.memory(job["memory_mib"])) for job in jobs],
        device["memory_mib"],
        BAR_H + 4,
        MEMORY_H,
    )
    return Markup(
        '<div class="device"><div class="label">GPU {}<span class="soft">{}, {} of {}</span>'
        '</div><svg class="gpu" height="{}" role="img" aria-label="{}">{}{}</svg></div>'
    ).format(
        device["gpu"],
        words.percent(device["held_milli"] / MILLI),
        words.memory(device["held_memory_mib"]),
        words.memory(device["memory_mib"]),
        BAR_H + MEMORY_H + 4,
        told,
        compute,
        memory,
    )


def _bar(parts: list[tuple[str, float, str]], total: float, top: int, height: int) -> Markup:
    drawn = [Markup('<rect class="free" y="{}" width="100%" height="{}"/>').format(top, height)]
    at = 0.0
    for name, size, told in parts:
        x, width = 100 * at / total, 100 * size / total
        at += size
        label = (
            Markup('<text x="{:.2f}%" y="{}" dx="6">{}</text>').format(
                x, top + 19, name[: int(width)]
            )
            if height >= BAR_H
            else Markup("")
        )
        drawn.append(
            Markup(
                '<a href="/jobs/{}"><title>{} {}</title><rect class="hue{}" x="{:.2f}%" y="{}" '
                'width="{:.2f}%" height="{}"/>{}</a>'
            ).format(name, name, told, sum(name.encode()) % HUES, x, top, width, height, label)
        )
    return Markup("").join(drawn)
