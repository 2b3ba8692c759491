"""The paper's numbers beside ours, and changed runs beside the study's."""

import numpy as np
import pandas as pd
import pytest
from frames import runs

from lff.defenses import DEFENSES
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import comparison, paper, text
from lff.study.comparison import DASH

ON = ["benchmark", "attackers", "defense"]
SEEDS = (("imdb", "median", 10.0, 0), ("imdb", "median", 10.0, 1))


def test_ours_are_over_the_seeds_in_the_papers_rows():
    both = comparison.compare(runs(*SEEDS, cv=[0.2, 0.4]), paper.cv(), ON, ["cv"])
    pd.testing.assert_frame_equal(both[ON], paper.cv()[ON])
    row = both[(both["benchmark"] == "imdb") & (both["defense"] == "median")].iloc[1]
    assert row["cv_paper"] == 0.11
    assert row["cv_ours"] == pytest.approx(0.3)
    assert (row["cv_ours low"], row["cv_ours high"], row["cv_ours seeds"]) == (0.2, 0.4, 2)
    assert row["cv_difference"] == pytest.approx(0.19)
    assert both["cv_ours"].notna().sum() == 1


def test_without_any_run_the_papers_rows_are_there():
    both = comparison.compare(runs(), paper.cv(), ON, ["cv"])
    assert len(both) == 252
    assert both["cv_ours"].isna().all()


def test_a_nan_that_the_paper_prints_is_a_number_it_reports():
    shown = text.to_text(comparison.beside_paper(runs(*SEEDS), paper.cv(), ON, ["cv"]))
    assert shown.loc[("IMDB", 10, "Median")].tolist() == ["0.11", "0.50 [0.50, 0.50]", "0.39"]
    assert shown.loc[("IMDB", 50, "MKrum")].tolist() == ["NaN", "--", "--"]


def test_the_headline_is_at_40_percent_or_where_more_methods_were_run():
    more = runs(("imdb", "lfighter", 40.0, 0), ("imdb", "fedavg", 40.0, 0),
                ("imdb", "fedavg", 30.0, 0), ("imdb", "median", 30.0, 0),
                ("mnist-extreme", "multi_krum", 30.0, 0))  # fmt: skip
    shown = comparison.headline(more).index.droplevel(["seeds", "paper / ours"])
    assert ("IMDB", 40) in shown  # as many
    assert ("MNIST-Extreme", 30) in shown
    more = pd.concat([more, runs(("imdb", "lfighter", 30.0, 0))])
    shown = comparison.headline(more).index.droplevel(["seeds", "paper / ours"])
    assert ("IMDB", 30) in shown
    assert ("IMDB", 40) not in shown


def test_the_headline_compares_methods_in_the_seeds_of_most_of_them():
    there = runs(("imdb", "lfighter", 40.0, 0), ("imdb", "lfighter", 40.0, 1),
                 ("imdb", "fedavg", 40.0, 1), ("imdb", "lfighter", 30.0, 0),
                 ("mnist-iid", "lfighter", 40.0, 0), ("mnist-iid", "lfighter", 40.0, 2),
                 src_acc=[0.5, 0.7, 0.1, 0.9, 0.8, 0.6])  # fmt: skip
    table = comparison.headline(there).xs("Src-Acc (%)", level="paper / ours")
    assert table.loc[("IMDB", 40, "1")].str.split(" / ").str[1].to_dict() == {
        DEFENSES.label(d): {"lfighter": "70", "fedavg": "10"}.get(d, DASH) for d in PAPER_DEFENSES
    }
    assert table.loc[("MNIST-iid", 40, "0 2"), "LFighter"] == f"{DASH} / 60 to 80"
    assert set(table.index.get_level_values("seeds")) == {"1", "0 2", DASH}


def test_the_headline_has_the_papers_number_and_ours_in_a_cell():
    both = [("imdb", d, 40.0, seed) for seed in (0, 1) for d in ("lfighter", "fedavg", "median")]
    there = runs(*both, ("mnist-mild", "median", 40.0, 3),
                 src_acc=[0.5, 0.1, 0.2, 0.72, 0.1, 0.3, 0.904],
                 cv=[0.2, np.nan, 0.3, 0.31, np.nan, np.nan, 0.4])  # fmt: skip
    table = comparison.headline(there).sort_index()
    assert len(table) == 6 * 3
    assert list(table.columns) == [DEFENSES.label(d) for d in PAPER_DEFENSES]
    assert table.index.names == ["benchmark", "attackers (%)", "seeds", "paper / ours"]
    of_imdb = table.loc[("IMDB", 40, "0 1")]
    assert of_imdb.loc["Src-Acc (%)", "LFighter"] == "86 / 50 to 72"
    assert of_imdb.loc["Src-Acc (%)", "FedAvg"] == "13 / 10"
    assert of_imdb.loc["CV", "LFighter"] == "0.09 / 0.20 to 0.31"
    assert of_imdb.loc["CV", "FedAvg"] == "0.35 / NaN"
    assert of_imdb.loc["CV", "Median"] == "0.27 / NaN in some"
    assert of_imdb.loc["CV", "MKrum"] == f"NaN / {DASH}"
    assert table.loc[("MNIST-Mild", 40, "3", "Src-Acc (%)"), "Median"] == f"{DASH} / 90"
    assert table.loc[("MNIST-iid", 40, DASH, "ASR (%)"), "FedAvg"] == f"{DASH} / {DASH}"
