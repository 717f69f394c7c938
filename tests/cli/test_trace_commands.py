import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from interlane.cli.trace import app
from interlane.model import InvalidFile, InvalidInput
from interlane.traces.read import read_trace

HEADER = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user"
ROWS = ("1,1,0,6.0,1.0,MISC,80,ann", "2,4,5,6.0,0.5,T4,60,bob", "3,1,5,6.0,0.5,T4,0,bob")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.csv"
    path.write_text("\n".join((HEADER, *ROWS)))
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_convert_writes_our_schema_and_talks_on_stderr(
    source: Path, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"target{ending}"

    result = CliRunner().invoke(app, ["convert", str(source), str(target), "--skip-bad"])

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "2 jobs, 1 bad rows left out" in result.stderr
    assert read_trace(target).jobs == 2


def test_convert_stops_at_a_bad_row_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.csv"

    result = CliRunner().invoke(app, ["convert", str(source), str(target)])

    assert isinstance(result.exception, InvalidFile)
    assert "source.csv, line 4: duration is '0'" in str(result.exception)
    assert not target.exists()


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_describe_prints_data_only(source: Path, output: str) -> None:
    result = CliRunner().invoke(app, ["describe", str(source), "--skip-bad", "-o", output])

    answer = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
    assert (answer["jobs"], answer["instances"], answer["bad_rows"]) == (2, 5, 1)
    assert "line 4: duration is '0'" in result.stderr


def test_describe_prints_a_table_for_people(source: Path) -> None:
    result = CliRunner().invoke(app, ["describe", str(source), "--skip-bad"])

    lines = result.stdout.splitlines()
    assert any(line.split() == ["jobs", "2"] for line in lines)
    assert any(line.startswith("duration_s") and "p50 70" in line for line in lines)


def test_describe_takes_a_format(source: Path) -> None:
    result = CliRunner().invoke(app, ["describe", str(source), "--format", "openb"])

    assert "no column 'name'" in str(result.exception)


def test_synth_writes_the_same_trace_for_the_same_seed(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    action = ["--jobs", "200", "--cluster", "pool:64", "--seed", "4", "--load", "0.5"]

    results = [CliRunner().invoke(app, ["synth", str(path), *action]) for path in (one, two)]

    assert [result.exit_code for result in results] == [0, 0]
    assert "200 jobs for pool:64, seed 4" in results[0].stderr
    assert one.read_bytes() == two.read_bytes()
    assert read_trace(one).jobs == 200


def test_synth_writes_all_tables_like_pai(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    action = ["--like", "pai2020", "--days", "1", "--scale", "0.005", "--seed", "2"]

    result = CliRunner().invoke(app, ["synth", str(target), *action])

    assert result.exit_code == 0
    assert "95 jobs" in result.stderr
    assert len(list(target.glob("pai_*.csv"))) == len(list(target.glob("pai_*.header"))) == 7
    assert read_trace(target).jobs == 95


WRONG = {
    "days is -1.0": ["--like", "pai2020", "--days", "-1"],
    "scale is 0.0": ["--like", "pai2020", "--scale", "0"],
    "seed is -1": ["--like", "pai2020", "--seed", "-1"],
    "published trace 'philly' is not known": ["--like", "philly"],
    "--jobs means nothing with --like": ["--like", "pai2020", "--jobs", "5"],
    "--load means nothing with --like": ["--like", "pai2020", "--load", "0.5"],
    "--scale means nothing with --jobs": ["--jobs", "5", "--scale", "0.5"],
    "Say what to make": [],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_synth_refuses_what_makes_no_sense(tmp_path: Path, sentence: str) -> None:
    result = CliRunner().invoke(app, ["synth", str(tmp_path / "x"), *WRONG[sentence]])

    assert isinstance(result.exception, InvalidInput)
    assert sentence in str(result.exception)
    assert not (tmp_path / "x").exists()


def test_the_commands_load_no_table_library_before_they_run() -> None:
    code = "import sys, interlane.cli.trace; print({'polars', 'numpy'} & set(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert loaded.stdout.strip() == b"set()"
