"""A time left is told when it is known, and not before."""

from collections.abc import Iterator

import pytest

from interlane._compiled_cache import WATCHERS
from interlane.cli.progress import COMPILED_EVERY_S, StepRate, telling_of_compiling


def _clock(*moments_s: float) -> Iterator[float]:
    yield from moments_s


def test_the_time_before_the_first_step_says_nothing_about_the_others() -> None:
    # The first job ended after 100 s of compiling, the next ones each take a tenth of a second.
    clock = _clock(100.0, 104.0)
    pace = StepRate(lambda: next(clock))

    pace.note(1)
    first = pace.told(201)
    pace.note(41)

    assert first == ""
    assert pace.told(201) == "10/s, about 16 s left"


def test_a_few_steps_of_many_foretell_nothing() -> None:
    clock = _clock(0.0, 60.0)
    pace = StepRate(lambda: next(clock))

    pace.note(1)
    pace.note(3)

    assert pace.told(1000) == ""


def test_compiling_is_announced_once_and_then_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moments = _clock(0.0, COMPILED_EVERY_S / 2, COMPILED_EVERY_S + 1)

    with telling_of_compiling(lambda: next(moments)):
        for done in (0, 1, 2):
            WATCHERS[-1](done, 70)

    said = capsys.readouterr().err.splitlines()
    assert said == [
        "Compiling the hot loops, which takes a minute or two, once.",
        "Compiling: 2 of at most 70 functions done.",
    ]
    assert not WATCHERS
