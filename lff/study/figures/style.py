"""How figures look: sizes of a journal column, color-blind safe colors, one look per method."""

import io
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette, told apart by readers with any color vision, with a darker yellow.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE, BROWN = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#8A7A00", "#0072B2", "#D55E00", "#CC79A7",
    "#7B3F00",
)  # fmt: skip
GRAY = "0.6"

# The signs of all figures. A color says who, and no method has one of the two; a mark says what
# became of her. Where decisions are colored, the right ones are muted and the wrong ones strong.
WHO = {"attacker": RED, "honest peer": BLUE}
FATE = {"kept": "o", "dropped": "X"}
THEIRS = "+"  # the authors' own program
RIGHT, WRONG = "#6FA998", "#882255"
Look = dict[str, Any]  # of a curve or its markers, as keyword arguments of matplotlib
REFERENCE: Look = {"color": "0.75", "linewidth": 2.5, "zorder": 0}  # FedAvg without attack
WIDTH = 7.0  # inches: the text width of a two-column page

METHODS: dict[str, Look] = {
    "fedavg": {"color": "0.45", "marker": "o"},
    "median": {"color": SKY, "marker": "s"},
    "repeated_median": {"color": YELLOW, "marker": "D"},
    "trimmed_mean": {"color": GREEN, "marker": "^"},
    "multi_krum": {"color": ORANGE, "marker": "v"},
    "foolsgold": {"color": PURPLE, "marker": "p"},
    "lfighter": {"color": BLACK, "marker": "*"},
}
OTHERS: tuple[Look, ...] = (
    {"color": BROWN, "marker": "h"},
    {"color": GREEN, "marker": "<"},
    {"color": PURPLE, "marker": ">"},
)

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.3,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def look(method: str, methods: Iterable[str]) -> Look:
    """The color and marker of a method: the same in every figure; others than the paper's get the
    free ones in turn."""
    others = [name for name in methods if name not in METHODS]
    return METHODS.get(method) or OTHERS[others.index(method) % len(OTHERS)]


@contextmanager
def journal() -> Iterator[None]:
    """Draw in the journal's style, and leave the user's matplotlib settings as they were."""
    with mpl.rc_context(STYLE):
        yield


class StudyFigure(Figure):
    """A figure that no global state knows: nothing to close, no window, any backend.

    Notebooks show it as a picture without pyplot, its caption as the alternative text.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        picture = io.BytesIO()
        with journal():
            self.savefig(picture, format="png", dpi=130)
        return picture.getvalue(), {"alt": " ".join(self.get_supxlabel().split())}


def new_figure(width: float, height: float, caption: str) -> StudyFigure:
    """A figure of this size in inches, with its caption below: what it was made from."""
    figure = StudyFigure(figsize=(width, height), layout="constrained")
    letters = int(20 * width)  # of this size that fit a line
    wrapped = textwrap.fill(caption, letters, break_on_hyphens=False)
    figure.supxlabel(wrapped, fontsize=6.5, color="0.35", x=0.01, ha="left")
    return figure


def panels(figure: Figure, number: int, columns: int) -> list[Axes]:
    """So many axes in rows of `columns`; the rest of the last row stays empty."""
    rows = -(-number // columns)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for empty in range(number, rows * columns):
        axes.flat[empty].set_visible(False)
        axes[-2, empty % columns].tick_params(labelbottom=True)
    return list(axes.flat[:number])


def round_axis(ax: Axes) -> None:
    """Label the x axis with rounds, which are whole numbers counted from 1."""
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def not_run(ax: Axes, x: float, y: float, **place: Any) -> None:
    """Say in a place that there is no run: a gap is seen, not taken for a zero."""
    ax.text(x, y, "not run", fontsize=5.5, color="0.45", **place)
