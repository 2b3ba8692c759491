"""Whom LFighter dropped, round by round, and whether it saw what was there.

The paper reports none of this: which share of the attackers and of the honest peers was dropped,
whether the defense locked on to the wrong cluster and recovered, and whether it named the attacked
classes and found the kind of distribution. (Whether it holds: `lff.study.holding`.)
"""

from collections.abc import Iterable

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.metrics import averaged_rounds
from lff.experiments.records import find
from lff.study.spread import over_known_seeds
from lff.study.tables import RUN, labelled, run_columns

LFIGHTER = "lfighter"
CELL = ["benchmark", "attackers"]

ROUND = (
    "round", "rounds", "attackers_dropped", "honest_dropped", "alone", "wrong", "named",
    "distribution",
)  # fmt: skip

EPISODE = (
    "rounds", "alone", "rounds wrong", "first", "last", "end",
    "attackers dropped at the end (%)", "honest dropped at the end (%)",
)  # fmt: skip
ALONE = "rounds with one peer dropped alone (%)"
NEVER, RECOVERED = "never wrong", "recovered"
AT_TIMES, LOCKED = "wrong at times", "locked on"
ENDS = (NEVER, RECOVERED, AT_TIMES, LOCKED)
SEEN, UNSEEN = "among the two neurons", "not among them"


