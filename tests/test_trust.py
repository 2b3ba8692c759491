"""Nothing that is read can run code, and a run leaves the user's process as it was."""

import ast
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lff
from lff import paths
from lff.errors import InputError, RecordError
from lff.experiments import provenance, records
from lff.experiments.experiment import Experiment

PACKAGE = Path(lff.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


# --- the package's own code ------------------------------------------------------------------

# Modules that unpickle, or parse in a way that can run code.
MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml",
    "code", "xml", "pandas.io.pickle", "torch.hub", "torch.serialization",
}  # fmt: skip
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "torch.load", "torch.jit.load", "torch.hub.load", "np.load", "numpy.load", "np.loads",
    "pd.read_pickle", "pandas.read_pickle", "pd.eval", "os.system", "os.popen",
    "subprocess.getoutput", "subprocess.getstatusoutput", "shutil.unpack_archive",
    "tempfile.mktemp",
}  # fmt: skip
METHODS = {"extractall", "extract", "read_pickle", "to_pickle", "unpack_archive"}


def dotted(node):
    """`a.b.c` of a chain of names, else nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def dangers(source):
    """What in some source could run code out of data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        found += [name for name in names if name in MODULES or name.split(".")[0] in MODULES]
        found += [name for name in names if name in CALLS]
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            arguments = {k.arg: getattr(k.value, "value", ...) for k in node.keywords}
            safe_load = name in ("np.load", "numpy.load") and arguments.get("allow_pickle") is False
            if name in BUILTINS or (name in CALLS and not safe_load):
                found.append(name)
            if name.rpartition(".")[2] in METHODS:
                found.append(name)
            if arguments.get("shell", False) is not False:
                found.append("shell=True")
            if arguments.get("allow_pickle", False) is not False:
                found.append("allow_pickle=True")
    return found


