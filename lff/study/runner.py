"""The whole study: the runs its notebooks list, the notebooks through papermill, one report."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lff.errors import InputError

try:
    import nbformat
    import papermill
    from jupyter_core.utils import ensure_event_loop
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    from lff.study.report import write_report
except ModuleNotFoundError as error:
    raise InputError(f"`lff study` needs {error.name}: pip install 'lff[notebooks]'") from error

import lff
from lff.experiments.build import choose_device
from lff.experiments.experiment import Experiment
from lff.experiments.progress import REFRESH, bar, cost, watched
from lff.experiments.records import SUFFIX, find
from lff.experiments.sweep import default_jobs, jobs_worth, local_cluster
from lff.paths import figures_dir, home_dir, results_dir, study_dir
from lff.registry import parse_pair
from lff.store import unwritable
from lff.study.frame import benchmark_label, defense_label
from lff.study.notebook import Parameters, check_declared, declared, listed_runs, notebooks

NOTEBOOK_SECONDS = 8.0  # about what a notebook takes when its runs are recorded
PRIOR_SECONDS = 30.0  # of work, before its pace outweighs what was expected
ALWAYS = ("scale", "seeds", "device")  # what the command passes, whoever declares them
CLUSTER = "LFF_CLUSTER"  # the variable that tells the notebooks where the study's runs are run


@dataclass
class StudyOutcome:
    """Which notebooks were executed, which were up to date, and which failed, with the reason."""

    executed: list[str] = field(default_factory=list)
    up_to_date: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    report: Path | None = None


def run_study(
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    jobs: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> StudyOutcome:
    """Run the notebooks of these names (default: all) with these parameters.

    First the runs that they list, then the notebooks in order, both spread over the cores, under
    one progress bar. A notebook that fails is reported and the others still run. What is up to
    date is not run again.
    """
    chosen = notebooks(names)
    p = _checked(parameters, chosen)
    folder = study_dir() / p.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    outcome = StudyOutcome()
    work = _listed(chosen, parameters, outcome)
    listed = {e for runs in work.values() for e in runs}
    if not p.compute and listed and not any(map(find, listed)):
        raise InputError(f"none of {len(listed)} runs is recorded at scale {p.scale}")
    needed = {e: path.stem for path in reversed(work) for e in work[path]}  # first who needs
    missing = [e for e in needed if find(e) is None] if p.compute else []
    at_once = jobs or default_jobs(choose_device(p.device))
    seconds: dict[Any, float] = {e: cost(e) / at_once for e in missing}
    seconds |= dict.fromkeys(work, NOTEBOOK_SECONDS)
    code = {path: _code_key(path, parameters) for path in work}
    processes = jobs or jobs_worth(missing, choose_device(p.device))
    with _one_cluster(min(processes, len(missing))), _Progress(seconds) as progress:
        progress.now(f"run 1 of {len(missing)}" if missing else "no run is missing")
        ended: list[Experiment] = []

        def run_ended(e: Experiment) -> None:
            ended.append(e)
            what = f"{benchmark_label(e.benchmark)}, {defense_label(e.defense)}, {e.attackers:g}%"
            done = f"run {len(ended)} of {len(missing)} done"
            progress.ended(e, f"{done} ({what}, for {needed[e]})")

        runs = lff.run_all(
            missing,
            jobs=jobs,
            device=p.device,
            cluster=os.environ.get(CLUSTER),
            progress=False,
            on_end=run_ended,
        )
        known = _records_key()
        _execute_all(list(work), folder, parameters, at_once, outcome, progress)
    if p.compute:
        known = _records_key()  # notebooks that compute add records
    for path in work:
        if path.stem not in outcome.failed:
            _stamp(folder / path.name, code[path] + known)
    for name, why in [*runs.failed.items(), *sorted(outcome.failed.items())]:
        say(f"{name} failed: {why}")
    there = [folder / path.name for path in notebooks() if (folder / path.name).exists()]
    drawn = figures_dir() / p.folder
    outcome.report = write_report(there, folder / "report.html", p.scale, drawn)
    say(
        f"{len(outcome.executed)} notebooks executed, {len(outcome.up_to_date)} up to date, "
        f"{len(outcome.failed)} failed\nreport: {outcome.report}"
    )
    return outcome


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Parameters given as `name=value`, the value in JSON or a plain text."""
    return dict(parse_pair("parameter", text) for text in texts)


def _checked(parameters: Mapping[str, Any], chosen: Sequence[Path]) -> Parameters:
    """The parameters, each of which some chosen notebook must declare."""
    choices = list(dict.fromkeys(name for path in chosen for name in declared(path)))
    of = chosen[0].stem if len(chosen) == 1 else f"{len(chosen)} notebooks"
    check_declared([name for name in parameters if name not in ALWAYS], choices, f" of {of}")
    common = Parameters.__dataclass_fields__
    return Parameters(**{name: parameters[name] for name in parameters if name in common})


def _listed(
    chosen: Sequence[Path], parameters: Mapping[str, Any], outcome: StudyOutcome
) -> dict[Path, list[Experiment]]:
    """The runs that each notebook needs; one that cannot say it has failed."""
    work = {}
    for path in chosen:
        try:
            work[path] = listed_runs(path, parameters)
        except Exception as error:  # whatever a cell may raise
            outcome.failed[path.stem] = f"its cell `runs`: {type(error).__name__}: {error}"
    return work