def filtered_rounds(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """One row per round of every recorded run of LFighter.

    `attackers_dropped` and `honest_dropped` are shares of those present. `alone` says that one
    peer only was dropped: alone in her cluster she has an inverse density of 0, so Procedure 1
    drops her whoever she is, and nobody else. `wrong` says that of the honest peers a larger share
    was dropped than of the attackers, worse than at random, and not one peer alone. `named` is how
    many of source and target class are among the two neurons it looked at; `distribution` whether
    it found the right kind (1 or 0). Both are missing where there is nothing to choose (one output
    neuron), `named` also in Extreme, where neurons are chosen per peer, and where nobody attacks.
    """
    rows = []
    for e in experiments:
        record = find(e) if e.defense == LFIGHTER else None
        for entry in record.history if record else []:
            caught, saw = entry["caught"], entry["saw"]
            attackers, honest = caught["attackers"], caught["honest"]
            choice = len(entry["magnitudes"]) > 2
            named = len({e.source_class, e.target_class} & set(saw.get("neurons", [])))
            rows.append(
                {
                    **run_columns(e),
                    "round": entry["round"],
                    "rounds": e.rounds,
                    "attackers_dropped": caught["true_positives"] / attackers
                    if attackers
                    else None,
                    "honest_dropped": caught["false_positives"] / honest if honest else None,
                    "alone": number_dropped(caught) == 1,
                    "wrong": is_wrong(caught),
                    "named": named
                    if choice and e.distribution != "extreme" and attackers
                    else None,
                    "distribution": (saw["distribution"] == "extreme")
                    == (e.distribution == "extreme")
                    if choice
                    else None,
                }
            )
    table = pd.DataFrame(rows, columns=["id", *RUN, *ROUND])
    numbers = ["attackers_dropped", "honest_dropped", "named", "distribution"]
    return table.astype(dict.fromkeys(numbers, float))


def dropped(results: pd.DataFrame) -> pd.DataFrame:
    """Which percentage of the attackers and of the honest peers LFighter dropped, all rounds."""
    ours = results[results["defense"] == LFIGHTER]
    shares = {
        "attackers dropped (%)": 100 * ours["true_positive_rate"],
        "honest peers dropped (%)": 100 * ours["false_positive_rate"],
    }
    return labelled(over_known_seeds(ours.assign(**shares), CELL, list(shares)))


def episodes(rounds: pd.DataFrame) -> pd.DataFrame:
    """Per attacked run: in how many rounds LFighter was wrong, from when to when, and the end.

    `alone` are the rounds in which one peer alone was dropped. `end` is "never wrong", or by how
    many of the last rounds, those that the robustness figures average, are wrong: "recovered"
    (none), "wrong at times" (some) or "locked on" (all).
    """
    rows = []
    attacked = rounds[rounds["attackers"] > 0]
    for _, run in attacked.groupby("id", sort=False):
        last = run.tail(averaged_rounds(len(run)))
        wrong = run.loc[run["wrong"], "round"] + 1
        lately = LOCKED if last["wrong"].all() else AT_TIMES if last["wrong"].any() else RECOVERED
        rows.append(
            {
                **run.iloc[0][list(RUN)],
                "rounds": len(run),
                "alone": int(run["alone"].sum()),
                "rounds wrong": len(wrong),
                "first": wrong.min() if len(wrong) else None,
                "last": wrong.max() if len(wrong) else None,
                "end": lately if len(wrong) else NEVER,
                "attackers dropped at the end (%)": 100 * last["attackers_dropped"].mean(),
                "honest dropped at the end (%)": 100 * last["honest_dropped"].mean(),
            }
        )
    return pd.DataFrame(rows, columns=[*RUN, *EPISODE])


def wrong_runs(rounds: pd.DataFrame) -> pd.DataFrame:
    """The runs in which LFighter was wrong in some round."""
    runs = episodes(rounds)
    runs = runs[runs["rounds wrong"] > 0].set_index([*CELL, "seed"]).drop(columns="defense")
    return labelled(runs)


def is_wrong(caught: dict[str, int]) -> bool:
    """Whether of the honest peers a larger share was dropped than of the attackers, and not one
    peer alone."""
    honest, attackers = caught["false_positives"], caught["true_positives"]
    worse = honest * caught["attackers"] > attackers * caught["honest"]
    return worse and number_dropped(caught) > 1


def number_dropped(caught: dict[str, int]) -> int:
    """How many peers were dropped."""
    return caught["true_positives"] + caught["false_positives"]


def lock_on(rounds: pd.DataFrame) -> pd.DataFrame:
    """In how many seeds LFighter was never wrong, recovered, was wrong at times, or locked on; with
    the shares of rounds in which it was wrong, and in which it dropped one peer alone."""
    runs = episodes(rounds)
    counts = runs.groupby([*CELL, "end"], sort=False).size().unstack("end", fill_value=0)
    counts = counts.reindex(columns=list(ENDS), fill_value=0)
    shares = {
        "rounds wrong (%)": 100 * runs["rounds wrong"] / runs["rounds"],
        ALONE: 100 * runs["alone"] / runs["rounds"],
    }
    table = over_known_seeds(runs.assign(**shares), CELL, list(shares))
    return labelled(counts.join(table))


def sight(rounds: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the rounds LFighter saw what was there.

    Both of source and target class among its two neurons; at least one of them; and the right
    kind of distribution.
    """
    shares = {
        "both classes named (%)": 100 * (rounds["named"] == 2).where(rounds["named"].notna()),
        "one or both (%)": 100 * (rounds["named"] >= 1).where(rounds["named"].notna()),
        "distribution found (%)": 100 * rounds["distribution"],
    }
    table = rounds.assign(**{name: column.astype(float) for name, column in shares.items()})
    return labelled(over_known_seeds(table, CELL, list(shares)))


def by_source_neuron(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """What becomes of attackers in rounds in which LFighter looks at the source class's neuron, and
    in those in which it does not.

    Per benchmark: how many rounds there are, which percentage of the attackers was dropped, and in
    which percentage of the rounds all of them were. Where it chooses two of several neurons for
    all peers, so not in Extreme.
    """
    rows = []
    for e in experiments:
        record = find(e) if e.defense == LFIGHTER and e.attackers else None
        for entry in record.history if record else []:
            neurons, caught = entry["saw"].get("neurons", []), entry["caught"]
            if len(neurons) == 2 < len(entry["magnitudes"]):
                share = caught["true_positives"] / caught["attackers"]
                looked = SEEN if e.source_class in neurons else UNSEEN
                rows.append({**run_columns(e), "source class": looked, "share": 100 * share})
    table = pd.DataFrame(rows, columns=["id", *RUN, "source class", "share"])
    table["all"] = 100.0 * (table["share"] == 100)
    grouped = table.groupby(["benchmark", "source class"])
    columns = {
        "rounds": grouped.size(),
        "attackers dropped (%)": grouped["share"].mean(),
        "all attackers dropped (% of rounds)": grouped["all"].mean(),
    }
    wanted = [(b, looked) for b in BENCHMARKS for looked in (SEEN, UNSEEN)]
    means = pd.DataFrame(columns)
    return labelled(means.reindex([row for row in wanted if row in means.index]))
