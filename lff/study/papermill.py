"""The whole study: the runs the notebooks need, the notebooks through papermill, one report."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import papermill
from jupyter_core.utils import ensure_event_loop
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.defenses import get_defense
from lff.defenses.options import parse_pair
from lff.errors import InputError, unknown
from lff.experiments.forecast import cost
from lff.study.html import write_report
from lff.study.notebook import Parameters
from lff.paths import figures_dir, home_dir, notebooks_dir, results_dir, study_dir
from lff.study.plan import looking_seconds, missing_runs
from lff.experiments.progress import bar
from lff.experiments.records import SUFFIX
from lff.experiments.runs import choose_device
from lff.experiments.sweep import run_all
from lff.experiments.workers import default_jobs
from lff.experiments.writing import unwritable

NOTEBOOK_SECONDS = 8.0  # about what a notebook takes when its runs are recorded
PRIOR_SECONDS = 30.0  # of work, before its pace outweighs what was expected
ALWAYS = ("scale", "seeds", "device")  # what the command passes, whoever declares them


@dataclass
class StudyOutcome:
    """Which notebooks were executed, which were up to date, and which failed, with the reason."""

    executed: list[str] = field(default_factory=list)
    up_to_date: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    report: Path | None = None


def notebooks(names: Sequence[str] = ()) -> list[Path]:
    """The study's notebooks in reading order, or those of these names."""
    there = {path.stem: path for path in sorted(notebooks_dir().glob("[0-9]*.ipynb"))}
    if not there:
        raise InputError(f"no notebooks in {notebooks_dir()}; run the study from a checkout")
    for name in names:
        if name not in there:
            raise unknown("notebook", name, there)
    return [path for stem, path in there.items() if not names or stem in names]


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Parameters given as `name=value`, the value in JSON or a plain text."""
    return dict(parse_pair("parameter", text) for text in texts)


def run_study(
    names: Sequence[str],
    parameters: dict[str, Any],
    *,
    jobs: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> StudyOutcome:
    """Run the notebooks of these names (default: all) with these parameters.

    First the runs they need, then the notebooks in order, both spread over the cores, under one
    progress bar. A notebook that fails is reported and the others still run. What is up to date
    is not run again.
    """
    chosen = notebooks(names)
    settings = _checked(parameters, chosen)
    folder = study_dir() / settings.products
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    stems = [path.stem for path in chosen]
    wanted = missing_runs(stems, settings) if settings.compute else {}
    at_once = jobs or default_jobs(choose_device(settings.device))
    seconds = {e: cost(e) / at_once for e in wanted}
    seconds |= {stem: NOTEBOOK_SECONDS + looking_seconds(stem, settings) for stem in stems}
    code = {path.stem: _code_key(path, parameters) for path in chosen}
    outcome = StudyOutcome()
    with _Progress(seconds) as progress:
        numbers = iter(range(1, len(wanted) + 1))
        progress.now(f"run 1 of {len(wanted)}" if wanted else _no_run(settings))

        def run_ended(e: Experiment) -> None:
            at = (
                f"{BENCHMARKS[e.benchmark].label}, {get_defense(e.defense).label}, {e.attackers:g}%"
            )
            done = f"run {next(numbers)} of {len(wanted)} done ({at}, for {wanted[e]})"
            progress.ended(e, done)

        runs = run_all(
            list(wanted), jobs=jobs, device=settings.device, progress=False, on_end=run_ended
        )
        known = _records_key()
        _execute_all(chosen, folder, parameters, at_once, outcome, progress)
    if settings.compute:
        known = _records_key()  # notebooks that compute add records
    for path in chosen:
        if path.stem not in outcome.failed:
            _stamp(folder / path.name, _key(code[path.stem], known))
    for name, error in [*runs.failed.items(), *outcome.failed.items()]:
        say(f"{name} failed: {error}")
    there = [folder / path.name for path in notebooks() if (folder / path.name).exists()]
    outcome.report = write_report(there, folder / "report.html", settings.scale)
    say(
        f"{len(outcome.executed)} notebooks executed, {len(outcome.up_to_date)} up to date, "
        f"{len(outcome.failed)} failed\nreport: {outcome.report}"
    )
    return outcome


def _no_run(settings: Parameters) -> str:
    return "no run is missing" if settings.compute else "nothing is run"


def _checked(parameters: dict[str, Any], chosen: Sequence[Path]) -> Parameters:
    """The parameters, each of which some chosen notebook must declare."""
    declared = dict.fromkeys(
        name for path in chosen for name in papermill.inspect_notebook(str(path))
    )
    for name in parameters:
        if name not in (*declared, *ALWAYS):
            of = chosen[0].stem if len(chosen) == 1 else f"{len(chosen)} notebooks"
            raise unknown(f"parameter of {of}", name, declared)
    return Parameters(**parameters)


class _Progress:
    """One bar over the expected seconds of all runs and notebooks.

    The time left is foreseen from the start, and corrected by how the work done so far compares
    with what was expected of it.
    """

    def __init__(self, seconds: dict[Any, float]):
        self.seconds = seconds
        layout = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}{postfix}]"
        self.bar = bar(total=sum(seconds.values()), bar_format=layout, show=True)
        self.start = time.monotonic()

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def now(self, text: str) -> None:
        """Say what is going on, and how long the rest will take."""
        self.bar.set_postfix_str(f"{self.bar.format_interval(self.left())} left", refresh=False)
        self.bar.set_description_str(text)

    def ended(self, what: Any, text: str = "") -> None:
        """A run or notebook has ended."""
        self.bar.update(min(self.seconds[what], self.bar.total - self.bar.n))  # sums of floats
        if text:
            self.now(text)

    def left(self) -> float:
        """The seconds that are left, at the pace so far."""
        elapsed, done = time.monotonic() - self.start, self.bar.n
        pace = (elapsed + PRIOR_SECONDS) / (done + PRIOR_SECONDS)
        return (self.bar.total - done) * pace


def _execute_all(
    chosen: Sequence[Path],
    folder: Path,
    parameters: dict[str, Any],
    at_once: int,
    outcome: StudyOutcome,
    progress: _Progress,
) -> None:
    """Execute the notebooks, `at_once` at a time; what becomes of them is noted in their order."""
    waiting = [path.stem for path in chosen]
    with chdir(home_dir()), ThreadPoolExecutor(at_once) as pool:
        executions = {
            pool.submit(_execute, path.resolve(), (folder / path.name).resolve(), parameters): path
            for path in chosen
        }
        try:
            progress.now(_under_way(waiting, at_once, len(chosen)))
            for execution in as_completed(executions):
                stem = executions[execution].stem
                waiting.remove(stem)
                progress.ended(stem, _under_way(waiting, at_once, len(chosen)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for execution, path in executions.items():
        executed, error = execution.result()
        if error:
            outcome.failed[path.stem] = error
        else:
            (outcome.executed if executed else outcome.up_to_date).append(path.stem)


def _under_way(waiting: list[str], at_once: int, number: int) -> str:
    """Which notebooks are being executed, the first of those that wait, and how far that is."""
    names = ", ".join(waiting[:at_once])
    so_far = number - len(waiting[at_once:])
    return f"notebook {names} ({so_far} of {number})" if names else ""


def _execute(path: Path, executed: Path, parameters: dict[str, Any]) -> tuple[bool, str]:
    """Execute one notebook in the present folder unless its executed copy is up to date.

    Returns whether it was executed, and the error, if any.
    """
    key = _key(_code_key(path, parameters), _records_key())
    drawn = figures_dir() / Parameters(**_own_parameters(path, parameters)).products
    if executed.exists() and drawn.exists() and _key_of(executed) == key:
        return False, ""
    try:
        with TemporaryDirectory() as sockets:
            papermill.execute_notebook(
                str(path),
                str(executed),
                parameters=_own_parameters(path, parameters),
                kernel_name="python3",
                progress_bar=False,
                config=_kernel(sockets),
            )
    except PapermillExecutionError as error:
        where = f"cell {error.cell_index} of {executed}"
        return True, f"{where}: {error.ename}: {error.evalue}"
    except Exception as error:  # a dead kernel, say: the others still run
        return True, f"{type(error).__name__}: {error}"
    finally:
        ensure_event_loop().close()  # papermill leaves this thread's open
    return True, ""


def _kernel(sockets: str) -> Config:
    """A kernel that talks over files of this user rather than over open ports, each in a folder of
    its own, and does not report that it was told to stop."""
    return Config(
        {
            "KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"},
            "NotebookClient": {"extra_arguments": ["--log-level=CRITICAL"]},
        }
    )


def _stamp(executed: Path, key: str) -> None:
    """Note in an executed notebook what it was made from, without this machine's folders."""
    notebook = nbformat.read(executed, as_version=4)
    for name in ("input_path", "output_path"):
        notebook.metadata["papermill"][name] = executed.name
    notebook.metadata["lff"] = {"key": key}
    nbformat.write(notebook, executed)


def _own_parameters(path: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of the parameters that this notebook declares."""
    declared = papermill.inspect_notebook(str(path))
    return {name: value for name, value in parameters.items() if name in declared}


def _code_key(path: Path, parameters: dict[str, Any]) -> str:
    """A hash of the notebook, its parameters, and the package's code and numbers."""
    digest = hashlib.sha256(path.read_bytes())
    digest.update(json.dumps(_own_parameters(path, parameters), sort_keys=True).encode())
    package = home_dir() / "lff"
    for source in sorted([*package.rglob("*.py"), *package.rglob("*.json")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _key(code: str, records: str) -> str:
    """A hash of all an executed notebook depends on: code and records."""
    return hashlib.sha256((code + records).encode()).hexdigest()


def _records_key() -> str:
    """A hash of the records of all scales: the verdict looks at trials of other scales, too."""
    digest = hashlib.sha256()
    home = results_dir()
    for record in sorted([*home.glob(f"*/*{SUFFIX}"), *home.glob("*/observations/*.json")]):
        digest.update(record.name.encode() + record.read_bytes())
    return digest.hexdigest()


def _key_of(executed: Path) -> str | None:
    try:
        return nbformat.read(executed, as_version=4).metadata.get("lff", {}).get("key")
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return None
