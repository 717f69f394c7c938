"""Steps as ``nvidia-smi mig`` commands, and what ``nvidia-smi mig -lgi`` lists.

A slot is a GPU instance with one compute instance over all of it.  It is created at its place
(``-cgi PROFILE_ID:START -C``) and destroyed compute instance first (``-dci``, then ``-dgi``).
Instances are numbered by the driver, so what is destroyed must be looked up by its place.
Services are no business of nvidia-smi: a command of the operator's starts and drains them.

Commands and listing follow NVIDIA's documentation.  They were tried on a program that stands
in for nvidia-smi, not on a GPU.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from interlane.mig.layouts import SlicePlace
from interlane.mig.plan import Instance
from interlane.mig.profiles import gpu_model
from interlane.mig.transition.steps import TransitionStep, Verb

PROGRAM: Final = "nvidia-smi"
ID: Final = "$GI"
"""Stands for the number of a GPU instance that only the driver knows."""


NOTHING: Final = ("No MIG-enabled devices", "No GPU instances")
"""What nvidia-smi says where there is nothing to list."""


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """A GPU instance as the driver lists it."""

    gpu: str
    """Index of the GPU."""
    profile: str
    number: str
    start: int


_ROW: Final = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+MIG\s+(?P<profile>\S+)\s+\d+\s+(?P<number>\d+)\s+"
    r"(?P<start>\d+):(?P<size>\d+)\s*\|"
)


def listed(text: str) -> list[ListedInstance]:
    """Read the listing of ``nvidia-smi mig -lgi``."""
    rows = (_ROW.match(line) for line in text.splitlines())
    return [
        ListedInstance(r["gpu"], r["profile"], r["number"], int(r["start"])) for r in rows if r
    ]


def list_command(gpu: str | None) -> list[str]:
    """Return the command that lists the GPU instances of one GPU, or of all."""
    return [PROGRAM, "mig", *(() if gpu is None else ("-i", device(gpu))), "-lgi"]


def device(gpu: str) -> str:
    """Return a GPU as nvidia-smi names it: ``gpu-3`` is index 3, UUIDs stay."""
    found = re.fullmatch(r"gpu-(\d+)", gpu)
    return found[1] if found else gpu


def commands(step: TransitionStep, number: str = ID) -> list[list[str]]:
    """Return what nvidia-smi must do for a step; nothing for those of services."""
    mig = [PROGRAM, "mig", "-i", device(step.gpu)]
    slot = step.instance.slot
    if step.verb is Verb.MAKE:
        profile = gpu_model(step.model).profile(slot.profile)
        return [[*mig, "-cgi", f"{profile.profile_id}:{slot.start}", "-C"]]
    if step.verb is Verb.DESTROY:
        return [[*mig, "-dci", "-gi", number], [*mig, "-dgi", "-gi", number]]
    return []


def service_command(step: TransitionStep, program: Iterable[str]) -> list[str]:
    """Return the operator's command that starts or drains a service in a slot."""
    one = step.instance
    return [
        *program,
        step.verb.value,
        one.service,
        device(step.gpu),
        one.profile,
        str(one.start),
        str(one.batch),
        str(one.processes),
    ]


def observed(
    gpu: str, rows: Iterable[ListedInstance], expected: Iterable[Instance]
) -> list[Instance]:
    """Return the instances of a GPU; services as expected, where the slots still are."""
    known = {one.slot: one for one in expected}
    slots = [
        SlicePlace(row.start, row.profile)
        for row in rows
        if not gpu.isdigit() or row.gpu == gpu
    ]
    return sorted(
        (known.get(slot, Instance(slot.profile, slot.start)) for slot in slots),
        key=lambda one: one.start,
    )
