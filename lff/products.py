"""Figures and tables as files: PNG, PDF and CSV; CSV, Markdown and LaTeX.

They go to `figures/<scale>/`, so that no scale's product is taken for another's.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lff.figures.style import journal
from lff.paths import figures_dir

MISSING = "--"


def about(table: pd.DataFrame, scale: str) -> str:
    """A caption's facts: scale, data source, seeds and number of runs behind a table of runs.

    Runs of the same benchmarks that were asked for and have no record are counted as missing.
    """
    sources = " and ".join(sorted(set(table["data_source"])))
    seeds = sorted(int(seed) for seed in set(table["seed"]))
    named = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    runs = table["id"].nunique()
    text = f"Scale {scale}; data: {sources}; {named}; {runs} run{'s' if runs > 1 else ''}"
    shown = set(table["benchmark"]) if "benchmark" in table else set()
    missing = sum(name.split("_")[0] in shown for name in table.attrs.get("missing", ()))
    return text + (f", {missing} missing" if missing else "")


def save_figure(figure: Figure, name: str, table: pd.DataFrame, scale: str) -> Figure:
    """Write a figure as PNG and PDF, and the table behind it as CSV; returns the figure."""
    stem = _stem(name, scale)
    with journal():
        figure.savefig(stem.with_suffix(".png"), metadata={"Software": None})
        figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
    table.to_csv(stem.with_suffix(".csv"), index=False)
    return figure


def save_table(
    table: pd.DataFrame, name: str, scale: str, *, digits: int = 2, best: str | None = None
) -> "pd.io.formats.style.Styler":
    """Write a table as CSV, Markdown and LaTeX; returns it for display.

    Numbers are shown to `digits`; `best` ("min" or "max") sets the best number of each row in
    bold. What is missing is shown as missing.
    """
    stem = _stem(name, scale)
    table.to_csv(stem.with_suffix(".csv"))
    text = table.map(lambda value: _shown(value, digits))
    bold = _best(table, text, best)
    stem.with_suffix(".md").write_text(markdown(text.mask(bold, "**" + text + "**")))
    latex = text.map(_latex).mask(bold, "\\textbf{" + text.map(_latex) + "}")
    latex.columns = [_latex(str(column)) for column in table.columns]
    stem.with_suffix(".tex").write_text(latex.to_latex(escape=False))
    weights = bold.map(lambda is_best: "font-weight: bold" if is_best else "")
    return text.style.apply(lambda _: weights, axis=None)


def markdown(text: pd.DataFrame) -> str:
    """A Markdown table of texts, the index as first columns."""
    names = [name or "" for name in text.index.names]
    rows = [[*names, *map(str, text.columns)], ["---"] * (len(names) + text.shape[1])]
    for key, row in zip(text.index, text.to_numpy(), strict=True):
        keys = key if isinstance(key, tuple) else (key,)
        rows.append([*map(str, keys), *map(str, row)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _best(table: pd.DataFrame, text: pd.DataFrame, best: str | None) -> pd.DataFrame:
    """Which cells show their row's best number, as printed: equal digits are equally good."""
    bold = pd.DataFrame(False, index=table.index, columns=table.columns)
    if best is None:
        return bold
    numbers = text.map(lambda shown: shown.split(" ")[0]).apply(pd.to_numeric, errors="coerce")
    winner = numbers.min(axis=1) if best == "min" else numbers.max(axis=1)
    return numbers.eq(winner, axis=0)


def _shown(value: object, digits: int) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return MISSING
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _latex(text: str) -> str:
    for character in "&%_#":
        text = text.replace(character, f"\\{character}")
    return text


def _stem(name: str, scale: str) -> Path:
    folder = figures_dir() / scale
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def series(values: Sequence[float], digits: int = 2) -> str:
    """One number, or the mean and range of several seeds' numbers; NaN if any is none.

    A CV is NaN where Src-Acc was zero in every round: no mean of the other seeds may hide that.
    """
    missing = int(np.isnan(values).sum())
    if missing:
        return "NaN" if missing == len(values) else f"NaN in {missing} of {len(values)}"
    values = np.asarray(values)
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} [{values.min():.{digits}f}, {values.max():.{digits}f}]"
