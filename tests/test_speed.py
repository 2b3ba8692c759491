"""The measurements run, and what is compared computes the same; no time is asserted."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from pretended_gpu import CUDA, pretended_gpu

from lff.cli import main
from lff.experiments.scales import PAPER_DEFENSES
from lff.fast.stacked import AGREEMENT, Stacked
from lff.models import FlatModel
from lff.training import LocalTraining, Loop
from speed import (
    PARTS,
    aggregation,
    checkpoint,
    common,
    device,
    flower,
    goals,
    growth,
    textbook,
    training,
)

DISTINCT = set(PAPER_DEFENSES)


def judged(part, rows):
    """What the goals find among these rows: another name would show only after a long sitting."""
    return [goal.find(rows) for goal in goals.GOALS if goal.part == part]


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
    assert {row["rule"] for row in rows} >= set(aggregation.DEFENSES)
    assert all(row["ms"] > 0 for row in rows)
    others = {row["rule"]: [name for name in row if name in ("authors", "plain")] for row in rows}
    assert {rule for rule, names in others.items() if "plain" in names} == set(aggregation.RULES)
    assert {rule for rule, names in others.items() if "authors" in names} == DISTINCT
    assert all(row[name] > 0 for row in rows for name in others[row["rule"]])
    assert judged("aggregation", rows)
    report.save(tmp_path)
    saved = json.loads((tmp_path / "aggregation.json").read_text())
    assert saved["tables"] == report.tables
    assert saved["machine"]["torch"] == torch.__version__
    assert "| lfighter |" in (tmp_path / "aggregation.md").read_text()


def test_without_byzfl_a_line_says_so(monkeypatch):
    monkeypatch.setattr(aggregation, "byzfl_aggregators", lambda: None)
    monkeypatch.setattr(aggregation, "QUICK", {})
    assert any("byzfl is not installed" in note for note in aggregation.run(quick=True).notes)


def test_a_round_of_training_is_measured_by_every_trainer(monkeypatch):
    monkeypatch.setattr(training, "CORES", 1)  # one process of the pool
    tiny = replace(training.MNIST, peers=2, examples=8, repeats=1)
    rows = training.compare(tiny)
    assert [row["times the textbook"] > 0 for row in rows] == [True] * 5
    assert rows[0]["times the textbook"] == 1
    assert judged("training", rows)


def measured(folder, part, *rows, **machine):
    machine = {"processor": "P", "vector_instructions": "V", "commit": "c" * 40, **machine}
    content = {"machine": machine | {"load_at_start": 0.5}, "tables": {"T": rows}}
    (folder / f"{part}.json").write_text(json.dumps(content))


def test_goals_are_judged_by_what_was_measured(tmp_path):
    ways = [(training.TEXTBOOK, 1), (training.POOL, 7.5)]
    measured(tmp_path, "training", *({"": way, "times the textbook": x} for way, x in ways))
    rules = [
        ("fedavg", 10, None),
        ("lfighter", 13, None),
        ("median", 5, 10),
        ("trimmed_mean", 5, 9),
    ]
    rules = [{"rule": rule, "ms": ms, "plain": plain} for rule, ms, plain in rules]
    measured(tmp_path, "aggregation", *rules)
    costs = [{"x own size": 1.9}, {"x own size": 2.1}, {"x own size": None}]
    loading = [{"records": 100, "seconds": 9.0}, {"records": 1000, "seconds": 4.0}]
    measured(tmp_path, "growth", {"peers": 10}, *costs, *loading)
    (rows,) = goals.run(folder=tmp_path).tables.values()
    assert [(row["found"], row["met"]) for row in rows] == [
        (7.5, "NO"), (None, "not measured"), (1.3, "yes"), (10, "yes"), (9, "NO"), (2.1, "NO"),
        (4.0, "yes"),
    ]  # fmt: skip
    assert rows[0]["processor"] == "P, V"
    measured(tmp_path, "flower", {"": "Flower 1.41, simulation", "x lff": 5})
    (rows,) = goals.run(folder=tmp_path).tables.values()
    assert (rows[1]["found"], rows[1]["met"]) == (5, "yes")


def test_the_readme_has_the_tables_as_they_were_measured():
    page = common.README.read_text(encoding="utf-8")
    assert common.refreshed(page) == page
    assert set(common.BLOCK.findall(page)) == set(PARTS)


def test_a_page_gets_tables_and_notes_or_a_word_on_their_absence(tmp_path):
    report = common.Report("some", {"cores": 2}, {"T": [{"a": 1.5}]}, ["a note"])
    report.save(tmp_path)
    old = "<!-- results/some.md -->\nold\n<!-- end -->\n<!-- results/other.md -->\n<!-- end -->\n"
    assert common.refreshed(f"before\n{old}after", tmp_path) == (
        "before\n<!-- results/some.md -->\n**T**\n\n| a |\n| --- |\n| 1.5 |\n\n- a note\n"
        "<!-- end -->\n<!-- results/other.md -->\nNot measured yet.\n<!-- end -->\nafter"
    )


def test_a_checkpoint_is_measured_beside_a_round(monkeypatch):
    monkeypatch.setattr(checkpoint, "CASES", {"IMDB": {"benchmark": "imdb"}})
    ((row,),) = checkpoint.run(quick=True).tables.values()
    assert row["MB"] == pytest.approx(4.99, abs=0.01)  # a model of 10,002 words in float32
    assert row["round (s of CPU)"] > 0
    assert row["write, median (s)"] <= row["write, slowest (s)"]


@pytest.mark.parametrize("play", [flower.play_textbook, flower.play_lff])
def test_a_contestant_says_when_each_round_begins(play, capsys, monkeypatch):
    monkeypatch.setattr(flower, "CORES", 1)
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


def test_flower_is_judged_by_what_the_contestants_took(monkeypatch):
    seconds = iter((8.0, 6.0, 2.0))
    monkeypatch.setattr(flower, "measure", lambda command: {"a round (s)": next(seconds)})
    monkeypatch.setattr(flower.Path, "exists", lambda path: True)
    (rows,) = flower.run(quick=True).tables.values()
    assert [row["x lff"] for row in rows] == [4, 3, 1]
    assert judged("flower", rows) == [3]


def test_the_cost_of_more_peers_updates_and_records_is_measured():
    peers, rules, loaded = growth.run(quick=True).tables.values()
    assert judged("growth", [*peers, *rules, *loaded, {**loaded[0], "records": 1000}])
    assert [row["peers"] for row in peers] == [2, 4]
    assert all(row["ms for each peer"] > 0 for row in peers)
    assert {row["rule"] for row in rules} == {*PAPER_DEFENSES} - {"repeated_median"}
    assert [row["updates"] for row in rules if row["rule"] == "median"] == [5, 10]
    assert (loaded[0]["records"], loaded[0]["rounds"]) == (3, 36)


def test_updates_that_do_not_fit_the_memory_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(growth, "free_memory", lambda: 1 << 20)
    report = growth.run(quick=True)
    assert report.tables["Rules: updates of 11.2M entries, one thread"][0]["updates"] == 5
    assert any("10 updates were left out" in note for note in report.notes)


def test_every_rule_takes_little_memory_beside_the_updates():
    """At most twice the updates' own size: 200 updates of 21,840 entries, where what does not grow
    (blocks of 4 MiB) still weighs."""
    rows = growth.rules("cnn", 200, passes=1)
    if rows[0]["x own size"] is None:
        pytest.skip("the system does not tell")
    assert {row["rule"]: row["x own size"] for row in rows if row["x own size"] > 2} == {}


def test_a_device_is_measured_by_the_command_line(tmp_path, capsys):
    file = tmp_path / "speed.json"
    assert main(["speed", "--device", "cpu", "--quick", "--file", str(file)]) == 0
    saved = json.loads(file.read_text())
    found = [(row["model"], row["engine"]) for row in saved["rounds"]]
    assert found == [
        ("cnn", "loop"), ("cnn", "stacked"), ("resnet18", "loop"), ("bilstm", "loop")
    ]  # fmt: skip
    for row in saved["rounds"]:
        assert row["training (s)"] > 0
        assert row["the paper's round (s)"] > row["training (s)"]
    assert saved["stack apart from the loop"] < AGREEMENT
    assert "| cnn | stacked |" in capsys.readouterr().out


def test_a_gpu_is_measured_and_what_fails_there_is_said(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device, "ENGINES", {"cnn": ("stacked", "loop")})
    tiny = replace(training.MNIST, peers=3, examples=6)
    with pretended_gpu():
        row = device.measure(tiny, "stacked", CUDA, test_examples=5)
        assert (row["engine"], row["MiB"]) == ("stacked", 1)
        assert device.apart(CUDA) < AGREEMENT
        monkeypatch.setattr(Stacked, "train", fail)
        assert device.apart(CUDA) == "failed: CUDA out of memory"
        assert device.measure(tiny, "stacked", CUDA, test_examples=5)["engine"] == "loop"
        monkeypatch.setattr(device.Federation, "play_round", fail)
        row = device.measure(tiny, "loop", CUDA, test_examples=5)
        assert row == {"model": "cnn", "engine": "loop", "failed": "CUDA out of memory"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--file", "nowhere/x.json"], "no folder 'nowhere' to write x.json to"),
    ],
)
def test_mistakes_in_what_to_measure_are_told(arguments, message, capsys):
    assert main(["speed", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_the_repository_the_command_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr("lff.paths.checkout_dir", lambda: None)
    assert main(["speed", "--quick"]) == 2
    assert "lff speed needs the repository" in capsys.readouterr().err


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
