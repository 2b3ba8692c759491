"""One quantity over the seeds: what is shown, and that a seed counts once."""

import numpy as np
import pandas as pd
import pytest

from lff.study.spread import Spread, as_numbers, over_known_seeds, over_seeds, several

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.5,), "0.50"),
        ((0.1, 0.2, 0.6), "0.30 [0.10, 0.60]"),
        ((NAN,), "NaN"),
        ((NAN, 0.3, NAN), "NaN in 2 of 3"),
    ],
)
def test_one_seed_is_a_number_several_are_mean_and_range(values, shown):
    assert f"{Spread(values):.2f}" == shown


def table(*rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["benchmark", "attackers", "seed", "x", "y"])


def test_over_seeds_averages_within_a_seed_first():
    """Seed 0 has three rows and seed 1 one: means 2 and 6, and not 3 over all rows."""
    given = table(("a", 0, 0, 1, 5), ("a", 0, 0, 2, 5), ("a", 0, 0, 3, 5), ("a", 0, 1, 6, 7))
    spreads = over_seeds(given, ["benchmark", "attackers"], ["x", "y"])
    assert spreads.loc[("a", 0), "x"] == Spread((2.0, 6.0))
    assert spreads.loc[("a", 0), "y"] == Spread((5.0, 7.0))


def test_rows_keep_their_order():
    given = table(("b", 1, 0, 1, 1), ("a", 0, 0, 1, 1), ("b", 0, 0, 1, 1))
    assert list(over_seeds(given, ["benchmark"], ["x"]).index) == ["b", "a"]


def test_a_missing_value_is_reported_or_left_out():
    given = table(("a", 0, 0, NAN, NAN), ("a", 0, 1, 2, NAN))
    reported = over_seeds(given, ["benchmark"], ["x"]).loc["a", "x"]
    assert f"{reported:.1f}" == "NaN in 1 of 2"
    known = over_known_seeds(given, ["benchmark"], ["x", "y"])
    assert known.loc["a", "x"] == Spread((2.0,))
    assert np.isnan(known.loc["a", "y"])


def test_no_row_gives_no_row():
    for function in (over_seeds, over_known_seeds):
        empty = function(table(), ["benchmark", "attackers"], ["x"])
        assert empty.empty
        assert list(empty.columns) == ["x"]


def test_numbers_have_a_range_only_where_there_are_several_seeds():
    given = pd.DataFrame(
        {"one": [Spread((0.5,)), NAN], "two": [Spread((1.0, 3.0)), Spread((4.0,))], "text": "ab"}
    )
    assert several(given)
    assert not several(given[["one", "text"]])
    numbers = as_numbers(given)
    assert list(numbers.columns) == ["one", "two", "two_min", "two_max", "text"]
    assert numbers["two"].tolist() == [2, 4]
    assert numbers["two_min"].tolist() == [1, 4]
    assert numbers["two_max"].tolist() == [3, 4]
    assert numbers["one"].iloc[0] == 0.5
    assert np.isnan(numbers["one"].iloc[1])
