"""The object `p` of a notebook: its parameters, its runs, its tables and figures as files.

A notebook has a cell tagged `parameters`, and a cell tagged `runs` that makes `p` and lists what
the notebook needs: `runs`, a list of experiments. Nobody else lists them: the study executes the
two cells to know its work.
"""

import ast
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import lff
from lff.errors import InputError, TrainingError, unknown
from lff.experiments.build import DEVICES
from lff.experiments.experiment import Experiment
from lff.experiments.records import SUFFIX, path_of
from lff.paths import figures_dir, notebooks_dir, results_dir
from lff.study import frame, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

logger = logging.getLogger("lff")

INJECTED = "# Parameters"  # how the cell begins that papermill adds


@dataclass(frozen=True)
class Parameters:
    """The parameters of a notebook; an empty list means what the scale runs.

    With `compute = False` nothing is run: what is recorded is shown, in every seed there is, and
    the gaps.
    """

    scale: str = field(default_factory=lambda: os.environ.get("LFF_SCALE", "quick"))
    seeds: list[int] = field(default_factory=lambda: [0])
    device: str = "auto"
    benchmarks: list[str] = field(default_factory=list)
    defenses: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    compute: bool = True

    def __post_init__(self) -> None:
        for name in ("seeds", "benchmarks", "defenses", "ratios"):
            _check_list(name, getattr(self, name))
        if self.device not in DEVICES:
            raise unknown("device", self.device, DEVICES)
        if not isinstance(self.compute, bool):
            raise InputError(f"compute must be True or False, not {self.compute!r}")
        self.grid()  # refuses what no experiment can have

    @property
    def folder(self) -> str:
        """Where figures, tables and the report go, below `figures/` and `study/`.

        It is the scale's, or for other seeds than 0 and for a selection one of its own, so that
        they do not replace those of the whole study.
        """
        parts = [self.scale]
        if self.seeds != [0]:
            parts.append("-".join(["seeds", *map(str, self.seeds)]))
        selection = [self.benchmarks, self.defenses, self.ratios]
        if any(selection):
            digest = hashlib.sha256(json.dumps(selection).encode()).hexdigest()[:8]
            parts.append(f"selection-{digest}")
        return "/".join(parts)

    def grid(self, **settings: Any) -> list[Experiment]:
        """The experiments these parameters ask for; `settings` go before them.

        With `compute = False` those of other seeds are added that have a record.
        """
        chosen = {
            "benchmarks": self.benchmarks,
            "defenses": self.defenses,
            "attackers": self.ratios,
            "seeds": self.seeds,
            "scale": self.scale,
        }
        asked = lff.grid(**{**chosen, **settings})
        return asked if self.compute else list(dict.fromkeys(asked + in_every_seed(asked)))

    def listed_in(self, *names: str) -> list[Experiment]:
        """The runs that other notebooks list, as far as they are in this one's selection."""
        listed = [e for path in notebooks(names) for e in listed_runs(path, asdict(self))]
        return list(dict.fromkeys(e for e in listed if self.selects(e)))

    def selects(self, e: Experiment) -> bool:
        """Whether an experiment is in the selection of benchmarks, defenses and ratios."""
        return (
            e.benchmark in (self.benchmarks or [e.benchmark])
            and e.defense in (self.defenses or [e.defense])
            and e.attackers in (self.ratios or [e.attackers])
        )

    def run(self, experiments: Sequence[Experiment]) -> pd.DataFrame:
        """Run what has no record yet; the rounds of all that have one (`frame.rounds`)."""
        failed: dict[str, str] = {}
        if self.compute:
            failed = lff.run_all(experiments, device=self.device).failed
        for name, error in failed.items():
            logger.warning("%s failed: %s", name, error.strip().splitlines()[-1])
        rounds = frame.rounds(experiments)
        if rounds.empty and failed:
            raise TrainingError(f"all {len(failed)} runs failed, the last: {name}: {error}")
        return rounds

    def caption(self, of: pd.DataFrame | Iterable[Experiment]) -> str:
        """Scale, data, seeds and number of runs: of a frame of runs, rounds or views, or of the
        experiments that were asked for, recorded or not."""
        if isinstance(of, pd.DataFrame):
            behind, asked = of, None
        else:
            asked = list(of)
            behind = frame.rounds(asked)
        scales = dict.fromkeys(behind["scale"]) if len(behind) else [self.scale]
        return text.caption(behind, " and ".join(scales), asked)

    def table(
        self,
        table: pd.DataFrame,
        name: str,
        *,
        of: pd.DataFrame | Iterable[Experiment] | None = None,
        caption: str = "",
        digits: int | Mapping[str, int] = 2,
        best: str | None = None,
    ) -> "Styler":
        """Write a table as CSV, Markdown and LaTeX; returns it for display.

        Its caption is what `p.caption` says of the runs it is `of`, and the text that is given.
        Numbers are shown to `digits`, for all columns or by their name; `best` ("min" or
        "max") sets the best of each row in bold.
        """
        facts = ["" if of is None else self.caption(of), caption, text.interval_note(table)]
        below = "; ".join(filter(None, facts))
        stem = self._stem(name)
        shown = text.to_text(table, digits=digits, best=best)
        table.to_csv(f"{stem}.csv")
        Path(f"{stem}.md").write_text(text.markdown(shown) + (f"\n{below}\n" if below else ""))
        Path(f"{stem}.tex").write_text((f"% {below}\n" if below else "") + text.latex(shown))
        return text.styled(shown, caption=below)

    def figure(
        self,
        draw: "Callable[..., Figure] | Figure",
        data: pd.DataFrame,
        name: str,
        *,
        of: Iterable[Experiment] | None = None,
        behind: pd.DataFrame | None = None,
        caption: str = "",
        **options: Any,
    ) -> "Figure | str":
        """Draw `data` and write the figure as PNG and PDF, and what is `behind` it as CSV.

        `draw` is a function of `lff.study.figures`, which gets the data, the caption and the
        `options`, or a figure that a cell has drawn by hand. The caption is the text that is given,
        or what `p.caption` says of the runs it is `of` (else of the data). Returns the figure, or a
        word on why there is none.
        """
        from lff.study.figures import journal

        asked = None if of is None else list(of)
        if data.empty:
            runs = f"none of {len(asked)} runs" if asked else "no run"
            return f"{name}: {runs} recorded at scale {self.scale}"
        figure: Any = draw
        if callable(draw):
            told = caption or self.caption(data if asked is None else asked)
            figure = draw(data, told, **options)
        stem = self._stem(name)
        with journal():
            figure.savefig(f"{stem}.png", metadata={"Software": None})
            figure.set_layout_engine("none")  # arranged by now; the PDF and the notebook's need not
            figure.savefig(f"{stem}.pdf", metadata={"CreationDate": None})
        table = data if behind is None else behind
        plain = table.drop(columns=list(frame.NESTED), errors="ignore")
        plain.to_csv(f"{stem}.csv", index=False)
        return figure

    def numbers(self, kind: str, **named: object) -> dict[str, str]:
        """Write numbers by name as `numbers_<kind>.json`, for pages that show them (`readme`)."""
        texts = {name: str(value) for name, value in named.items()}
        content = json.dumps(texts, indent=1, ensure_ascii=False)
        self._stem(f"numbers_{kind}.json").write_text(content + "\n", encoding="utf-8")
        return texts

    def _stem(self, name: str) -> Path:
        folder = figures_dir() / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name


