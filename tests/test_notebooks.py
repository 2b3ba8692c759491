"""The notebooks as committed: their structure; that they run is nbval's to check."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import lff
from lff.defenses import registry
from lff.errors import InputError
from lff.experiments.benchmarks import Experiment
from lff.experiments.sweep import Outcome
from lff.study import figures, plan
from lff.study.notebook import DECLARED, Parameters, parameters

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NAMES = [
    "00_tour", "01_setup", "02_gradients", "03_pca", "04_robustness", "05_stability",
    "06_runtime", "07_paper_vs_ours",
]  # fmt: skip


def code_cells(path: Path) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_all_notebooks_are_there_in_reading_order():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    def test_is_valid_and_for_the_python3_kernel(self, path):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3"

    def test_begins_with_a_title(self, path):
        first = nbformat.read(path, as_version=4).cells[0]
        assert first.cell_type == "markdown"
        assert first.source.startswith("# ")

    def test_is_committed_without_outputs(self, path):
        for cell in code_cells(path):
            assert cell.outputs == []
            assert cell.execution_count is None

    def test_has_one_parameters_cell_of_plain_values(self, path):
        tagged = [c for c in code_cells(path) if "parameters" in c.metadata.get("tags", [])]
        assert len(tagged) == 1
        values = {}
        exec(tagged[0].source, {"__builtins__": {}}, values)
        assert values["scale"] == "smoke"
        assert values["seeds"] == [0]
        assert all(isinstance(v, str | int | float | list) for v in values.values())
        assert tuple(values) == DECLARED[path.stem]
        assert vars(Parameters()).items() >= values.items()  # the same defaults
        assert ":" not in re.sub(r'"[^"]*"', "", tagged[0].source)  # no annotations

    def test_checks_its_own_parameters(self, path):
        assert any(f'parameters(globals(), "{path.stem}")' in c.source for c in code_cells(path))

    def test_cells_are_short(self, path):
        for cell in code_cells(path):
            assert len(cell.source.splitlines()) <= 20, cell.source

    def test_names_no_path_of_one_machine(self, path):
        text = path.read_text()
        assert not re.search(r"(/home/|/root/|/tmp/|/work/|[A-Z]:\\\\)", text)

    def test_prose_keeps_up_with_code(self, path):
        cells = nbformat.read(path, as_version=4).cells
        code = code_cells(path)
        assert 2 * (len(cells) - len(code)) >= len(code)

    def test_a_name_means_one_thing(self, path):
        """A cell that is run again must not see what a later one made of its names."""
        cells = [ast.parse(cell.source).body for cell in code_cells(path)]
        named = [{name for statement in cell for name in assigned(statement)} for cell in cells]
        again = [name for i, names in enumerate(named) for name in names & set().union(*named[:i])]
        assert set(again) <= {"figure"}

    def test_ends_with_assertions(self, path):
        assert "assert " in code_cells(path)[-1].source


def assigned(statement: ast.stmt) -> set[str]:
    """The names that an assignment at the top of a cell gives a meaning."""
    if not isinstance(statement, ast.Assign):
        return set()
    nodes = [node for target in statement.targets for node in ast.walk(target)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_every_figure_function_is_used_by_some_notebook():
    code = "\n".join(cell.source for path in NOTEBOOKS for cell in code_cells(path))
    for name in figures.__all__:
        assert f"figures.{name}(" in code, name


def test_parameters_are_taken_from_the_notebook():
    given = {"scale": "quick", "seeds": [1, 2], "_hidden": 1, "In": [], "lff": json}
    chosen = parameters(given, "04_robustness")
    assert chosen.scale == "quick"
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == []
    assert chosen.compute


def test_other_seeds_and_selections_do_not_replace_the_products_of_the_study():
    assert Parameters(scale="laptop").products == "laptop"
    assert Parameters(scale="laptop", seeds=[0, 1, 2]).products == "laptop/seeds-0-1-2"
    assert Parameters(seeds=[3]).products == "smoke/seeds-3"
    one, other = Parameters(ratios=[30]), Parameters(ratios=[40])
    assert one.products.startswith("smoke/selection-")
    assert one.products != other.products
    both = Parameters(seeds=[3], ratios=[30]).products
    assert both == one.products.replace("smoke", "smoke/seeds-3")


def test_lists_may_come_as_text_as_papermill_passes_them():
    given = {"scale": "smoke", "seeds": "[1, 2]", "benchmarks": '["imdb"]', "ratios": "[30, 2.5]"}
    chosen = parameters(given, "04_robustness")
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == ["imdb"]
    assert chosen.ratios == [30, 2.5]


def test_a_cell_can_be_run_again_after_the_notebook_has_variables():
    namespace = {"scale": "smoke"}
    parameters(namespace, "03_pca")
    namespace["middle"] = 3
    assert parameters(namespace, "03_pca").scale == "smoke"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"benchmark": "imdb"}, "'benchmark'; choose from: scale.*Did you mean 'benchmarks'"),
        ({"ratioss": "[30]"}, "unknown parameter of 06_runtime 'ratioss'.*Did you mean 'ratios'"),
        ({"attackers": {}}, "unknown parameter of 06_runtime 'attackers'"),
        ({"benchmarks": ["mnist"]}, "unknown benchmark 'mnist'"),
        ({"benchmarks": "mnist-iid"}, "benchmarks must be a list"),
        ({"benchmarks": "[mnist-iid"}, "benchmarks must be a list"),
        ({"benchmarks": [["imdb"]]}, r"unknown benchmark \['imdb'\]"),
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"scale": 1}, "unknown scale 1"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": 1}, "seeds must be a list, not 1"),
        ({"seeds": [-1]}, "seeds must be whole numbers of at least 0, not -1"),
        ({"seeds": [True]}, "seeds must be whole numbers of at least 0, not True"),
        ({"seeds": ["0"]}, "seeds must be whole numbers of at least 0, not '0'"),
        ({"seeds": [1, 1]}, "seeds must not repeat itself"),
        ({"defenses": ["krum"]}, "unknown defense 'krum'"),
        ({"ratios": [130]}, "ratios must be between 0 and 100 percent, not 130"),
        ({"ratios": ["30"]}, "ratios must be between 0 and 100 percent, not '30'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"compute": "no"}, "compute must be True or False, not 'no'"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        parameters({"scale": "smoke", "seeds": [0], **given}, "06_runtime")


@pytest.mark.parametrize(("name", "given"), [("06_runtime", "ratioss"), ("01_setup", "ratios")])
def test_papermill_fails_on_a_parameter_the_notebook_does_not_declare(name, given, tmp_path):
    """Mistyped, or only another notebook's: papermill itself would only warn."""
    command = f"-m papermill notebooks/{name}.ipynb {tmp_path / 'out.ipynb'} -p {given} [30]"
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=NOTEBOOKS[0].parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    choices = ", ".join(DECLARED[name])
    assert f"unknown parameter of {name} '{given}'; choose from: {choices}" in done.stderr


