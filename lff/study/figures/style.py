"""How figures look: sizes of a journal column, color-blind safe colors, one look per method."""

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette, told apart by readers with any color vision; in print the markers,
# hatches and line styles do the same without color.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip

WIDTH = 7.0  # inches: the text width of a two-column page


@dataclass(frozen=True)
class Look:
    """The color, marker and dashes of one curve."""

    color: str
    marker: str
    dashes: str | tuple = "-"

    def line(self) -> dict:
        """As keyword arguments of `Axes.plot`."""
        return {**self.points(), "linestyle": self.dashes}

    def points(self) -> dict:
        """The same for points without a line; thin shapes are larger, to look alike."""
        size = {"*": 6.5, "P": 5, "X": 5}.get(self.marker, 4)
        return {"color": self.color, "marker": self.marker, "markersize": size, "linestyle": ""}


METHODS = {
    "fedavg": Look(BLACK, "o", "-"),
    "median": Look(SKY, "s", "--"),
    "repeated_median": Look(YELLOW, "D", ":"),
    "trimmed_mean": Look(GREEN, "^", "-."),
    "multi_krum": Look(ORANGE, "v", (0, (5, 1))),
    "foolsgold": Look(PURPLE, "P", (0, (3, 1, 1, 1))),
    "lfighter": Look(RED, "*", "-"),
}
_OTHERS = [Look(BLUE, "X", "--"), Look(GREEN, "<", ":"), Look(PURPLE, ">", "-.")]

GOOD, BAD = Look(BLUE, "o"), Look(RED, "X")
METRICS = {
    "src_acc": ("Src-Acc", Look(BLUE, "o", "-")),
    "asr": ("ASR", Look(RED, "X", "--")),
    "test_error": ("TE \N{MULTIPLICATION SIGN} 10", Look(BLACK, "^", ":")),
}


def look(method: str, others: list[str] | None = None) -> Look:
    """The look of a method: the same in every figure; a user's own get the free ones in turn."""
    if method in METHODS:
        return METHODS[method]
    mine = sorted(name for name in others or [method] if name not in METHODS)
    return _OTHERS[mine.index(method) % len(_OTHERS)]


@contextmanager
def journal() -> Iterator[None]:
    """Draw in the journal's style, and leave the user's matplotlib settings as they were."""
    with mpl.rc_context():
        mpl.rcParams.update(
            {
                "font.size": 8,
                "axes.titlesize": 8.5,
                "axes.labelsize": 8,
                "legend.fontsize": 7.5,
                "legend.handlelength": 3,
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
        )
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


def new_figure(width: float, height: float) -> StudyFigure:
    """A figure of this size in inches."""
    return StudyFigure(figsize=(width, height), layout="constrained")


def round_axis(ax: Axes) -> None:
    """Label the x axis with rounds, which are whole numbers."""
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def not_run(ax: Axes, x: float) -> None:
    """Say at `x` that there is no run: a gap is seen, not taken for a zero."""
    place = {"rotation": 90, "ha": "center", "va": "bottom", "transform": ax.get_xaxis_transform()}
    ax.text(x, 0.04, "not run", fontsize=5.5, color="0.45", **place)


def band_note(table: pd.DataFrame) -> str:
    """What bands are, for the caption of a figure that draws them."""
    return "; mean of the seeds, bands and bars: their range" if table["seed"].nunique() > 1 else ""


def caption(figure: Figure, text: str) -> None:
    """Say below the axes what the figure was made from: scale, data, seeds, number of runs."""
    letters = int(20 * figure.get_figwidth())  # of this size that fit a line
    wrapped = textwrap.fill(text, letters, break_on_hyphens=False)
    figure.supxlabel(wrapped, fontsize=6.5, color="0.35", x=0.01, ha="left")
