"""Nothing that is read can run code, and a run leaves the user's process as it was."""

import ast
import gzip
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lff
from lff import data, paths
from lff.data import fetching, files
from lff.data.archives import UNPACKED, Refused, gunzip, read_tar, read_zip
from lff.errors import DataError, InputError, RecordError
from lff.experiments import checkpoints, provenance, records, runs
from lff.experiments.benchmarks import Experiment
from lff.study import observations

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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_source_can_run_code_out_of_data(path):
    assert dangers(path.read_text(encoding="utf-8")) == []


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


def test_dask_which_unpickles_is_imported_only_when_a_cluster_is_asked_for():
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
    assert rooms == {"cluster.py", "crew.py"}
    code = "import sys, lff, lff.experiments.sweep; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
    e = runs.experiment("mnist-iid", **tiny)
    path = records.path_of(e)
    path.parent.mkdir(parents=True)
    path.write_bytes(bomb)
    with pytest.raises(RecordError, match=path.name):
        lff.run(e, progress=False)
    assert len(lff.load_records()) == 0
    assert path.name in caplog.text


@pytest.mark.parametrize("dressed", [False, True])
def test_a_bomb_in_place_of_a_checkpoint(bomb, dressed, tiny, caplog):
    """Also with a header that says its checksum is right."""
    e = runs.experiment("mnist-iid", **(tiny | {"rounds": 1}))
    path = checkpoints.checkpoint_path(e)
    path.parent.mkdir(parents=True)
    if dressed:
        state = json.dumps({"history": [], "seconds": {}, "origin": {}}).encode()
        header = {
            "schema": checkpoints.SCHEMA,
            "id": e.id,
            "state": len(state),
            "digest": hashlib.sha256(state + bomb).hexdigest(),
        }
        path.write_bytes(json.dumps(header).encode() + b"\n" + state + bomb)
    else:
        path.write_bytes(bomb)
    record = lff.run(e, progress=False)
    assert len(record.history) == 1
    assert f"{path} cannot be used" in caplog.text
    assert not path.exists()


def test_a_bomb_among_the_tensors_of_a_checkpoint(bomb, tiny, caplog):
    """All is right but the tensors."""
    e = runs.experiment("mnist-iid", **tiny)
    path = checkpoints.checkpoint_path(e)
    origin = {"engine": "x"}
    checkpoints.Checkpoint(torch.zeros(3), {}, [], {}, origin).save(e)
    header, _, rest = path.read_bytes().partition(b"\n")
    header = json.loads(header)
    state = rest[: header["state"]]
    header["digest"] = hashlib.sha256(state + bomb).hexdigest()
    path.write_bytes(json.dumps(header).encode() + b"\n" + state + bomb)
    assert checkpoints.load_checkpoint(e, origin) is None
    assert "cannot be used" in caplog.text


def test_a_bomb_in_place_of_an_observation(bomb, tiny):
    e = runs.experiment("mnist-iid", attackers=20, **tiny)
    observations.components(e, 0)
    (path,) = (records.path_of(e).parent / "observations").glob("*.json")
    path.write_bytes(bomb)
    with pytest.raises(RecordError, match=path.name):
        observations.components(e, 0)


@pytest.fixture
def offline(monkeypatch):
    """No download, no registry."""

    def nothing(*_, **__):
        raise Refused("offline")

    monkeypatch.setattr(fetching, "official", nothing)
    monkeypatch.setattr(fetching, "registry", nothing)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", files.DATASETS)
@pytest.mark.parametrize("where", ["cache", "folder", "folder, gzipped"])
def test_a_bomb_in_place_of_a_data_file(bomb, name, where, tmp_path, monkeypatch):
    """Under every name that is looked for, and of the right size: only its checksum tells."""
    sized = [tuple(replace(file, size=len(bomb)) for file in form) for form in files.FORMS[name]]
    monkeypatch.setitem(files.FORMS, name, tuple(sized))
    folder = files.home(name) if where == "cache" else tmp_path / "mine"
    folder.mkdir(parents=True)
    for form in sized:
        for file in form:
            if where == "folder, gzipped":
                (folder / f"{file.name}.gz").write_bytes(gzip.compress(bomb))
            else:
                (folder / file.name).write_bytes(bomb)
    with pytest.raises(DataError, match=f"'{name}' cannot be had"):
        data.load(name, folder=None if where == "cache" else folder)


