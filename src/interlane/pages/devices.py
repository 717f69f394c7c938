"""The device map: every GPU to scale, what is held of it, what is used, and by whom."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from interlane.live.functions.colocation import ComparedSlowdown
from interlane.live.functions.status import FunctionStatus
from interlane.live.measure.occupancy import DeviceUse
from interlane.model import MILLI, JobId
from interlane.pages import words
from interlane.pages.frame import job_link, live, table, title
from interlane.pages.site import Site, Visit

SHARE_H: Final = 28
MEMORY_H: Final = 12
GAP: Final = 4
HUES: Final = 8
"""Colours of the style sheet; a job keeps its own."""

BYTES_PER_MIB: Final = 1 << 20


async def devices(visit: Visit) -> None:
    """Show the devices, and who holds what of them."""
    title("Devices", "Every GPU to scale: shares that are held, memory that is booked, lanes.")

    async def shown() -> Markup:
        # Functions live on the server's loop; devices are looked at in a thread.
        guests = guests_of(visit.site.view.functions.statuses())
        return await asyncio.to_thread(_map, visit.site, guests)

    await live(visit, shown, every_s=1.0)


@dataclass(frozen=True, slots=True)
class Guest:
    """A function's replica on a device."""

    function: str
    state: str
    memory_mib: int


Guests = Mapping[str, Sequence[Guest]]
"""Replicas by the device that they are on."""


def guests_of(statuses: Sequence[FunctionStatus]) -> Guests:
    """Return the replicas of all functions."""
    found: dict[str, list[Guest]] = {}
    for one in statuses:
        memory_mib = one.terms.memory_mib
        for replica in one.replicas:
            guest = Guest(one.name, replica.state, memory_mib)
            found.setdefault(replica.device, []).append(guest)
    return found


def _map(site: Site, guests: Guests) -> Markup:
    machines: dict[str, list[DeviceUse]] = {}
    for device in site.view.devices():
        machines.setdefault(device.machine, []).append(device)
    cards = [_LEGEND, *(_machine(name, found, guests) for name, found in machines.items())]
    return Markup('<div class="stack">{}</div>').format(Markup("").join(cards))


_LEGEND: Final = Markup(
    '<p class="soft keys"><span>Upper bar: share of the GPU that each job holds; outlined '
    "while it has its lane.</span> <span>Lower bar: memory that each holds; dashed: replicas "
    "of functions.</span> <span>Grey is free.</span></p>"
)


def _machine(name: str, found: Sequence[DeviceUse], guests: Guests) -> Markup:
    drawn = [_device(one, guests.get(f"{one.machine}/{one.gpu}", ())) for one in found]
    kind = "emulated" if found[0].emulated else found[0].type
    return Markup(
        '<section class="card"><h2>{} <span class="soft">{}, {}</span></h2>{}</section>'
    ).format(name, words.count(len(found), "GPU"), kind, Markup("").join(drawn))


def _device(device: DeviceUse, guests: Sequence[Guest]) -> Markup:
    return Markup(
        '<div class="device"><div class="label"><strong>GPU {}</strong>{}{}</div>'
        "<div>{}{}</div></div>"
    ).format(
        device.gpu,
        _type(device),
        _figures(device, guests),
        _picture(device, guests),
        tenants_table(device),
    )


def _type(device: DeviceUse) -> Markup:
    """Return the type of a device whose machine's heading does not say it."""
    is_said = not device.emulated or device.type == "EMULATED"
    return Markup("") if is_said else Markup('<span class="soft">{}</span>').format(device.type)


def _figures(device: DeviceUse, guests: Sequence[Guest]) -> Markup:
    busy = words.UNKNOWN if device.busy is None else words.percent(device.busy)
    whole = words.memory(device.memory_mib)
    told = [
        f"held {words.percent(device.held_milli / MILLI)}, busy {busy}",
        f"{words.memory(device.held_memory_mib)} of {whole} held",
    ]
    if device.is_shared:
        told.append(f"{words.memory(device.booked_bytes / BYTES_PER_MIB)} booked by its daemon")
    if device.lanes:
        lanes = words.count(len(device.lanes), "lane")
        told.append(f"{lanes}, {device.switches_per_s:.1f} switches/s")
    if guests:
        told.append(words.count(len(guests), "replica"))
    return Markup("").join(Markup('<span class="soft">{}</span>').format(one) for one in told)


# -- the picture ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A job's part of a bar."""

    job: JobId
    size: float
    told: str


