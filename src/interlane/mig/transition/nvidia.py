"""Changes of GPUs as ``nvidia-smi`` commands.

A slot is a GPU instance with one compute instance over all of it.  It is created at its place
(``-cgi PROFILE_ID:START -C``) and destroyed compute instance first (``-dci``, then ``-dgi``).
Instances are numbered by the driver, so what is destroyed must be looked up by its place.
Services are no business of nvidia-smi: a command of the operator's starts and drains them.

Commands follow NVIDIA's documentation.  They were tried on a program that stands in for
nvidia-smi, not on a GPU.
"""

import re
from collections.abc import Iterable
from typing import Final

from interlane.mig.layouts import SlicePlace
from interlane.mig.profiles import gpu_model
from interlane.mig.transition.steps import TransitionStep, Verb

PROGRAM: Final = "nvidia-smi"
ID: Final = "$GI"
"""Stands for the number of a GPU instance that only the driver knows."""


def device(gpu: str) -> str:
    """Return a GPU as nvidia-smi names it: ``gpu-3`` is index 3, UUIDs stay."""
    found = re.fullmatch(r"gpu-(\d+)", gpu)
    return found[1] if found else gpu


def mode_command(gpu: str, *, sliced: bool) -> list[str]:
    """Return the command that lets a GPU be cut up, or not."""
    return [PROGRAM, "-i", device(gpu), "-mig", "1" if sliced else "0"]


def reset_command(gpu: str) -> list[str]:
    """Return the command that resets a GPU."""
    return [PROGRAM, "-i", device(gpu), "--gpu-reset"]


def create_command(gpu: str, model: str, place: SlicePlace) -> list[str]:
    """Return the command that makes a slot."""
    profile = gpu_model(model).profile(place.profile)
    return [*_mig(gpu), "-cgi", f"{profile.profile_id}:{place.start}", "-C"]


def complete_command(gpu: str, number: str) -> list[str]:
    """Return the command that completes a slot of which only the GPU instance is there."""
    return [*_mig(gpu), "-cci", "-gi", number]


def destroy_commands(gpu: str, number: str = ID) -> tuple[list[str], list[str]]:
    """Return the commands that destroy a slot: its compute instance, its GPU instance."""
    return [*_mig(gpu), "-dci", "-gi", number], [*_mig(gpu), "-dgi", "-gi", number]


def _mig(gpu: str) -> list[str]:
    return [PROGRAM, "mig", "-i", device(gpu)]


def commands(step: TransitionStep) -> list[list[str]]:
    """Return what nvidia-smi must do for a step; nothing for those of services."""
    if step.verb is Verb.MAKE:
        return [create_command(step.gpu, step.model, step.instance.slot)]
    if step.verb is Verb.DESTROY:
        return [*destroy_commands(step.gpu)]
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