# What code is run on purpose, and where it comes from. A user's own code travels between processes
# that lff or Dask started; a notebook of the study is code.
ON_PURPOSE = {
    "experiments/code.py": ["cloudpickle"],
    "fast/pool.py": ["cloudpickle"],
    "study/notebook.py": ["exec", "compile"],
}
READING = {"open", "read", "read_bytes", "read_text", "recv", "load", "urlopen", "retrieve"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_source_can_run_code_out_of_data(path):
    expected = ON_PURPOSE.get(path.relative_to(PACKAGE).as_posix(), [])
    assert dangers(path.read_text(encoding="utf-8")) == expected


def called(path):
    """The names of what a module calls, the last part of each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = (dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {name.rpartition(".")[2] for name in calls}


def test_what_is_unpickled_comes_from_a_process_and_no_file():
    """Bytes reach it as arguments only, of Dask's task and of the pool's first message."""
    for name in ("experiments/code.py", "fast/pool.py"):
        names = called(PACKAGE / name)
        assert "loads" in names
        assert not names & READING
    users = {path.name for path in SOURCES if "unpack" in called(path)}
    assert users == {"sweep.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import pickle as p", "import yaml",
        "from torch import load", "import torch\ntorch.load('x')", "eval('1')", "exec(text)",
        "__import__(name)", "np.load(path)", "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)", "subprocess.run('ls', shell=True)",
        "subprocess.run(c, shell=flag)", "os.system('ls')", "tar.extractall()", "tar.extract(m)",
        "pd.read_pickle(p)", "from joblib import load", "import torch.hub",
        "shutil.unpack_archive(a)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(source):
    assert dangers(source)


def test_dask_which_unpickles_is_imported_only_when_a_cluster_is_asked_for(tiny, monkeypatch):
    """Its network is a trusted one, as the README says; nobody meets it by accident."""
    rooms = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            if {name.split(".")[0] for name in names} & {"dask", "distributed"}:
                rooms.add(path.name)
                assert node not in tree.body
    assert rooms == {"sweep.py"}
    for module in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, module, None)  # to import it would be an error
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1], **tiny)
    assert len(lff.run_all(runs, jobs=1, progress=False).done) == 2
    with pytest.raises(ImportError):
        lff.run_all([run.replace(seed=2) for run in runs], cluster="tcp://127.0.0.1:1")


def test_the_search_lets_the_harmless_pass():
    harmless = "model.eval()\nnp.load(p, allow_pickle=False)\nsubprocess.run(['ls'])\njson.load(f)"
    assert dangers(harmless) == []


# --- files that would run code if they were unpickled ----------------------------------------


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path):
    """A folder that is there if a bomb went off."""
    folder = tmp_path / "it-went-off"
    yield folder
    assert not folder.exists()


@pytest.fixture(params=["pickle", "torch.save", "npy of objects", "npz of objects"])
def bomb(request, marker):
    """The bytes of a file that makes the marker if it is opened in the usual ways."""
    import numpy as np

    out = io.BytesIO()
    if request.param == "pickle":
        out.write(pickle.dumps(Bomb(marker)))
    elif request.param == "torch.save":
        torch.save(Bomb(marker), out)
    elif request.param == "npy of objects":
        np.save(out, np.array([Bomb(marker)], dtype=object), allow_pickle=True)
    else:
        np.savez(out, x=np.array([Bomb(marker)], dtype=object))
    return out.getvalue()


def test_the_bomb_would_go_off(tmp_path):
    folder = tmp_path / "proof"
    pickle.loads(pickle.dumps(Bomb(folder)))
    assert folder.exists()


def test_a_bomb_in_place_of_a_record(bomb, tiny, caplog):
    e = lff.experiment("mnist-iid", **tiny)
    path = records.path_of(e)
    path.parent.mkdir(parents=True)
    path.write_bytes(bomb)
    with pytest.raises(RecordError, match=path.name):
        lff.run(e, progress=False)
    assert len(lff.load_runs()) == 0
    assert path.name in caplog.text


@pytest.mark.parametrize("dressed", [False, True])
def test_a_bomb_in_place_of_a_checkpoint(bomb, dressed, tiny, caplog):
    """Also in place of its tensors alone, with a checksum that fits."""
    e = lff.experiment("mnist-iid", **(tiny | {"rounds": 1}))
    path = records.checkpoint_path(records.path_of(e))
    origin = {"engine": "x"}
    values = {"history": [], "seconds": {}}
    records.Checkpoint({"global_weights": torch.zeros(3)}, values, origin).save(e)
    assert records.load_checkpoint(e, origin).rounds == 0
    if dressed:
        _, line, _ = path.read_bytes().split(b"\n", 2)
        state = line + b"\n" + bomb
        bomb = hashlib.sha256(state).hexdigest().encode() + b"\n" + state
    path.write_bytes(bomb)
    assert records.load_checkpoint(e, origin) is None
    assert f"{path} cannot be used" in caplog.text
    assert not path.exists()
    path.write_bytes(bomb)
    assert len(lff.run(e, progress=False).history) == 1


# --- names that lead elsewhere ---------------------------------------------------------------


@pytest.mark.parametrize("defense", ["../../evil", "/evil", "a/b", "", "a b", "..", "lfighter\n"])
def test_no_experiment_is_named_by_a_path(defense, own_folders):
    with pytest.raises(InputError, match="defense must be a Python identifier"):
        lff.experiment("mnist-iid", defense=defense)
    valid = lff.experiment("mnist-iid")
    with pytest.raises(InputError, match="defense must be a Python identifier"):
        valid.replace(defense=defense)
    assert not own_folders.exists() or list(own_folders.iterdir()) == []


def test_a_record_lies_inside_the_folder_of_its_scale(tmp_path):
    e = lff.experiment("mnist-iid")
    assert records.path_of(e, tmp_path).resolve().parent == tmp_path.resolve() / e.scale
    assert isinstance(e, Experiment)


def test_an_installed_package_does_not_ask_git_about_the_working_directory(monkeypatch):
    """A repository's settings can name commands that git runs."""
    monkeypatch.setattr(paths, "__file__", "/usr/lib/python3/site-packages/lff/paths.py")
    monkeypatch.setattr(
        provenance.subprocess, "run", lambda *_, **__: pytest.fail("a command was run")
    )
    assert paths.home_dir() == Path.cwd()
    assert provenance.commit.__wrapped__() == ""


# --- the user's process ----------------------------------------------------------------------

SURROUNDINGS = """
import json, locale, logging, multiprocessing, os, random, signal, sys, warnings
import hdbscan, matplotlib, numpy, pandas, sklearn.cluster, threadpoolctl, torch, tqdm.auto
import distributed, filelock, nbconvert, nbformat, papermill, PIL.Image, pooch, safetensors.torch
import seaborn
import sklearn.decomposition
import sklearn.metrics
from matplotlib import pyplot
from lff.vision import import_torchvision

import_torchvision()
tqdm.auto.tqdm(disable=True)  # the first bar of a process fixes multiprocessing's start method
random.seed(1); numpy.random.seed(2); torch.manual_seed(3)
torch.set_num_threads(2)
torch.set_default_dtype(torch.float32)
matplotlib.rcParams["font.size"] = 13
numpy.seterr(all="warn")

def state():
    rc = {key: repr(value) for key, value in matplotlib.rcParams.items()}
    return {
        "random": repr(random.getstate()),
        "numpy": repr([part if isinstance(part, (str, int, float)) else part.tolist()
                       for part in numpy.random.get_state()]),
        "torch": torch.get_rng_state().tolist(),
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "BLAS threads": [[pool["prefix"], pool["num_threads"]]
                         for pool in threadpoolctl.threadpool_info()],
        "warnings": repr(warnings.filters),
        "dtype": repr(torch.get_default_dtype()),
        "device": repr(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "determinism": [torch.are_deterministic_algorithms_enabled(),
                        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "numpy errors": numpy.geterr(),
        "print options": repr(numpy.get_printoptions()),
        "matplotlib": rc,
        "backend": matplotlib.get_backend(auto_select=False),
        "figures": pyplot.get_fignums(),
        "pandas": pandas.get_option("display.max_rows"),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path[:],
        "signals": [repr(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        "locale": locale.setlocale(locale.LC_ALL),
        "logging": [logging.root.level, repr(logging.root.handlers),
                    repr(logging.getLogger("lff").handlers)],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "limits": [sys.getrecursionlimit(), sys.get_int_max_str_digits()],
        "hooks": [repr(sys.excepthook), repr(sys.displayhook), repr(sys.stdout), repr(sys.stderr)],
    }

def changed(before):
    after = state()
    return sorted(key for key in before if before[key] != after[key])

found = {}
before = state()

import importlib, pkgutil
import lff
for module in pkgutil.walk_packages(lff.__path__, "lff."):
    if module.name != "lff.flower":  # it needs flwr, which has an environment of its own
        importlib.import_module(module.name)
found["import"] = changed(before)

tiny = dict(scale="smoke", peers=10, examples=200, test_examples=100, rounds=2, local_epochs=1)
runs = []
for defense in ("repeated_median", "multi_krum", "foolsgold", "lfighter"):
    runs.append(lff.run("mnist-mild", defense=defense, attackers=30, **tiny).experiment)
found["run"] = changed(before)

try:
    lff.run("mnist-mild", **(tiny | {"examples": 10**6}))
except lff.errors.InputError:
    found["failed run"] = changed(before)

lff.run("cifar10-iid", defense="lfighter", scale="smoke", peers=2, examples=16,
        test_examples=10, rounds=1, width=4, progress=False)
found["larger model"] = changed(before)

def mine(updates):
    return lff.Decision(aggregate=updates.weights[0])

lff.defense("mine")(mine)
swept = lff.grid(["mnist-iid"], ["mine"], [0], [0, 1], **tiny)
with lff.experiments.sweep.local_cluster(1) as address:
    assert len(lff.run_all(swept, cluster=address, progress=False).done) == 2
found["sweep"] = changed(before)

lff.run("mnist-iid", workers=2, progress=False, **tiny)
found["workers"] = changed(before)

from lff.study.notebook import parameters
p = parameters({"scale": "smoke", "seeds": [0]})
p.grid()
found["parameters"] = changed(before)

from lff.study import figures, tables
table = lff.load_runs(runs)
shares = tables.class_counts(runs[:1])
p.figure(figures.robustness, table, "robustness")._repr_png_()
p.figure(figures.class_shares, shares, "shares", caption="about")._repr_png_()
found["figures"] = changed(before)

json.dump(found, open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """What has changed of a process's settings after each thing it did with the library."""
    folder = tmp_path_factory.mktemp("surroundings")
    where = {name: str(folder / name) for name in ("LFF_RESULTS", "LFF_FIGURES", "LFF_DATA")}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SURROUNDINGS, folder / "found.json"],
        check=True,
        env=os.environ | where | {"OMP_NUM_THREADS": "2"},
        cwd=folder,
    )
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(
    "step",
    ["import", "run", "failed run", "larger model", "sweep", "workers", "figures", "parameters"],
)
def test_the_users_process_is_left_as_it_was(step, surroundings):
    assert surroundings[step] == []