def parameters(namespace: Mapping[str, Any]) -> Parameters:
    """The parameters of a notebook from its `globals()`, refusing those it does not declare.

    papermill injects whatever it is given and only warns, so a mistyped `-p benchmark x` would
    run the wrong study. Its cell is among those executed so far, which IPython keeps in `In`; what
    the notebook declares stands before it.
    """
    declared: list[str] = []
    for cell in namespace.get("In", ()):
        if cell.startswith(INJECTED):
            check_declared(assigned(cell), declared)
            break
        declared += assigned(cell)
    known = [each.name for each in fields(Parameters)]
    return Parameters(**{name: _decoded(namespace[name]) for name in known if name in namespace})


def check_declared(given: Iterable[str], declared: Sequence[str], of: str = "") -> None:
    """Refuse a parameter that is not declared."""
    for name in given:
        if name not in declared:
            raise unknown(f"parameter{of}", name, declared)


def notebooks(names: Sequence[str] = ()) -> list[Path]:
    """The study's notebooks in reading order, or those of these names."""
    there = {path.stem: path for path in sorted(notebooks_dir().glob("[0-9]*.ipynb"))}
    if not there:
        raise InputError(
            f"no notebooks in {notebooks_dir()}; `lff study` runs the notebooks of a checkout, "
            "which an installed package does not have: run it in the folder above `notebooks/`"
        )
    for name in names:
        if name not in there:
            raise unknown("notebook", name, there)
    return [path for stem, path in there.items() if not names or stem in names]


