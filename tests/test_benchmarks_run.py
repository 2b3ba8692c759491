"""The benchmarks run, and their contestants agree; no time is asserted."""

import json

import pytest
import torch

from benchmarks import aggregation, common


@pytest.mark.parametrize("size", aggregation.QUICK)
def test_all_ways_to_compute_a_rule_give_the_same_aggregate(size):
    model, peers, part, _ = aggregation.QUICK[size]
    updates = aggregation.a_round(model, peers)
    ways = [w for w in aggregation.contestants(updates, part) if w.rule != "finite?"]
    results = {(w.rule, w.way): aggregation.flat(w.run()) for w in ways}
    compared = [w for w in ways if w.way != "lff" and (w.rule, "lff") in results]
    assert len({w.rule for w in compared}) == 7
    for w in compared:
        ours = results[w.rule, "lff"][: w.slice]
        torch.testing.assert_close(
            results[w.rule, w.way], ours, rtol=0, atol=1e-6, msg=lambda m, w=w: f"{w}: {m}"
        )
        others = [results[rule, "lff"] for rule, way in results if way == "lff" and rule != w.rule]
        assert all((ours - other[: w.slice]).abs().max() > 1e-5 for other in others)


@pytest.mark.filterwarnings("ignore")  # of what byzfl imports, where it is installed
def test_the_report_has_every_contestant_with_its_ratios(tmp_path, monkeypatch):
    monkeypatch.setattr(aggregation, "QUICK", {"CNN, 9 updates": ("cnn", 9, 50, 1)})
    report = aggregation.run(quick=True)
    (rows,) = report.tables.values()
    assert {row["rule"] for row in rows if row["way"] == "lff"} >= {"lfighter", "median", "fedavg"}
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


def test_contestants_take_turns_and_the_slow_sit_out():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = common.side_by_side(runs, passes=3)
    assert calls == list("ababab")
    assert [times[name].runs for name in "ab"] == [3, 3]
    assert common.side_by_side(runs, passes=3, budget=0)["a"].runs == 1


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
