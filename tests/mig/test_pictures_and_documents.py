from dataclasses import replace

import pytest

from interlane.mig.documents import plan_document, read_state
from interlane.mig.draw import svg, terminal
from interlane.mig.match import matched
from interlane.mig.parted import parted_document
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan
from interlane.model import InvalidFile

A100 = "A100-80GB"
HALF = GpuPlan("gpu-0", A100, (Instance("3g.40gb", 4, "a", 8, 2, 30.0, 10.0),))
SMALL = GpuPlan("gpu-1", A100, (Instance("1g.10gb", 0, "b"), Instance("1g.10gb", 6)))
SHARED = GpuPlan("gpu-2", A100, members=(Member("a", 9.0, 1.0), Member("b", 8.0, 2.0)))
SPARE = GpuPlan("spare-0", A100)
ALL = PartitionPlan((HALF, SMALL, SHARED, SPARE))


def test_slices_are_drawn_to_scale_and_free_units_hatched() -> None:
    # Eight units of nine characters, the line on the left of each part included.
    assert terminal(PartitionPlan((HALF,))).splitlines() == [
        "gpu-0  A100-80GB",
        "┌" + "─" * 35 + "┬" + "─" * 35 + "┐",
        "│" + "░" * 35 + "│" + "3g.40gb".ljust(35) + "│",
        "│" + "░" * 35 + "│" + "a".ljust(35) + "│",
        "│" + "░" * 35 + "│" + "b8 x2".ljust(35) + "│",
        "└" + "─" * 35 + "┴" + "─" * 35 + "┘",
    ]


def test_gpus_that_hold_the_same_are_drawn_once() -> None:
    gpus = tuple(replace(HALF, id=f"gpu-{number}") for number in range(40))

    drawn = terminal(PartitionPlan((SMALL, *gpus, SHARED)), shown=1)

    assert drawn.startswith("gpu-0 .. gpu-39  40 x A100-80GB\n")
    assert drawn.endswith("\n... and 2 more GPUs, cut in 2 other ways")


def test_idle_shared_and_spare_gpus_are_drawn_as_such() -> None:
    drawn = terminal(ALL)

    assert "idle" in drawn
    assert "shared whole" in drawn
    assert "a + b" in drawn
    # Beside the 3g, between the two 1g, behind the second, and all of the spare GPU.
    assert svg(ALL).count("url(#free)") == 4


def test_names_in_pictures_cannot_break_out_of_them() -> None:
    evil = GpuPlan("gpu-0", A100, (Instance("7g.80gb", 0, "<script>"),))

    assert "<script>" not in svg(PartitionPlan((evil,)))


def test_a_plan_is_read_back_as_it_was_written() -> None:
    assert read_state({"gpus": plan_document(ALL)}, "plan.json") == ALL


@pytest.mark.parametrize("wrong", [[], {"gpu": []}, {"gpus": {}}, {"gpus": [3]}, None])
def test_a_document_that_is_no_state_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidFile, match=r"^state\.json: "):
        read_state(wrong, "state.json")


def test_a_gpu_listed_twice_is_refused() -> None:
    gpu = {"index": 0, "model": A100}

    with pytest.raises(InvalidFile, match="GPU gpu-0 is listed 2 times; list it once"):
        read_state({"gpus": [gpu, gpu]}, "state.json")


def test_mig_parted_switches_mig_off_where_nothing_is_cut() -> None:
    (node,) = parted_document(ALL)["mig-configs"].values()

    assert node == [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"3g.40gb": 1}},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2}},
        {"devices": [2, 3], "mig-enabled": False, "mig-devices": {}},
    ]


def test_a_plan_takes_the_names_of_gpus_most_like_it() -> None:
    there = PartitionPlan((replace(SMALL, id="old-7"), replace(HALF, id="old-3")))
    plan = PartitionPlan((HALF, SMALL, replace(HALF, id="gpu-9")))

    found = matched(plan, there)

    assert [gpu.id for gpu in found.plan.gpus] == ["old-7", "old-3", "gpu-0"]
    assert [gpu.layout for gpu in found.plan.gpus] == [SMALL.layout, HALF.layout, HALF.layout]
    assert (found.kept, found.running) == (3, 3)
