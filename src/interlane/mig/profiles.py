"""What each GPU model can be cut into: profiles and their legal places, as shipped data.

A GPU is a grid of placement units.  A profile (``3g.40gb``) takes ``size`` units from one of
its ``starts``.  The events and where each comes from are in ``data/profiles.json``; adding a
GPU model means adding it there and nothing else.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from interlane.model import UnknownName


class ProfileKind(StrEnum):
    """What sets a profile apart from the plain one of its size."""

    BASE = "base"
    DOUBLE_MEMORY = "double-memory"
    MEDIA = "media"
    MEDIA_ALL = "media-all"
    NO_MEDIA = "no-media"
    GRAPHICS = "graphics"


BASE_ONLY: Final = frozenset({ProfileKind.BASE})


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way to cut an instance out of a GPU; None where no public figure was found."""

    name: str
    kind: ProfileKind
    profile_id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    """Units at which an instance may begin."""
    size: int
    """Units that an instance takes."""
    max_count: int
    """Instances of this profile that one GPU may hold."""
    memory_mib: int
    sm: int | None
    copy_engines: int | None
    nvdec: int | None
    nvenc: int | None
    jpeg: int | None
    ofa: int | None


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model and the profiles that it offers."""

    name: str
    arch: str
    pci: tuple[str, ...]
    grid: int
    """Placement units."""
    compute_slices: int
    profiles: tuple[MigProfile, ...]
    sources: Mapping[str, str]
    notes: str

    def profile(self, name: str) -> MigProfile:
        """Return the profile of this name."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise UnknownName(
            f"profile of {self.name}", name, [profile.name for profile in self.profiles]
        )

    def of_kinds(self, kinds: Iterable[ProfileKind]) -> tuple[MigProfile, ...]:
        """Return the profiles of some kinds, in the order of the data."""
        wanted = frozenset(kinds)
        return tuple(profile for profile in self.profiles if profile.kind in wanted)

    @property
    def whole(self) -> MigProfile:
        """The plain profile that takes the whole GPU."""
        return max(self.of_kinds(BASE_ONLY), key=lambda profile: profile.size)

    @property
    def smallest(self) -> MigProfile:
        """The plain profile of which most fit."""
        return max(self.of_kinds(BASE_ONLY), key=lambda profile: profile.max_count)


@cache
def gpu_models() -> Mapping[str, GpuModel]:
    """Return every GPU model that we know, by name."""
    text = files("interlane.mig").joinpath("data/profiles.json").read_text(encoding="utf-8")
    listed = json.loads(text)["gpus"]
    return MappingProxyType({name: _model(name, events) for name, events in listed.items()})


def gpu_model(name: str) -> GpuModel:
    """Return the GPU model of this name."""
    known = gpu_models()
    if name not in known:
        raise UnknownName("GPU model", name, known)
    return known[name]


def _model(name: str, events: Mapping[str, Any]) -> GpuModel:
    return GpuModel(
        name,
        events["arch"],
        tuple(events["pci"]),
        events["grid"],
        events["compute_slices"],
        tuple(_profile(profile) for profile in events["profiles"]),
        MappingProxyType(dict(events["sources"])),
        events["notes"],
    )


def _profile(events: Mapping[str, Any]) -> MigProfile:
    return MigProfile(
        **{**events, "kind": ProfileKind(events["kind"]), "starts": tuple(events["starts"])}
    )
