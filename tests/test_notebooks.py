"""The notebooks as committed: their structure; that they run is nbval's to check."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from lff import figures
from lff.errors import InputError
from lff.notebook import parameters

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
        assert ":" not in re.sub(r'"[^"]*"', "", tagged[0].source)  # no annotations

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

    def test_ends_with_assertions(self, path):
        assert "assert " in code_cells(path)[-1].source


def test_every_figure_function_is_used_by_some_notebook():
    code = "\n".join(cell.source for path in NOTEBOOKS for cell in code_cells(path))
    for name in figures.__all__:
        assert f"figures.{name}(" in code, name


def test_parameters_are_taken_from_the_notebook():
    chosen = parameters({"scale": "quick", "seeds": [1, 2], "_hidden": 1, "In": [], "lff": json})
    assert chosen.scale == "quick"
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == []


def test_lists_may_come_as_text_as_papermill_passes_them():
    chosen = parameters({"scale": "smoke", "seeds": "[1, 2]", "benchmarks": '["imdb"]'})
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == ["imdb"]


def test_a_cell_can_be_run_again_after_the_notebook_has_variables():
    namespace = {"scale": "smoke"}
    parameters(namespace)
    namespace["middle"] = 3
    assert parameters(namespace).scale == "smoke"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"benchmark": "mnist-iid"}, "unknown parameter 'benchmark'.*Did you mean 'benchmarks'"),
        ({"benchmarks": ["mnist"]}, "unknown benchmark 'mnist'"),
        ({"benchmarks": "mnist-iid"}, "benchmarks must be a list"),
        ({"benchmarks": "[mnist-iid"}, "benchmarks must be a list"),
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"seeds": []}, "at least one seed"),
        ({"defenses": ["krum"]}, "unknown defense 'krum'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        parameters({"scale": "smoke", "seeds": [0], **given})


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
