import json
import os

from tests.cli.conftest import Call


def test_doctor_says_what_holds(call: Call) -> None:
    said = call("doctor")

    assert said.code == 0
    assert "hard cap" in said.out
    assert "lanes on the CPU" in said.out


def test_doctor_says_what_jobs_are_held_to(call: Call) -> None:
    said = json.loads(call("doctor", "-o", "json").out)

    found = {one["name"]: one for one in said["findings"]}
    assert {"job groups", "job memory", "job processes", "job cores", "accounts"} <= set(found)
    assert found["accounts"]["holds"] == (os.getuid() == 0)
    assert "groups" in found["job groups"]["here"] or "watcher" in found["job groups"]["here"]


def test_doctor_answers_in_json(call: Call) -> None:
    said = json.loads(call("doctor", "-o", "json").out)

    assert {"name", "holds", "here", "follows"} <= set(said["findings"][0])
    assert set(said["promises"]) == {"lanes on the CPU", "lanes on a GPU", "model host"}
