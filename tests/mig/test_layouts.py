from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.mig.check import layout_faults
from interlane.mig.layouts import (
    PLAIN,
    Rules,
    SlicePlace,
    broken_rule,
    is_maximal,
    legal_layouts,
    maximal_layouts,
    multisets,
    undominated,
)
from interlane.mig.plan import GpuPlan, Instance
from interlane.mig.profiles import GpuModel, ProfileKind, gpu_model, gpu_models
from interlane.model import UnknownName

WITH_DOUBLE = Rules(frozenset({ProfileKind.BASE, ProfileKind.DOUBLE_MEMORY}))
EIGHT_UNITS = [name for name, gpu in gpu_models().items() if gpu.grid == 8]
FOUR_PARTS = [name for name, gpu in gpu_models().items() if gpu.compute_slices == 4]


def counted(name: str, rules: Rules = PLAIN) -> tuple[int, int, int, int]:
    legal = sum(1 for _ in legal_layouts(gpu_model(name), rules))
    return (
        legal,
        len(maximal_layouts(name, rules)),
        len(multisets(name, rules)),
        len(undominated(name, rules)),
    )


@pytest.mark.parametrize("name", EIGHT_UNITS)
def test_gpus_of_eight_units_have_the_published_layouts(name: str) -> None:
    assert counted(name) == (298, 19, 14, 12)
    assert counted(name, WITH_DOUBLE) == (723, 78, 38, 28)


@pytest.mark.parametrize("name", FOUR_PARTS)
def test_gpus_of_four_parts_have_five_maximal_layouts(name: str) -> None:
    assert counted(name) == (26, 5, 4, 4)


def test_the_older_rule_leaves_eighteen_layouts_and_no_4g_beside_3g() -> None:
    older = Rules(forbid_4g3g=True)

    found = maximal_layouts("A100-80GB", older)

    assert len(found) == 18
    assert not any({"4g.40gb", "3g.40gb"} <= {slot.profile for slot in one} for one in found)


def test_the_twelve_undominated_multisets_of_an_a100() -> None:
    short = [
        "+".join(profile[0] for profile, count in one.counts.items() for _ in range(count))
        for one in undominated("A100-80GB")
    ]

    assert sorted(short) == sorted(
        [
            "7",
            "4+3",
            "4+2+1",
            "4+1+1+1",
            "3+3",
            "3+2+2",
            "3+2+1+1",
            "3+1+1+1+1",
            "2+2+2+1",
            "2+2+1+1+1",
            "2+1+1+1+1+1",
            "1+1+1+1+1+1+1",
        ]
    )


def as_gpu(gpu: GpuModel, slots: tuple[SlicePlace, ...]) -> GpuPlan:
    return GpuPlan("g", gpu.name, tuple(Instance(one.profile, one.start) for one in slots))


@pytest.mark.parametrize("name", gpu_models())
def test_every_legal_layout_is_accepted_by_the_checker_too(name: str) -> None:
    gpu = gpu_model(name)
    for layout in legal_layouts(gpu, Rules(frozenset(ProfileKind))):
        assert broken_rule(gpu, layout) is None
        assert list(layout_faults(as_gpu(gpu, layout))) == []


@st.composite
def slots_of(draw: st.DrawFn, gpu: GpuModel) -> tuple[SlicePlace, ...]:
    """Draw slots that are often legal, and often not by one step."""
    profiles = st.sampled_from(gpu.profiles)
    found = []
    for profile in draw(st.lists(profiles, max_size=8)):
        near = st.sampled_from(profile.starts) | st.integers(-1, gpu.grid)
        found.append(SlicePlace(draw(near), profile.name))
    return tuple(found)


@pytest.mark.parametrize("name", ["A30-24GB", "A100-80GB", "RTX-PRO-6000-Blackwell-96GB"])
@given(data=st.data())
def test_rules_and_checker_refuse_the_same_layouts(name: str, data: st.DataObject) -> None:
    gpu = gpu_model(name)
    slots = data.draw(slots_of(gpu))

    refused = broken_rule(gpu, slots)
    found = list(layout_faults(as_gpu(gpu, slots)))

    assert (refused is None) == (not found), (refused, found)


@pytest.mark.parametrize("name", ["A30-24GB", "A100-40GB", "RTX-PRO-6000-Blackwell-96GB"])
def test_every_pair_of_slots_is_legal_exactly_if_enumerated(name: str) -> None:
    gpu = gpu_model(name)
    legal = set(legal_layouts(gpu, Rules(frozenset(ProfileKind))))
    slots = [
        SlicePlace(start, profile.name) for profile in gpu.profiles for start in range(gpu.grid)
    ]

    for pair in combinations(slots, 2):
        assert (broken_rule(gpu, pair) is None) == (tuple(sorted(pair)) in legal), pair


BROKEN = {
    "start: 3g.40gb cannot start at 1; it may at 0, 4.": [(1, "3g.40gb")],
    "overlap: 3g.40gb@0 takes 4 units and so overlaps 1g.10gb@3.": [
        (0, "3g.40gb"),
        (3, "1g.10gb"),
    ],
    "4g+3g: a 4g beside a 3g is forbidden by --forbid-4g3g.": [(0, "4g.40gb"), (4, "3g.40gb")],
    "kind: 1g.20gb is a double-memory profile, not allowed here.": [(0, "1g.20gb")],
}


@pytest.mark.parametrize(("sentence", "slots"), list(BROKEN.items()))
def test_an_illegal_layout_is_refused_with_the_rule_that_it_breaks(
    sentence: str, slots: list[tuple[int, str]]
) -> None:
    layout = [SlicePlace(*one) for one in slots]

    assert broken_rule(gpu_model("A100-80GB"), layout, Rules(forbid_4g3g=True)) == sentence


def test_too_many_of_a_profile_break_the_count() -> None:
    four = [SlicePlace(start, "1g.10gb+me") for start in (0, 1)]

    assert broken_rule(gpu_model("A100-80GB"), four) == (
        "count: 2 x 1g.10gb+me, but a GPU holds at most 1."
    )


def test_media_engines_are_not_given_twice() -> None:
    a30, rtx = gpu_model("A30-24GB"), gpu_model("RTX-PRO-6000-Blackwell-96GB")

    both = broken_rule(a30, [SlicePlace(0, "1g.6gb+me"), SlicePlace(2, "2g.12gb+me")])
    beside_all = broken_rule(rtx, [SlicePlace(0, "1g.24gb+me.all"), SlicePlace(3, "1g.24gb")])
    without = broken_rule(rtx, [SlicePlace(0, "1g.24gb+me.all"), SlicePlace(3, "1g.24gb-me")])

    assert both == (
        "media: 1g.6gb+me and 2g.12gb+me, but one instance a GPU has the media extension."
    )
    assert beside_all == (
        "media: 1g.24gb+me.all takes every media engine, so 1g.24gb cannot stand beside it."
    )
    assert without is None


def test_nothing_fits_beside_a_maximal_layout_and_something_beside_any_other() -> None:
    gpu = gpu_model("A100-80GB")
    maximal = set(maximal_layouts("A100-80GB"))

    assert all(is_maximal(gpu, one) == (one in maximal) for one in legal_layouts(gpu))


def test_unknown_names_are_refused_with_what_is_known() -> None:
    with pytest.raises(UnknownName, match="GPU model 'A100-80' is not known; did you mean"):
        gpu_model("A100-80")

    assert "profile of A100-80GB '5g' is not known" in str(
        broken_rule(gpu_model("A100-80GB"), [SlicePlace(0, "5g")])
    )
