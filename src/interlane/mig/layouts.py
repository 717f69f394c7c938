"""Layouts: which instances stand where on one GPU.

Nothing is listed by hand.  The rules are few, and every layout follows from them:

* start    an instance begins where its profile may begin
* overlap  no two instances share a unit
* count    no more instances of a profile than it allows
* media    one instance a GPU has the media extension; beside ``+me.all``, which takes every
           media engine, all others must do without (``-me``)
* 4g+3g    (a switch) no 4g beside a 3g, as older drivers and MIG-serving had it

An optimiser needs neither starts nor all layouts.  Instances of one profile are
interchangeable, so it needs the multisets of maximal layouts, and of these only such as are
not contained in another: 12 of the A100's 298.  Each keeps a verifier, a layout that has it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from interlane.mig.profiles import BASE_ONLY, GpuModel, MigProfile, ProfileKind, gpu_model
from interlane.model import UnknownName


@dataclass(frozen=True, slots=True, order=True)
class SlicePlace:
    """A place for one instance."""

    start: int
    profile: str

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


Layout = tuple[SlicePlace, ...]
"""Slots in the order of their starts."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be used of what a GPU offers."""

    kinds: frozenset[ProfileKind] = BASE_ONLY
    forbid_4g3g: bool = False


PLAIN: Final = Rules()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A multiset of profiles that one GPU can hold, with a layout that has it."""

    counts: Mapping[str, int]
    verifier: Layout

    def __str__(self) -> str:
        return "+".join(
            name if count == 1 else f"{count}x{name}" for name, count in self.counts.items()
        )


# -- the rules ------------------------------------------------------------------------


def broken_rule(
    gpu: GpuModel, layout: Iterable[SlicePlace], rules: Rules | None = None
) -> str | None:
    """Return the sentence of the first rule that a layout breaks, or None if it is legal.

    Without ``rules`` every profile of the GPU may be used.
    """
    slots = sorted(layout)
    known = {profile.name: profile for profile in gpu.profiles}
    for slot in slots:
        if slot.profile not in known:
            return str(UnknownName(f"profile of {gpu.name}", slot.profile, known))
    placed = [(slot, known[slot.profile]) for slot in slots]
    return (
        _wrong_kind(placed, rules)
        or _wrong_start(placed)
        or _overlap(placed)
        or _too_many(placed)
        or _media(placed)
        or (_four_beside_three(placed) if rules is not None and rules.forbid_4g3g else None)
    )


_Placed = list[tuple[SlicePlace, MigProfile]]


def _wrong_kind(placed: _Placed, rules: Rules | None) -> str | None:
    for _, profile in placed:
        if rules is not None and profile.kind not in rules.kinds:
            return f"kind: {profile.name} is a {profile.kind.value} profile, not allowed here."
    return None


def _wrong_start(placed: _Placed) -> str | None:
    for slot, profile in placed:
        if slot.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            return f"start: {profile.name} cannot start at {slot.start}; it may at {starts}."
    return None


def _overlap(placed: _Placed) -> str | None:
    for (left, profile), (right, _) in pairwise(placed):
        if left.start + profile.size > right.start:
            return f"overlap: {left} takes {profile.size} units and so overlaps {right}."
    return None


def _too_many(placed: _Placed) -> str | None:
    counts = Counter(slot.profile for slot, _ in placed)
    for _, profile in placed:
        if counts[profile.name] > profile.max_count:
            return (
                f"count: {counts[profile.name]} x {profile.name}, "
                f"but a GPU holds at most {profile.max_count}."
            )
    return None


def _media(placed: _Placed) -> str | None:
    having = [
        profile
        for _, profile in placed
        if profile.kind in (ProfileKind.MEDIA, ProfileKind.MEDIA_ALL)
    ]
    if len(having) > 1:
        names = " and ".join(profile.name for profile in having)
        return f"media: {names}, but one instance a GPU has the media extension."
    if having and having[0].kind is ProfileKind.MEDIA_ALL:
        for _, profile in placed:
            if profile.kind not in (ProfileKind.MEDIA_ALL, ProfileKind.NO_MEDIA):
                return (
                    f"media: {having[0].name} takes every media engine, "
                    f"so {profile.name} cannot stand beside it."
                )
    return None


def _four_beside_three(placed: _Placed) -> str | None:
    sizes = {profile.compute_slices for _, profile in placed}
    if {3, 4} <= sizes:
        return "4g+3g: a 4g beside a 3g is forbidden by --forbid-4g3g."
    return None


# -- enumeration ----------------------------------------------------------------------


def legal_layouts(gpu: GpuModel, rules: Rules = PLAIN) -> Iterator[Layout]:
    """Yield every legal layout, the empty one included."""
    profiles = gpu.of_kinds(rules.kinds)
    # Walk the grid from the left: at every unit, leave it free or place what may begin there.
    open_walks: list[tuple[int, Layout]] = [(0, ())]
    while open_walks:
        unit, layout = open_walks.pop()
        if unit == gpu.grid:
            yield layout
            continue
        open_walks.append((unit + 1, layout))
        for profile in profiles:
            if unit in profile.starts:
                longer = (*layout, SlicePlace(unit, profile.name))
                if broken_rule(gpu, longer, rules) is None:
                    open_walks.append((unit + profile.size, longer))


def is_maximal(gpu: GpuModel, layout: Layout, rules: Rules = PLAIN) -> bool:
    """Tell whether no further instance fits."""
    return not any(
        broken_rule(gpu, (*layout, SlicePlace(start, profile.name)), rules) is None
        for profile in gpu.of_kinds(rules.kinds)
        for start in profile.starts
    )


@cache
def maximal_layouts(gpu_name: str, rules: Rules = PLAIN) -> tuple[Layout, ...]:
    """Return the layouts of a GPU model to which nothing can be added, in a fixed order."""
    gpu = gpu_model(gpu_name)
    return tuple(
        sorted(layout for layout in legal_layouts(gpu, rules) if is_maximal(gpu, layout, rules))
    )


@cache
def multisets(gpu_name: str, rules: Rules = PLAIN) -> tuple[Configuration, ...]:
    """Return the distinct multisets of maximal layouts, largest profiles first."""
    return configurations_of(gpu_model(gpu_name), maximal_layouts(gpu_name, rules))


@cache
def undominated(gpu_name: str, rules: Rules = PLAIN) -> tuple[Configuration, ...]:
    """Return the multisets that are not contained in another: all an optimiser needs."""
    return without_dominated(multisets(gpu_name, rules))


def configurations_of(gpu: GpuModel, layouts: Iterable[Layout]) -> tuple[Configuration, ...]:
    """Return one configuration for each multiset among some layouts."""
    rank = {
        profile.name: (-profile.compute_slices, -profile.memory_slices, profile.name)
        for profile in gpu.profiles
    }
    found: dict[tuple[str, ...], Layout] = {}
    for layout in layouts:
        names = tuple(sorted((slot.profile for slot in layout), key=rank.__getitem__))
        found.setdefault(names, layout)
    by_rank = sorted(found, key=lambda names: [rank[name] for name in names])
    return tuple(Configuration(dict(Counter(names)), found[names]) for names in by_rank)


def without_dominated(listed: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Leave out configurations that are contained in another one."""
    sizes = [(one, Counter(one.counts)) for one in listed]
    return tuple(one for one, mine in sizes if not any(mine < theirs for _, theirs in sizes))