@contextmanager
def _one_cluster(jobs: int) -> Iterator[None]:
    """Worker processes for all runs of a study, of its notebooks, too; one job needs none, and
    those of a cluster that the user has named are enough."""
    if jobs < 2 or CLUSTER in os.environ:
        yield
        return
    with local_cluster(jobs) as address:
        os.environ[CLUSTER] = address
        try:
            yield
        finally:
            del os.environ[CLUSTER]


class _Progress:
    """One bar over the expected seconds of all runs and notebooks.

    The time left is foreseen from the start, and corrected by how the work done so far compares
    with what was expected of it. Somebody who watches sees the clocks go on while a run lasts.
    """

    def __init__(self, seconds: Mapping[Any, float]):
        self.seconds = seconds
        layout = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}{postfix}]"
        self.bar = bar(total=sum(seconds.values()), bar_format=layout, show=True)
        self.start = time.monotonic()
        self.end = self.start + self.bar.total
        self.over = threading.Event()

    def __enter__(self) -> "_Progress":
        if watched():
            threading.Thread(target=self.tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.bar.close()

    def tick(self) -> None:
        """Draw the bar once a second until all is over."""
        while not self.over.wait(REFRESH):
            self.draw()

    def now(self, text: str) -> None:
        """Say what is going on, and how long the rest will take."""
        self.bar.set_description_str(text, refresh=False)
        self.draw()

    def draw(self) -> None:
        """Draw the bar as things stand."""
        left = self.left()
        told = f"{self.bar.format_interval(left)} left" if left else "longer than foreseen"
        self.bar.set_postfix_str(told, refresh=False)
        self.bar.refresh()

    def ended(self, what: Any, text: str) -> None:
        """A run or notebook has ended, and the end of all is foreseen anew."""
        self.bar.n = min(self.bar.n + self.seconds[what], self.bar.total)  # sums of floats
        now = time.monotonic()
        pace = (now - self.start + PRIOR_SECONDS) / (self.bar.n + PRIOR_SECONDS)
        self.end = now + (self.bar.total - self.bar.n) * pace
        self.now(text)

    def left(self) -> float:
        """The seconds until the end that is foreseen."""
        return max(self.end - time.monotonic(), 0.0)


def _execute_all(
    chosen: Sequence[Path],
    folder: Path,
    parameters: Mapping[str, Any],
    at_once: int,
    outcome: StudyOutcome,
    progress: _Progress,
) -> None:
    """Execute the notebooks, `at_once` at a time, and note what becomes of them."""
    progress.now(f"notebook 1 of {len(chosen)}")
    with chdir(home_dir()), ThreadPoolExecutor(at_once) as pool:
        executions = {
            pool.submit(_execute, path.resolve(), (folder / path.name).resolve(), parameters): path
            for path in chosen
        }
        try:
            for number, execution in enumerate(as_completed(executions), 1):
                path = executions[execution]
                executed, error = execution.result()
                if error:
                    outcome.failed[path.stem] = error
                else:
                    (outcome.executed if executed else outcome.up_to_date).append(path.stem)
                done = f"notebook {number} of {len(chosen)} done ({path.stem})"
                progress.ended(path, done)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _execute(path: Path, executed: Path, parameters: Mapping[str, Any]) -> tuple[bool, str]:
    """Execute one notebook in the present folder unless its executed copy is up to date.

    Returns whether it was executed, and the error, if any.
    """
    own = _own(path, parameters)
    key = _code_key(path, parameters) + _records_key()
    if _key_of(executed) == key and (figures_dir() / Parameters(**own).folder).exists():
        return False, ""
    try:
        with TemporaryDirectory() as sockets:
            papermill.execute_notebook(
                str(path),
                str(executed),
                parameters=own,
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


def _own(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parameters that this notebook declares."""
    known = declared(path)
    return {name: value for name, value in parameters.items() if name in known}


def _code_key(path: Path, parameters: Mapping[str, Any]) -> str:
    """A hash of the notebook, its parameters, and the package's code and numbers."""
    digest = hashlib.sha256(path.read_bytes())
    digest.update(json.dumps(_own(path, parameters), sort_keys=True).encode())
    package = home_dir() / "lff"
    kinds = (".py", ".json", ".toml")
    for source in sorted(path for path in package.rglob("*") if path.suffix in kinds):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _records_key() -> str:
    """A hash of the records of all scales: some notebooks look at other scales, too."""
    digest = hashlib.sha256()
    home = results_dir()
    for record in sorted(home.glob(f"*/*{SUFFIX}")):
        digest.update(record.name.encode() + record.read_bytes())
    return digest.hexdigest()


def _stamp(executed: Path, key: str) -> None:
    """Note in an executed notebook what it was made from, without this machine's folders."""
    notebook = nbformat.read(executed, as_version=4)
    for name in ("input_path", "output_path"):
        notebook.metadata["papermill"][name] = executed.name
    notebook.metadata["lff"] = {"key": key}
    nbformat.write(notebook, executed)


def _key_of(executed: Path) -> str | None:
    """What an executed notebook was made from; None if there is none, or not to the end."""
    try:
        return nbformat.read(executed, as_version=4).metadata.get("lff", {}).get("key")
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return None