def test_with_compute_off_only_what_is_recorded_is_there(tiny):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1], **tiny)
    with pytest.raises(InputError, match="none of the 2 runs is recorded at scale 'smoke'"):
        Parameters(compute=False).run(runs)
    lff.run(runs[0], progress=False)
    assert Parameters(compute=False).run(runs).done == runs[:1]
    assert set(Parameters(compute=True).run(runs).done) == set(runs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_what_its_plan_says(path, monkeypatch):
    """The cells with `run_all` recording what it is asked for; a cell may fail of its lack."""
    asked, looked, run_again = [], [], []

    def note(experiments, **_):
        asked.extend(experiments)
        return Outcome(done=list(experiments))

    def look(e, **_):
        looked.append(e)
        raise LookupError("nothing to see")

    def take(e, **_):
        run_again.extend([e] if isinstance(e, Experiment) else e)
        raise LookupError("no record")

    monkeypatch.setattr("lff.study.notebook.run_all", note)
    monkeypatch.setattr("lff.experiments.runs.run", take)
    monkeypatch.setattr("lff.experiments.sweep.run_all", take)
    for name in ("components", "good_and_bad"):
        monkeypatch.setattr(f"lff.study.observations.{name}", look)
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
    namespace = {}
    for cell in code_cells(path):
        with contextlib.suppress(Exception):
            exec(cell.source, namespace)
    planned = set(plan.PLANS[path.stem].runs(Parameters()))
    assert {e for e in asked if not e.user_code} == planned
    assert {e for e in run_again if not e.user_code} <= planned
    foreseen = {e for _, looks in plan.PLANS[path.stem].looks for e in looks(Parameters())}
    assert set(looked) <= foreseen
    assert bool(looked) == bool(foreseen)


def test_nbval_alone_works_in_folders_of_its_session(tmp_path):
    """As `pytest notebooks --nbval-lax` sees them, with the user's folders set."""
    snoop = "import json, os\n\n\ndef pytest_sessionstart():\n    "
    snoop += "print('SEEN', json.dumps(dict(os.environ)))\n"
    (tmp_path / "snoop.py").write_text(snoop)
    mine = {name: str(tmp_path / "mine") for name in ("LFF_RESULTS", "LFF_FIGURES", "LFF_STUDY")}
    command = "-m pytest notebooks --nbval-lax --nbval-current-env --collect-only -q -s -p snoop"
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=NOTEBOOKS[0].parents[1],
        env=os.environ | mine | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("SEEN "))
    seen = json.loads(line.removeprefix("SEEN "))
    assert "07_paper_vs_ours.ipynb::Cell 1" in done.stdout
    for name, folder in mine.items():
        assert not seen[name].startswith(folder), name


def test_the_readme_maps_every_product_to_the_notebook_that_makes_it():
    """Each file in the map is saved by the notebook of its row, and every product is in the map."""
    readme = (NOTEBOOKS[0].parents[1] / "README.md").read_text()
    study = readme.split("## The study")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in study.splitlines() if re.match(r"\|.*\d\d_\w+.*\|", line)]
    assert len(rows) >= 12
    mapped = set()
    for _, notebook, files, command in rows:
        name = re.search(r"\d\d_\w+", notebook)[0]
        code = "\n".join(c.source for c in code_cells(NOTEBOOKS[NAMES.index(name)]))
        assert name in command or command.startswith("the same")
        for file in re.findall(r"`([^`]+)`", files):
            stem = file.split("/")[-1].split("<")[0].removesuffix("mnist-mild")
            assert f'"{stem}"' in code or f'"{stem}{{' in code, file
            mapped.add(stem)
    saved = re.compile(r'save_(?:figure|table)\([^"]*f?"(\w+)', re.DOTALL)
    for path in NOTEBOOKS:
        for stem in saved.findall("\n".join(c.source for c in code_cells(path))):
            families = (name for name in mapped if name.endswith("_"))
            assert stem in mapped or stem.startswith(tuple(families)), stem
