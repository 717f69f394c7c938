import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlane.device.emulated_mig import FILE, EmulatedGpus, settings_of
from interlane.device.repartition import repartition
from interlane.mig.documents import read_state
from interlane.mig.profiles import gpu_model
from interlane.mig.transition.steps import content_of
from interlane.migctl.host_lock import host_locked
from interlane.testing.nvidia import NvidiaHost

Call = Callable[..., Any]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "services.yaml"
FACTORS = (0.4, 1.6, 0.7, 1.3, 1.0, 2.0, 0.6)


@pytest.fixture
def now(call: Call, tmp_path: Path) -> Path:
    """What runs now: the plan of the example."""
    path = tmp_path / "current.json"
    path.write_text(call("mig", "plan", "-f", EXAMPLE, "-o", "json").out)
    return path


@pytest.fixture
def evening(tmp_path: Path) -> Path:
    """The same services at other rates."""
    document = yaml.safe_load(EXAMPLE.read_text())
    for service, factor in zip(document["services"], FACTORS, strict=True):
        service["rate_per_s"] *= factor
    path = tmp_path / "evening.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def way(call: Call, now: Path, evening: Path, tmp_path: Path) -> Path:
    """A transition on disk."""
    path = tmp_path / "way.json"
    said = call("mig", "transition", "--from", now, "--to", evening, "--slack", 0, "-o", "json")
    assert said.code == 0
    path.write_text(said.out)
    return path


def test_a_transition_says_what_stays_and_what_it_takes(
    call: Call, now: Path, evening: Path
) -> None:
    said = call("mig", "transition", "--from", now, "--to", evening)

    assert said.code == 0
    lines = said.out.splitlines()
    assert " of 19 running instances stay where they are (" in lines[0]
    assert "GPUs at the end, " in lines[1]
    assert " actions in " in lines[2]
    assert lines[4] == "No GPU is borrowed on the way."


def test_the_baseline_keeps_less(call: Call, now: Path, evening: Path) -> None:
    asked = ("mig", "transition", "--from", now, "--to", evening, "-o", "json")

    joint = json.loads(call(*asked).out)
    baseline = json.loads(call(*asked, "--method", "exchange-and-compact").out)

    assert joint["kept"] > baseline["kept"]
    assert joint["figures"]["create"] < baseline["figures"]["create"]


def test_a_dry_run_prints_steps_and_changes_nothing(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "--dry-run")

    assert said.code == 0
    steps = [
        step for action in json.loads(way.read_text())["actions"] for step in action["steps"]
    ]
    assert len([line for line in said.out.splitlines() if line.startswith("  ")]) == len(steps)
    assert sorted(path.name for path in way.parent.glob("way*")) == ["way.json"]


def test_a_dry_run_prints_the_commands_of_nvidia_smi(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "--dry-run", "--executor", "nvidia-smi")

    lines = said.out.splitlines()
    assert "nvidia-smi mig -i 5 -dgi -gi $GI" in lines
    assert any(line.startswith("nvidia-smi mig -i 5 -cgi ") for line in lines)
    assert any(line.startswith("service-command drain ") for line in lines)


def test_mig_parted_gets_a_configuration_for_every_change_of_cuts(
    call: Call, way: Path
) -> None:
    document = yaml.safe_load(call("mig", "apply", way, "--executor", "mig-parted").out)

    stages = document["mig-configs"]
    assert next(iter(stages)) == "now"
    assert len(stages) > 1
    for stage in stages.values():
        assert sorted(n for entry in stage for n in entry["devices"]) == [
            *range(len({n for one in stage for n in one["devices"]}))
        ]


def end_of(way: Path, which: str) -> object:
    return content_of(read_state(json.loads(way.read_text())[which], "way"))


def test_a_transition_is_carried_out(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "-o", "json")

    answer = json.loads(said.out)
    assert (said.code, answer["end"], answer["failed"]) == (0, "done", 0)
    assert content_of(read_state(answer, "answer")) == end_of(way, "target")


def test_a_run_that_drops_dead_is_continued_and_can_be_rolled_back(
    call: Call, way: Path
) -> None:
    command = [sys.executable, "-m", "interlane", "mig", "apply", str(way)]
    dead = subprocess.run([*command, "--crash-after", "3"], capture_output=True, check=False)
    assert dead.returncode == 70

    said = call("mig", "apply", way, "-o", "json")

    answer = json.loads(said.out)
    assert answer["end"] == "done"
    assert content_of(read_state(answer, "answer")) == end_of(way, "target")

    back = json.loads(call("mig", "apply", way, "--roll-back", "-o", "json").out)
    assert back["end"] == "rolled back"
    assert content_of(read_state(back, "answer")) == end_of(way, "current")


