"""The paper's numbers beside ours, as tables."""

from collections.abc import Iterable, Sequence

import pandas as pd

from lff.study import paper
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import PAPER_DEFENSES
from lff.study.spread import Spread, over_seeds
from lff.study.tables import labelled

LABELS = {
    "src_acc": "Src-Acc (%)",
    "asr": "ASR (%)",
    "cv": "CV",
    "per_round": "seconds per round",
    "good": "magnitude of good",
    "bad": "magnitude of bad",
    "angle": "angle (degrees)",
}
HEADLINE_DIGITS = {
    f"{name} (%), {who}": 0 for name in ("Src-Acc", "ASR") for who in ("paper", "ours")
}
PARTS = ("paper", "ours", "difference")
CELL = ["benchmark", "attackers", "defense"]
DASH = "\N{EN DASH}"


def beside_paper(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """The paper's numbers, ours and the difference, one row per cell that the paper reports."""
    table = paper.compare(ours, theirs, list(on), list(values)).set_index(list(on))
    for value in values:  # a NaN that the paper prints is a number it reports
        table[f"{value}_paper"] = table[f"{value}_paper"].map(lambda number: Spread((number,)))
    parts = {f"{v}_{part}": f"{LABELS.get(v, v)}, {part}" for v in values for part in PARTS}
    return labelled(table).rename(columns=parts)


def headline(results: pd.DataFrame, ratio: float = 40, otherwise: float = 30) -> pd.DataFrame:
    """Src-Acc and ASR in percent and the CV, the paper's and ours, at one attacker ratio.

    A benchmark of which more methods were run at the ratio `otherwise` is shown at that. Its seeds
    are those in which most methods were run, so that methods are compared by the same ones.
    """
    results = _of_most_methods(results)
    methods = results.groupby(CELL[:2])["defense"].nunique().to_dict()
    at = {b: max(ratio, otherwise, key=lambda r: methods.get((b, r), 0)) for b in BENCHMARKS}
    cells = [(b, float(at[b]), d) for b in BENCHMARKS for d in PAPER_DEFENSES]
    table = _beside(results, pd.MultiIndex.from_tuples(cells, names=CELL))
    seeds = results.groupby(CELL[:2])["seed"].unique().to_dict()
    table.insert(0, "seeds", [_listed(seeds.get(cell[:2], ())) for cell in cells])
    return table


def _of_most_methods(results: pd.DataFrame) -> pd.DataFrame:
    """The runs of those seeds in which, of a benchmark and ratio, most methods were run."""
    methods = results.groupby([*CELL[:2], "seed"])["defense"].transform("nunique")
    most = methods.groupby([results[name] for name in CELL[:2]]).transform("max")
    return results[methods == most]


def _listed(seeds: Iterable[int]) -> str:
    return " ".join(str(seed) for seed in sorted(seeds)) or DASH


def at_a_glance(results: pd.DataFrame, ratio: float = 50) -> pd.DataFrame:
    """Our Src-Acc in percent, per benchmark: what there is to lose (FedAvg without attack), what
    FedAvg and LFighter keep of it at one attacker ratio."""
    scaled = results.assign(src_acc=100 * results["src_acc"])
    means = over_seeds(scaled, ["benchmark", "defense", "attackers"], ["src_acc"])["src_acc"]
    cells = {
        "FedAvg, no attack": ("fedavg", 0.0),
        f"FedAvg, {ratio:g}% attackers": ("fedavg", float(ratio)),
        f"LFighter, {ratio:g}% attackers": ("lfighter", float(ratio)),
    }
    rows = pd.Index(BENCHMARKS, name="benchmark")
    columns = {
        label: means.reindex([(b, *cell) for b in BENCHMARKS]).set_axis(rows)
        for label, cell in cells.items()
    }
    return labelled(pd.DataFrame(columns))


def each_run(results: pd.DataFrame) -> pd.DataFrame:
    """The same numbers as the headline's of every run there is, each seed by itself."""
    return _beside(results, pd.MultiIndex.from_frame(results[[*CELL, "seed"]]))


def _beside(results: pd.DataFrame, rows: pd.MultiIndex) -> pd.DataFrame:
    scaled = results.assign(src_acc=100 * results["src_acc"], asr=100 * results["asr"])
    ours = over_seeds(scaled, list(rows.names), ["src_acc", "asr", "cv"]).reindex(rows)
    cells = rows.droplevel("seed") if "seed" in rows.names else rows
    read_off = paper.robustness().set_index(CELL)[["src_acc", "asr"]] * 100
    theirs = read_off.reindex(cells)
    theirs["cv"] = paper.cv().set_index(CELL)["cv"].reindex(cells).map(lambda cv: Spread((cv,)))
    theirs.index = rows
    columns = {}
    for name in ("src_acc", "asr", "cv"):
        label = LABELS[name]
        columns |= {f"{label}, paper": theirs[name], f"{label}, ours": ours[name]}
    return labelled(pd.DataFrame(columns))


def by_method(headline: pd.DataFrame) -> pd.DataFrame:
    """The headline with a column per method, each cell the paper's number / ours.

    Ours are the range of the seeds; where the paper reports nothing, or we ran nothing, is a dash.
    """
    cells = {}
    for (benchmark, ratio, method), row in headline.iterrows():
        for label in (LABELS[name] for name in ("src_acc", "asr", "cv")):
            digits = HEADLINE_DIGITS.get(f"{label}, paper", 2)
            pair = (_range(row[f"{label}, {who}"], digits) for who in PARTS[:2])
            key = (benchmark, ratio, row["seeds"], label)
            cells.setdefault(key, {})[method] = " / ".join(pair)
    table = pd.DataFrame.from_dict(cells, orient="index")
    table.index = table.index.set_names([*headline.index.names[:2], "seeds", "paper / ours"])
    return table


def _range(value: Spread | float, digits: int) -> str:
    if not isinstance(value, Spread):
        return DASH if value != value else f"{value:.{digits}f}"
    if value.mean != value.mean:
        return format(value, f".{digits}f")
    ends = dict.fromkeys(f"{end:.{digits}f}" for end in (value.low, value.high))
    return " to ".join(ends)