def _picture(device: DeviceUse, guests: Sequence[Guest]) -> Markup:
    shares = [
        _Part(one.id, one.milli, f"holds {words.percent(one.milli / MILLI)}")
        for one in device.jobs
    ]
    memory = [
        _Part(one.id, one.memory_mib, f"holds {words.memory(one.memory_mib)}")
        for one in device.jobs
    ]
    holders = {lane.holder for lane in device.lanes if lane.holder is not None}
    told = f"GPU {device.gpu}: {_told(device)}"
    height = SHARE_H + GAP + MEMORY_H
    return Markup(
        '<svg class="gpu" height="{}" role="group" aria-label="{}">{}{}{}</svg>'
    ).format(
        height,
        told,
        _bar(shares, MILLI, 0, SHARE_H, holders),
        _bar(memory, device.memory_mib, SHARE_H + GAP, MEMORY_H, holders),
        _replicas(guests, sum(part.size for part in memory), device.memory_mib),
    )


def _replicas(guests: Sequence[Guest], at_mib: float, total_mib: float) -> Markup:
    """Return the replicas in the memory that jobs leave over."""
    drawn = []
    for one in guests:
        told = f"{one.function}, {one.state}, {words.memory(one.memory_mib)}"
        drawn.append(
            Markup(
                '<a href="/functions" aria-label="{}"><title>{}</title><rect class="replica" '
                'x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"/></a>'
            ).format(
                told,
                told,
                100 * at_mib / total_mib,
                SHARE_H + GAP,
                100 * one.memory_mib / total_mib,
                MEMORY_H,
            )
        )
        at_mib += one.memory_mib
    return Markup("").join(drawn)


def _told(device: DeviceUse) -> str:
    if not device.jobs:
        return "free"
    return ", ".join(f"{one.id} {words.percent(one.milli / MILLI)}" for one in device.jobs)


def _bar(
    parts: Sequence[_Part], total: float, top: int, height: int, holders: set[JobId]
) -> Markup:
    drawn = [Markup('<rect class="free" y="{}" width="100%" height="{}"/>').format(top, height)]
    at = 0.0
    for part in parts:
        x, width = 100 * at / total, 100 * part.size / total
        at += part.size
        drawn.append(
            Markup(
                '<a href="/jobs/{}" aria-label="{}"><title>{}</title>'
                '<rect class="{}{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"/>{}</a>'
            ).format(
                quote(part.job, safe=""),
                told := f"{part.job} {part.told}",
                told,
                hue(part.job),
                " holder" if part.job in holders else "",
                x,
                top,
                width,
                height,
                _name(part, x, width, top) if height == SHARE_H else "",
            )
        )
    return Markup("").join(drawn)


def _name(part: _Part, x: float, width: float, top: int) -> Markup:
    """Return a job's name, as much as there is room for."""
    # A picture of its own cuts off what does not fit, however wide the page is.
    return Markup(
        '<svg x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"><text x="7" y="18">{}</text></svg>'
    ).format(x, top, width, SHARE_H, part.job)


def hue(job: str) -> str:
    """Return the colour of a job, as the style sheet names it."""
    return f"hue{sum(job.encode()) % HUES}"


# -- who is there ---------------------------------------------------------------------


def tenants_table(device: DeviceUse) -> Markup:
    """Return how the jobs of a device get on beside each other."""
    if not device.jobs:
        return Markup("")
    rows = [
        (
            job_link(one.id),
            one.now,
            words.UNKNOWN if one.lane is None else f"lane {one.lane}",
            words.UNKNOWN if one.used_bytes is None else _mib(one.used_bytes),
            slowdown(None if one.use is None else one.use.predicted_slowdown),
            slowdown(None if one.use is None else one.use.measured_slowdown),
        )
        for one in device.jobs
    ]
    head = ("job", "now", "lane", "memory used", "predicted", "measured slowdown")
    return table(head, rows, f"Jobs of GPU {device.gpu}", "", (3, 4, 5))


def beside_table(compared: Sequence[ComparedSlowdown], who: str) -> Markup:
    """Return what was measured of somebody beside others; nothing if nothing was."""
    rows = [
        (
            ", ".join(one.beside),
            one.device,
            *map(slowdown, (one.predicted, one.measured, one.limit)),
        )
        for one in compared
    ]
    head = (f"beside {who}", "device", "predicted", "measured slowdown", "limit")
    return table(head, rows, f"Slowdown by {who}", "", (2, 3, 4)) if rows else Markup("")


def _mib(size_bytes: float) -> str:
    return words.memory(size_bytes / BYTES_PER_MIB)


def slowdown(factor: float | None) -> str:
    """Return a slowdown as people read it."""
    return words.UNKNOWN if factor is None else f"{factor:.2f} x"