def test_a_gpu_that_never_obeys_is_planned_around(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "--broken", "gpu-5", "--fail-rate", "0.05", "-o", "json")

    answer = json.loads(said.out)
    assert (said.code, answer["end"]) == (0, "done")
    assert answer["planned_anew"] >= 1


def test_a_run_in_which_everything_fails_gives_up_with_exit_1(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "--fail-rate", "1", "--seed", "5", "--retries", "0")

    assert said.code == 1
    assert said.out.startswith("gave up: ")


# -- nvidia-smi and NVIDIA's library, played by stand-ins over one state --------------


@pytest.fixture
def host(way: Path, nvidia: NvidiaHost) -> NvidiaHost:
    """A host with what the transition expects to be there, and two GPUs more."""
    current = read_state(json.loads(way.read_text())["current"], "way")
    for gpu in current.gpus:
        nvidia.add("A100-80GB", sliced=True, layout=gpu.layout)
    for _ in range(2):
        nvidia.add("A100-80GB")
    return nvidia


def held(host: NvidiaHost) -> set[tuple[str, str, int]]:
    return {(f"gpu-{gpu}", profile, start) for gpu, profile, start in host.instances()}


def aimed(way: Path, which: str = "target") -> set[tuple[str, str, int]]:
    state = read_state(json.loads(way.read_text())[which], "way")
    return {(gpu.id, one.profile, one.start) for gpu, one in state.instances}


def test_nvidia_smi_is_driven_to_the_target(
    call: Call, way: Path, host: NvidiaHost, tmp_path: Path
) -> None:
    heard = tmp_path / "services"
    hook = f"/bin/sh -c 'echo \"$@\" >> {heard}' hook"

    said = call("mig", "apply", way, "--executor", "nvidia-smi", "--service-command", hook)

    assert said.code == 0
    assert said.out.startswith("done: ")
    assert held(host) == aimed(way)
    steps = [s for a in json.loads(way.read_text())["actions"] for s in a["steps"]]
    told = [tuple(line.split()[:2]) for line in heard.read_text().splitlines()]
    wanted = [(s["verb"], s["service"]) for s in steps if s["verb"] in ("start", "drain")]
    assert sorted(told) == sorted(wanted)


@pytest.mark.parametrize(
    ("symbol", "after"),
    [
        ("nvmlGpuInstanceCreateComputeInstance", 0),
        ("nvmlDeviceCreateGpuInstanceWithPlacement", 1),
        ("nvmlGpuInstanceDestroy", 0),
        ("nvmlComputeInstanceDestroy", 1),
    ],
)
def test_a_driver_that_fails_half_way_through_a_slot_is_asked_again(
    call: Call, way: Path, host: NvidiaHost, symbol: str, after: int
) -> None:
    host.fail(symbol, 999, times=1, after=after)
    words = ("mig", "apply", way, "--executor", "nvidia-smi", "--service-command", "true")

    answer = json.loads(call(*words, "-o", "json").out)

    assert (answer["end"], answer["failed"], answer["planned_anew"]) == ("done", 1, 0)
    assert held(host) == aimed(way)


