"""Parameters: which values they take, and which trials are made of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.model.errors import InvalidInput
from interlane.sweep.parameters import drawn, grid, parameters_in


def test_a_grid_has_every_combination_once() -> None:
    trials = grid(parameters_in({"lr": "0.1,0.01", "depth": "2..4"}))

    assert [tuple(one.values()) for one in trials] == [
        *(("0.1", "2"), ("0.1", "3"), ("0.1", "4")),
        *(("0.01", "2"), ("0.01", "3"), ("0.01", "4")),
    ]


def test_values_of_a_file_and_of_an_option_are_the_same_text() -> None:
    of_file = parameters_in({"lr": [0.1, 0.01], "on": [True, False], "how": ["a b"], "n": 3})

    assert next(iter(grid(of_file))) == {
        "lr": "0.1",
        "on": "true",
        "how": "a b",
        "n": "3",
    }
    assert parameters_in({"n": "1..7:3"}) == parameters_in({"n": [1, 4, 7]})


def test_a_value_stays_as_it_was_written() -> None:
    assert grid(parameters_in({"lr": "0.10, 1e-3"})) == [{"lr": "0.10"}, {"lr": "1e-3"}]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "there is nothing to try"),
        ({"lr": ""}, "lr has no values, so that there are no trials"),
        ({"lr": []}, "lr has no values, so that there are no trials"),
        ({"lr": "0.1,nan"}, "lr is 'nan', but a value that is a number must be finite"),
        ({"lr": [float("inf")]}, "lr is 'inf', but a value that is a number must be finite"),
        ({"lr": "0.1,0.1"}, "lr is '0.1', but it is there twice"),
        ({"lr": "8..2"}, "it counts upwards"),
        ({"lr": "2..8:0"}, "it counts upwards"),
        ({"lr": "0.9..0.1"}, "a span goes from less to more"),
        ({"lr": "0.1..x"}, "write values as 0.1,0.01"),
        ({"lr": "0.1..0.9:0.1"}, "write values as 0.1,0.01"),
        ({"lr": "log:0..1"}, "a span by log begins above 0"),
        ({"lr": "log:3"}, "log: goes before a span"),
        ({"lr": "1..1000000"}, "more values than the 5,000 of a sweep"),
        ({"1r": "1"}, "not begin with a digit"),
        ({"lr": [{"a": 1}]}, "a value is a number or a text"),
        ({"lr": ["a\nb"]}, "a value must be printable"),
    ],
)
def test_what_is_wrong_with_a_parameter_is_one_sentence(
    said: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        parameters_in(said)

    assert says in str(error.value)


def test_a_grid_of_a_span_or_of_too_many_is_refused() -> None:
    with pytest.raises(InvalidInput, match="of which a grid has no end"):
        grid(parameters_in({"lr": "0.1..0.9"}))
    with pytest.raises(InvalidInput, match="The grid has 10,000 trials"):
        grid(parameters_in({"a": "1..100", "b": "1..100"}))


@given(trials=st.integers(1, 60), seed=st.integers(0, 1 << 30))
def test_draws_are_no_more_than_asked_for_all_different_and_the_same_again(
    trials: int, seed: int
) -> None:
    parameters = parameters_in({"a": "1..4", "b": "x,y", "lr": "log:0.0001..0.1"})

    found = drawn(parameters, trials, seed)

    assert len(found) == trials
    assert len({tuple(one.values()) for one in found}) == trials
    assert found == drawn(parameters, trials, seed)
    assert all(0.0001 <= float(one["lr"]) <= 0.1 for one in found)


def test_where_there_are_fewer_than_asked_for_all_are_drawn() -> None:
    parameters = parameters_in({"a": "1..4", "b": "x,y"})

    found = drawn(parameters, 50, 3)

    assert sorted(map(str, found)) == sorted(map(str, grid(parameters)))
