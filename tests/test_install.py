"""Wheel and sdist are built, installed without extras, and work.

Dependencies come from the environment that runs the tests, those of extras are hidden: what a
plain install has is there, and nothing else.
"""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from interlane.cli.extras import EXTRA_OF

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SITE = Path(distribution("numpy").locate_file(""))  # type: ignore[arg-type]

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    words = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def plain(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel alone, beside which modules of extras cannot be found."""
    folder = tmp_path_factory.mktemp("plain")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden=set(EXTRA_OF)))
    return folder


def _run(plain: Path, *words: object, cache: Path) -> "subprocess.CompletedProcess[str]":
    env = {
        **os.environ,
        "PYTHONPATH": str(plain),
        "NUMBA_CACHE_DIR": str(cache),
        "INTERLANE_STATE": str(cache / "state"),
    }
    return subprocess.run(
        [sys.executable, "-m", "interlane", *map(str, words)],
        capture_output=True,
        text=True,
        env=env,
        cwd=EXAMPLES,
        check=False,
    )


def test_the_wheel_has_the_package_its_types_and_its_data(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {"interlane/py.typed", "interlane/__init__.pyi"} <= names
    assert "interlane/mig/data/profiles.json" in names
    assert not any(name.startswith(("tests/", "docs/")) or "/numba-" in name for name in names)


def test_the_sdist_can_build_the_wheel_and_the_documentation(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {"pyproject.toml", "mkdocs.yml", "docs/index.md", "examples/jobs.csv", "Makefile"}
    assert wanted <= names


def test_a_plain_install_simulates(plain: Path, tmp_path: Path) -> None:
    said = _run(plain, "simulate", "jobs.csv", "--cluster", "lab.yaml", cache=tmp_path)

    assert said.returncode == 0, said.stderr
    assert "mean_wait_s          700" in said.stdout
    assert str(plain) not in said.stderr
    assert not list(tmp_path.rglob("*.nbi"))  # nothing was compiled for it


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "jobs.csv", "--cluster", "lab.yaml", "--policy", "order=sjf"),
        ("trace", "describe", "jobs.csv"),
        ("policies",),
        ("mig", "plan", "-f", "services.yaml", "--optimiser", "greedy"),
        ("explain", "pretrain", "--trace", "jobs.csv", "--cluster", "lab.yaml", "--at", "2000"),
    ],
    ids=lambda words: words[0],
)
def test_a_plain_install_does_what_needs_no_extra(
    words: tuple[str, ...], plain: Path, tmp_path: Path
) -> None:
    said = _run(plain, *words, cache=tmp_path)

    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("up",), "server"),
        (("trace", "report", "jobs.csv", "--out", "/dev/null"), "report"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_what_is_missing_is_one_sentence_that_names_the_extra(
    words: tuple[str, ...], extra: str, plain: Path, tmp_path: Path
) -> None:
    said = _run(plain, *words, cache=tmp_path)

    assert said.returncode == 2
    assert "Traceback" not in said.stderr
    assert f"interlane[{extra}]" in said.stderr.splitlines()[-1]


def test_every_dependency_of_an_extra_is_known_by_the_extra_that_brings_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = declared["optional-dependencies"]
    modules = {
        "scikit-learn": "sklearn",
        "nvidia-ml-py": "pynvml",
        "grpcio": "grpc",
        "protobuf": "google",
    }
    for extra in ("ml", "mig", "report", "gpu", "server", "postgres", "kubernetes"):
        for line in groups[extra]:
            name = Requirement(line).name
            if name != "interlane":
                module = modules.get(name, name.replace("-", "_"))
                assert EXTRA_OF.get(module) == extra, name
    assert requires("interlane")
