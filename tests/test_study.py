"""The study's command: what it runs, what it reports when a notebook fails, and its report."""

import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import lff
from lff.cli import main
from lff.errors import InputError
from lff.experiments.records import find
from lff.study import papermill as study
from lff.study import plan
from lff.study.papermill import parse_parameters, run_study

PARAMETERS = {"scale": "smoke", "seeds": [0]}
DRAWS = """
from lff.study.notebook import Parameters
from lff.paths import figures_dir
(figures_dir() / Parameters(scale, seeds).products).mkdir(parents=True, exist_ok=True)
"""


def notebook(path, *code: str) -> None:
    declared = 'scale = "smoke"\nseeds = [0]\ncompute = True'
    tagged = new_code_cell(declared, metadata={"tags": ["parameters"]})
    code = map(new_code_cell, [*code, DRAWS])
    cells = [new_markdown_cell(f"# Title of {path.stem}"), tagged, *code]
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
    executed = own_folders / "lff_study" / "smoke" / "seeds-3" / "00_bad.ipynb"
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
    shutil.rmtree(own_folders / "lff_figures")
    assert run_study(["01_good"], PARAMETERS | {"seeds": [3]}).executed == ["01_good"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compute", [True, False])
def test_a_record_that_arrives_meanwhile_is_not_taken_for_shown(
    compute, tmp_path, monkeypatch, own_folders
):
    arriving = own_folders / "lff_results" / "quick" / "arriving.json.gz"
    arriving.parent.mkdir(parents=True)
    notebook(tmp_path / "00_shows.ipynb", f"open({str(arriving)!r}, 'w').write('{{}}')")
    monkeypatch.setattr(study, "notebooks_dir", lambda: tmp_path)
    settings = PARAMETERS | {"compute": compute}
    run_study([], settings)
    again = run_study([], settings).up_to_date
    assert again == (["00_shows"] if compute else [])  # who computes, adds records of her own
    assert run_study([], settings).up_to_date == ["00_shows"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_exit_code_tells_of_a_failure(two_notebooks, capsys):
    assert main(["study", "--scale", "smoke", "00_bad"]) == 1
    assert "00_bad failed: cell 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "parameters", "message"),
    [
        (["04_robustnes"], {}, "unknown notebook '04_robustnes'.*Did you mean '04_robustness'"),
        ([], {"benchmark": ["imdb"]}, "unknown parameter of 8 notebooks 'benchmark'"),
        (
            ["01_setup"],
            {"ratios": [30]},
            "parameter of 01_setup 'ratios'; choose from: scale, seeds",
        ),
        ([], {"ratios": [-3]}, "ratios must be between 0 and 100 percent, not -3"),
        ([], {"scale": "big"}, "unknown scale 'big'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(names, parameters, message):
    with pytest.raises(InputError, match=message):
        run_study(names, PARAMETERS | parameters)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LFF_STUDY", str(tmp_path / "file" / "study"))
    assert main(["study", "--scale", "smoke", "01_setup"]) == 2
    assert str(tmp_path / "file" / "study" / "smoke") in capsys.readouterr().err


def test_parameters_on_the_command_line_are_json_or_text():
    given = parse_parameters(['benchmarks=["imdb"]', "device=cpu", "seeds=[1, 2]"])
    assert given == {"benchmarks": ["imdb"], "device": "cpu", "seeds": [1, 2]}
    with pytest.raises(InputError, match="name=value"):
        parse_parameters(["imdb"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_runs_of_all_notebooks_come_first_and_are_counted(
    two_notebooks, tiny, monkeypatch, capsys
):
    one, two = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1], **tiny)
    plans = {"00_bad": plan.Plan(lambda p: [one]), "01_good": plan.Plan(lambda p: [one, two])}
    monkeypatch.setattr(plan, "PLANS", plans)
    run_study(["01_good"], PARAMETERS | {"device": "cpu"}, jobs=1)
    shown = capsys.readouterr().err
    assert find(one)
    assert find(two)
    assert "run 1 of 2 |" in shown
    assert "run 2 of 2 done (MNIST-iid, FedAvg, 0%, for 01_good)" in shown
    assert "notebook 01_good (1 of 1)" in shown
    run_study(["01_good"], PARAMETERS)
    assert "no run is missing" in capsys.readouterr().err


def test_the_time_left_is_foreseen_and_then_corrected_by_the_pace(monkeypatch):
    clock = iter([0.0, 0.0, 20.0, 20.0])
    monkeypatch.setattr(study.time, "monotonic", lambda: next(clock))
    with study._Progress({"a run": 10.0, "a notebook": 30.0}) as progress:
        assert progress.left() == 40
        progress.ended("a run")
        assert progress.left() == 30 * 50 / 40  # slower than expected, a little trusted yet