def listed_runs(path: Path, given: Mapping[str, Any]) -> list[Experiment]:
    """The runs a notebook lists with these parameters, by its cells `parameters` and `runs`."""
    namespace: dict[str, Any] = {}
    _execute(path, "parameters", namespace)
    namespace |= {name: given[name] for name in given if name in declared(path)}
    _execute(path, "runs", namespace)
    runs = list(namespace.get("runs", []))
    for e in runs:
        if not isinstance(e, Experiment):
            raise InputError(f"`runs` must list experiments, not {e!r}")
    return runs


def declared(path: Path) -> list[str]:
    """The parameters that a notebook declares in its cell tagged `parameters`."""
    return assigned(source(path, "parameters"))


def source(path: Path, tag: str) -> str:
    """The code of a notebook's cell of this tag; empty if it has none."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if tag in cell["metadata"].get("tags", []):
            return "".join(cell["source"])
    return ""


def assigned(code: str) -> list[str]:
    """The names that the assignments at the top of a cell give a value."""
    targets = [t for s in ast.parse(code).body if isinstance(s, ast.Assign) for t in s.targets]
    return [node.id for t in targets for node in ast.walk(t) if isinstance(node, ast.Name)]


def in_every_seed(experiments: Iterable[Experiment]) -> list[Experiment]:
    """What is recorded of these experiments, in their own and in any other seed."""
    cells = list(dict.fromkeys(e.replace(seed=0) for e in experiments))
    seeds: dict[str, set[int]] = {}  # by what an id says before its seed
    for scale in dict.fromkeys(e.scale for e in cells):
        for path in (results_dir() / scale).glob(f"*_seed*{SUFFIX}"):
            named, _, rest = path.name.rpartition("_seed")
            seeds.setdefault(named, set()).add(int(rest.partition("_")[0]))
    every = (
        cell.replace(seed=seed)
        for cell in cells
        for seed in sorted(seeds.get(cell.id.rpartition("_seed")[0], ()))
    )
    return [e for e in every if path_of(e).exists()]


def _execute(path: Path, tag: str, namespace: dict[str, Any]) -> None:
    exec(compile(source(path, tag), f"{path.name}, cell `{tag}`", "exec"), namespace)


def _decoded(value: Any) -> Any:
    """A list that came as text: `papermill -p seeds '[1, 2]'` passes it so."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _check_list(name: str, value: object) -> None:
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list, not {value!r}")
    if name in ("benchmarks", "defenses") and not all(isinstance(entry, str) for entry in value):
        raise InputError(f"{name} must be a list of names, not {value!r}")
    if len(set(map(str, value))) < len(value):
        raise InputError(f"{name} must not repeat itself: {value!r}")
