"""Does LFighter hold at each attacker ratio, in every seed, and what does it cost in peace?"""

import pandas as pd

from lff.study.claims.measures import OURS, ROBUST
from lff.study.claims.registry import learned
from lff.study.spread import over_known_seeds
from lff.study.tables import RATIO, labelled

FEDAVG = "fedavg"
CELL = ["benchmark", "attackers"]
LOST_BY_FEDAVG, ROBUST_IN = "Src-Acc lost by FedAvg (points)", "robust in seeds"


def at_each_ratio(results: pd.DataFrame) -> pd.DataFrame:
    """Does LFighter hold at each ratio? Its Src-Acc and ASR, and in how many seeds it is robust.

    Robust is what the claims take it to be: Src-Acc and ASR at most 10 points worse than FedAvg's
    without attack, of the same seed. Nothing is said of a seed whose model learned too little
    without attack, or whose run without attack is missing. What FedAvg loses under the attack says
    how much there was to defend.
    """
    key = ["benchmark", "seed"]
    without = results[(results["defense"] == FEDAVG) & (results["attackers"] == 0)]
    without = without.set_index(key)[["src_acc", "asr", "all_acc"]].add_prefix("without_")
    attacked = results[results["attackers"] > 0].join(without, on=key)
    attacked = attacked.assign(
        src_lost=attacked["without_src_acc"] - attacked["src_acc"],
        asr_lost=attacked["asr"] - attacked["without_asr"],
    )
    ours, fedavg = (attacked[attacked["defense"] == name] for name in (OURS, FEDAVG))
    shares = {
        "Src-Acc (%)": 100 * ours["src_acc"],
        "ASR (%)": 100 * ours["asr"],
        "Src-Acc lost (points)": 100 * ours["src_lost"],
    }
    table = over_known_seeds(ours.assign(**shares), CELL, list(shares))
    lost = fedavg.assign(**{LOST_BY_FEDAVG: 100 * fedavg["src_lost"]})
    table = table.join(over_known_seeds(lost, CELL, [LOST_BY_FEDAVG]))
    judged = ours.assign(robust=(ours[["src_lost", "asr_lost"]] <= ROBUST).all(axis=1))
    reached = ours[["without_src_acc", "without_all_acc"]].min(axis=1, skipna=False)
    judged = judged[reached >= ours["benchmark"].map(learned)].groupby(CELL)["robust"]
    counts = judged.agg(["sum", "count"]).reindex(table.index)
    texts = [_of(row) for row in counts.itertuples(index=False)]
    return labelled(table).assign(**{ROBUST_IN: texts})


def robust_by_ratio(table: pd.DataFrame) -> pd.DataFrame:
    """In how many seeds LFighter is robust, a column per ratio, of a table of `at_each_ratio`."""
    counts = table[ROBUST_IN].unstack(RATIO)
    return counts.rename(columns=lambda ratio: f"robust at {ratio}%").rename_axis(columns=None)


def cost_of_peace(results: pd.DataFrame) -> pd.DataFrame:
    """What LFighter costs when nobody attacks, against FedAvg with the same seed, in points."""
    key = ["benchmark", "seed"]
    calm = results[results["attackers"] == 0].set_index(key)
    ours, fedavg = (calm[calm["defense"] == name] for name in (OURS, FEDAVG))
    metrics = ["all_acc", "src_acc"]
    lost = (fedavg[metrics] - ours[metrics]).reindex(ours.index) * 100
    table = pd.DataFrame(
        {
            "honest peers dropped (%)": 100 * ours["false_positive_rate"],
            "All-Acc lost (points)": lost["all_acc"],
            "Src-Acc lost (points)": lost["src_acc"],
        }
    )
    return labelled(over_known_seeds(table.reset_index(), ["benchmark"], list(table.columns)))


def _of(counts: tuple[float, float]) -> str | None:
    held, judged = counts
    return f"{held:.0f} of {judged:.0f}" if judged == judged else None
