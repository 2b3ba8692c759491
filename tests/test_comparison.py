"""The paper's numbers beside ours, and changed runs beside the study's."""

import numpy as np
import pandas as pd
import pytest
from frames import runs

from lff.defenses import DEFENSES
from lff.errors import InputError
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import comparison, paper, tables
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
    both = comparison.compare(pd.DataFrame(), paper.cv(), ON, ["cv"])
    assert len(both) == 252
    assert both["cv_ours"].isna().all()


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="our table has no column seed"):
        comparison.compare(paper.cv(), paper.cv(), ON, ["cv"])
    with pytest.raises(InputError, match="the paper's table has no column asr"):
        comparison.compare(runs(*SEEDS), paper.cv(), ON, ["asr"])


def test_a_nan_that_the_paper_prints_is_a_number_it_reports():
    shown = tables.to_text(comparison.beside_paper(runs(*SEEDS), paper.cv(), ON, ["cv"]))
    assert shown.loc[("IMDB", 10, "Median")].tolist() == ["0.11", "0.50 [0.50, 0.50]", "0.39"]
    assert shown.loc[("IMDB", 50, "MKrum")].tolist() == ["NaN", "--", "--"]


def test_the_headline_is_at_40_percent_or_where_more_methods_were_run():
    there = runs(("imdb", "lfighter", 40.0, 0), ("imdb", "lfighter", 40.0, 1),
                 ("mnist-extreme", "multi_krum", 30.0, 0), src_acc=[0.5, 0.7, 0.1])  # fmt: skip
    table = comparison.headline(there)
    assert len(table) == 6 * len(PAPER_DEFENSES)
    shown = tables.to_text(table, dict.fromkeys(table.columns[1:9], 0))
    assert shown.loc[("IMDB", 40, "LFighter"), "Src-Acc (%), ours"] == "60 [50, 70]"
    read_off = paper.robustness().set_index(["benchmark", "defense", "attackers"])
    theirs = table.loc[("IMDB", 40, "LFighter"), "Src-Acc (%), paper"]
    assert theirs == pytest.approx(100 * read_off.loc[("imdb", "lfighter", 40), "src_acc"])
    assert shown.loc[("MNIST-Extreme", 30, "MKrum"), "CV, paper"] == "NaN"  # the paper prints it
    assert shown.loc[("MNIST-iid", 40, "FedAvg"), "Src-Acc (%), paper"] == "--"  # not reported
    more = runs(("imdb", "lfighter", 40.0, 0), ("imdb", "fedavg", 40.0, 0),
                ("imdb", "fedavg", 30.0, 0), ("imdb", "median", 30.0, 0))  # fmt: skip
    assert ("IMDB", 40, "FedAvg") in comparison.headline(more).index  # as many
    more = pd.concat([more, runs(("imdb", "lfighter", 30.0, 0))])
    assert ("IMDB", 30, "FedAvg") in comparison.headline(more).index


def test_the_headline_compares_methods_in_the_seeds_of_most_of_them():
    there = runs(("imdb", "lfighter", 40.0, 0), ("imdb", "lfighter", 40.0, 1),
                 ("imdb", "fedavg", 40.0, 1), ("imdb", "lfighter", 30.0, 0),
                 ("mnist-iid", "lfighter", 40.0, 0), ("mnist-iid", "lfighter", 40.0, 2),
                 src_acc=[0.5, 0.7, 0.1, 0.9, 0.8, 0.6])  # fmt: skip
    table = comparison.headline(there)
    ours = tables.to_text(table, 0)["Src-Acc (%), ours"]
    assert ours["IMDB", 40, "LFighter"] == "70"
    assert ours["IMDB", 40, "FedAvg"] == "10"
    assert ours["MNIST-iid", 40, "LFighter"] == "70 [60, 80]"
    seeds = table["seeds"].groupby("benchmark", sort=False).unique().explode()
    assert seeds.to_dict() == dict.fromkeys(seeds.index, DASH) | {"IMDB": "1", "MNIST-iid": "0 2"}


def test_the_headline_by_method_has_the_papers_number_and_ours_in_a_cell():
    both = [("imdb", d, 40.0, seed) for seed in (0, 1) for d in ("lfighter", "fedavg", "median")]
    there = runs(*both, ("mnist-mild", "median", 40.0, 3),
                 src_acc=[0.5, 0.1, 0.2, 0.72, 0.1, 0.3, 0.904],
                 cv=[0.2, np.nan, 0.3, 0.31, np.nan, np.nan, 0.4])  # fmt: skip
    table = comparison.headline_by_method(comparison.headline(there)).sort_index()
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
