"""The study's command: what it runs, what it reports when a notebook fails, and its report."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lff import study
from lff.cli import main
from lff.errors import InputError
from lff.study import parse_parameters, run_study

PARAMETERS = {"scale": "smoke", "seeds": [0]}


def notebook(path, *code: str) -> None:
    tagged = new_code_cell('scale = "smoke"\nseeds = [0]', metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell(f"# Title of {path.stem}"), tagged, *map(new_code_cell, code)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)


@pytest.fixture
def two_notebooks(tmp_path, monkeypatch):
    notebook(tmp_path / "00_bad.ipynb", "seeds", "raise ValueError('on purpose')")
    notebook(tmp_path / "01_good.ipynb", "print('seeds are', seeds)")
    monkeypatch.setattr(study, "notebooks_dir", lambda: tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_failing_notebook_is_reported_and_the_others_still_run(two_notebooks, own_folders):
    said = []
    outcome = run_study([], PARAMETERS | {"seeds": [3]}, say=said.append)
    assert outcome.executed == ["01_good"]
    assert list(outcome.failed) == ["00_bad"]
    executed = own_folders / "lff_study" / "smoke" / "00_bad.ipynb"
    assert f"cell 4 of {executed}: ValueError: on purpose" in said[0]  # parameters are injected
    page = outcome.report.read_text()
    assert "seeds are [3]" in page
    for name in ("00_bad", "01_good"):
        assert f'href="#{name}"' in page
        assert f'id="{name}"' in page
    for word in ("<script", "http://", "https://", "<link"):  # self-contained
        assert word not in page

    notebook(two_notebooks / "00_bad.ipynb", "seeds")  # mended
    again = run_study([], PARAMETERS | {"seeds": [3]})
    assert again.executed == ["00_bad"]
    assert again.up_to_date == ["01_good"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_exit_code_tells_of_a_failure(two_notebooks, capsys):
    assert main(["study", "--scale", "smoke", "00_bad"]) == 1
    assert "00_bad failed: cell 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "parameters", "message"),
    [
        (["04_robustnes"], {}, "unknown notebook '04_robustnes'.*Did you mean '04_robustness'"),
        ([], {"benchmark": ["imdb"]}, "unknown parameter 'benchmark'"),
        ([], {"scale": "big"}, "unknown scale 'big'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(names, parameters, message):
    with pytest.raises(InputError, match=message):
        run_study(names, PARAMETERS | parameters)


def test_parameters_on_the_command_line_are_json_or_text():
    given = parse_parameters(['benchmarks=["imdb"]', "device=cpu", "seeds=[1, 2]"])
    assert given == {"benchmarks": ["imdb"], "device": "cpu", "seeds": [1, 2]}
    with pytest.raises(InputError, match="name=value"):
        parse_parameters(["imdb"])