def test_a_process_that_never_leaves_its_slot_is_planned_around(
    call: Call, way: Path, host: NvidiaHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.migctl.served_gpus.LEAVE_S", 0.0)
    gone = next(
        step
        for action in json.loads(way.read_text())["actions"]
        for step in action["steps"]
        if step["verb"] == "destroy"
    )
    index, sizes = int(gone["gpu"].removeprefix("gpu-")), gpu_model("A100-80GB")
    size = sizes.profile(gone["profile"]).size
    host.hold(index, os.getpid(), gi=8 // size - 1 + gone["start"] // size)
    words = ("mig", "apply", way, "--executor", "nvidia-smi", "--service-command", "true")

    answer = json.loads(call(*words, "-o", "json").out)

    assert answer["end"] == "done"
    assert answer["planned_anew"] >= 1
    assert (gone["gpu"], gone["profile"], gone["start"]) in held(host)


def test_two_journals_do_not_change_one_host_at_once(
    call: Call, way: Path, host: NvidiaHost, tmp_path: Path
) -> None:
    before = held(host)
    words = ("mig", "apply", way, "--executor", "nvidia-smi", "--service-command", "true")
    with host_locked():  # as another run does, whatever its journal
        said = call(*words, "--journal", tmp_path / "another.journal")
    assert said.code == 2
    assert "Another process changes the GPUs of this host" in said.err
    assert held(host) == before
    assert call(*words, "--journal", tmp_path / "another.journal").code == 0


def test_emulated_gpus_are_driven_to_the_target(call: Call, way: Path, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    current = read_state(json.loads(way.read_text())["current"], "way")
    count = len(current.gpus) + 2
    settings = settings_of(f"mig:A100-80GB:{count},create=0,destroy=0,mode=0")
    gpus = EmulatedGpus.made(folder / FILE, settings)
    for gpu in current.gpus:
        repartition(gpus, gpu.id, gpu.layout)
    words = ("mig", "apply", way, "--executor", "emulated", "--service-command", "true")

    unnamed = call(*words)
    said = call(*words, "--gpus", folder)

    assert (unnamed.code, said.code) == (2, 0)
    assert "name the --state folder" in unnamed.err
    there = {
        (gpu.id, one.place.profile, one.place.start)
        for gpu in gpus.look()
        for one in gpu.slices
    }
    assert there == aimed(way)


def test_nvidia_smi_needs_a_command_for_services(call: Call, way: Path) -> None:
    said = call("mig", "apply", way, "--executor", "nvidia-smi")

    assert said.code == 2
    assert "can neither start nor drain services" in said.err


# -- bad input ------------------------------------------------------------------------


def refused(said: Any) -> str:  # noqa: ANN401 - what the fixture returns
    assert said.code == 2
    assert said.err.count("interlane: error:") == 1
    assert "Traceback" not in said.err
    return str(said.err.split("interlane: error: ")[1])


def test_a_state_that_no_gpu_can_be_is_refused(call: Call, now: Path, evening: Path) -> None:
    document = json.loads(now.read_text())
    document["gpus"][0]["instances"] = [{"profile": "3g.40gb", "placement": "1:4"}]
    now.write_text(json.dumps(document))

    said = refused(call("mig", "transition", "--from", now, "--to", evening))

    assert "gpu-0 is impossible on A100-80GB: start: 3g.40gb cannot start at 1" in said


def test_a_service_that_nobody_asked_for_is_refused(
    call: Call, now: Path, evening: Path
) -> None:
    document = json.loads(now.read_text())
    document["gpus"][0]["instances"][0]["service"] = "ghost"
    now.write_text(json.dumps(document))
    asked = ("mig", "transition", "--from", now, "--to", evening)

    assert "serves 'ghost'" in refused(call(*asked))
    assert call(*asked, "--retire", "ghost").code == 0


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[:-9], "this is not JSON"),
        (lambda text: text.replace('"start": 0', '"start": 2', 1), "does not match its id"),
        (lambda text: "{}", "this is no transition"),
        (lambda text: "[1]", "must be keys with values"),
    ],
    ids=["half a file", "changed by hand", "something else", "a list"],
)
def test_a_spoiled_transition_is_refused(
    call: Call, way: Path, spoil: Callable[[str], str], sentence: str
) -> None:
    way.write_text(spoil(way.read_text()))

    assert sentence in refused(call("mig", "apply", way))


def test_a_damaged_journal_is_refused(call: Call, way: Path) -> None:
    journal = way.with_name("way.json.journal")
    assert call("mig", "apply", way).code == 0
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:3], lines[3].replace("step", "stop"), *lines[4:]]))

    assert "line 4: the journal is damaged here" in refused(call("mig", "apply", way))


def test_a_journal_of_another_transition_is_refused(
    call: Call, way: Path, now: Path, evening: Path
) -> None:
    other = way.with_name("other.json")
    said = call("mig", "transition", "--from", now, "--to", evening, "--slack", 2, "-o", "json")
    other.write_text(said.out)
    assert call("mig", "apply", way).code == 0

    said = call("mig", "apply", other, "--journal", way.with_name("way.json.journal"))

    assert "this journal belongs to transition" in refused(said)


