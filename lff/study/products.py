"""Figures and tables as files: PNG, PDF and CSV; CSV, Markdown and LaTeX.

They go to `figures/<scale>/`, so that no scale's product is taken for another's.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.study.figures.style import journal
from lff.paths import figures_dir
from lff.study.spread import INTERVAL, Spread, as_numbers, several

MISSING = "--"


def about(table: pd.DataFrame, scale: str, asked: Collection[Experiment] | None = None) -> str:
    """A caption's facts: scale, data source, seeds and number of runs behind a table of runs.

    A table of one benchmark names it. Where not all of the runs `asked` for are recorded, it says
    how many are.
    """
    if table.empty:
        return f"Scale {scale}; none of {len(asked or ())} runs is recorded"
    runs = table["id"].nunique()
    number = _number_of_runs(runs)
    wanted = len({e.id for e in asked or ()})
    if wanted > runs:
        number = f"{runs} of {wanted} runs ({runs / wanted:.0%}), the others not run"
    seeds = named_seeds(table["seed"])
    facts = _facts(table["benchmark"], scale, table["data_source"], table.get("width", ()))
    return f"{facts}{seeds}; {number}"


def about_looks(looks: Sequence[tuple[Experiment, pd.DataFrame]]) -> str:
    """The same for observations of one round, given with the experiments they look into.

    Those of one benchmark, which differ in their seeds alone, name the attackers and the round.
    """
    e, table = looks[0]
    runs = [run for run, _ in looks]
    sources = (seen.attrs["data_source"] for _, seen in looks)
    facts = _facts((r.benchmark for r in runs), e.scale, sources, (r.width for r in runs))
    told = f"{facts}{named_seeds(r.seed for r in runs)}; {_number_of_runs(len(runs))}"
    if len({r.benchmark for r in runs}) > 1:
        return told
    attacked = f"{e.attackers:g}% attackers, " if e.attackers else ""
    return f"{told}, {attacked}round {table.attrs['round'] + 1} of {e.rounds}"


def _facts(
    benchmarks: Iterable[str], scale: str, sources: Iterable[str], widths: Iterable[int]
) -> str:
    """Benchmark (if there is one), scale, data source, and model if it is not the paper's."""
    labels = [BENCHMARKS[name].label for name in set(benchmarks)]
    where = f"{labels[0]}, scale" if len(labels) == 1 else "Scale"
    return f"{where} {scale}; data: {' and '.join(sorted(set(sources)))}; {_narrower(widths)}"


def _number_of_runs(runs: int) -> str:
    return f"{runs} run{'s' if runs > 1 else ''}"


def _narrower(widths: Iterable[int]) -> str:
    """What a caption says of models that are not the paper's, and nothing of those that are."""
    return "".join(f"ResNet18 of {width} channels; " for width in sorted(set(widths)) if width)


def save_figure(figure: Figure, name: str, table: pd.DataFrame, scale: str) -> Figure:
    """Write a figure as PNG and PDF, and the table behind it as CSV; returns the figure."""
    stem = _stem(name, scale)
    with journal():
        figure.savefig(stem.with_suffix(".png"), metadata={"Software": None})
        figure.set_layout_engine("none")  # arranged by now; the PDF and the notebook's need not
        figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})
    as_numbers(table).to_csv(stem.with_suffix(".csv"), index=False)
    return figure


def save_table(
    table: pd.DataFrame,
    name: str,
    scale: str,
    *,
    about: str = "",
    digits: int | Mapping[str, int] = 2,
    best: str | None = None,
) -> "pd.io.formats.style.Styler":
    """Write a table as CSV, Markdown and LaTeX; returns it for display.

    Numbers are shown to `digits`, given for all columns or by their name; `best` ("min" or "max")
    sets the best number of each row in bold. What is missing is shown as missing. The caption is
    `about`, and what an interval is.
    """
    stem = _stem(name, scale)
    as_numbers(table).to_csv(stem.with_suffix(".csv"))
    caption = "; ".join(filter(None, [about, INTERVAL if several(table) else ""]))
    text = table.apply(lambda column: column.map(_to_text(column.name, digits))).astype(object)
    bold = _best(table, text, best)
    below = f"\n{caption}\n" if caption else ""
    stem.with_suffix(".md").write_text(markdown(text.mask(bold, "**" + text + "**")) + below)
    latex = text.map(_latex).mask(bold, "\\textbf{" + text.map(_latex) + "}")
    latex.columns = [_latex(str(column)) for column in table.columns]
    latex.index = _latex_index(table.index)
    above = f"% {caption}\n" if caption else ""
    stem.with_suffix(".tex").write_text(above + latex.to_latex(escape=False))
    weights = bold.map(lambda is_best: "font-weight: bold" if is_best else "")
    shown = text.style.apply(lambda _: weights, axis=None)
    small = {"selector": "caption", "props": "caption-side: bottom; text-align: left; color: #555"}
    return shown.set_caption(caption).set_table_styles([small]) if caption else shown


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


def _to_text(name: str, digits: int | Mapping[str, int]) -> Callable[[object], str]:
    number = digits if isinstance(digits, int) else digits.get(name, 2)
    return lambda value: _shown(value, number)


def _shown(value: object, digits: int) -> str:
    if isinstance(value, Spread):
        return format(value, f".{digits}f")
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return MISSING
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def named_seeds(seeds: Iterable[int]) -> str:
    """Seeds in words; a whole run of them by its ends."""
    seeds = sorted({int(seed) for seed in seeds})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _latex(text: str) -> str:
    for character in "&%_#":
        text = text.replace(character, f"\\{character}")
    return text


def _latex_index(index: pd.Index) -> pd.Index:
    names = [name and _latex(name) for name in index.names]
    keys = [key if isinstance(key, tuple) else (key,) for key in index]
    levels = [[_latex(str(value)) for value in level] for level in zip(*keys, strict=True)]
    if not levels:
        return index.set_names(names)
    return (
        pd.MultiIndex.from_arrays(levels, names=names)
        if len(levels) > 1
        else pd.Index(levels[0], name=names[0])
    )


def _stem(name: str, scale: str) -> Path:
    folder = figures_dir() / scale
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
