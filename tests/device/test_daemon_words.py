"""What the daemon is told, and what it tells."""

import json
import urllib.request
from pathlib import Path

import pytest

from interlane import cli
from interlane.device import attach, wire
from interlane.device.lane_request import LaneRequest
from interlane.device.rendezvous import make_directory, socket_path
from interlane.device.specs import read_spec
from interlane.model import InvalidInput, Rejected
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, Stage


def test_devices_are_read_from_their_words() -> None:
    assert read_spec("cpu:1GiB:0").cores == {0}
    assert read_spec("cpu:1GiB:0").core_bits == 1
    assert read_spec("cuda:1:14GiB").name == "cuda:1"
    assert read_spec("cpu").capacity_bytes > 0


@pytest.mark.parametrize(
    "text", ["gpu", "cpu:0", "cpu:1GiB:x", "cpu:1GiB:9999", "cuda", "cuda:0", "cuda:x:1GiB", ""]
)
def test_what_is_no_device_is_said_so(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["share", "daemon", "--device", text, "--socket", "/tmp/never/s"]) == 2
    assert "--device is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--order", "fare"), "did you mean 'fair'?"),
        (("--sharing", "some"), "known are: beside, measured, turns"),
        (("--socket", "/" + "long/" * 30), "a socket's path has at most 103 bytes"),
    ],
)
def test_words_that_the_daemon_does_not_know_are_said_so(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = () if "--socket" in words else ("--socket", str(tmp_path / "s"))

    assert cli.run(["share", "daemon", "--device", "cpu:1GiB", *place, *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--time", "inf"), "time is inf, but a device time is 0 seconds or more"),
        (("--time", "nan"), "Invalid value for '--time'"),
        (("--device", "70000"), "device is 70000, but devices have numbers from 0 to 65534"),
        (("--memory", "+1GiB"), "--memory is '', but an amount of memory reads like"),
    ],
)
def test_requests_that_no_daemon_could_be_told_of_are_said_so(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["share", "run", "--socket", "/tmp/never/s", *words, "--", "true"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_time_beyond_all_clocks_still_fits_into_a_frame() -> None:
    hello = LaneRequest("job", total_s=1e300).hello(1)

    assert wire.read(wire.packed(hello)) == hello


def test_a_directory_that_others_can_write_to_is_no_place_for_a_daemon(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    with pytest.raises(InvalidInput, match="must be yours and closed to others"):
        make_directory(tmp_path / "open")


def test_the_socket_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.delenv("INTERLANE_SHARE_SOCKET", raising=False)
    assert socket_path() == Path("/run/user/7/interlane/share.sock")
    monkeypatch.setenv("INTERLANE_SHARE_SOCKET", "/somewhere/s")
    assert socket_path() == Path("/somewhere/s")
    assert socket_path(Path("/else/s")) == Path("/else/s")


def test_status_and_metrics_tell_of_the_same_jobs(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.daemon("--metrics", "0")
    port = stage.log.split("127.0.0.1:")[1].split("/")[0]
    memory = {"persistent_bytes": 100 * MIB, "ephemeral_bytes": 156 * MIB}
    with stage.client("mine", **memory) as client, client.iteration():
        assert cli.run(["share", "status", "--socket", str(stage.address)]) == 0
        table = capsys.readouterr().out
        assert cli.run(["share", "status", "-o", "json", "--socket", str(stage.address)]) == 0
        document = json.loads(capsys.readouterr().out)
        until(lambda: 'state="running"' in metrics(port))
        exposed = metrics(port)

    assert table.startswith("cpu  #####............... 256.0 MiB of 1.0 GiB booked")
    assert "mine" in table
    assert "running" in table
    (job,) = document["devices"][0]["jobs"]
    assert (job["name"], job["state"], job["lane"]) == ("mine", "running", 0)
    assert 'interlane_share_booked_bytes{device="cpu",index="0"} 2.68435456e+08' in exposed
    assert 'interlane_share_jobs{device="cpu",index="0",state="running"} 1.0' in exposed


def metrics(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


def test_two_lines_attach_a_program_that_knows_its_iterations(stage: Stage) -> None:
    stage.daemon()

    with attach(name="mine", priority=3, socket=stage.address) as device:
        assert attach(socket=stage.address) is device
        with device.iteration():
            assert stage.states == {"mine": "running"}
        assert device.iterations == 1
        assert stage.device.processes[0].priority == 3

    until(lambda: not stage.device.processes)
    with attach(name="again", socket=stage.address) as another:
        assert another is not device
        with pytest.raises(Rejected, match="the job has left the device"):
            device.begin()


def test_a_daemon_that_nobody_needs_leaves(stage: Stage) -> None:
    daemon = stage.daemon("--leave-after", "1")

    assert daemon.wait(PATIENCE_S) == 0
    assert not stage.address.exists()
