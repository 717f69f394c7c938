"""Amounts as people write them, for jobs, functions and devices alike."""

from contextlib import suppress
from math import ceil, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.model import InvalidField, amounts

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("512MiB", 512 << 20),
        ("4GiB", 4 * GIB),
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("4 GIB", 4 * GIB),
        ("1.5G", 3 * GIB // 2),
        ("1.5g", 3 * GIB // 2),
        ("7", 7),
        ("7B", 7),
        ("2 kb", 2000),
        ("2K", 2048),
    ],
)
def test_memory_is_read_as_people_write_it(text: str, amount: int) -> None:
    assert amounts.memory_bytes("--memory", text) == amount


@given(
    st.integers(0, 4_000),
    st.sampled_from(["KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]),
    st.sampled_from([str.lower, str.upper, str]),
)
def test_a_job_and_a_device_mean_the_same_by_one_amount(
    number: int, unit: str, write: type[str]
) -> None:
    text = f"{number}{write(unit)}"

    assert amounts.memory_mib("m", text) == ceil(amounts.memory_bytes("m", text) / (1 << 20))


def test_memory_of_a_job_has_a_unit() -> None:
    assert amounts.memory_mib("m", "1GB") == 954
    assert amounts.memory_mib("m", "1.5GiB") == 1_536
    for text in ("12", "12G"):
        with pytest.raises(InvalidField, match="its unit must be one of KB, MB, GB, TB, KiB"):
            amounts.memory_mib("m", text)


def test_counts_and_times_are_read_as_people_write_them() -> None:
    assert amounts.milli("c", "300m") == 300
    assert amounts.milli("c", 2) == 2_000
    assert amounts.seconds("t", "1.5h") == 5_400
    assert amounts.seconds("t", 90) == 90


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "1e9", "1GiB+1GiB", "nan", "inf", "1e400"]
)
def test_what_is_no_amount_is_said_so_with_an_example(text: str) -> None:
    with pytest.raises(InvalidField, match="reads like 512MiB or 4GB"):
        amounts.memory_bytes("--memory", text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("9" * 400, "its number must be at most 1,000,000,000,000,000"),
        ("1" + "0" * 16, "its number must be at most 1,000,000,000,000,000"),
        ("5000TB", "it must be at most 4096.0 TiB"),
        ("1XiB", "its unit must be one of KB, MB"),
    ],
)
def test_an_amount_beyond_all_bounds_is_said_so(text: str, rule: str) -> None:
    with pytest.raises(InvalidField, match=rule):
        amounts.memory_bytes("--memory", text)


@pytest.mark.parametrize("value", [inf, -inf, nan, 1e300, "inf", "nan", "1e400", "-1"])
def test_numbers_that_are_no_counts_and_no_times_are_said_so(value: str | float) -> None:
    with pytest.raises(InvalidField, match="it must read like"):
        amounts.milli("c", value)
    with pytest.raises(InvalidField, match="it must read like"):
        amounts.seconds("t", value)


@given(st.text(max_size=30))
def test_any_text_is_an_amount_that_fits_or_is_refused(text: str) -> None:
    with suppress(InvalidField):
        assert 0 <= amounts.memory_bytes("m", text) <= 1 << 60


def test_amounts_are_written_with_one_digit() -> None:
    assert [amounts.written(one) for one in (0, 1023, 1536, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 TiB",
    ]


def test_thousandths_are_not_rounded_up_by_the_noise_of_floats() -> None:
    assert [amounts.milli("c", text) for text in ("0.56", "0.57", "1.001", "0.0001")] == [
        560,
        570,
        1_001,
        1,
    ]


@pytest.mark.parametrize("text", ["1000001", "1000000001m", "999999999999999"])
def test_a_count_beyond_all_bounds_is_said_so(text: str) -> None:
    with pytest.raises(InvalidField, match="at most 1,000,000"):
        amounts.milli("cpu", text)


@pytest.mark.parametrize("text", ["36501d", "999999999999999d", "3153600001"])
def test_a_span_beyond_all_bounds_is_said_so(text: str) -> None:
    with pytest.raises(InvalidField, match="at most 36,500 days"):
        amounts.seconds("time.limit", text)
