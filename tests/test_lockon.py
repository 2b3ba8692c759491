"""Whom LFighter dropped and what it saw: counted by hand on rounds made up for it."""

import numpy as np
import pandas as pd
import pytest
from frames import rounds_of, runs

from lff.study import lockon

RIGHT, WRONG = (4, 0), (0, 3)


def saw(*pairs, distribution="mild"):
    return [{"distribution": distribution, "neurons": list(pair)} for pair in pairs]


def test_rounds_are_counted_as_shares_of_those_present():
    given = rounds_of(
        dropped=[(4, 0), (1, 3), (0, 0), (2, 3)], saw=saw((7, 1), (1, 7), (7, 3), (2, 3))
    )
    other = rounds_of(defense="fedavg", dropped=[(0, 0)])
    seen = lockon.filtered(pd.concat([given, other]))
    assert seen["attackers_dropped"].tolist() == [1, 0.25, 0, 0.5]
    assert seen["honest_dropped"].tolist() == [0, 0.5, 0, 0.5]
    assert seen["wrong"].tolist() == [False, True, False, False]  # half of both is by lot
    assert seen["named"].tolist() == [2, 2, 1, 0]
    assert seen["distribution_found"].tolist() == [1, 1, 1, 1]


def test_one_peer_dropped_alone_is_counted_apart():
    seen = lockon.filtered(rounds_of(dropped=[(0, 1), (1, 0), (0, 2), (1, 1)]))
    assert seen["alone"].tolist() == [True, True, False, False]
    assert seen["wrong"].tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("settings", "what", "named", "found"),
    [
        ({"benchmark": "mnist-extreme"}, {"distribution": "extreme"}, None, 1),
        ({"benchmark": "mnist-extreme"}, {"distribution": "mild", "neurons": [7, 1]}, None, 0),
        ({"benchmark": "mnist-iid"}, {"distribution": "extreme"}, 0, 0),
        ({"benchmark": "imdb", "classes": 1}, {"neurons": [0]}, None, None),
        ({"attackers": 0.0}, {"distribution": "mild", "neurons": [7, 1]}, None, 1),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_see(settings, what, named, found):
    row = lockon.filtered(rounds_of(dropped=[(0, 0)], saw=what, **settings)).iloc[0]
    for value, expected in ((row["named"], named), (row["distribution_found"], found)):
        assert np.isnan(value) if expected is None else value == expected


@pytest.mark.parametrize(
    ("dropped", "end", "first", "last"),
    [
        ([RIGHT] * 8, "never wrong", None, None),
        ([WRONG] * 8, "locked on", 1, 8),
        ([WRONG, WRONG, RIGHT, WRONG, *[RIGHT] * 4], "recovered", 1, 4),
        ([*[RIGHT] * 4, WRONG, *[RIGHT] * 3], "wrong at times", 5, 5),  # of 8 rounds, 4 are the end
        ([*[RIGHT] * 4, *[WRONG] * 4], "locked on", 5, 8),
        ([*[RIGHT] * 3, WRONG, *[RIGHT] * 4], "recovered", 4, 4),
    ],
)
def test_an_episode_is_told_by_its_end(dropped, end, first, last):
    given = rounds_of(dropped=dropped)
    run = lockon.episodes(given).iloc[0]
    assert (run["end"], run["rounds wrong"]) == (end, dropped.count(WRONG))
    assert run["attackers dropped at the end (%)"] == 100 * dropped[-4:].count(RIGHT) / 4
    if first is not None:
        assert (run["first"], run["last"]) == (first, last)


def test_dropped_shares_are_percentages():
    row = lockon.dropped(runs(("imdb", "lfighter", 30.0, 0), ("imdb", "median", 30.0, 0)))
    assert row.loc[("IMDB", 30), "attackers dropped (%)"] == 50
    assert row.loc[("IMDB", 30), "honest peers dropped (%) seeds"] == 1


def test_without_a_run_there_are_tables_without_rows():
    nothing = rounds_of(dropped=[(0, 0)])[:0]
    assert lockon.episodes(nothing).empty
    assert lockon.dropped(runs()).empty
