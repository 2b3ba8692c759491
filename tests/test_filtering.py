"""Whom LFighter dropped and what it saw: counted by hand on records made up for it."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

import lff
from lff.experiments.records import Record
from lff.metrics import Caught
from lff.study import densities, filtering
from lff.study.spread import Spread

PEERS = 10


def record(e, rounds, neurons=(), distribution="mild", classes=10) -> None:
    """A run in which these attackers and honest peers (counts) were dropped, round by round."""
    attackers = round(e.attackers / 100 * PEERS)
    history = []
    for t, (bad, good) in enumerate(rounds):
        saw = {"distribution": distribution, "clusters": []}
        if neurons:
            saw["neurons"] = list(neurons[t])
        history.append(
            {"round": t, "test_error": 1.0, "all_acc": 0.9, "src_acc": 0.8, "asr": 0.1,
             "dropped": [], "caught": asdict(Caught(bad, good, attackers, PEERS - attackers)),
             "magnitudes": [1.0] * classes, "saw": saw}
        )  # fmt: skip
    seconds = dict.fromkeys(("training", "aggregation", "evaluation"), [0.1] * len(history))
    provenance = {"data": {"source": "made up"}}
    Record(e, list(range(attackers)), history, seconds, provenance).save()


def experiment(benchmark="mnist-mild", **settings):
    chosen = {"defense": "lfighter", "attackers": 40, "rounds": 4, "peers": PEERS}
    return lff.experiment(benchmark, scale="smoke", **(chosen | settings))


def test_rounds_are_counted_as_shares_of_those_present():
    e = experiment()
    record(e, [(4, 0), (1, 3), (0, 0), (2, 3)], neurons=[(7, 1), (1, 7), (7, 3), (2, 3)])
    rounds = filtering.filtered_rounds([e, experiment(seed=1), experiment(defense="fedavg")])
    assert rounds["attackers_dropped"].tolist() == [1, 0.25, 0, 0.5]
    assert rounds["honest_dropped"].tolist() == [0, 0.5, 0, 0.5]
    assert rounds["wrong"].tolist() == [False, True, False, False]  # half of both is by lot
    assert rounds["named"].tolist() == [2, 2, 1, 0]
    assert rounds["distribution"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "saw", "named", "found"),
    [
        ({"benchmark": "mnist-extreme"}, {"distribution": "extreme"}, None, 1),
        ({"benchmark": "mnist-extreme"}, {"distribution": "mild", "neurons": [(7, 1)]}, None, 0),
        ({"benchmark": "mnist-iid"}, {"distribution": "extreme"}, 0, 0),
        ({"benchmark": "imdb"}, {"classes": 1, "neurons": [(0,)]}, None, None),
        ({"attackers": 0}, {"neurons": [(7, 1)]}, None, 1),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_see(settings, saw, named, found):
    e = experiment(rounds=1, **settings)
    record(e, [(0, 0)], **saw)
    row = filtering.filtered_rounds([e]).iloc[0]
    for value, expected in ((row["named"], named), (row["distribution"], found)):
        assert np.isnan(value) if expected is None else value == expected


def test_sight_is_a_percentage_of_the_rounds_of_each_seed():
    runs = [experiment(seed=s) for s in (0, 1)]
    record(runs[0], [(0, 0)] * 4, neurons=[(7, 1), (1, 7), (7, 3), (2, 3)])
    record(runs[1], [(0, 0)] * 4, neurons=[(7, 1)] * 4, distribution="extreme")
    row = filtering.sight(filtering.filtered_rounds(runs)).loc[("MNIST-Mild", 40)]
    assert row["both classes named (%)"] == Spread((50.0, 100.0))
    assert row["one or both (%)"] == Spread((75.0, 100.0))
    assert row["distribution found (%)"] == Spread((100.0, 0.0))


RIGHT, WRONG = (4, 0), (0, 3)


@pytest.mark.parametrize(
    ("rounds", "end", "first", "last"),
    [
        ([RIGHT] * 8, "never wrong", None, None),
        ([WRONG] * 8, "locked on", 1, 8),
        ([WRONG, WRONG, RIGHT, WRONG, *[RIGHT] * 4], "recovered", 1, 4),
        ([*[RIGHT] * 4, WRONG, *[RIGHT] * 3], "wrong at times", 5, 5),  # of 8 rounds, 4 are the end
        ([*[RIGHT] * 4, *[WRONG] * 4], "locked on", 5, 8),
        ([*[RIGHT] * 3, WRONG, *[RIGHT] * 4], "recovered", 4, 4),
    ],
)
def test_an_episode_is_told_by_its_end(rounds, end, first, last):
    e = experiment(rounds=len(rounds))
    record(e, rounds)
    seen = filtering.filtered_rounds([e])
    run = filtering.episodes(seen).iloc[0]
    wrong = rounds.count(WRONG)
    assert (run["end"], run["rounds wrong"]) == (end, wrong)
    if wrong:
        assert (run["first"], run["last"]) == (first, last)
        shown = filtering.wrong_runs(seen).loc[("MNIST-Mild", 40, 0)]
        assert shown["end"] == end
    else:
        assert filtering.wrong_runs(seen).empty
    assert run["attackers dropped at the end (%)"] == 100 * rounds[-4:].count(RIGHT) / 4


def test_seeds_are_counted_by_their_end():
    runs = [experiment(seed=s, rounds=8) for s in range(4)]
    at_times = [*[RIGHT] * 7, WRONG]
    for e, rounds in zip(runs, [[RIGHT] * 8, [WRONG] * 8, [WRONG] * 8, at_times], strict=True):
        record(e, rounds)
    table = filtering.lock_on(filtering.filtered_rounds(runs))
    row = table.loc[("MNIST-Mild", 40)]
    assert row[["never wrong", "recovered", "wrong at times", "locked on"]].tolist() == [1, 0, 1, 2]
    assert row["rounds wrong (%)"] == Spread((0.0, 100.0, 100.0, 12.5))


def results(*rows) -> pd.DataFrame:
    columns = ["benchmark", "defense", "attackers", "seed"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(true_positive_rate=0.5, false_positive_rate=0.25)


def test_dropped_shares_are_percentages():
    row = filtering.dropped(results(("imdb", "lfighter", 30.0, 0))).loc[("IMDB", 30)]
    assert row.tolist() == [Spread((50.0,)), Spread((25.0,))]


def test_without_a_run_there_are_tables_without_rows():
    rounds, nothing = filtering.filtered_rounds([experiment()]), results()
    for table in (
        filtering.sight(rounds),
        filtering.lock_on(rounds),
        filtering.wrong_runs(rounds),
        filtering.dropped(nothing),
        densities.premise([experiment()]),
    ):
        assert table.empty


def record_scores(e, rounds, scores):
    """The same with the scores of both clusters: share of the peers x inverse density."""
    record(e, rounds)
    recorded = lff.experiments.records.find(e)
    for entry, both in zip(recorded.history, scores, strict=True):
        entry["saw"]["cluster_scores"] = both
    recorded.save()


def test_the_clusters_of_the_first_and_the_last_wrong_round_by_hand():
    e = experiment()
    first = [0.7 * 2, 0.3 * 1.5]  # three of ten peers, at 1.5 rad on average
    record_scores(
        e,
        [(4, 0), (0, 3), (1, 3), (0, 5)],
        [[0.1, 0.2], first, [0.1, 0.2], [0.5 * 1, 0.5 * 3]],
    )
    table = densities.wrong_clusters([e, experiment(seed=1)])
    assert list(table.index) == [("MNIST-Mild", 40, 0, 2), ("MNIST-Mild", 40, 0, 4)]
    assert table.iloc[0].tolist() == pytest.approx([3, 7, 0, 4, math.degrees(1.5), math.degrees(2)])
    assert table.iloc[1].tolist() == pytest.approx([5, 5, 0, 4, math.degrees(1), math.degrees(3)])


def test_the_denser_cluster_is_asked_for_where_attackers_and_honest_peers_are_told_apart():
    """Ten peers, four attackers: dropped are all of them; five honest peers; three of each; all
    attackers and one honest peer, which is 80%."""
    e = experiment()
    mixed = [0.1, 0.2]
    record_scores(
        e,
        [(4, 0), (0, 5), (3, 3), (4, 1)],
        [[0.4 * 0.5, 0.6 * 2], [0.5 * 1, 0.5 * 3], mixed, [0.5 * 1, 0.5 * 2.5]],
    )
    table = densities.premise([e, experiment(seed=1), experiment(defense="fedavg")])
    assert list(table.index) == [("MNIST-Mild", 40, 0)]
    told, denser, theirs, honest, among = table.iloc[0]
    assert told == 3
    assert denser == pytest.approx(100 * 2 / 3)
    assert math.radians(theirs) == pytest.approx((0.5 + 3 + 1) / 3)
    assert math.radians(honest) == pytest.approx((2 + 1 + 2.5) / 3)
    assert among == pytest.approx(100 * (0 + 1 / 5 + 1 / 5) / 3)


def test_a_round_without_a_bad_cluster_says_nothing_of_density():
    e = experiment()
    record_scores(e, [(0, 0)] * 4, [[0.5, 0.5]] * 4)
    assert densities.premise([e]).empty


def test_rounds_are_told_apart_by_whether_the_source_class_is_looked_at():
    """Four attackers of class 7; those who look at it drop 4 and 3 of them, the others 1 and 0."""
    e = experiment()
    record(e, [(4, 0), (1, 0), (3, 2), (0, 1)], neurons=[(7, 1), (1, 2), (3, 7), (0, 4)])
    table = filtering.by_source_neuron([e, experiment(seed=1), experiment(defense="fedavg")])
    assert table.loc[("MNIST-Mild", filtering.SEEN)].tolist() == [2, 87.5, 50]
    assert table.loc[("MNIST-Mild", filtering.UNSEEN)].tolist() == [2, 12.5, 0]
    assert filtering.by_source_neuron([experiment(seed=1)]).empty


def test_one_peer_dropped_alone_is_counted_apart():
    e = experiment()
    record(e, [(0, 1), (1, 0), (0, 2), (0, 0)])
    rounds = filtering.filtered_rounds([e])
    assert rounds["alone"].tolist() == [True, True, False, False]
    assert rounds["wrong"].tolist() == [False, False, True, False]
    row = filtering.lock_on(rounds).loc[("MNIST-Mild", 40)]
    assert row["rounds wrong (%)"] == Spread((25.0,))
    assert row[filtering.ALONE] == Spread((50.0,))


def test_no_clusters_are_told_of_a_run_that_was_never_wrong():
    e = experiment()
    record(e, [RIGHT] * 4)
    assert densities.wrong_clusters([e]).empty
