"""The study's command: what it runs, what it reports when a notebook fails, and its report."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import lff
from lff.cli import main
from lff.errors import InputError
from lff.experiments.records import find
from lff.study import notebook, runner
from lff.study.runner import parse_parameters, run_study

PARAMETERS = {"scale": "smoke", "seeds": [0]}
DECLARED = 'scale = "smoke"\nseeds = [0]\ncompute = True'
DRAWS = """
from lff.paths import figures_dir
folder = figures_dir() / scale / ("" if seeds == [0] else f"seeds-{seeds[0]}")
folder.mkdir(parents=True, exist_ok=True)
"""
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # papermill's


def write_notebook(path, *code: str, runs: str = "runs = []") -> None:
    tagged = [
        new_code_cell(cell, metadata={"tags": [tag]})
        for tag, cell in (("parameters", DECLARED), ("runs", runs))
    ]
    others = map(new_code_cell, [*code, DRAWS])
    cells = [new_markdown_cell(f"# Title of {path.stem}"), *tagged, *others]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)


def listing(tiny, **lists: str) -> str:
    """A cell `runs` that lists MNIST-iid with these seeds."""
    lines = [f"{name} = [lff.experiment('mnist-iid', seed=s, **{tiny!r}) for s in {seeds}]"
             for name, seeds in lists.items()]  # fmt: skip
    return "\n".join(["import lff", *lines])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of notebooks."""
    monkeypatch.setattr(notebook, "notebooks_dir", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def two_notebooks(folder):
    write_notebook(folder / "00_bad.ipynb", "seeds", "raise ValueError('on purpose')")
    write_notebook(folder / "01_good.ipynb", "print('seeds are', seeds)")
    return folder


def test_a_failing_notebook_is_reported_and_the_others_still_run(
    two_notebooks, own_folders, capsys
):
    assert main(["study", "--scale", "smoke", "--seeds", "3"]) == 1
    said = capsys.readouterr().out
    study = own_folders / "lff_study" / "smoke" / "seeds-3"
    # Parameters are a cell of their own.
    assert f"cell 5 of {study / '00_bad.ipynb'}: ValueError: on purpose" in said
    assert "1 notebooks executed, 0 up to date, 1 failed" in said
    page = (study / "report.html").read_text()
    assert "seeds are [3]" in page
    for name in ("00_bad", "01_good"):
        assert f'href="#{name}"' in page
        assert f'id="{name}"' in page
    for word in ("<script", "http://", "https://", "<link"):  # self-contained
        assert word not in page

    write_notebook(two_notebooks / "00_bad.ipynb", "seeds")  # mended
    again = run_study([], PARAMETERS | {"seeds": [3]})
    assert again.executed == ["00_bad"]
    assert again.up_to_date == ["01_good"]
    shutil.rmtree(own_folders / "lff_figures")
    assert run_study(["01_good"], PARAMETERS | {"seeds": [3]}).executed == ["01_good"]


def test_a_notebook_that_cannot_list_its_runs_is_named_and_the_others_still_run(folder):
    write_notebook(folder / "00_bad.ipynb", runs="runs = 1 / 0")
    write_notebook(folder / "01_good.ipynb")
    said = []
    outcome = run_study([], PARAMETERS, say=said.append)
    assert outcome.executed == ["01_good"]
    assert said[0] == "00_bad failed: its cell `runs`: ZeroDivisionError: division by zero"
    assert "1 notebooks executed, 0 up to date, 1 failed" in said[1]


@pytest.mark.parametrize("compute", [True, False])
def test_a_record_that_arrives_meanwhile_is_not_taken_for_shown(compute, folder, own_folders):
    arriving = own_folders / "lff_results" / "quick" / "arriving.json.gz"
    arriving.parent.mkdir(parents=True)
    write_notebook(folder / "00_shows.ipynb", f"open({str(arriving)!r}, 'w').write('{{}}')")
    settings = PARAMETERS | {"compute": compute}
    run_study([], settings)
    again = run_study([], settings).up_to_date
    assert again == (["00_shows"] if compute else [])  # who computes, adds records of her own
    assert run_study([], settings).up_to_date == ["00_shows"]


@pytest.mark.parametrize(
    ("names", "parameters", "message"),
    [
        (["04_robustnes"], {}, "unknown notebook '04_robustnes'.*Did you mean '05_robustness'"),
        ([], {"benchmark": ["imdb"]}, r"parameter of \d+ notebooks 'benchmark'.*mean 'benchmarks'"),
        (
            ["02_setup"],
            {"ratios": [30]},
            "parameter of 02_setup 'ratios'; choose from: scale, seeds",
        ),
        ([], {"ratios": [-3]}, "attackers must be between 0 and 100 percent, not -3"),
        ([], {"scale": "big"}, "unknown scale 'big'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(names, parameters, message, monkeypatch):
    monkeypatch.setattr(runner, "listed_runs", None)
    with pytest.raises(InputError, match=message):
        run_study(names, PARAMETERS | parameters)


def test_without_notebooks_it_says_what_it_needs(folder):
    with pytest.raises(
        InputError, match=r"no notebooks in .*; `lff study` runs the notebooks of a"
    ):
        run_study([], PARAMETERS)


def test_without_papermill_it_says_what_to_install():
    code = "import sys; sys.modules['papermill'] = None; from lff.cli import main; main(['study'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "lff: error: `lff study` needs papermill: pip install 'lff[notebooks]'\n"


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LFF_STUDY", str(tmp_path / "file" / "study"))
    assert main(["study", "--scale", "smoke", "02_setup"]) == 2
    assert str(tmp_path / "file" / "study" / "smoke") in capsys.readouterr().err


def test_parameters_on_the_command_line_are_json_or_text():
    given = parse_parameters(['benchmarks=["imdb"]', "device=cpu", "seeds=[1, 2]"])
    assert given == {"benchmarks": ["imdb"], "device": "cpu", "seeds": [1, 2]}
    with pytest.raises(InputError, match="name=value"):
        parse_parameters(["imdb"])


def test_the_runs_of_all_notebooks_come_first_and_are_counted(folder, tiny, capsys):
    write_notebook(folder / "00_one.ipynb", runs=listing(tiny, runs=[0]))
    recorded = "from lff.experiments.records import find\nassert all(map(find, runs))"
    write_notebook(folder / "01_two.ipynb", recorded, runs=listing(tiny, runs=[0, 1]))
    outcome = run_study([], PARAMETERS | {"device": "cpu"}, jobs=1)
    assert outcome.executed == ["00_one", "01_two"]
    shown = capsys.readouterr().err
    assert "run 1 of 2 |" in shown
    assert "done (MNIST-iid, FedAvg, 0%, for 00_one)" in shown  # the first who needs it
    assert "done (MNIST-iid, FedAvg, 0%, for 01_two)" in shown
    assert shown.index("run 2 of 2 done") < shown.index("notebook 1 of 2 |")
    assert "notebook 2 of 2 done (01_two)" in shown
    run_study(["01_two"], PARAMETERS)
    assert "no run is missing" in capsys.readouterr().err


def test_the_report_opens_with_what_came_of_it(folder, own_folders):
    """A picture and a table that the notebook has saved under names that are shown first."""
    drawn = "Path(os.environ['LFF_FIGURES'], 'smoke')"
    write_notebook(
        folder / "00_one.ipynb",
        "import os\nfrom pathlib import Path\n"
        f"there = {drawn}\nthere.mkdir(parents=True)\n"
        "(there / 'saved_and_lost.png').write_bytes(b'picture')\n"
        "(there / 'claims_by_subject.csv').write_text('about,holds\\nLFighter,3\\n')",
    )
    page = run_study([], PARAMETERS).report.read_text()
    first, rest = page.index('id="first"'), page.index('<section id="00_one"')
    assert first < page.index("data:image/png;base64,cGljdHVyZQ==") < rest
    assert first < page.index("<td>LFighter</td>") < rest


def test_without_computing_what_is_recorded_is_drawn(folder, tiny):
    write_notebook(folder / "00_one.ipynb", runs=listing(tiny, runs=[0]))
    write_notebook(folder / "01_two.ipynb", runs=listing(tiny, runs=[0, 1]))
    with pytest.raises(InputError, match="none of 2 runs is recorded at scale smoke"):
        run_study([], PARAMETERS | {"compute": False})
    assert find(lff.experiment("mnist-iid", **tiny)) is None
    lff.run(lff.experiment("mnist-iid", seed=1, **tiny), progress=False)
    executed = run_study([], PARAMETERS | {"compute": False}).executed
    assert sorted(executed) == ["00_one", "01_two"]  # two at once end in any order


def test_a_killed_study_goes_on_where_it_was(folder, tiny, own_folders, capsys):
    """Killed after its first record, it runs the others and takes that one as it is."""
    write_notebook(folder / "00_four.ipynb", runs=listing(tiny, runs=[0, 1, 2, 3]))
    code = f"""
import pathlib
from lff.cli import main
from lff.study import notebook
notebook.notebooks_dir = lambda: pathlib.Path({str(folder)!r})
main(["study", "--scale", "smoke", "--jobs", "1"])
"""
    results = own_folders / "lff_results" / "smoke"
    first = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (made := list(results.glob("*.json.gz"))):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert len(list(results.glob("*.json.gz"))) < 4
    before = made[0].stat().st_mtime_ns
    assert run_study([], PARAMETERS, jobs=1).executed == ["00_four"]
    assert "run 1 of " in capsys.readouterr().err
    assert len(list(results.glob("*.json.gz"))) == 4
    assert made[0].stat().st_mtime_ns == before


def test_the_time_left_is_foreseen_and_then_corrected_by_the_pace(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    with runner._Progress({"a run": 10.0, "a notebook": 30.0}) as progress:
        assert progress.left() == 40
        clock[0] = 15.0
        assert progress.left() == 25
        clock[0] = 20.0
        progress.ended("a run", "run 1 of 1 done")
        assert progress.left() == 30 * 50 / 40  # slower than expected, a little trusted yet
        clock[0] = 100.0
        assert progress.left() == 0
        progress.draw()
    assert "longer than foreseen" in capsys.readouterr().err


def test_who_watches_sees_the_clocks_go_on_while_a_run_lasts(monkeypatch, capsys):
    monkeypatch.setattr(runner, "watched", lambda: True)
    monkeypatch.setattr(runner, "REFRESH", 0.01)
    with runner._Progress({"a run": 3600.0}) as progress:
        progress.now("run 1 of 1")
        progress.end -= 600
        deadline = time.monotonic() + 60
        while "50:00 left" not in (shown := capsys.readouterr().err) and "49:59" not in shown:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_runs_and_notebooks_share_one_cluster(monkeypatch):
    """Its address is in the environment, which kernels inherit; one the user named comes first."""
    monkeypatch.delenv("LFF_CLUSTER", raising=False)
    monkeypatch.setattr(runner, "local_cluster", lambda jobs: nullcontext(f"tcp://here:{jobs}"))
    with runner._one_cluster(1):
        assert "LFF_CLUSTER" not in os.environ
    with runner._one_cluster(2):
        assert os.environ["LFF_CLUSTER"] == "tcp://here:2"
    assert "LFF_CLUSTER" not in os.environ
    monkeypatch.setenv("LFF_CLUSTER", "tcp://there:8786")
    with runner._one_cluster(2):
        assert os.environ["LFF_CLUSTER"] == "tcp://there:8786"
