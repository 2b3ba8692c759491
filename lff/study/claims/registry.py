"""How a claim is declared and judged: the cells it needs, the check, the verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.defenses import get_defense

HOLDS, FAILS, NOT_RUN = "holds", "does not hold", "not run at this scale"
HOLDS_SO_FAR, FAILS_SO_FAR = "holds so far", "does not hold so far"  # some ratios are not run
NOT_LEARNED = "not learned at this scale"
ANSWERS = (HOLDS, HOLDS_SO_FAR, FAILS, FAILS_SO_FAR, NOT_LEARNED, NOT_RUN)

# What claims are about, in the order of `tally`.
LFIGHTER, OTHERS, ATTACK = "LFighter", "other methods", "the attack and its gradients"
TIMES, BY_DEFINITION = "running times", "true by definition here"
SUBJECTS = (LFIGHTER, OTHERS, ATTACK, TIMES, BY_DEFINITION)

KEY = ["benchmark", "defense", "attackers"]
Cell = tuple[str, str, float]  # a value of KEY
Case = tuple[str, float]  # a benchmark and a ratio, at which a claim compares its methods

METRICS = ("test_error", "all_acc", "src_acc", "asr")
SECONDS = ("per_round",)  # of `lff.study.tables.with_seconds_per_round`

# What FedAvg must reach without attack, in All-Acc and in Src-Acc, before anything is said about
# the attack: this share of the way from guessing to always right, which is 60% of two classes and
# 28% of ten. Below, there is little to lose (`docs/decisions.md`).
LEARNED = 0.2
WITHOUT = ["fedavg", 0.0]  # FedAvg without attack, the paper's yardstick
NAMED = 4  # of a claim that is judged: missing cells that are named rather than counted


def learned(benchmark: str) -> float:
    """The accuracy from which on a benchmark's model counts as having learned (`LEARNED`)."""
    guessing = 1 / BENCHMARKS[benchmark].classes
    return guessing + LEARNED * (1 - guessing)


# What a check finds: whether the claim holds, by which numbers, and whether ratios that are not run
# could not change that it does not (if left out: they could, unless it is about each ratio).
Finding = tuple[bool, str] | tuple[bool, str, bool]


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim."""

    benchmark: str
    claim: str
    about: str
    quote: str
    answer: str
    evidence: str


@dataclass(frozen=True)
class View:
    """What a check sees: the cells its claim needs, averaged over seeds (or of one seed).

    Ratios at which a method is missing are left out as a whole, so that all methods are
    compared at the same ones.
    """

    benchmark: str
    frame: pd.DataFrame  # indexed by KEY, and by round for a claim about rounds
    cases: tuple[Case, ...]  # of which all cells are there

    def ratios(self, benchmark: str = "") -> list[float]:
        """The ratios that can be compared, of those the claim is about."""
        return [ratio for where, ratio in self.cases if where == (benchmark or self.benchmark)]

    @property
    def attacked(self) -> list[float]:
        """Those with attackers."""
        return [ratio for ratio in self.ratios() if ratio > 0]

    def grid(
        self, column: str, defenses: Iterable[str], ratios: Iterable[float], benchmark: str = ""
    ) -> pd.DataFrame:
        """One column of the table as defenses x attacker ratios."""
        ratios, where = list(ratios), benchmark or self.benchmark
        values = self.frame[column].to_dict()
        rows = {d: [values[where, d, float(r)] for r in ratios] for d in defenses}
        return pd.DataFrame.from_dict(rows, orient="index", columns=ratios)

    def curve(self, column: str, defense: str, ratio: float) -> pd.Series:
        """One column over the rounds of a run."""
        return self.frame.loc[(self.benchmark, defense, float(ratio)), column]

    @property
    def metrics(self) -> list[str]:
        """The paper's metrics that the table has (what is read off its figures lacks TE)."""
        return [m for m in METRICS if m in self.frame and self.frame[m].notna().all()]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about one benchmark ("all": about all of them), and its check."""

    name: str
    benchmark: str
    quote: str
    needs: tuple[Cell, ...]
    reads: tuple[str, ...]
    per_round: bool
    at: tuple[float, ...]
    each_ratio: bool
    about: str
    check: Callable[[View], Finding]

    @property
    def id(self) -> str:
        """A short unique name."""
        return f"{self.benchmark}-{self.name}"

    def judge(self, table: pd.DataFrame, unlearned: Iterable[str] = ()) -> Verdict:
        """The verdict from a prepared table of runs, or of rounds.

        Of the benchmarks `unlearned` nothing is said, except how long an aggregation took.
        """
        answer, evidence = self._answer(table, [] if self.reads == SECONDS else list(unlearned))
        return Verdict(self.benchmark, self.id, self.about, self.quote, answer, evidence)

    def _answer(self, table: pd.DataFrame, unlearned: list[str]) -> tuple[str, str]:
        vain = [name for name in dict.fromkeys(cell[0] for cell in self.needs) if name in unlearned]
        below = " and ".join(f"below {learned(name):.0%} in {name}" for name in vain)
        dropped = f"FedAvg without attack is {below}"
        if vain and self.benchmark != "all":
            return NOT_LEARNED, dropped
        table = table[table.index.isin(self.needs)].dropna(subset=list(self.reads))
        there = set(table.index)
        missing = [cell for cell in self.needs if cell not in there]
        what = "rounds" if self.per_round else "run"
        table = self._used(table[~table.index.isin(vain, level=0)])
        if table.empty:
            gaps = [f"no {what} of {_names(missing, self.needs)}"] if missing else []
            gaps += [dropped] * bool(vain)
            return NOT_RUN, "; ".join(gaps) or "no seed has all cells that are compared"
        view = self._view(table)
        holds, evidence, *final = self.check(view)
        evidence = f"{evidence} ({self._seeds(table, view)})"
        if set(table.index) == set(self.needs):
            return (HOLDS if holds else FAILS), evidence
        parts = [evidence]
        if view.ratios():
            parts.append(f"judged at {percents(view.ratios())}")
        if missing:
            few = len(missing) <= NAMED
            which = _names(missing, self.needs) if few else f"{len(missing)} cells"
            parts.append(f"no {what} of {which}")
        evidence = "; ".join([*parts, *[dropped] * bool(vain)])
        if not holds and (self.each_ratio or any(final)):
            return FAILS, evidence
        return (HOLDS_SO_FAR if holds else FAILS_SO_FAR), evidence

    def _case(self, cell: Cell) -> Case:
        """Where a cell is compared: at its ratio, in the claim's benchmark or, of all, its own."""
        return (cell[0] if self.benchmark == "all" else self.benchmark), cell[2]

    def _cases(self, there: set[Cell]) -> tuple[Case, ...]:
        """The cases of which all cells are there."""
        lost = {self._case(cell) for cell in self.needs if cell not in there}
        return tuple(c for c in dict.fromkeys(map(self._case, self.needs)) if c not in lost)

    @property
    def _yardstick(self) -> set[Cell]:
        """What everything else is measured against."""
        if self.benchmark == "all":
            return set()
        return {cell for cell in self.needs if [*cell[1:]] == WITHOUT or cell[2] in self.at}

    def _used(self, table: pd.DataFrame) -> pd.DataFrame:
        """The cases that are there, each from the seeds that have all of it and the yardstick."""
        rest = [cell for cell in self.needs if cell not in self._yardstick]
        attacked = {self._case(cell) for cell in rest if cell[2] > 0}
        parts = [table.iloc[:0]]
        for _, own in table.groupby("seed"):
            cases = self._cases(set(own.index))
            if self._yardstick <= set(own.index) and attacked & set(cases):
                used = {cell for cell in self.needs if self._case(cell) in cases}
                parts.append(own[own.index.isin(used | self._yardstick)])
        return pd.concat(parts)

    def _view(self, table: pd.DataFrame) -> View:
        by = [*KEY, "round"] if self.per_round else KEY
        return View(self.benchmark, table.groupby(by).mean(), self._cases(set(table.index)))

    def _seeds(self, table: pd.DataFrame, view: View) -> str:
        """How many seeds there are, and in how many of the complete ones the claim holds alone."""
        counts = table.groupby(KEY)["seed"].nunique()
        if counts.max() == 1:
            return "1 seed"
        alone = [self._view(group) for _, group in table.groupby("seed")]
        complete = [own for own in alone if own.cases == view.cases]
        held = sum(bool(self.check(own)[0]) for own in complete)
        least = f"{counts.min()} to " if counts.min() < counts.max() else ""
        text = f"mean of {least}{counts.max()} seeds"
        return f"{text}; holds alone in {held} of {len(complete)}" if complete else text


