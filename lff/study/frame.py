"""One tidy frame of all rounds of all records; every table and figure is a `groupby` on it."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lff.defenses import DEFENSES
from lff.errors import RecordError, unknown
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.records import SUFFIX, Record, load, path_of
from lff.experiments.scales import PAPER_DEFENSES, SCALES
from lff.metrics import METRICS, PAPER_METRICS, Evaluation, Metric, averaged_rounds
from lff.paths import results_dir

logger = logging.getLogger("lff")


FOUR = tuple(PAPER_METRICS)
SETTINGS = tuple(setting.name for setting in fields(Experiment))
SECONDS = ("seconds_training", "seconds_aggregation", "seconds_evaluation")
CAUGHT = ("true_positives", "false_positives", "present_attackers", "present_honest")
# Lists and dicts of a round; a CSV leaves them out.
NESTED = (
    "saw", "dropped", "confusion", "peer_ids", "attacker_ids", "weights_by_peer",
    "scores_by_peer", "noted",
)  # fmt: skip
COLUMNS = (
    "id", *SETTINGS, "round", *FOUR, *CAUGHT, "relevant", "non_relevant", *SECONDS,
    "data_source", *NESTED,
)  # fmt: skip
# What every round's entry has besides numbers; all else is of hooks.
ENTRY = (
    "confusion", "weights", "scores", "dropped", "caught", "magnitudes", "saw", "patched", "peers",
    "excluded",
)  # fmt: skip
OBSERVED = ("id", *SETTINGS, "data_source", "round")  # of a look inside a round
VIEW = (
    "view", "explained1", "explained2", "silhouette", "peer", "class_held", "bad", "pc1", "pc2",
)  # fmt: skip
NUMBERS = (*FOUR, *CAUGHT, "relevant", "non_relevant", *SECONDS)

Rows = list[dict[str, Any]]
_parsed: dict[Path, tuple[tuple[int, int], Rows]] = {}  # by path: its time and size, its rounds


def rounds(
    experiments: Iterable[Experiment] | None = None,
    *,
    scale: str | None = None,
    folder: Path | None = None,
) -> pd.DataFrame:
    """One row per round of every record, or of the records of these `experiments`.

    Rows are sorted by benchmark, attacker ratio, defense and seed, the paper's first. A row has
    all settings of the experiment; the metrics of the round, as fractions; how many
    attackers and honest peers were present and dropped; the mean gradient magnitude of the
    `relevant` output neurons (source and target class) and of the others; the seconds; what the
    rule `saw` and whom it `dropped`; every registered metric, and every number that a hook gave
    (lists and dicts that it gave are `noted`, by name).
    `attrs["missing"]` has the ids of the experiments without a record. A file is parsed once in a
    process, unless it changes. A broken one is an error if it was asked for; else it is named and
    passed over.
    """
    if scale is not None and scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if experiments is None:
        home = Path(folder or results_dir())
        paths, missing = sorted(home.glob(f"{scale or '*'}/*{SUFFIX}")), []
    else:
        asked = dict.fromkeys(e for e in experiments if scale in (None, e.scale))
        where = {e: path_of(e, folder) for e in asked}
        paths = [path for path in where.values() if path.exists()]
        missing = [e.id for e, path in where.items() if not path.exists()]
    rows = [row for path in paths for row in _rows_of(path, passing=experiments is None)]
    names = dict.fromkeys(name for row in rows for name in row)
    further = [name for name in names if name not in (*COLUMNS, "patched")]
    frame = pd.DataFrame(rows, columns=[*COLUMNS, *further])
    frame = frame.astype(dict.fromkeys([*NUMBERS, *further], float))
    for name, metric in METRICS.items():
        frame[name] = np.array([_measured(row, metric.factory) for row in rows], dtype=float)
    frame = frame.sort_values(
        ["benchmark", "scale", "attackers", "defense", "seed", "id", "round"],
        key=rank,
        ignore_index=True,
    )
    frame.attrs["missing"] = missing
    return frame


def load_rounds(
    experiments: Iterable[Experiment] | None = None,
    *,
    scale: str | None = None,
    folder: Path | None = None,
) -> pd.DataFrame:
    """`rounds`, with a warning that says how many of the `experiments` have no record."""
    frame = rounds(experiments, scale=scale, folder=folder)
    missing = frame.attrs["missing"]
    if missing:
        asked = len(missing) + frame["id"].nunique()
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        logger.warning("%d of %d runs have no record: %s", len(missing), asked, some)
    return frame


def load_runs(
    experiments: Iterable[Experiment] | None = None,
    *,
    scale: str | None = None,
    folder: Path | None = None,
) -> pd.DataFrame:
    """One row per run of every record, or of the records of these `experiments`: see `runs`."""
    return runs(load_rounds(experiments, scale=scale, folder=folder))


def runs(rounds: pd.DataFrame) -> pd.DataFrame:
    """One row per run: its settings, the metrics averaged over its last rounds, and the rest.

    `cv` is the coefficient of variation of Src-Acc over all rounds, NaN where Src-Acc was zero in
    every round. The rates of true and false positives are shares of all attackers and honest peers
    present in any round.
    """
    table = rounds.drop_duplicates("id")[["id", *SETTINGS]].set_index("id")
    every = rounds.groupby("id", sort=False)
    averaged = rounds["rounds"].map(averaged_rounds).astype(int)
    last = rounds[rounds["round"] >= rounds["rounds"] - averaged].groupby("id", sort=False)
    further = [name for name in rounds.select_dtypes("number") if name not in COLUMNS]
    for metric in (*FOUR, *further):
        table[metric] = last[metric].mean(skipna=False)
    table["worst_src_acc"] = last["src_acc"].min(skipna=False)
    src_acc = every["src_acc"]
    table["cv"] = src_acc.std(skipna=False) / src_acc.mean(skipna=False)
    total = every[[*CAUGHT, *SECONDS]].sum()
    table["true_positive_rate"] = total["true_positives"] / total["present_attackers"]
    table["false_positive_rate"] = total["false_positives"] / total["present_honest"]
    table["aggregation_seconds"] = total["seconds_aggregation"]
    table["seconds"] = total[list(SECONDS)].sum(axis=1)
    table["data_source"] = every["data_source"].first()
    table = table.reset_index()
    table.attrs["missing"] = list(rounds.attrs.get("missing", []))
    return table


def views(rounds: pd.DataFrame) -> pd.DataFrame:
    """What the hook `views` noted: one row per update, view and round, with the run's settings.

    `pc1` and `pc2` are the update's place on the view's principal components, which explain
    `explained1` and `explained2` of the variance; `silhouette` is the view's.
    """
    rows: Rows = []
    for row, same, seen in _noted(rounds, "views"):
        for view in [name for name in seen if name != "held"]:
            found = seen[view]
            one, two = found["explained"]
            same |= {"view": view, "explained1": one, "explained2": two}
            same |= {"silhouette": found["silhouette"]}
            places = zip(row["peer_ids"], seen["held"], found["points"], strict=True)
            for peer, c, (pc1, pc2) in places:
                who = {"peer": peer, "class_held": c, "bad": peer in row["attacker_ids"]}
                rows.append({**same, **who, "pc1": pc1, "pc2": pc2})
    return pd.DataFrame(rows, columns=[*OBSERVED, *VIEW])


def components(rounds: pd.DataFrame) -> pd.DataFrame:
    """The components that a record keeps: one row per peer of each round that has them.

    They are those of the two neurons that the rule looked at, or of source and target class if it
    looked at none. `cluster` is the peer's, if the rule saw clusters, else -1.
    """
    rows: Rows = []
    for row, same, kept in _noted(rounds, "components"):
        clusters = row["saw"].get("clusters", [-1] * len(row["peer_ids"]))
        for found in kept[-1:]:
            same |= {"neurons": found["neurons"], "silhouette": found["silhouette"]}
            for peer, c, (pc1, pc2) in zip(row["peer_ids"], clusters, found["points"], strict=True):
                who = {"bad": peer in row["attacker_ids"], "dropped": peer in row["dropped"]}
                rows.append({**same, "peer": peer, "cluster": c, **who, "pc1": pc1, "pc2": pc2})
    columns = ["neurons", "silhouette", "peer", "cluster", "bad", "dropped", "pc1", "pc2"]
    return pd.DataFrame(rows, columns=[*OBSERVED, *columns])


def good_and_bad(rounds: pd.DataFrame) -> pd.DataFrame:
    """What the hook `good_and_bad` noted: one row per part of the gradients and round."""
    rows = [
        {**same, "gradients": part, **numbers}
        for _, same, seen in _noted(rounds, "good_and_bad")
        for part, numbers in seen.items()
    ]
    return pd.DataFrame(rows, columns=[*OBSERVED, "gradients", "good", "bad", "angle"])


def _noted(rounds: pd.DataFrame, hook: str) -> Iterator[tuple[dict, dict, Any]]:
    """The rounds of which a hook noted something: the row, what names the round, and that."""
    for row in rounds.to_dict("records"):
        if hook in row["noted"]:
            yield row, {name: row[name] for name in OBSERVED}, row["noted"][hook]


# How tables and figures call them; one that is not registered by its name.
benchmark_label, defense_label = BENCHMARKS.label, DEFENSES.label


def benchmarks_in_order(names: Iterable[str]) -> list[str]:
    """Each benchmark once, the registered ones in their order, then others by name."""
    return _in_order(names, list(BENCHMARKS))


def defenses_in_order(names: Iterable[str]) -> list[str]:
    """Each defense once, the paper's in its order, then others by name."""
    return _in_order(names, PAPER_DEFENSES)


