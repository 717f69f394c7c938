import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlane.mig.check import layout_faults
from interlane.mig.documents import read_state

Call = Callable[..., Any]
Write = Callable[..., Path]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "services.yaml"

SEARCH = {"name": "search", "model": "synth-encoder", "rate_per_s": 900, "latency_ms": 60}
ROW = "model,gpu,profile,batch,processes,throughput_per_s,latency_ms"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a services file of one service, with some keys changed or added."""

    def to_file(*, service: dict[str, object] | None = None, **keys: object) -> Path:
        path = tmp_path / "services.yaml"
        document = {"services": [{**SEARCH, **(service or {})}], **keys}
        path.write_text(yaml.safe_dump(document))
        return path

    return to_file


def test_the_example_is_planned_and_proven(call: Call) -> None:
    said = call("mig", "plan", "-f", EXAMPLE)

    assert said.code == 0
    assert said.out.startswith("6 A100-80GB, proven optimal (columns)\n")
    assert "│ranking " in said.out


def test_the_plan_in_json_holds_every_instance_and_the_proof(call: Call) -> None:
    answer = json.loads(call("mig", "plan", "-f", EXAMPLE, "-o", "json").out)

    assert answer["gpus_used"] == answer["cost"] == answer["lower_bound"] == 6
    assert (answer["optimal"], answer["why_stopped"]) == (True, "optimal")
    plan = read_state(answer, "plan.json")
    assert [fault for gpu in plan.gpus for fault in layout_faults(gpu)] == []
    assert {instance.service for _, instance in plan.instances} == {
        service["name"] for service in yaml.safe_load(EXAMPLE.read_text())["services"]
    }


def test_the_plan_for_mig_parted_has_a_configuration_a_node(call: Call) -> None:
    said = call("mig", "plan", "-f", EXAMPLE, "-o", "mig-parted", "--gpus-per-node", "4")

    document = yaml.safe_load(said.out)
    assert document["version"] == "v1"
    assert list(document["mig-configs"]) == ["node-0", "node-1"]
    devices = [
        sorted(device for entry in node for device in entry["devices"])
        for node in document["mig-configs"].values()
    ]
    assert devices == [[0, 1, 2, 3], [0, 1]]


def test_a_plan_is_its_own_current_state(call: Call, tmp_path: Path) -> None:
    current = tmp_path / "current.json"
    current.write_text(call("mig", "plan", "-f", EXAMPLE, "-o", "json").out)

    said = call("mig", "plan", "-f", EXAMPLE, "--current", current)

    assert said.code == 0
    assert "19 of 19 running instances stay where they are." in said.err


def test_pictures_are_written_to_scale(call: Call, tmp_path: Path) -> None:
    svg, html = tmp_path / "plan.svg", tmp_path / "plan.html"

    assert call("mig", "plan", "-f", EXAMPLE, "--svg", svg, "--html", html).code == 0

    drawn = svg.read_text()
    assert drawn.startswith("<svg ")
    # A 1g takes 1 of 8 units of a bar of 720, a 7g all of it.
    assert 'width="90"' in drawn
    assert 'width="720"' in drawn
    assert "<h1>6 GPUs</h1>" in html.read_text()
    assert drawn in html.read_text()


def test_the_services_file_is_read_from_standard_input(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    monkeypatch.setattr("sys.stdin", StringIO(EXAMPLE.read_text()))

    assert call("mig", "plan", "-f", "-").out.startswith("6 A100-80GB")


def test_profiles_and_layouts_are_listed(call: Call) -> None:
    assert "7g.80gb" in call("mig", "profiles", "--gpu", "A100-80GB").out
    assert len(json.loads(call("mig", "profiles", "-o", "json").out)) == 12
    first = call("mig", "layouts").out.splitlines()[0]
    assert first == ("A100-80GB: 298 legal layouts, 19 maximal, 14 multisets, 12 undominated")
    older = json.loads(call("mig", "layouts", "--forbid-4g3g", "-o", "json").out)
    assert older["maximal"] == 18
    double = json.loads(call("mig", "layouts", "--kind", "double-memory", "-o", "json").out)
    assert (double["legal"], double["maximal"], double["undominated"]) == (723, 78, 28)


def test_a_synthetic_table_is_written_and_read_back(
    call: Call, tmp_path: Path, write: Write
) -> None:
    table = tmp_path / "table.csv"

    assert call("mig", "table", "synth", table, "--gpu", "A30-24GB").code == 0

    services = write(gpus=[{"model": "A30-24GB"}], table="table.csv")
    assert "1 A30-24GB, proven optimal" in call("mig", "plan", "-f", services).out


def test_a_limit_of_no_time_gives_the_best_plan_so_far_with_its_gap(call: Call) -> None:
    answer = json.loads(
        call("mig", "plan", "-f", EXAMPLE, "--time-limit", "0", "-o", "json").out
    )

    assert answer["cost"] >= 6 >= answer["lower_bound"]
    assert answer["gap"] == answer["cost"] - answer["lower_bound"]


BAD_SERVICE = {
    "service 1: rate_per_s of service search is 0.0, but it must be above 0.": {
        "rate_per_s": 0
    },
    "service 1: rate_per_s of service search is -3.0, but it must be above 0.": {
        "rate_per_s": -3
    },
    "service 1: rate_per_s is 'many', but it must be a number.": {"rate_per_s": "many"},
    "service 1: latency_ms is missing; it must be a number.": {"latency_ms": None},
    "service 1: min_replicas is 0, but it must be a whole number, 1 or more.": {
        "min_replicas": 0
    },
    "service 1 has the key 'slo'; known are name, model,": {"slo": 3},
}


@pytest.mark.parametrize(("sentence", "service"), BAD_SERVICE.items())
def test_a_bad_service_is_named_with_its_rule(
    sentence: str, service: dict[str, object], call: Call, write: Write
) -> None:
    path = write(service=service)

    assert call("mig", "plan", "-f", path).error.startswith(f"{path}: {sentence}")


BAD_FILE = {
    "GPU 1: GPU model 'A100' is not known; did you mean": {"gpus": [{"model": "A100"}]},
    "GPU 1: price of A30-24GB is 0.0, but it must be above 0.": {
        "gpus": [{"model": "A30-24GB", "price": 0}]
    },
    "options: latency_share is 2.0, but it must be above 0 and at most 1.": {
        "options": {"latency_share": 2}
    },
    "options: kind of profile 'huge' is not known;": {"options": {"kinds": ["huge"]}},
    "options: max_processes is 99, but it must be a whole number, 1 to 48.": {
        "options": {"max_processes": 99}
    },
    "services must be a list with at least one entry; add one.": {"services": []},
    "the file has the key 'gpu'; known are services, gpus,": {"gpu": []},
}


@pytest.mark.parametrize(("sentence", "keys"), BAD_FILE.items())
def test_a_bad_file_is_refused_with_the_entry(
    sentence: str, keys: dict[str, object], call: Call, write: Write
) -> None:
    path = write(**keys)

    assert call("mig", "plan", "-f", path).error.startswith(f"{path}: {sentence}")


def test_a_service_that_fits_no_profile_is_told_the_quickest(call: Call, write: Write) -> None:
    assert call("mig", "plan", "-f", write(service={"latency_ms": 3})).error == (
        "Service search fits no profile of A100-80GB within its latency_ms of 3: a batch may "
        "take 3 ms, and the quickest of synth-encoder takes 10.144 ms (7g.80gb, batch 1); "
        "raise latency_ms or offer a faster GPU."
    )


def test_a_model_that_nobody_measured_is_named(call: Call, write: Write) -> None:
    error = call("mig", "plan", "-f", write(service={"model": "bert"})).error

    assert error.startswith(
        "Service search has the model 'bert', which no table measures; name a table, or take "
        "a synthetic model: synth-mobile,"
    )


def test_too_few_gpus_are_told(call: Call, write: Write) -> None:
    path = write(
        service={"rate_per_s": 90_000}, gpus=[{"model": "A100-80GB", "limit": 3, "spare": 1}]
    )

    assert call("mig", "plan", "-f", path).error == (
        "No plan exists within the limit of 3 A100-80GB; raise a limit or offer another GPU "
        "model."
    )


BAD_TABLE = {
    ", line 2: throughput_per_s is '', but it must not be empty; fill the hole": (
        "bert,A100-80GB,1g.10gb,1,1,,10"
    ),
    ", line 2: batch is '1.5', but it must be a whole number.": (
        "bert,A100-80GB,1g.10gb,1.5,1,20,10"
    ),
    ", line 2: the row has 6 fields, the header 7; mend the row.": (
        "bert,A100-80GB,1g.10gb,1,1,20"
    ),
    ": profile of A100-80GB '1g.5gb' is not known;": "bert,A100-80GB,1g.5gb,1,1,20,10",
    ": GPU model of the measurements of bert 'K80' is not known;": "bert,K80,1g,1,1,20,10",
}


@pytest.mark.parametrize(("sentence", "row"), BAD_TABLE.items())
def test_a_table_with_holes_is_refused_with_its_line(
    sentence: str, row: str, call: Call, write: Write, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"{ROW}\n{row}\n")

    error = call("mig", "plan", "-f", write(), "--table", table).error

    assert error.startswith(f"{table}{sentence}")


def test_a_profile_that_was_not_measured_is_not_used_and_noted(
    call: Call, write: Write, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"{ROW}\nbert,A100-80GB,2g.20gb,1,1,100,10\n")

    said = call("mig", "plan", "-f", write(service={"model": "bert"}), "--table", table)

    # 900 a second at 100 an instance: nine 2g, three a GPU.
    assert said.out.startswith("3 A100-80GB, proven optimal")
    assert "has no row of bert on A100-80GB 1g.10gb, 3g.40gb, 4g.40gb, 7g.80gb" in said.err


BAD_STATE: dict[str, Any] = {
    "gpu-7 is impossible on A100-80GB: overlap: 3g.40gb@0 takes 4 units": [
        {"name": "MIG 3g.40gb", "placement": "0:4"},
        {"name": "MIG 1g.10gb", "placement": "3:1"},
    ],
    "gpu-7 is impossible on A100-80GB: start: 4g.40gb cannot start at 4; it may at 0.": [
        {"profile": "4g.40gb", "start": 4}
    ],
    "gpu-7 is impossible on A100-80GB: profile of A100-80GB '1g.5gb' is not known": [
        {"profile": "1g.5gb", "start": 0}
    ],
    "instance 1 of GPU 1: placement is missing; it must be start:size, as in 4:4.": [
        {"profile": "1g.10gb"}
    ],
}


@pytest.mark.parametrize(("sentence", "instances"), BAD_STATE.items())
def test_an_impossible_current_state_is_refused_with_its_rule(
    sentence: str, instances: list[object], call: Call, write: Write, tmp_path: Path
) -> None:
    current = tmp_path / "current.json"
    current.write_text(json.dumps({"gpus": [{"index": 7, "instances": instances}]}))

    error = call("mig", "plan", "-f", write(), "--current", current).error

    assert error.startswith(f"{current}: {sentence}")


def test_files_that_are_not_what_they_should_be_are_refused(
    call: Call, write: Write, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{ [")

    assert "this is not YAML" in call("mig", "plan", "-f", broken).error
    assert "this is not JSON" in call("mig", "plan", "-f", write(), "--current", broken).error
    assert "this is no performance table" in (
        call("mig", "plan", "-f", write(), "--table", broken).error
    )
    assert "No such file" in call("mig", "plan", "-f", tmp_path / "none.yaml").error
