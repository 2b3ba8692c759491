"""The two clusters of Procedure 1 in recorded rounds: their sizes, densities and attackers."""

from collections.abc import Iterable
from math import degrees

import pandas as pd

from lff.experiments.benchmarks import Experiment
from lff.study.filtering import CELL, LFIGHTER, is_wrong, number_dropped
from lff.experiments.records import find
from lff.study.tables import RUN, labelled, run_columns

CLUSTERS = (
    "peers dropped", "peers kept", "attackers dropped", "attackers kept",
    "angle of dropped (degrees)", "angle of kept (degrees)",
)  # fmt: skip
PURE = 0.8  # of a cluster that is called the attackers' or the honest peers'


def wrong_clusters(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """The two clusters of Procedure 1 in the first and the last wrong round of every run.

    For the cluster that was dropped and the one that was kept: how many peers and attackers are
    in it, and its inverse density, the mean of the peers' largest angles, in degrees. The dropped
    cluster is the one of the smaller size x inverse density.
    """
    rows = []
    for e in experiments:
        record = find(e) if e.defense == LFIGHTER else None
        history = record.history if record else []
        wrong = [h for h in history if _divided(h) and is_wrong(h["caught"])]
        for entry in wrong[:1] + wrong[1:][-1:]:
            rows.append({**run_columns(e), "round": entry["round"] + 1, **_clusters(entry)})
    table = pd.DataFrame(rows, columns=["id", *RUN, "round", *CLUSTERS])
    return labelled(table.drop(columns=["id", "defense"]).set_index([*CELL, "seed", "round"]))


def premise(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """Is the attackers' cluster the denser one, as Procedure 1 takes for granted?

    "The attackers' gradients were more similar among them and caused their clusters to be denser
    than the honest peers' clusters." Asked of the rounds whose two clusters are told apart: most
    (`PURE`) of one are attackers, and most of the other are not. Angles are means of the peers'
    largest angles in a cluster, over these rounds; honest peers among the attackers may widen that.
    """
    rows = []
    for e in experiments:
        record = find(e) if e.defense == LFIGHTER and e.attackers else None
        divided = [h for h in record.history if _divided(h)] if record else []
        rows += [{**run_columns(e), **told} for entry in divided if (told := _told_apart(entry))]
    table = pd.DataFrame(rows, columns=["id", *RUN, "theirs", "honest", "among"])
    shares = {
        "attackers' cluster denser (%)": 100.0 * (table["theirs"] < table["honest"]),
        "angle of attackers (degrees)": table["theirs"],
        "angle of honest peers (degrees)": table["honest"],
        "honest peers in the attackers' cluster (%)": 100.0 * table["among"],
    }
    table = table.assign(**shares).groupby([*CELL, "seed"], sort=False)
    means = table[list(shares)].mean()
    means.insert(0, "rounds told apart", table.size())
    return labelled(means)


def _divided(entry: dict) -> bool:
    """Whether there were two clusters, one of which was dropped."""
    return len(entry["saw"].get("cluster_scores", [])) == 2 and number_dropped(entry["caught"]) > 0


def _told_apart(entry: dict) -> dict[str, float] | None:
    """The inverse densities of the attackers' and of the honest cluster, in degrees, and which
    share of the attackers' is honest; nothing if the clusters are mixed."""
    dropped, kept, bad_dropped, bad_kept, *angles = _clusters(entry).values()
    shares = bad_dropped / dropped, bad_kept / kept
    if max(shares) < PURE or min(shares) > 1 - PURE:
        return None
    theirs, honest = angles if shares[0] > shares[1] else reversed(angles)
    return {"theirs": theirs, "honest": honest, "among": 1 - max(shares)}


def _clusters(entry: dict) -> dict[str, float]:
    caught, scores = entry["caught"], sorted(entry["saw"]["cluster_scores"])
    attackers = caught["true_positives"], caught["attackers"] - caught["true_positives"]
    dropped = number_dropped(caught)
    everybody = caught["attackers"] + caught["honest"]
    sizes = dropped, everybody - dropped
    angles = [degrees(score * everybody / size) for score, size in zip(scores, sizes, strict=True)]
    return dict(zip(CLUSTERS, (*sizes, *attackers, *angles), strict=True))
