"""Whom LFighter dropped, round by round, and whether it locked on.

The paper reports none of this. A round is *wrong* if LFighter drops more than one peer and a larger
share of the honest peers than of the attackers. A run that is wrong to the end has *locked on*.
All functions take the frame of rounds (`lff.study.frame.rounds`) and leave other methods out.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lff.experiments.experiment import Experiment
from lff.metrics import averaged_rounds
from lff.study.tables import CELL, in_order, labelled, over_seeds

LFIGHTER = "lfighter"
NEVER, RECOVERED, AT_TIMES, LOCKED = "never wrong", "recovered", "wrong at times", "locked on"
ENDS = (NEVER, RECOVERED, AT_TIMES, LOCKED)


def filtered(rounds: pd.DataFrame, defense: str = LFIGHTER) -> pd.DataFrame:
    """The rounds of LFighter (or of another rule that sees the same), with what the filter did.

    `attackers_dropped` and `honest_dropped` are shares of those present. `alone`: one peer only
    was dropped. Alone in her cluster she has an inverse density of 0, so Procedure 1 drops her
    whoever she is, and nobody else. `wrong`: more than one peer was dropped, and a larger share of
    the honest peers than of the attackers. `named`: how many of source and target class are among
    the two neurons it looked at. `distribution_found`: whether it found the right kind (1 or 0).
    The last two are missing where there is nothing to choose (one or two output neurons), `named`
    also in Extreme, where neurons are chosen per peer, and where nobody attacks.
    """
    ours = rounds[rounds["defense"] == defense]
    attackers, honest = ours["true_positives"], ours["false_positives"]
    present, present_honest = ours["present_attackers"], ours["present_honest"]
    extreme = ours["distribution"] == "extreme"
    choice = ours["non_relevant"].notna()
    named = [
        len({source, target} & set(saw.get("neurons", ())))
        for source, target, saw in zip(
            ours["source_class"], ours["target_class"], ours["saw"], strict=True
        )
    ]
    found = [saw.get("distribution") == "extreme" for saw in ours["saw"]] == extreme
    return ours.assign(
        attackers_dropped=attackers / present,
        honest_dropped=honest / present_honest,
        alone=attackers + honest == 1,
        wrong=(honest * present > attackers * present_honest) & (attackers + honest > 1),
        named=pd.Series(named, ours.index, float).where(choice & ~extreme & (present > 0)),
        distribution_found=found.astype(float).where(choice),
    )


def dropped(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """Which percentage of the attackers and of the honest peers LFighter dropped, all rounds."""
    ours = runs[runs["defense"] == LFIGHTER]
    shares = {
        "attackers dropped (%)": 100 * ours["true_positive_rate"],
        "honest peers dropped (%)": 100 * ours["false_positive_rate"],
    }
    return labelled(in_order(over_seeds(ours, CELL, shares, known=True), asked))


def episodes(rounds: pd.DataFrame, defense: str = LFIGHTER) -> pd.DataFrame:
    """Per attacked run: in how many rounds LFighter was wrong, from when to when, and the end.

    `alone` are the rounds in which one peer alone was dropped. `end` is "never wrong", or by how
    many of the last rounds, those whose metrics are averaged, are wrong: "recovered" (none),
    "wrong at times" (some) or "locked on" (all).
    """
    seen = filtered(rounds[rounds["attackers"] > 0], defense)
    every, wrong = seen.groupby("id", sort=False), seen[seen["wrong"]].groupby("id")["round"]
    averaged = seen["rounds"].map(averaged_rounds).astype(int)
    last = seen[seen["round"] >= seen["rounds"] - averaged].groupby("id")
    runs = seen.drop_duplicates("id").set_index("id")
    table = runs[["benchmark", "defense", "attackers", "seed", "rounds"]].copy()
    table["alone"] = every["alone"].sum().astype(int)
    table["rounds wrong"] = every["wrong"].sum().astype(int)
    table["first"], table["last"] = wrong.min() + 1, wrong.max() + 1
    ends = {
        NEVER: table["rounds wrong"] == 0,
        LOCKED: last["wrong"].all().reindex(table.index),
        AT_TIMES: last["wrong"].any().reindex(table.index),
    }
    table["end"] = np.select([*ends.values()], [*ends], RECOVERED)
    table["attackers dropped at the end (%)"] = 100 * last["attackers_dropped"].mean()
    table["honest dropped at the end (%)"] = 100 * last["honest_dropped"].mean()
    return table.reset_index()
