"""What others wrote is printed without harm to the terminal."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.cli import run
from interlane.cli.output import OutputFormat, as_shown, emit, harmless, say, strong

EVIL = "a\x1b]0;title\x07b\x9b2Jc\x1b[31md\u202ee\rf"
SHOWN = "a\\x1b]0;title\\x07b\\x9b2Jc\\x1b[31md\\u202ee\\rf"


@given(st.text())
def test_nothing_that_is_shown_commands_a_terminal(text: str) -> None:
    shown = harmless(text)
    for own in ("\x1b[1m", "\x1b[0m"):
        shown = shown.replace(own, "")
    assert not any(ord(one) < 32 and one not in "\t\n" for one in shown)
    assert not any(0x7F <= ord(one) < 0xA0 for one in shown)


@pytest.mark.parametrize("output", list(OutputFormat))
def test_answers_are_harmless(capsys: pytest.CaptureFixture[str], output: OutputFormat) -> None:
    emit({"name": EVIL}, output)
    emit({"name": EVIL}, output, f"name {EVIL}")
    say(EVIL)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\x9b" not in told.out + told.err
    assert SHOWN in told.err


def test_errors_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "\x1b[2Jnothing.csv"]) != 0
    assert "\x1b" not in capsys.readouterr().err


def test_own_bold_words_stay_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert harmless(strong("best")) == "\x1b[1mbest\x1b[0m"


def test_logs_are_harmless_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_shown(EVIL) == EVIL
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert as_shown(EVIL) == SHOWN.replace("\\r", "\r")
    assert as_shown(EVIL, raw=True) == EVIL