CLAIMS: list[Claim] = []


def claim(
    name: str,
    quotes: dict[str, str],
    needs: list[tuple[str | None, str, float]],
    *,
    reads: tuple[str, ...] = METRICS[1:],
    per_round: bool = False,
    at: tuple[float, ...] = (),
    each_ratio: bool = False,
    about: str = OTHERS,
):
    """Register a check for each benchmark of `quotes`.

    `needs` are the cells it looks at (see `cells`), `reads` the columns that must have a value
    there; `per_round` makes it see the table of rounds. Where some ratios are not run, the others
    are judged, "so far"; without those of `at`, and FedAvg without attack, nothing is. With
    `each_ratio` the claim is about every ratio by itself, so that one refutes it for good (a check
    may also find that by itself, see `Finding`). `about` is one of `SUBJECTS`.
    """

    def register(check: Callable[[View], Finding]):
        for benchmark, quote in quotes.items():
            own = dict.fromkeys((where or benchmark, d, float(r)) for where, d, r in needs)
            how = (tuple(own), reads, per_round, at, each_ratio, about, check)
            CLAIMS.append(Claim(name, benchmark, quote, *how))
        return check

    return register


def cells(
    defenses: Iterable[str], ratios: Iterable[float], *benchmarks: str
) -> list[tuple[str | None, str, float]]:
    """All pairs of defenses and ratios, in the claim's own benchmark unless others are named."""
    ratios = list(ratios)
    return [(b, d, r) for d in defenses for b in benchmarks or (None,) for r in ratios]


def percents(ratios: Iterable[float]) -> str:
    """Attacker ratios in one word."""
    return "/".join(f"{ratio:g}" for ratio in ratios) + "%"


def _names(missing: list[Cell], needs: tuple[Cell, ...]) -> str:
    """The missing cells in words, whole benchmarks by their name alone."""
    parts = []
    for where in dict.fromkeys(benchmark for benchmark, _, _ in missing):
        lost = [cell for cell in missing if cell[0] == where]
        if len(lost) == sum(cell[0] == where for cell in needs):
            parts.append(f"{where} (none of {len(lost)} cells)")
            continue
        ratios: dict[str, list[str]] = {}
        for _, defense, ratio in lost:
            ratios.setdefault(defense, []).append(f"{ratio:g}")
        named = (f"{get_defense(d).label} {'/'.join(r)}%" for d, r in ratios.items())
        parts.append(f"{where} {', '.join(named)}")
    return "; ".join(parts)
