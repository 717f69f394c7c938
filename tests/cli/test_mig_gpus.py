"""``interlane mig state`` and ``interlane mig cut``, on stand-ins and on emulated GPUs."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Call

from interlane.device.emulated_mig import FILE, EmulatedGpus, settings_of
from interlane.mig.layouts import SlicePlace
from interlane.testing.nvidia import NvidiaHost

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def emulated(tmp_path: Path) -> Path:
    """The folder of a server with two emulated GPUs."""
    settings = settings_of("mig:A100-80GB:2,create=0,destroy=0,mode=0")
    EmulatedGpus.made(tmp_path / FILE, settings)
    return tmp_path


def test_the_state_is_a_table_and_says_what_is_emulated(call: Call, emulated: Path) -> None:
    call("mig", "cut", "gpu-1", "3g.40gb@0", "--gpus", emulated)

    lines = call("mig", "state", "--gpus", emulated).out.splitlines()

    assert lines[0].split() == ["gpu", "model", "mode", "slice", "identifier", "processes"]
    assert "A100-80GB (emulated)" in lines[1]
    assert "3g.40gb@0" in lines[2]
    assert "sliced" in lines[2]


def test_what_a_host_holds_is_where_a_transition_begins(
    call: Call, nvidia: NvidiaHost, tmp_path: Path
) -> None:
    nvidia.add("A100-80GB", sliced=True, layout=[SlicePlace(0, "1g.10gb")])
    nvidia.add(None)
    now = tmp_path / "now.json"

    said = call("mig", "state", "-o", "json")
    now.write_text(said.out)
    way = call("mig", "transition", "--from", now, "--to", EXAMPLES / "services.yaml")

    document = json.loads(said.out)
    assert [gpu["name"] for gpu in document["others"]] == ["Tesla T4"]
    assert way.code == 0
    assert way.out.startswith("0 of 0 running instances stay where they are")


def test_a_gpu_is_cut_and_made_whole_again(call: Call, nvidia: NvidiaHost) -> None:
    nvidia.add("A100-40GB")

    cut = call("mig", "cut", "gpu-0", "4g.20gb@0", "2g.10gb@4", "-o", "json")
    slices = nvidia.instances()
    whole = call("mig", "cut", "gpu-0", "--whole")

    assert cut.code == whole.code == 0
    assert [one["profile"] for one in json.loads(cut.out)["gpus"][0]["instances"]] == [
        "4g.20gb",
        "2g.10gb",
    ]
    assert slices == [(0, "2g.10gb", 4), (0, "4g.20gb", 0)]
    assert nvidia.modes() == [(False, False)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name one"),
        (("3g.20gb@0", "--whole"), "name one"),
        (("3g.20gb",), "PROFILE@START"),
        (("3g.20gb@2",), "cannot start at 2"),
        (("9g.99gb@0",), "9g.99gb"),
    ],
)
def test_a_cut_that_cannot_be_is_refused_in_a_sentence(
    call: Call, nvidia: NvidiaHost, words: tuple[str, ...], says: str
) -> None:
    nvidia.add("A100-40GB")

    said = call("mig", "cut", "gpu-0", *words)

    assert said.code == 2
    assert said.err.count("interlane: error:") == 1
    assert says in said.err
    assert nvidia.modes() == [(False, False)]


def test_a_gpu_that_a_process_holds_does_not_leave_mig_mode(
    call: Call, nvidia: NvidiaHost
) -> None:
    nvidia.add("A100-40GB", sliced=True)
    nvidia.hold(0, os.getpid())

    said = call("mig", "cut", "gpu-0", "--whole")

    assert said.code == 2
    assert f"held by process {os.getpid()}, so that nothing was changed" in said.err
    assert nvidia.modes() == [(True, True)]


def test_a_state_folder_without_gpus_is_refused(call: Call, tmp_path: Path) -> None:
    said = call("mig", "state", "--gpus", tmp_path)

    assert said.code == 2
    assert "no emulated GPUs are kept here" in said.err


# -- what the stand-in for nvidia-smi says, where others read it ----------------------


def smi(host: NvidiaHost, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [host.program / "nvidia-smi", *words], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_nvidia_smi_lists_gpus_slices_profiles_and_places(nvidia: NvidiaHost) -> None:
    nvidia.add("A100-40GB", sliced=True, layout=[SlicePlace(4, "3g.20gb")])
    nvidia.add(None)

    _, listed = smi(nvidia, "-L")
    _, modes = smi(nvidia, "--query-gpu=index,mig.mode.current", "--format=csv,noheader")
    _, slices = smi(nvidia, "mig", "-lgi")
    _, profiles = smi(nvidia, "mig", "-lgip")
    _, places = smi(nvidia, "mig", "-lgipp")

    assert listed.splitlines()[0].startswith("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-")
    assert listed.splitlines()[1].startswith("  MIG 3g.20gb         Device  0: (UUID: MIG-")
    assert modes.splitlines() == ["0, Enabled", "1, [N/A]"]
    assert "|   0  MIG 3g.20gb          9        2          4:4     |" in slices.splitlines()
    assert any(
        line.split()[1:6] == ["0", "MIG", "3g.20gb", "9", "1/2"]
        for line in profiles.splitlines()
    )
    assert "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1" in places.splitlines()


def test_nvidia_smi_fails_as_the_real_one_does(nvidia: NvidiaHost) -> None:
    nvidia.add("A100-40GB")
    assert smi(nvidia, "mig", "-lgi") == (6, "No MIG-enabled devices found.\n")
    assert smi(nvidia, "-i", "0", "-mig", "1")[0] == 0
    assert smi(nvidia, "mig", "-lgi") == (6, "No GPU instances found: Not Found\n")
    assert smi(nvidia, "mig", "-cgi", "9:0,9:4", "-C")[0] == 0

    code, said = smi(nvidia, "mig", "-cgi", "19", "-C")
    assert (code, said.splitlines()[-1]) == (
        23,
        "Failed to create GPU instances: Insufficient Resources",
    )
    code, said = smi(nvidia, "mig", "-dgi")
    assert (code, said.splitlines()[-1]) == (
        19,
        "Failed to destroy GPU instances: In use by another client",
    )
    nvidia.hold(0, os.getpid(), gi=1)
    code, said = smi(nvidia, "mig", "-dci", "-gi", "1")
    assert code == 19
    assert "from GPU  0 GPU instance ID  1: In use by another client" in said
    code, said = smi(nvidia, "-i", "0", "-mig", "0")
    assert code == 0  # it warns, and says that all is done
    assert "pending disable state" in said
    assert smi(nvidia, "-i", "0", "--gpu-reset")[0] == 255
    assert smi(nvidia, "-i", "7", "-L")[0] == 0
    assert smi(nvidia, "mig", "-i", "7", "-lgi")[0] == 6