@pytest.mark.usefixtures("offline")
def test_the_pickled_batches_of_cifar10_are_not_looked_at(bomb, tmp_path):
    """What torchvision and Keras unpickle."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("data_batch_1", "test_batch", "batches.meta", "data_batch_1.pkl"):
        (folder / name).write_bytes(bomb)
    with pytest.raises(DataError, match=r"no data_batch_1\.bin"):
        data.load("cifar10", folder=tmp_path)


# --- archives --------------------------------------------------------------------------------


def tar_of(path, members):
    """A .tar.gz of ready members, each with as many zero bytes as it says."""
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(bytes(info.size)) if info.size else None)
    return path


def member(name, size=0, **fields):
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def header(name, size, kind):
    """The block of a tar header that claims a size, whatever follows."""
    return member(name, size, type=kind).tobuf(tarfile.GNU_FORMAT)


def peak(action):
    """The most bytes Python held while doing this, and the error it ended in."""
    tracemalloc.start()
    try:
        with pytest.raises(Refused) as caught:
            action()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_that_claims_to_be_huge_is_not_read_into_memory(kind, tmp_path):
    """`tarfile` reads long names and pax headers whole; 64 MB pack into 64 kB."""
    archive = tmp_path / "x.tgz"
    with gzip.open(archive, "wb", compresslevel=1) as out:
        out.write(header("name", 1 << 26, kind))
        for _ in range(64):
            out.write(bytes(1 << 20))
    held, reason = peak(lambda: list(read_tar(archive, {"a": 1000})))
    assert "a part of more than" in reason
    assert held < 1 << 24


def test_an_archive_that_claims_too_much_is_given_up(tmp_path):
    """Members that nobody asked for are skipped, but not for ever."""
    archive = tmp_path / "x.tgz"
    with gzip.open(archive, "wb", compresslevel=1) as out:
        out.write(header("skipped", 2 * UNPACKED, tarfile.REGTYPE))
        out.write(bytes(1 << 20))
    held, reason = peak(lambda: list(read_tar(archive, {"a": 1000})))
    assert f"more than {UNPACKED:,} bytes" in reason
    assert held < 1 << 24


@pytest.mark.parametrize("name", ["../a", "/a", "./a", "x/../a", "A", "a ", "..\\a", "C:\\a"])
def test_only_the_exact_name_is_a_member(name, tmp_path):
    archive = tar_of(tmp_path / "x.tgz", [member(name, 1)])
    with pytest.raises(Refused, match="has no a"):
        list(read_tar(archive, {"a": 10}))
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE]
)
def test_a_link_or_device_is_no_member(kind, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    archive = tar_of(tmp_path / "x.tgz", [member("a", type=kind, linkname=str(secret))])
    with pytest.raises(Refused, match="a is not a regular file"):
        list(read_tar(archive, {"a": 10}))


def test_a_hard_link_to_another_member_is_no_member(tmp_path):
    members = [member("b", 5), member("a", type=tarfile.LNKTYPE, linkname="b")]
    with pytest.raises(Refused, match="a is not a regular file"):
        list(read_tar(tar_of(tmp_path / "x.tgz", members), {"a": 10}))


def test_a_zip_bomb_is_refused_without_unpacking_it(tmp_path):
    archive = tmp_path / "x.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle:
        bundle.writestr("a", bytes(1 << 26))
    held, reason = peak(lambda: read_zip(archive, "a", 1000))
    assert "more than the 1,000 bytes" in reason
    assert held < 1 << 23


def test_a_gz_bomb_is_refused_without_unpacking_it(tmp_path):
    archive = tmp_path / "a.gz"
    with gzip.open(archive, "wb", compresslevel=1) as out:
        for _ in range(64):
            out.write(bytes(1 << 20))
    held, reason = peak(lambda: gunzip(archive, 1000))
    assert "more than the 1,000 bytes" in reason
    assert held < 1 << 23


@pytest.mark.parametrize("content", [b"PK\x05\x06", b"\x1f\x8b\x08", bytes(2000), b"x" * 5000])
def test_what_is_no_archive_is_refused(content, tmp_path):
    archive = tmp_path / "x"
    archive.write_bytes(content)
    for read in (
        lambda: list(read_tar(archive, {"a": 10})),
        lambda: read_zip(archive, "a", 10),
        lambda: gunzip(archive, 10),
    ):
        with pytest.raises(Refused, match="x"):
            read()


@pytest.mark.parametrize("bit", [8, 10, 40, -20])
def test_a_flipped_bit_is_noticed_or_harmless(bit, tmp_path):
    archive = tmp_path / "x.tgz"
    content = bytes(range(256)) * 8
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(member("a", len(content)), io.BytesIO(content))
    broken = bytearray(archive.read_bytes())
    broken[bit] ^= 16
    archive.write_bytes(broken)
    try:
        found = list(read_tar(archive, {"a": 10_000}))
    except Refused as error:
        found = str(error)
    assert found == [("a", content)] or "x.tgz" in found


def test_an_encrypted_or_unknown_zip_is_refused(tmp_path):
    archive = tmp_path / "x.whl"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("a", b"12345")
    whole = archive.read_bytes()
    for offset, value in ((6, 1), (8, 99)):  # the flag of encryption, the method
        broken = bytearray(whole)
        at = whole.index(b"PK\x01\x02")
        broken[offset] = broken[at + offset + 2] = value
        archive.write_bytes(broken)
        with pytest.raises(Refused, match=r"x\.whl"):
            read_zip(archive, "a", 10)


# --- names that lead elsewhere ---------------------------------------------------------------


@pytest.mark.parametrize("defense", ["../../evil", "/evil", "a/b", "", "a b", "..", "lfighter\n"])
def test_no_experiment_is_named_by_a_path(defense, own_folders):
    with pytest.raises(InputError, match="defense must be a Python identifier"):
        runs.experiment("mnist-iid", defense=defense)
    valid = runs.experiment("mnist-iid")
    with pytest.raises(InputError, match="defense must be a Python identifier"):
        valid.replace(defense=defense)
    assert not own_folders.exists() or list(own_folders.iterdir()) == []


def test_a_record_lies_inside_the_folder_of_its_scale(tmp_path):
    e = runs.experiment("mnist-iid")
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
import filelock, nbconvert, nbformat, papermill, PIL.Image, safetensors.torch
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
        test_examples=10, rounds=1, progress=False)
found["larger model"] = changed(before)

from lff.study import figures, observations, products, tables
table = lff.results(runs)
shares = tables.class_counts(runs[:1])
for figure in (figures.robustness(table, "about"), figures.class_shares(shares, "about")):
    products.save_figure(figure, "figure", table, "smoke")
    figure._repr_png_()
found["figures"] = changed(before)

from lff.study.notebook import parameters
p = parameters({"scale": "smoke", "seeds": [0]}, "04_robustness")
p.grid()
found["parameters"] = changed(before)

json.dump(found, open(sys.argv[1], "w"))
"""


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """What has changed of a process's settings after each thing it did with the library."""
    folder = tmp_path_factory.mktemp("surroundings")
    script = folder / "script.py"
    script.write_text(SURROUNDINGS)
    where = {name: str(folder / name) for name in ("LFF_RESULTS", "LFF_FIGURES", "LFF_DATA")}
    subprocess.run(
        [sys.executable, "-W", "ignore", script, folder / "found.json"],
        check=True,
        env=os.environ | where | {"OMP_NUM_THREADS": "2"},
        cwd=folder,
    )
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(
    "step", ["import", "run", "failed run", "larger model", "figures", "parameters"]
)
def test_the_users_process_is_left_as_it_was(step, surroundings):
    assert surroundings[step] == []
