"""Job files and what a command changes in them: what is submitted, and what is refused."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def spec_of(call: Call, job: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(call("describe", job, "-o", "json").out)["spec"]
    return spec


def test_files_are_named_as_arguments_or_options(call: Call, files: Path) -> None:
    both = call("submit", "quick.yaml", "-f", "quick.yaml")

    assert both.code == 0, both.err
    assert [line.split()[0].rpartition("-")[0] for line in both.out.splitlines()] == [
        "quick",
        "quick",
    ]


def test_every_document_of_a_file_is_a_job(call: Call, files: Path) -> None:
    text = "name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n---\n"
    (files / "two.yaml").write_text(text)

    said = call("submit", "two.yaml", "-o", "json")

    assert [job["name"] for job in json.loads(said.out)["jobs"]] == ["a", "b"]


def test_a_wrong_document_is_named_and_those_before_it_are_told(
    call: Call, files: Path
) -> None:
    (files / "two.yaml").write_text("name: a\nrun: 'true'\n---\nname: b\nrn: 'true'\n")

    said = call("submit", "two.yaml")

    assert said.code == 2
    assert said.out.startswith("a-")
    assert "two.yaml, document 2: rn is not a field of a job; did you mean 'run'?" in said.err


def test_options_change_what_a_file_says(call: Call, files: Path) -> None:
    (files / "job.yaml").write_text(
        "name: a\nrun: 'true'\nenv: {A: '1', B: '2'}\nresources: {gpu: {memory: 1GB}}\n"
    )
    changes = ("--name", "trial", "--gpus", "2", "--env", "A=7", "--set", "time.limit=2h")

    said = call("submit", "job.yaml", *changes, "--set", "priority=80", "--set", "env.C=1.10")

    assert said.code == 0, said.err
    spec = spec_of(call, said.out.split()[0])
    assert (spec["name"], spec["priority"], spec["time"]) == ("trial", 80, {"limit": "2h"})
    assert spec["env"] == {"A": "7", "B": "2", "C": "1.10"}
    assert spec["resources"]["gpu"] == {"count": 2, "memory": "1GB"}


def test_variables_are_taken_as_they_are_written(call: Call, files: Path) -> None:
    (files / "job.yaml").write_text("name: a\nrun: 'true'\nenv: {A: 1.10, B: 010, C: yes}\n")

    said = call("submit", "job.yaml")

    assert spec_of(call, said.out.split()[0])["env"] == {"A": "1.10", "B": "010", "C": "yes"}


def test_an_impossible_job_is_refused_with_its_reason_and_the_rest_is_submitted(
    call: Call, files: Path
) -> None:
    said = call("submit", "wide.yaml", "quick.yaml")

    assert said.code == 7
    assert [line.split()[1] for line in said.out.splitlines()] == ["refused", "starting"]
    assert "never fits: Task worker asks for 1 x (3 GPU)" in said.err
    as_json = call("submit", "wide.yaml", "-o", "json")
    assert (as_json.code, json.loads(as_json.out)["state"]) == (7, "refused")


def test_a_gang_that_is_too_large_is_told_how_many_fit(call: Call, files: Path) -> None:
    (files / "gang.yaml").write_text(
        "name: gang\nrun: 'true'\nresources: {gpu: 1}\ngang: {nodes: 10}\n"
    )

    said = call("submit", "gang.yaml")

    assert said.code == 7
    assert "Ask for at most 2 instances" in said.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"name: \xff\n", "job.yaml is not text in UTF-8 (byte 6 is 0xff); save it as UTF-8."),
        (b"name: a\nrun: x\nrun: y\n", "job.yaml says 'run' twice, in lines 2 and 3"),
        (b"name: a\nrun: x\nkind: pod\n", "kind is 'pod', but it must be 'job'"),
        (b"name: a\nrun: x\nresources: {memory: 4}\n", "write 4GB if you mean gigabytes"),
        (b"name: a\nrun: x\nresources: {gpu: 1.5}\n", "GPUs are whole, or a share of one"),
        (b"name: a\nrun: x\ntime: {limit: 1h, expected: 2h}\n", "would end it after 1h"),
        (b"name: a\nrun: x\nworkdir: /not/there\n", "has no such folder"),
        (b"---\n", "job.yaml holds no job"),
        (b"name: a\nrun: 'x" + b"y" * (1 << 20) + b"'\n", "job.yaml: "),
    ],
)
def test_what_is_wrong_in_a_file_is_one_sentence(
    call: Call, files: Path, text: bytes, says: str
) -> None:
    (files / "job.yaml").write_bytes(text)

    said = call("submit", "job.yaml")

    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("submit",), "No job file is given"),
        (("submit", "quick.yaml", "--gpus", "two"), "--gpus is 'two'"),
        (("submit", "quick.yaml", "--gpus", "nan"), "--gpus is 'nan'"),
        (("submit", "quick.yaml", "--env", "A"), "it must read like NAME=VALUE"),
        (("submit", "quick.yaml", "--set", "tasks.0.x=1"), "tasks is {'0': {'x': 1}}"),
        (("submit", "quick.yaml", "--set", "name.x=1"), "would be inside 'quick'"),
        (("submit", "quick.yaml", "long.yaml", "--key", "k"), "--key is for one job"),
        (("plan", "quick.yaml", "long.yaml"), "holds 2 jobs; give one at a time"),
        (("describe", ""), "There is no job ''"),
        (("describe", "../../etc"), "There is no job '../../etc'"),
    ],
)
def test_what_is_wrong_in_a_command_is_one_sentence(
    call: Call, files: Path, words: tuple[str, ...], says: str
) -> None:
    said = call(*words)

    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_half_a_gpu_is_asked_for_as_elsewhere(call: Call, files: Path) -> None:
    said = call("submit", "quick.yaml", "--gpus", "0.5")

    gpu = spec_of(call, said.out.split()[0])["resources"]["gpu"]
    assert gpu == {"compute": "500m"}  # of one GPU, which is what is meant without a count


def test_a_server_that_takes_its_time_is_waited_for_aloud(
    call: Call, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from interlane.cli.client import ApiClient, ServerOptions

    said: list[str] = []
    heard = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = ApiClient(ServerOptions(url), silent_s=0.01, say=told_to(said, heard))

        def answer() -> None:
            connection, _ = silent.accept()
            heard.wait()
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
            )
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert client.get("/jobs").document() == {}
        thread.join()

    assert said == [f"still waiting for {url} (at most 60 s; Control-C ends this) ..."]


def told_to(said: list[str], heard: Any) -> Callable[[str], None]:  # noqa: ANN401
    def told(line: str) -> None:
        said.append(line)
        heard.set()

    return told
