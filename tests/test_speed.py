"""The measurements run, and what is compared computes the same; no time is asserted."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from lff.models import FlatModel
from lff.training import LocalTraining, Loop
from speed import aggregation, checkpoint, common, flower, goals, textbook, training

DISTINCT = set(aggregation.DEFENSES) - {"oracle"}  # it drops whom LFighter drops here


@pytest.mark.filterwarnings("ignore")  # of what byzfl imports, where it is installed
@pytest.mark.parametrize("size", aggregation.QUICK)
def test_all_ways_to_compute_a_rule_give_the_same_aggregate(size):
    model, peers, part, _ = aggregation.QUICK[size]
    updates = aggregation.a_round(model, peers)
    ways = [w for w in aggregation.contestants(updates, part) if w.rule != "finite?"]
    results = {(w.rule, w.way): aggregation.flat(w.run()) for w in ways}
    assert {rule for rule, way in results if way == "plain"} == set(aggregation.RULES)
    compared = [w for w in ways if w.way != "lff" and (w.rule, "lff") in results]
    assert len({w.rule for w in compared}) == 7
    for w in compared:
        mine = results[w.rule, "lff"][: w.slice]
        torch.testing.assert_close(
            results[w.rule, w.way], mine, rtol=0, atol=1e-6, msg=lambda m, w=w: f"{w}: {m}"
        )
        others = [results[rule, "lff"] for rule in DISTINCT - {w.rule}]
        assert all((mine - other[: w.slice]).abs().max() > 1e-5 for other in others)


@pytest.mark.parametrize("each", [training.CIFAR10, training.IMDB], ids=lambda r: r.model)
def test_the_textbook_loop_trains_as_ours(each):
    """To a relative 1e-3, in one whole batch, where no order is drawn; also the same images."""
    local = LocalTraining(batch_size=8, learning_rate=1e-3, optimizer=each.training.optimizer)
    each = replace(each, peers=2, examples=8, vocabulary=each.vocabulary and 50, training=local)
    stored, peers = each.data()
    trainer = Loop(FlatModel(training.model(each)), local)
    before = trainer.model.vector.clone()
    mine = trainer.train(before, peers, seed=0, round=0)
    theirs = textbook.train_round(training.model(each), textbook.datasets(stored, peers), local)
    for row, state in zip(mine, theirs, strict=True):
        flat = torch.cat([state[name].flatten() for name in trainer.model.layout.names])
        assert (flat - row).norm() < 1e-3 * (row - before).norm()


@pytest.mark.filterwarnings("ignore")  # of what byzfl imports, where it is installed
def test_the_report_has_every_contestant_with_its_ratios(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregation, "QUICK", {"CNN, 9 updates": ("cnn", 9, 50, 1)})
    report = aggregation.run(quick=True)
    (rows,) = report.tables.values()
    assert {row["rule"] for row in rows if row["way"] == "lff"} >= set(aggregation.DEFENSES)
    for row in rows:
        assert row["ms"] > 0
        assert row["x lff"] > 0
        assert row["way"] != "lff" or row["x lff"] == 1
    report.save(tmp_path)
    saved = json.loads((tmp_path / "aggregation.json").read_text())
    assert saved["tables"] == report.tables
    assert saved["machine"]["torch"] == torch.__version__
    assert "| lfighter | authors |" in (tmp_path / "aggregation.md").read_text()


def test_without_byzfl_a_line_says_so(monkeypatch):
    monkeypatch.setattr(aggregation, "byzfl_aggregators", lambda: None)
    monkeypatch.setattr(aggregation, "QUICK", {})
    assert any("byzfl is not installed" in note for note in aggregation.run(quick=True).notes)


def test_a_round_of_training_is_measured_by_every_trainer():
    tiny = replace(training.MNIST, peers=2, examples=8, repeats=1)
    rows = training.compare(tiny)
    assert [row["times the textbook"] > 0 for row in rows] == [True] * 5
    assert rows[0]["times the textbook"] == 1


def test_goals_are_judged_by_the_least_times():
    met = goals.row("a / b", [8.0, 6.0], [1.0, 0.5], at_least=12)
    assert (met["ratio"], met["lowest"], met["highest"], met["met"]) == (12, 8, 12, "yes")
    assert goals.row("a / b", [8.0], [1.0], at_least=9)["met"] == "NO"
    assert goals.row("a / b", [1.2], [1.0], at_most=1.3)["met"] == "yes"
    assert goals.row("a / b", [1.4], [1.0], at_most=1.3)["met"] == "NO"


@pytest.mark.filterwarnings("ignore")  # of what byzfl imports, where it is installed
def test_goals_of_rules_are_measured():
    rows = goals.aggregation_goals(1, quick=True)
    assert [row["aim"] for row in rows] == ["at most 1.3", "at least 10", "at least 10"]
    assert all(row["ratio"] > 0 for row in rows)


def test_a_checkpoint_is_measured_beside_a_round(monkeypatch):
    monkeypatch.setattr(checkpoint, "CASES", {"IMDB": {"benchmark": "imdb"}})
    ((row,),) = checkpoint.run(quick=True).tables.values()
    assert row["MB"] == pytest.approx(4.99, abs=0.01)  # a model of 10,002 words in float32
    assert row["round (s of CPU)"] > 0
    assert row["write, median (s)"] <= row["write, slowest (s)"]


@pytest.mark.parametrize("play", [flower.play_textbook, flower.play_lff])
def test_a_contestant_says_when_each_round_begins(play, capsys):
    play(2, 8, 3)
    began = [json.loads(line)["began"] for line in capsys.readouterr().out.splitlines()]
    assert len(began) == 4
    assert began == sorted(began)


def test_a_program_is_measured_with_its_children():
    """Rounds of a second, half a second and a quarter; a child that holds 100 MB."""
    child = "import time; held = bytearray(10**8); time.sleep(2)"
    code = f"""
