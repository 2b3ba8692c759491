"""Tables and captions as texts: Markdown, LaTeX, and what a notebook shows.

Only here are numbers rounded, the columns of a range put into one, and what is missing marked.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from lff.experiments.experiment import Experiment
from lff.study import statistics
from lff.study.frame import benchmark_label, defense_label, defenses_in_order

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

MISSING = "--"
INTERVAL = "mean [min, max] of the seeds"
COMPANIONS = (" low", " high", " seeds")


def caption(frame: pd.DataFrame, scale: str, asked: Collection[Experiment] | None = None) -> str:
    """A caption's facts: scale, data source, seeds and number of runs behind a frame.

    For frames of runs, of rounds, and of views. One benchmark is named, and so is a
    ResNet18 that is not the paper's. Where not all of the runs `asked` for are recorded, it says
    how many are. Views of one round of one benchmark say which it is.
    """
    wanted = len({e.id for e in asked or ()})
    if frame.empty:
        none = f"none of {wanted} runs" if wanted else "no run"
        return f"Scale {scale}; {none} is recorded"
    runs = frame["id"].nunique()
    number = f"{runs} run{'s' if runs > 1 else ''}"
    if wanted > runs:
        number = f"{runs} of {wanted} runs ({runs / wanted:.0%}), the others not run"
    benchmarks = frame["benchmark"].unique()
    alone = len(benchmarks) == 1
    widths = sorted(set(frame.get("width", ())) - {0})
    facts = [
        f"{benchmark_label(benchmarks[0])}, scale {scale}" if alone else f"Scale {scale}",
        f"data: {' and '.join(sorted(frame['data_source'].unique()))}",
        *(f"ResNet18 of {width} channels" for width in widths),
        seeds_in_words(frame["seed"]),
        number,
    ]
    told = "; ".join(facts)
    if alone and "view" in frame and frame["round"].nunique() == 1:
        e = frame.iloc[0]
        attacked = f"{e['attackers']:g}% attackers, " if e["attackers"] else ""
        told += f", {attacked}round {e['round'] + 1} of {e['rounds']}"
    return told


def seeds_in_words(seeds: Iterable[int]) -> str:
    """Seeds in words; a whole run of them by its ends."""
    numbers = sorted({int(seed) for seed in seeds})
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"seeds {numbers[0]} to {numbers[-1]}"
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def interval_note(frame: pd.DataFrame) -> str:
    """What the ranges of a table are, if it has any; for its caption."""
    ranges = [name for name in _shown(frame) if f"{name} seeds" in frame]
    if not any((frame[f"{name} seeds"] > 1).any() for name in ranges):
        return ""
    undefined = any((frame[name].isna() & frame[f"{name} low"].notna()).any() for name in ranges)
    return INTERVAL + ("; NaN [min, max]: not defined in some seed" if undefined else "")


def robustness_in_words(runs: pd.DataFrame, benchmark: str) -> str:
    """What is left of the source class of one benchmark, method by method, and who lost it.

    At the largest attacker ratio of those that most methods were run at; medians over the seeds.
    """
    judged = statistics.against_unattacked(runs[runs["benchmark"] == benchmark])
    attacked = judged[judged["attackers"] > 0]
    name = benchmark_label(benchmark)
    if attacked.empty:
        return f"{name}: no attacked run is recorded."
    methods = attacked.groupby("attackers")["defense"].nunique()
    ratio = methods.index[methods == methods.max()].max()
    here = attacked[attacked["attackers"] == ratio]
    without = 100 * here["unattacked_src_acc"].median()
    known = here.dropna(subset="lost")
    if known.empty:
        told = "was not run" if pd.isna(without) else f"has a Src-Acc of {without:.0f} only"
        return f"{name}: FedAvg without attack {told}, so nothing can be said of the defenses."
    src_acc = 100 * known.groupby("defense")["src_acc"].median()
    order = defenses_in_order(src_acc.index)
    left = ", ".join(f"{defense_label(method)} {src_acc[method]:.0f}" for method in order)
    counts = known.groupby("defense")["lost"].agg(["sum", "size"])
    lost = [
        f"{defense_label(method)} in {counts['sum'][method]} of {counts['size'][method]}"
        for method in order
        if counts["sum"][method]
    ]
    return (
        f"{name}, {ratio:g}% attackers, {seeds_in_words(known['seed'])}: of a Src-Acc of "
        f"{without:.0f} without attack are left {left}. "
        + (f"The class is lost: {', '.join(lost)}." if lost else "Nobody loses the class.")
    )


def to_text(
    frame: pd.DataFrame, digits: int | Mapping[str, int] = 2, best: str | None = None
) -> pd.DataFrame:
    """The texts of a table: mean and range in one, numbers to `digits`, what is missing as "--".

    `digits` is for all columns or by their name; `best` ("min" or "max") marks the best number of
    each row, as printed, with `**`, unless no other number of the row is worse. The oracle, which
    is told who attacks, does not compete.
    """
    number = {name: digits if isinstance(digits, int) else digits.get(name, 2) for name in frame}
    columns = {name: _column(frame, name, number[name]) for name in _shown(frame)}
    text = pd.DataFrame(columns, index=frame.index, dtype=object)
    if best is None:
        return text
    competing = text.drop(columns=defense_label("oracle"), errors="ignore")
    printed = competing.map(lambda cell: cell.split(" ")[0]).apply(pd.to_numeric, errors="coerce")
    is_best = printed.eq(printed.agg(best, axis=1), axis=0)
    compared = printed.max(axis=1) > printed.min(axis=1)
    marked = is_best.mul(compared, axis=0).reindex(columns=text.columns, fill_value=False)
    return text.mask(marked, "**" + text + "**")


def markdown(text: pd.DataFrame) -> str:
    """A Markdown table of texts, the index as first columns."""
    names = [name or "" for name in text.index.names]
    rows = [(*names, *text.columns), ["---"] * (len(names) + text.shape[1])]
    for key, row in zip(text.index, text.to_numpy(), strict=True):
        rows.append((*(key if isinstance(key, tuple) else (key,)), *row))
    lines = (" | ".join(str(cell).replace("|", r"\|") for cell in row) for row in rows)
    return "".join(f"| {line} |\n" for line in lines)


def latex(text: pd.DataFrame) -> str:
    """A LaTeX table of texts."""
    names = [name or "" for name in text.index.names]
    table = text.reset_index(names=names).map(lambda cell: _latex(str(cell)))
    return table.rename(columns=_latex).to_latex(escape=False, index=False)


def styled(text: pd.DataFrame, caption: str = "") -> "Styler":
    """A table of texts as a notebook shows it, with its caption below.

    Its name in the page is one of its content, so that the same table is the same text again.
    """
    bold = text.map(lambda cell: "font-weight: bold" if cell.startswith("**") else "")
    name = hashlib.sha256((text.to_csv() + caption).encode()).hexdigest()[:8]
    shown = text.map(_plain).style.set_uuid(name).apply(lambda _: bold, axis=None)
    small = {"selector": "caption", "props": "caption-side: bottom; text-align: left; color: #555"}
    return shown.set_caption(caption).set_table_styles([small]) if caption else shown


def _shown(frame: pd.DataFrame) -> list[str]:
    """The columns of a table but for those that belong to another's range."""
    names = set(frame.columns)
    ranges = {f"{name}{part}" for name in names for part in COMPANIONS}
    return [name for name in frame.columns if name not in ranges]


def _column(frame: pd.DataFrame, name: str, digits: int) -> list[str]:
    if f"{name} seeds" not in frame:
        return [_cell(value, digits) for value in frame[name]]
    parts = [frame[name + part] for part in ("", *COMPANIONS)]
    return [_interval(digits, *cell) for cell in zip(*parts, strict=True)]


def _interval(digits: int, mean: float, low: float, high: float, seeds: float) -> str:
    """A plain number of one seed, mean and range of several; NaN is said, not averaged away."""
    if not seeds > 0:
        return MISSING
    middle = "NaN" if pd.isna(mean) else f"{mean:.{digits}f}"
    if seeds == 1 or pd.isna(low):
        return middle
    return f"{middle} [{low:.{digits}f}, {high:.{digits}f}]"


def _cell(value: object, digits: int) -> str:
    if pd.isna(value):
        return MISSING
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _plain(cell: str) -> str:
    return cell.removeprefix("**").removesuffix("**") if cell.startswith("**") else cell


def _latex(cell: str) -> str:
    text = _plain(cell)
    for character in "&%_#":
        text = text.replace(character, f"\\{character}")
    return rf"\textbf{{{text}}}" if cell.startswith("**") else text
