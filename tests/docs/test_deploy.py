"""Files for operators say what this version can do."""

import configparser
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from interlane import cli
from interlane.live.auth import Role
from interlane.testing.live import driving, serving

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_dashboard_is_what_its_script_makes() -> None:
    made = runpy.run_path(str(DEPLOY / "make_dashboard.py"))["text"]()

    assert (DEPLOY / "grafana.json").read_text() == made


def test_the_dashboard_asks_for_figures_that_a_server_has(tmp_path: Path) -> None:
    import httpx

    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"interlane_\w+", target["expr"])
    }

    with driving(tmp_path) as driver, serving(driver) as (url, tokens):
        head = {"Authorization": f"Bearer {tokens[Role.VIEWER]}"}
        page = httpx.get(f"{url}/metrics", headers=head, timeout=60).text

    families = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    known = families | {f"{one}_bucket" for one in families}
    assert asked - known == set()
    assert len(asked) > 10


def test_the_unit_starts_a_server_with_options_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "interlane.service")
    service = dict(unit["Service"])
    program, command, *words = shlex.split(service["ExecStart"])

    cli.run([command, "--help"])
    known = capsys.readouterr().out

    assert Path(program).name == "interlane"
    assert [word for word in words if word.startswith("--") and word not in known] == []
    # Jobs outlive the server: whoever ends it must not end them.
    assert service["KillMode"] == "process"


def test_the_container_is_made_of_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "Containerfile").read_text()

    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
        for word in line.split()
    ]
    ((command, *words),) = [json.loads(one) for one in re.findall(r"^CMD (.*)$", text, re.M)]
    cli.run([command, "--help"])
    known = capsys.readouterr().out
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)

    assert copied
    assert all((ROOT / one).exists() for one in copied)
    assert [word for word in words if word.startswith("--") and word not in known] == []
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(declared["optional-dependencies"])


def test_what_is_to_be_scraped_is_yaml_with_a_token() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]

    assert job["authorization"]["credentials_file"]


def test_the_script_of_the_dashboard_runs_alone(tmp_path: Path) -> None:
    script = tmp_path / "make_dashboard.py"
    script.write_text((DEPLOY / "make_dashboard.py").read_text())

    subprocess.run([sys.executable, script], check=True)

    assert json.loads((tmp_path / "grafana.json").read_text())["title"] == "interlane"
