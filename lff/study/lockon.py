"""Whom LFighter dropped, round by round: lock-on, the two clusters, and what it saw.

The paper reports none of this. A round is *wrong* if of the honest peers a larger share was dropped
than of the attackers, worse than at random. A run that is wrong to the end has *locked on*.
All functions take the frame of rounds (`lff.study.frame.rounds`) and leave other methods out.
"""

from math import degrees

import numpy as np
import pandas as pd

from lff.metrics import averaged_rounds
from lff.study.tables import CELL, labelled, over_seeds

LFIGHTER = "lfighter"
NEVER, RECOVERED, AT_TIMES, LOCKED = "never wrong", "recovered", "wrong at times", "locked on"
ENDS = (NEVER, RECOVERED, AT_TIMES, LOCKED)
ALONE = "rounds with one peer dropped alone (%)"
PURE = 0.8  # of a cluster that is called the attackers' or the honest peers'


def filtered(rounds: pd.DataFrame, defense: str = LFIGHTER) -> pd.DataFrame:
    """The rounds of LFighter (or of another rule that sees the same), with what the filter did.

    `attackers_dropped` and `honest_dropped` are shares of those present. `alone`: one peer only was
    dropped. Alone in her cluster she has an inverse density of 0, so Procedure 1 drops her whoever
    she is, and nobody else. `wrong`: a larger share of the honest peers was dropped than of the
    attackers, and not one peer alone. `named`: how many of source and target class are among the
    two neurons it looked at. `distribution_found`: whether it found the right kind (1 or 0). The
    last two are missing where there is nothing to choose (one or two output neurons), `named` also
    in Extreme, where neurons are chosen per peer, and where nobody attacks.
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


def dropped(runs: pd.DataFrame) -> pd.DataFrame:
    """Which percentage of the attackers and of the honest peers LFighter dropped, all rounds."""
    ours = runs[runs["defense"] == LFIGHTER]
    shares = {
        "attackers dropped (%)": 100 * ours["true_positive_rate"],
        "honest peers dropped (%)": 100 * ours["false_positive_rate"],
    }
    return labelled(over_seeds(ours.assign(**shares), CELL, list(shares), known=True))


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


def lock_on(rounds: pd.DataFrame) -> pd.DataFrame:
    """In how many seeds LFighter was never wrong, recovered, was wrong at times, or locked on; with
    the shares of rounds in which it was wrong, and in which it dropped one peer alone."""
    runs = episodes(rounds)
    counts = runs.groupby([*CELL, "end"], sort=False).size().unstack("end", fill_value=0)
    counts = counts.reindex(columns=list(ENDS), fill_value=0).rename_axis(columns=None)
    shares = {
        "rounds wrong (%)": 100 * runs["rounds wrong"] / runs["rounds"],
        ALONE: 100 * runs["alone"] / runs["rounds"],
    }
    table = over_seeds(runs.assign(**shares), CELL, list(shares))
    return labelled(counts.reindex(table.index).join(table))


def sight(rounds: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the rounds LFighter saw what was there.

    Both of source and target class among its two neurons; at least one of them; and the right
    kind of distribution.
    """
    seen = filtered(rounds)
    known = seen["named"].notna()
    shares = {
        "both classes named (%)": (100.0 * (seen["named"] == 2)).where(known),
        "one or both (%)": (100.0 * (seen["named"] >= 1)).where(known),
        "distribution found (%)": 100 * seen["distribution_found"],
    }
    return labelled(over_seeds(seen.assign(**shares), CELL, list(shares), known=True))


def clusters(rounds: pd.DataFrame) -> pd.DataFrame:
    """The two clusters of Procedure 1, in the rounds of LFighter in which one of them was dropped.

    For the dropped one and the kept one: how many peers and attackers are in it, and its inverse
    density, the mean of the peers' largest angles, in degrees. The dropped cluster is the one of
    the smaller size x inverse density.
    """
    seen = filtered(rounds)
    number = seen["true_positives"] + seen["false_positives"]
    two = seen["saw"].map(lambda saw: len(saw.get("inverse_densities", ())) == 2)
    seen = seen[two.astype(bool) & (number > 0)]
    angles = [_angles(saw, d) for saw, d in zip(seen["saw"], number[seen.index], strict=True)]
    dropped, kept = np.array(angles, dtype=float).reshape(-1, 2).T
    return seen.assign(
        **{
            "peers dropped": number[seen.index],
            "peers kept": seen["present_attackers"] + seen["present_honest"] - number[seen.index],
            "attackers dropped": seen["true_positives"],
            "attackers kept": seen["present_attackers"] - seen["true_positives"],
            "angle of dropped (degrees)": dropped,
            "angle of kept (degrees)": kept,
        }
    )


def density_premise(rounds: pd.DataFrame) -> pd.DataFrame:
    """Is the attackers' cluster the denser one, as Procedure 1 takes for granted?

    "The attackers' gradients were more similar among them and caused their clusters to be denser
    than the honest peers' clusters." Asked of the rounds whose two clusters are told apart: most
    (`PURE`) of one are attackers, and most of the other are not. Angles are means over these rounds
    of the inverse densities; honest peers among the attackers may widen theirs.
    """
    seen = clusters(rounds[rounds["attackers"] > 0])
    shares = pd.DataFrame(
        {
            which: seen[f"attackers {which}"] / seen[f"peers {which}"]
            for which in ("dropped", "kept")
        }
    )
    apart = (shares.max(axis=1) >= PURE) & (shares.min(axis=1) <= 1 - PURE)
    seen, shares = seen[apart], shares[apart]
    right = shares["dropped"] > shares["kept"]
    angles = seen["angle of dropped (degrees)"], seen["angle of kept (degrees)"]
    attackers, honest = angles[0].where(right, angles[1]), angles[1].where(right, angles[0])
    told = {
        "attackers' cluster denser (%)": 100.0 * (attackers < honest),
        "angle of attackers (degrees)": attackers,
        "angle of honest peers (degrees)": honest,
        "honest peers in the attackers' cluster (%)": 100 * (1 - shares.max(axis=1)),
    }
    by_run = seen.assign(**told).groupby([*CELL, "seed"], sort=False)
    means = by_run[list(told)].mean()
    means.insert(0, "rounds told apart", by_run.size())
    return labelled(means)


def _angles(saw: dict, dropped: float) -> tuple[float, float]:
    """The inverse densities of the dropped and of the kept cluster, in degrees."""
    members = [saw["clusters"].count(c) for c in (0, 1)]
    first = min((0, 1), key=lambda c: (abs(members[c] - dropped), saw["cluster_scores"][c]))
    both = saw["inverse_densities"]
    return degrees(both[first]), degrees(both[1 - first])
