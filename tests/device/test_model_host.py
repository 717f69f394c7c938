"""One bad model is answered to whoever asked it; the others answer as before."""

import os
import signal
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.device.bench.stage import BenchStage
from interlane.device.launch import status
from interlane.device.model_host import STRIKES, ModelFailed, ModelHost
from interlane.model import InvalidInput, UnknownName
from interlane.model.errors import Rejected
from interlane.testing.waiting import until

MODELS = """
import os, time

def double():
    return lambda number: 2 * number

def raising():
    def model(_):
        raise ValueError("bad shape")
    return model

def hanging():
    return lambda seconds: time.sleep(seconds)

def deadly():
    return lambda code: os._exit(code)

def sticky():
    def model(_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return model

def unpicklable():
    return lambda _: (one for one in ())

def never_loads():
    time.sleep(600)

def dies_loading():
    os._exit(9)

def raises_loading():
    raise FileNotFoundError("weights.pt")

def linear():
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = torch.nn.Linear(4, 2).eval()
    @torch.no_grad()
    def model(rows):
        return layer(rows)
    return model
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosted_models.py").write_text(textwrap.dedent(MODELS))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def host() -> Iterator[ModelHost]:
    with ModelHost(request_s=60.0) as made:
        made.add("good", "hosted_models:double")
        yield made


def test_a_model_answers(host: ModelHost) -> None:
    assert host("good", 21) == 42
    assert host.models == ("good",)


@pytest.mark.parametrize(
    ("factory", "argument", "said", "restarts"),
    [
        ("raising", 1, "ValueError: bad shape", 0),
        ("unpicklable", 1, "its answer cannot be pickled", 0),
        ("double", None, "TypeError", 0),
        ("deadly", 7, "ended its host with exit code 7", 1),
        ("sticky", 1, "illegal memory access", 1),
    ],
)
def test_a_bad_model_is_answered_for_its_request_only(
    host: ModelHost, factory: str, argument: object, said: str, restarts: int
) -> None:
    host.add("bad", f"hosted_models:{factory}")

    with pytest.raises(ModelFailed, match=said):
        host("bad", argument)

    assert host("good", 21) == 42
    assert host.restarts == restarts


def test_a_model_that_hangs_is_given_up_and_the_others_come_back(host: ModelHost) -> None:
    host.add("slow", "hosted_models:hanging")

    with pytest.raises(ModelFailed, match=r"did not answer within 0\.1 s"):
        host.call("slow", 600, timeout_s=0.1)

    assert host("good", 21) == 42
    assert host.call("slow", 0) is None


def test_requests_of_others_wait_for_a_restart_and_are_answered(host: ModelHost) -> None:
    host.add("deadly", "hosted_models:deadly")
    answers: list[object] = []

    def ask() -> None:
        for number in range(20):
            answers.append(host("good", number))

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(ModelFailed):
        host("deadly", 1)
    asking.join()

    assert answers == [2 * number for number in range(20)]


@pytest.mark.parametrize(
    ("factory", "said", "restarts"),
    [
        ("hosted_models:never_loads", "did not answer within 0.5 s", 1),
        ("hosted_models:dies_loading", "ended its host with exit code 9", 1),
        ("hosted_models:raises_loading", "FileNotFoundError: weights.pt", 0),
        ("hosted_models:gone", "AttributeError", 0),
        ("no_such_module:model", "ModuleNotFoundError", 0),
    ],
)
def test_a_model_that_does_not_load_leaves_the_others_loaded(
    factory: str, said: str, restarts: int
) -> None:
    with ModelHost(load_s=0.5 if "never" in factory else 60.0) as host:
        host.add("good", "hosted_models:double")

        with pytest.raises(ModelFailed, match=said):
            host.add("bad", factory)

        assert host.models == ("good",)
        assert host("good", 21) == 42
        assert host.restarts == restarts


def test_a_factory_that_cannot_be_pickled_is_refused(host: ModelHost) -> None:
    with pytest.raises(ModelFailed, match="its factory cannot be pickled"):
        host.add("local", lambda: lambda: 1)
    assert host("good", 1) == 2


def test_a_model_that_ends_its_host_again_and_again_is_not_started_again(
    host: ModelHost,
) -> None:
    host.add("deadly", "hosted_models:deadly")
    for _ in range(STRIKES):
        with pytest.raises(ModelFailed, match="ended its host"):
            host("deadly", 1)

    with pytest.raises(ModelFailed, match=r"is not loaded: it ended its host.*remove and add"):
        host("deadly", 1)

    assert host.restarts == STRIKES
    assert host("good", 21) == 42
    host.remove("deadly")
    host.add("deadly", "hosted_models:double")
    assert host("deadly", 1) == 2


def test_a_host_that_is_killed_is_back_for_the_next_request(host: ModelHost) -> None:
    os.kill(host._process.pid, signal.SIGKILL)
    host._process.wait()

    assert host("good", 21) == 42
    assert host.restarts == 1


def test_an_interrupted_request_is_not_answered_to_the_next(host: ModelHost) -> None:
    host.add("slow", "hosted_models:hanging")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            host("slow", 1)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert host("good", 21) == 42


def test_bad_calls_are_refused_in_a_sentence(host: ModelHost) -> None:
    with pytest.raises(UnknownName, match="known are: good"):
        host("goood", 1)
    with pytest.raises(InvalidInput, match="there is a model 'good' already"):
        host.add("good", "hosted_models:double")
    host.remove("good")
    with pytest.raises(UnknownName):
        host("good", 1)
    host.close()
    with pytest.raises(InvalidInput, match="closed"):
        host("good", 1)


def test_many_torch_models_share_one_process_and_answer_with_tensors() -> None:
    import torch

    with ModelHost() as host:
        for number in range(12):
            host.add(f"m{number}", "hosted_models:linear")

        answers = [host(name, torch.ones(3, 4)) for name in host.models]

        assert all(answer.equal(answers[0]) for answer in answers)
        assert answers[0].shape == (3, 2)


def test_models_are_admitted_by_the_daemon_and_refused_beyond_the_device(
    tmp_path: Path,
) -> None:
    stage = BenchStage(tmp_path)
    with stage.daemon("fair", device="cpu:100MiB") as path, ModelHost(share=Path(path)) as host:
        host.add("a", "hosted_models:double", memory="40MiB+20MiB")
        host.add("b", "hosted_models:double", memory="40MiB+20MiB")
        assert [host("a", 1), host("b", 2)] == [2, 4]
        booked = [device.booked_bytes for device in status(Path(path)).devices]
        assert booked == [100 << 20]

        with pytest.raises(Rejected):
            host.add("c", "hosted_models:double", memory="100MiB+20MiB")
        host.remove("b")
        host.add("d", "hosted_models:double", memory="30MiB+20MiB")

        assert host("d", 3) == 6
        until(lambda: status(Path(path)).devices[0].booked_bytes == 90 << 20)


def test_the_models_of_a_host_cost_one_context(tmp_path: Path) -> None:
    stage = BenchStage(tmp_path)
    # A job on a GPU is booked with 512 MiB for its context: five of them would not fit.
    with (
        stage.daemon("fair", device="cuda:0:2GiB") as path,
        ModelHost(share=Path(path)) as host,
    ):
        for name in "abcde":
            host.add(name, "hosted_models:double", memory="100MiB+50MiB")

        (device,) = status(Path(path)).devices

        assert device.booked_bytes == (512 + 5 * 100 + 50) << 20
        assert host("e", 4) == 8


def test_the_worker_ends_with_its_supervisor() -> None:
    host = ModelHost()
    worker = host._process

    host._line.close()

    assert worker.wait(timeout=60) == 0