def _in_order(names: Iterable[str], first: Sequence[str]) -> list[str]:
    there = set(names)
    return [name for name in first if name in there] + sorted(there - set(first))


def rank(column: pd.Series) -> pd.Series:
    """What a column is sorted by: benchmarks and defenses by their order, all else by itself."""
    orders = {"benchmark": benchmarks_in_order, "defense": defenses_in_order}
    if column.name not in orders:
        return column
    return column.map({name: i for i, name in enumerate(orders[column.name](column))})


def _rows_of(path: Path, *, passing: bool) -> Rows:
    """The rounds of one record's file, parsed unless it is known."""
    now = path.stat()
    version = now.st_mtime_ns, now.st_size
    if path not in _parsed or _parsed[path][0] != version:
        try:
            _parsed[path] = version, _rows(load(path))
        except RecordError as error:
            if not passing:
                raise
            logger.warning("%s", error)
            return []
    return _parsed[path][1]


def _rows(record: Record) -> Rows:
    e = record.experiment
    same = {"id": record.id, **asdict(e), "data_source": record.provenance["data"]["source"]}
    everybody, attacked = list(range(e.peers)), (e.source_class, e.target_class)
    rows = []
    for entry in record.history:
        caught, magnitudes = entry["caught"], entry["magnitudes"]
        parts = {f"seconds_{part}": times[entry["round"]] for part, times in record.seconds.items()}
        further = {name: value for name, value in entry.items() if name not in ENTRY}
        noted = {n: value for n, value in further.items() if isinstance(value, list | dict)}
        numbers = {
            n: value
            for n, value in further.items()
            if value is None or isinstance(value, int | float)
        }
        rows.append(
            {
                **same,
                **numbers,
                **parts,
                "true_positives": caught["true_positives"],
                "false_positives": caught["false_positives"],
                "present_attackers": caught["attackers"],
                "present_honest": caught["honest"],
                "relevant": _mean(m for i, m in enumerate(magnitudes) if i in attacked),
                "non_relevant": _mean(m for i, m in enumerate(magnitudes) if i not in attacked),
                "saw": entry["saw"],
                "dropped": entry["dropped"],
                "confusion": entry["confusion"],
                "peer_ids": entry.get("peers", everybody),
                "attacker_ids": record.attackers,
                "weights_by_peer": entry["weights"],
                "scores_by_peer": entry["scores"],
                "noted": noted,
                "patched": entry.get("patched"),
            }
        )
    return rows


def _mean(values: Iterable[float | None]) -> float:
    """The mean of those values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def _measured(row: dict[str, Any], metric: Metric) -> float:
    """A metric of one round, from what its evaluation found."""
    error, patched = row["test_error"], row["patched"]
    return metric(
        Evaluation(
            confusion=torch.tensor(row["confusion"]),
            test_error=float("nan") if error is None else error,
            source_class=row["source_class"],
            target_class=row["target_class"],
            patched=None if patched is None else torch.tensor(patched),
        )
    )
