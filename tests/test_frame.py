"""The tidy frame: what it says is what the records say, read once."""

import gc
import math
import os
from dataclasses import replace

import pandas as pd
import pytest

import lff
from lff.errors import InputError, RecordError
from lff.experiments.records import load, path_of
from lff.metrics import coefficient_of_variation, last_rounds
from lff.study import frame


@pytest.fixture
def recorded(tiny):
    """An attacked run of LFighter and its record."""
    e = lff.experiment("mnist-mild", defense="lfighter", attackers=30, **tiny)
    return e, lff.run(e, progress=False)


def changed(record, seed, history):
    """The record of another seed, with another history."""
    e = record.experiment.replace(seed=seed)
    return replace(record, experiment=e, history=history)


def test_a_row_per_round_with_what_the_record_says(recorded):
    e, record = recorded
    rounds = frame.rounds([e, e.replace(seed=5)])
    assert rounds.attrs["missing"] == [e.replace(seed=5).id]
    assert list(rounds["round"]) == [0, 1, 2]
    row, entry = rounds.iloc[1], record.history[1]
    assert (row["id"], row["benchmark"], row["learning_rate"]) == (e.id, e.benchmark, 0.05)
    for name in ("test_error", "all_acc", "src_acc", "asr", "saw", "dropped", "confusion"):
        assert row[name] == entry[name]
    caught = entry["caught"]
    assert row["true_positives"] == caught["true_positives"]
    assert (row["present_attackers"], row["present_honest"]) == (3, 7)
    magnitudes = entry["magnitudes"]
    assert row["relevant"] == pytest.approx((magnitudes[7] + magnitudes[1]) / 2)
    rest = [m for i, m in enumerate(magnitudes) if i not in (1, 7)]
    assert row["non_relevant"] == pytest.approx(sum(rest) / 8)
    assert row["seconds_aggregation"] == record.seconds["aggregation"][1]
    assert row["data_source"] == record.provenance["data"]["source"]


def test_a_run_is_its_rounds_together(recorded):
    e, record = recorded
    (row,) = frame.runs(frame.rounds([e])).to_dict("records")
    assert row["seed"] == e.seed
    for name in ("test_error", "all_acc", "src_acc", "asr"):
        assert row[name] == pytest.approx(last_rounds(record.series(name)))
    src_acc = record.series("src_acc")
    assert row["worst_src_acc"] == min(src_acc)
    assert row["cv"] == pytest.approx(coefficient_of_variation(src_acc), nan_ok=True)
    caught = [entry["caught"] for entry in record.history]
    assert row["true_positive_rate"] == sum(c["true_positives"] for c in caught) / 9
    assert row["false_positive_rate"] == sum(c["false_positives"] for c in caught) / 21
    assert row["seconds"] == pytest.approx(sum(map(sum, record.seconds.values())))


def test_last_rounds_zeros_and_what_is_not_known(recorded):
    """Of twelve rounds the last four are averaged. A test error that is not finite is null."""
    e, record = recorded
    long = e.replace(rounds=12)
    entries = [record.history[0] | {"round": t, "src_acc": t / 100} for t in range(12)]
    entries[11]["test_error"] = None
    seconds = dict.fromkeys(record.seconds, [0.5] * 12)
    zero = [entry | {"src_acc": 0.0} for entry in entries]
    for seed, history in ((1, entries), (2, zero)):
        replace(record, experiment=long.replace(seed=seed), history=history, seconds=seconds).save()
    rising, lost = frame.runs(frame.rounds(scale="smoke")).iloc[1:].to_dict("records")
    assert rising["src_acc"] == pytest.approx((0.08 + 0.09 + 0.10 + 0.11) / 4)
    assert rising["worst_src_acc"] == 0.08
    assert math.isnan(rising["test_error"])
    assert rising["cv"] == pytest.approx(math.sqrt(13) / 5.5)  # of 0, 1, ..., 11
    assert math.isnan(lost["cv"])


def test_a_record_is_parsed_once_unless_it_changes(recorded, monkeypatch):
    e, record = recorded
    parsed = []
    monkeypatch.setattr(frame, "load", lambda path: parsed.append(path) or load(path))
    first = frame.rounds([e])
    pd.testing.assert_frame_equal(frame.rounds(), first)
    frame.rounds([e, e])
    assert len(parsed) == 1
    history = [entry | {"src_acc": 0.125} for entry in record.history]
    path = replace(record, history=history).save()
    os.utime(path, ns=(1, 1))
    assert (frame.rounds([e])["src_acc"] == 0.125).all()


def test_rows_are_in_the_papers_order_and_strangers_come_last(recorded):
    """A defense that is not registered here is shown by its plain name."""
    e, record = recorded
    for settings in ({"defense": "zeno"}, {"defense": "fedavg"}, {"seed": 3}, {"attackers": 10.0}):
        replace(record, experiment=e.replace(**settings)).save()
    runs = frame.runs(frame.rounds())
    assert list(zip(runs["attackers"], runs["defense"], runs["seed"], strict=True)) == [
        (10, "lfighter", 0), (30, "fedavg", 0), (30, "lfighter", 0), (30, "lfighter", 3),
        (30, "zeno", 0),
    ]  # fmt: skip
    assert frame.defense_label("zeno") == "zeno"
    assert frame.defense_label("multi_krum") == "MKrum"
    assert frame.benchmark_label("mine") == "mine"
    assert frame.benchmarks_in_order(["mine", "imdb", "mnist-iid", "imdb"]) == [
        "mnist-iid", "imdb", "mine",
    ]  # fmt: skip


def test_a_metric_that_a_record_lacks_is_computed_from_its_confusion_matrix(recorded):
    e, record = recorded

    @lff.metric("worst_class")
    def worst_class(seen):
        return min(seen.confusion.diagonal() / seen.confusion.sum(1))

    rounds = frame.rounds([e])
    matrix = record.history[2]["confusion"]
    by_hand = min(row[c] / sum(row) for c, row in enumerate(matrix))
    assert rounds["worst_class"].iloc[2] == pytest.approx(by_hand)
    assert frame.runs(rounds)["worst_class"].item() == pytest.approx(rounds["worst_class"].mean())


def test_a_broken_record_is_passed_over_unless_it_was_asked_for(recorded, caplog):
    e, record = recorded
    broken = changed(record, 1, record.history).save()
    broken.write_bytes(broken.read_bytes()[:-9])
    assert set(frame.rounds()["seed"]) == {0}
    assert broken.name in caplog.text
    with pytest.raises(RecordError, match="not a readable record"):
        frame.rounds([e.replace(seed=1)])
    assert gc.isenabled()


def test_without_a_record_there_are_columns_without_rows(recorded):
    e, _ = recorded
    path_of(e).unlink()
    rounds = frame.rounds([e])
    assert rounds.empty
    assert rounds.attrs["missing"] == [e.id]
    runs = frame.runs(rounds)
    assert runs.empty
    assert {"src_acc", "cv", "seconds", "data_source"} <= set(runs.columns)
    assert runs.attrs["missing"] == [e.id]


def test_a_mistyped_scale_is_an_error():
    with pytest.raises(InputError, match="laptop"):
        frame.rounds(scale="lptop")
