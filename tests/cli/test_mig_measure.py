"""``interlane mig measure`` on slices of emulated GPUs."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Call

from interlane.testing.nvidia import NvidiaHost

HANDLERS = """
def weights():
    return 3

def work(model, asked):
    return [sum(range(2000)) * model for _ in asked]

def picky(asked):
    if len(asked) > 2:
        raise ValueError("too many at once")
    return asked

def greedy(asked):
    return len(bytearray(512 << 20))
"""
DEVICES = ("--devices", "mig:A100-40GB:8,memory=1GiB")
SERVICES = """
table: table.csv
gpus: [{model: A100-40GB}]
services:
  - {name: work, model: work, rate_per_s: 1, latency_ms: 60000}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(call: Call, handler: str, *words: str) -> dict[str, Any]:
    said = call(
        *("mig", "measure", handler, "--table", "table.csv", "--seconds", "0.4", "-o", "json"),
        *("--input", "1", *words),
    )
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.timeout(300)
def test_larger_slices_are_faster_and_a_second_run_goes_on_where_the_first_ended(
    call: Call, folder: Path
) -> None:
    words = ("--load", "handlers:weights", "--batch", "4", *DEVICES)

    first = measured(call, "handlers:work", *words, "--profile", "1g.5gb")
    both = measured(
        call, "handlers:work", *words, "--profile", "1g.5gb", "--profile", "7g.40gb"
    )

    rates = {row["profile"]: row for row in both["rows"]}
    assert (first["measured"], both["measured"], both["emulated"]) == (1, 1, True)
    before = first["rows"][0]["throughput_per_s"]
    assert rates["1g.5gb"]["throughput_per_s"] == pytest.approx(
        before, abs=0.01
    )  # not measured again
    assert rates["7g.40gb"]["throughput_per_s"] > 2 * rates["1g.5gb"]["throughput_per_s"]
    assert [one for one, row in rates.items() if row["interpolated"]] == [
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
    ]
    (folder / "services.yaml").write_text(SERVICES)
    plan = call("mig", "plan", "-f", "services.yaml")
    assert plan.code == 0
    assert plan.out.startswith("1 A100-40GB, proven optimal")
    assert "1 of 1 instances rest on interpolated figures" in plan.err


@pytest.mark.timeout(300)
def test_what_does_not_run_is_named_and_left_out(call: Call, folder: Path) -> None:
    picky = measured(
        *(call, "handlers:picky", "--batch", "1,2,4", "--profile", "7g.40gb", *DEVICES)
    )
    greedy = measured(
        *(call, "handlers:greedy", "--profile", "1g.5gb", "--profile", "7g.40gb", *DEVICES)
    )

    assert [row["batch"] for row in picky["rows"]] == [1, 2]
    assert picky["failed"] == ["7g.40gb, batch 4: ValueError: too many at once"]
    assert [row["profile"] for row in greedy["rows"]] == ["7g.40gb"]
    assert greedy["failed"] == ["1g.5gb, batch 1: MemoryError: "]


@pytest.mark.timeout(300)
def test_a_gpu_of_the_host_is_cut_for_it_and_is_as_it_was_afterwards(
    call: Call, folder: Path, nvidia: NvidiaHost
) -> None:
    nvidia.add("A30-24GB")
    words = ("--devices", "nvidia:gpu-0", "--profile", "2g.12gb")
    (folder / "handlers.py").write_text(
        "import os\ndef see(asked): assert os.environ['CUDA_VISIBLE_DEVICES'][:4] == 'MIG-'\n"
    )
    nvidia.note_calls()

    found = measured(call, "handlers:see", *words)

    assert (found["emulated"], [row["profile"] for row in found["rows"]]) == (
        False,
        ["2g.12gb"],
    )
    assert "nvmlDeviceCreateGpuInstanceWithPlacement" in nvidia.calls
    assert (nvidia.instances(), nvidia.modes()) == ([], [(False, False)])


@pytest.mark.parametrize(
    ("handler", "words", "says"),
    [
        ("handlers", (), "module:function"),
        ("handlers:nothing", (), "ran on no size: 7g.40gb, batch 1: AttributeError"),
        ("handlers:picky", ("--profile", "9g.99gb"), "9g.99gb"),
        ("handlers:picky", ("--devices", "mig:A101:2"), "A101"),
        ("handlers:picky", ("--batch", "some"), "1,4,16"),
        ("handlers:picky", ("--input", "{"), "no JSON"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(
    call: Call, folder: Path, handler: str, words: tuple[str, ...], says: str
) -> None:
    usual = ("--profile", "7g.40gb") if "--profile" not in words else ()
    where = DEVICES if "--devices" not in words else ()

    said = call("mig", "measure", handler, "--table", "table.csv", *usual, *where, *words)

    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err
    assert not (folder / "table.csv").exists()
