"""A real function beside a real training: what both suffer, and who must move."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from interlane import cli
from interlane.live.auth import Role
from interlane.live.functions.gateway import FunctionSettings
from interlane.live.measure.coruns import BESIDE, LATENCY, CoRunFiles, function_workload
from interlane.testing.live import driving, make_lanes, serving
from interlane.testing.waiting import until
from interlane.traces.colocation import read

from .test_functions import Client, client_of

pytest.importorskip("torch")

TRAIN = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
"""
ASKERS = 16


@contextmanager
def machine() -> Iterator[tuple[Path, Client]]:
    """Two devices with a daemon; the folder's path is short enough for its socket."""
    with TemporaryDirectory(prefix="sides-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        with (
            driving(folder, gpus=2, lanes=make_lanes(folder, gpus=2)) as driver,
            serving(driver, FunctionSettings(slot_s=1.0)) as (url, tokens),
            client_of(url, tokens[Role.USER]) as client,
        ):
            driver.monitor.tell = CoRunFiles(folder / "coruns", "EMULATED").add
            yield folder, client


class Asking:
    """Calls a function without end, with as many seconds as it is told."""

    def __init__(self, client: Client, name: str) -> None:
        self.seconds = 0.05
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._ends = False
        self._client, self._name = client, name

    def __enter__(self) -> "Asking":
        self._pool = ThreadPoolExecutor(ASKERS)
        for _ in range(ASKERS):
            self._pool.submit(self._ask)
        return self

    def __exit__(self, *what: object) -> None:
        self._ends = True
        self.goes_on.set()
        self._pool.shutdown()

    def _ask(self) -> None:
        while not self._ends:
            self.goes_on.wait()
            with suppress(httpx.HTTPError):
                self._client.call(self._name, self.seconds)


def submit(client: Client, name: str, run: str, memory: str, folder: Path) -> str:
    job = {
        "name": name,
        "group": name,
        "run": f"exec {run}",
        "workdir": str(folder),
        "resources": {"gpu": {"count": 1, "memory": memory}},
    }
    found: str = client.post("/jobs", json=job).json()["id"]
    return found


def job(client: Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/jobs/{job_id}").json()
    return found


def device(client: Client) -> str | None:
    return next((one["device"] for one in client.look("slow")["replicas"]), None)


def iterations(client: Client, job_id: str) -> int:
    use = job(client, job_id)["use"]
    return int(use["iterations"]) if use else 0


def test_a_function_that_suffers_too_much_moves_away_and_the_training_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine() as (folder, client):
        monkeypatch.setenv("INTERLANE_SERVER", str(client.base_url).removesuffix("/api/v1/"))
        monkeypatch.setenv("INTERLANE_TOKEN", client.headers["Authorization"].split()[1])
        filler = submit(client, "filler", "sleep 1000", "16GiB", folder)
        until(lambda: job(client, filler)["state"] == "running")
        client.ready(
            "slow", "sleeps", deadline="2s", concurrency=ASKERS, replicas={"max": 1}, keep="1h"
        )
        with Asking(client, "slow") as asking:
            until(lambda: len(client.look("slow")["slots"]) > 6, "calls beside no job")
            home = device(client)
            asking.goes_on.clear()
            training = submit(client, "train", f"{sys.executable} train.py", "4GiB", folder)
            until(lambda: iterations(client, training) > 200, "iterations beside no call")
            asking.goes_on.set()
            until(lambda: client.look("slow")["beside_jobs"], "calls beside the job")
            until(lambda: job(client, training)["beside_functions"], "iterations beside calls")
            (calm,) = client.look("slow")["beside_jobs"]
            (trained,) = job(client, training)["beside_functions"]
            figures = client.get(f"{client.base_url.copy_with(path='/metrics')}").text
            assert cli.run(["function", "list"]) == 0
            assert cli.run(["function", "describe", "slow"]) == 0
            assert cli.run(["describe", training]) == 0

            client.delete(f"/jobs/{filler}")
            asking.seconds = 1.2  # more than half of the deadline, as if the job were at fault
            until(lambda: device(client) not in (home, None), "a move")

        after = client.look("slow")
        placed = job(client, training)
        kept = read(folder / "coruns")

    name = str(function_workload("slow"))
    assert (calm["device"], calm["beside"]) == (home, [training])
    assert 0.5 < calm["mean"] < calm["limit"]
    assert 1.0 <= calm["predicted"] < calm["limit"]
    assert (trained["device"], trained["beside"]) == (home, [name])
    assert trained["limit"] == pytest.approx(1 / 0.9)
    assert after["evicted"] == 1
    assert placed["state"] == "running"
    assert placed["placement"][0]["gpus"] == [int(str(home).rpartition("/")[2])]
    where = f'device="{home}",function="slow",kind="measured"'
    assert f"interlane_function_slowdown_ratio{{{where}}}" in figures
    where = f'device="{home}",job="{training}",kind="predicted"'
    assert f"interlane_job_slowdown_by_functions_ratio{{{where}}}" in figures
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if line.startswith("slow "))
    assert row.split()[-1] != "-", "what was predicted"
    assert f"\n{training}  " in told.partition("beside jobs")[2]
    assert f"\n{name}  " in told.partition("beside functions")[2]
    assert {run[1:3] for run in kept.coruns[LATENCY]} == {(name, "train")}
    assert {run[1:3] for run in kept.coruns[BESIDE]} == {("train", name)}