def test_an_unreadable_journal_is_refused(call: Call, way: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.write_bytes(b"\x00\xff\n")

    refused(call("mig", "apply", way, "--journal", strange))
    refused(call("mig", "apply", way, "--journal", tmp_path))
    assert strange.read_bytes() == b"\x00\xff\n"


@pytest.mark.parametrize("times", ["make=x", "fly=1", "make=-1", ""])
def test_times_that_make_no_sense_are_refused(call: Call, way: Path, times: str) -> None:
    assert "--times" in refused(call("mig", "apply", way, "--times", times))


@pytest.mark.parametrize("limit", [0, 0.05, 1])
def test_any_time_limit_gives_a_valid_transition(
    call: Call, now: Path, evening: Path, limit: float
) -> None:
    said = call(
        "mig", "transition", "--from", now, "--to", evening, "--time-limit", limit, "-o", "json"
    )

    assert said.code == 0
    answer = json.loads(said.out)
    assert 0 <= answer["kept"] <= answer["figures"]["most_kept"] <= answer["running"] == 19


def test_a_pin_of_what_is_not_there_is_refused(call: Call, now: Path, evening: Path) -> None:
    document = yaml.safe_load(evening.read_text())
    document["pinned"] = [{"gpu": "gpu-9", "profile": "2g.20gb", "start": 4, "service": "chat"}]
    evening.write_text(yaml.safe_dump(document))

    said = refused(call("mig", "transition", "--from", now, "--to", evening))

    assert "pins 2g.20gb@4 on gpu-9, which is not there now" in said


def test_a_gpu_model_that_is_not_on_offer_is_refused(
    call: Call, now: Path, evening: Path
) -> None:
    text = now.read_text().replace("A100-80GB", "H100-80GB-SXM5")
    now.write_text(text)

    said = refused(call("mig", "transition", "--from", now, "--to", evening))

    assert "gpu-0 is a H100-80GB-SXM5, which the demand does not offer" in said


@pytest.mark.parametrize(
    "keys",
    [
        {"options": {"survive_gpu_loss": True, "max_processes": 2, "latency_share": 0.5}},
        {"gpus": [{"model": "A100-80GB", "spare": 1}]},
        {"gpus": [{"model": "A100-80GB", "price": 1.0}, {"model": "A30-24GB", "price": 0.3}]},
        {"options": {"forbid_4g3g": True, "max_processes": 2, "latency_share": 0.5}},
        {"options": {"kinds": ["double-memory"], "max_processes": 2, "latency_share": 0.5}},
        {"options": {"max_processes": 1}},
    ],
    ids=["survive a loss", "a spare GPU", "two models", "no 4g+3g", "double memory", "others"],
)
def test_every_action_of_a_services_file_leads_to_a_transition_that_holds(
    call: Call, now: Path, evening: Path, keys: dict[str, object]
) -> None:
    evening.write_text(yaml.safe_dump({**yaml.safe_load(evening.read_text()), **keys}))

    said = call("mig", "transition", "--from", now, "--to", evening)

    assert said.code == 0, said.err


ONE_ROW = "model,gpu,profile,batch,processes,throughput_per_s,latency_ms\n"
ONE_ROW += "b,A100-80GB,7g.80gb,1,1,100,5\n"
THREE_GPUS = "table: t.csv\nservices:\n"
THREE_GPUS += "  - {name: b, model: b, rate_per_s: 300, latency_ms: 50}\n"


@pytest.mark.parametrize("seed", range(6))
def test_a_service_that_retires_lacks_nothing_whatever_is_left_of_its_sum(
    call: Call, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rates = [[round(rng.uniform(10, 400), 2) for _ in range(2)] for _ in range(3)]
    if seed == 0:  # what is left of this sum is below 0
        rates = [[337.92, 303.42], [168.81, 104.31], [205.0, 162.57]]
    (tmp_path / "t.csv").write_text(ONE_ROW)
    new, now = tmp_path / "new.yaml", tmp_path / "now.json"
    new.write_text(THREE_GPUS)
    gpus = [
        {
            "id": f"gpu-{at}",
            "model": "A100-80GB",
            "instances": [
                {
                    "profile": "3g.40gb",
                    "placement": f"{4 * half}:4",
                    "service": "old",
                    "throughput_per_s": rate,
                }
                for half, rate in enumerate(pair)
            ],
        }
        for at, pair in enumerate(rates)
    ]
    now.write_text(json.dumps({"gpus": gpus}))
    asked = ("mig", "transition", "--from", now, "--to", new, "--slack", 0)

    assert call(*asked, "--retire", "old").code == 0
    assert "'zz'" in refused(call(*asked, "--retire", "old", "--retire", "zz"))


def test_a_table_that_a_spreadsheet_wrote_is_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ONE_ROW, encoding="utf-8-sig")
    services = tmp_path / "new.yaml"
    services.write_text(THREE_GPUS, encoding="utf-8-sig")

    assert call("mig", "plan", "-f", services).code == 0


def test_a_key_that_comes_twice_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ONE_ROW)
    services = tmp_path / "new.yaml"
    services.write_text(THREE_GPUS.replace("rate_per_s: 300", "rate_per_s: 3, rate_per_s: 300"))

    assert "the key rate_per_s comes twice" in refused(call("mig", "plan", "-f", services))