import subprocess, sys, time
started = time.time()
child = subprocess.Popen([sys.executable, "-c", {child!r}])
print("other words")
for seconds in (0, 1, 1.5, 1.75):
    print('{{"began": ' + str(started + seconds) + '}}')
child.wait()
"""
    row = flower.measure([sys.executable, "-c", code])
    assert row["start-up (s)"] > 0
    assert row["first round (s)"] == pytest.approx(1, abs=1e-3)
    assert row["a round (s)"] == pytest.approx(0.25, abs=1e-3)
    assert 100 < row["peak memory (MB)"] < 200
    with pytest.raises(RuntimeError, match="ended with 3"):
        flower.measure([sys.executable, "-c", "raise SystemExit(3)"])


def test_where_flower_is_not_installed_a_line_says_so(monkeypatch):
    monkeypatch.setattr(flower, "CONTESTANTS", {"Flower": ("play_flower", "nowhere/python")})
    report = flower.run(quick=True)
    assert "Flower is not measured" in report.notes[0]


def test_contestants_take_turns_and_the_slow_sit_out():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = common.side_by_side(runs, passes=3)
    assert calls == list("ababab")
    assert [len(times[name].elapsed) for name in "ab"] == [3, 3]
    assert len(common.side_by_side(runs, passes=3, budget=0)["a"].processor) == 1


def test_peak_memory_counts_what_is_freed_again():
    common.peak_extra_memory(lambda: torch.ones(10))
    peak = common.peak_extra_memory(lambda: torch.ones(1 << 24).sum())
    if peak is None:
        pytest.skip("the system does not tell")
    assert 60 < peak / 2**20 < 80  # the kernel counts in batches of pages


def test_threads_are_set_and_put_back():
    before = torch.get_num_threads()
    with common.threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_tables_have_all_columns_and_three_digits():
    rows = [{"a": 1.23456, "b": "x"}, {"a": 12345.6, "c": None}]
    assert common.table(rows).splitlines() == [
        "| a | b | c |",
        "| --- | --- | --- |",
        "| 1.23 | x |  |",
        "| 12346 |  |  |",
    ]
