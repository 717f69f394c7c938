"""``interlane function``: from a file to an answer; what is wrong is one sentence."""

import json
from pathlib import Path

import pytest

from interlane import cli
from interlane.live.auth import Role
from interlane.testing.live import driving, serving

HANDLER = "def hello(asked):\n    print('asked', asked)\n    return {'hello': asked}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLANE_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["deploy"], 2, "deploy needs NAME and MODULE:CALLABLE, or a file with -f"),
        (["deploy", "a"], 2, "deploy needs NAME and MODULE:CALLABLE"),
        (["deploy", "-f", "none.yaml"], 2, "none.yaml: No such file"),
        (["list"], 3, "No server was ever started"),
    ],
)
def test_what_is_wrong_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert cli.run(["function", *words]) == code
    assert says in capsys.readouterr().err


def test_a_function_goes_from_file_to_answer(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "hello.py").write_text(HANDLER)
    (here / "f.yaml").write_text("name: hi\nhandler: hello:hello\nmemory: 64MB\n")

    def said(*words: str) -> str:
        assert cli.run(["function", *words]) == 0
        return capsys.readouterr().out

    with driving(here / "state") as driver, serving(driver) as (url, tokens):
        monkeypatch.setenv("INTERLANE_SERVER", url)
        monkeypatch.setenv("INTERLANE_TOKEN", tokens[Role.USER])

        assert said("deploy", "-f", "f.yaml", "--deadline", "7s") == "hi warm\n"
        assert said("invoke", "hi", "[1, 2]") == '{"hello":[1,2]}\n'
        assert said("logs", "hi") == "asked [1, 2]\n"
        shown = json.loads(said("describe", "hi", "-o", "json"))
        assert shown["spec"]["deadline"] == "7s"
        assert "deadline_misses  0" in said("describe", "hi")
        assert said("list").splitlines()[1].split()[:3] == ["hi", "warm", "1"]
        assert cli.run(["function", "invoke", "hi", "{"]) == 2
        assert cli.run(["function", "delete", "hi"]) == 0
        assert said("list") == "No functions.\n"
