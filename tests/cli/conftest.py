from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interlane import cli
from interlane.live.auth import Role
from interlane.live.driver import Driver
from interlane.testing.live import clear, driving, serving

HEADER = "job_id,submit_s,duration_s,gpus,gpu_milli,cpu_milli,user,priority,user_dur"
# Two GPUs: a holds both, b must wait for it, c needs half of one.
ROWS = (
    "a,0,100,2,1000,1000,ann,0,90",
    "b,10,50,2,1000,1000,bob,0,200",
    "c,20,30,1,500,1000,bob,1,20",
)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one sentence that must be all of stderr, with nothing on stdout."""
        assert self.code == 2, self.err
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("interlane: error: "), line
        return line.removeprefix("interlane: error: ")


Call = Callable[..., Said]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process."""

    def run(*words: object) -> Said:
        capsys.readouterr()
        code = cli.run([str(word) for word in words])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A cluster of one machine with two GPUs."""
    path = tmp_path / "lab.yaml"
    path.write_text(
        "name: lab\nmachines:\n"
        "  - {name: one, gpu_type: T4, gpus: 2, cpus: 16, memory_gib: 64}\n"
    )
    return path


JOBS = {
    "quick": "name: quick\nrun: echo hello; exit 3\n",
    "long": "name: long\nrun: exec sleep 1000\nresources: {gpu: {count: 2}}\n",
    "wide": "name: wide\nrun: 'true'\nresources: {gpu: {count: 3}}\n",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, str, str]]:
    """A server of two emulated devices: its driver, its address, a user's token."""
    with (
        driving(tmp_path_factory.mktemp("state")) as driver,
        serving(driver) as (url, tokens),
    ):
        yield driver, url, tokens[Role.USER]


@pytest.fixture
def files(
    machine: tuple[Driver, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Job files, in a folder from which the server is found."""
    driver, url, token = machine
    for name, text in JOBS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLANE_SERVER", url)
    monkeypatch.setenv("INTERLANE_TOKEN", token)
    monkeypatch.setenv("INTERLANE_STATE", str(tmp_path / "state"))
    yield tmp_path
    clear(driver)
