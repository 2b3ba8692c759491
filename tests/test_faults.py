"""What nights bring: kills, full disks, damaged files, a clock set back, Ctrl-C.

Each ends in a clear message or in the same record as an undisturbed run. Kills and faults at file
operations happen in processes of their own, in `chaos.py`; its short form runs here.
"""

import contextlib
import errno
import gzip
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import lff
from lff import store as writing
from lff.errors import InputError, RecordError
from lff.experiments import records
from lff.experiments import run as runs
from lff.experiments.provenance import origin
from lff.experiments.records import checkpoint_path, decompressed, load_checkpoint, path_of
from lff.experiments.sweep import deaf_to_interrupts
from lff.federation import Federation
from lff.study import frame, text


@pytest.fixture(scope="module")
def settings(tiny):
    """A run whose defense has a memory, with a checkpoint after every round."""
    return tiny | {"defense": "foolsgold", "attackers": 30, "fraction": 0.5, "progress": False}


@pytest.fixture
def every_round(monkeypatch):
    monkeypatch.setenv("LFF_CHECKPOINT_SECONDS", "0")


@pytest.fixture(scope="module")
def undisturbed(settings, tmp_path_factory):
    """The file of the record of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return path_of(lff.run("mnist-mild", folder=folder, **settings).experiment, folder)


@pytest.fixture
def whole(undisturbed, tmp_path):
    """The record of an undisturbed run, whose file is in a folder of this test."""
    record = records.load(undisturbed)
    path = path_of(record.experiment, tmp_path / "whole")
    path.parent.mkdir(parents=True)
    path.write_bytes(undisturbed.read_bytes())
    return record


def no_space(suffix):
    """In place of `write_atomically`: no room for files that are called so."""

    def write(path, *parts):
        if path.suffix == suffix:
            raise writing.unwritable(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        writing.write_atomically(path, *parts)

    return write


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def interrupt_in(monkeypatch, name: str, rounds: int) -> None:
    """Press Ctrl-C in a method of `Federation` when so many rounds have been played."""
    play = getattr(Federation, name)

    def interrupted(self, *arguments):
        result = play(self, *arguments)
        if len(self.history) == rounds:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Federation, name, interrupted)


@pytest.mark.slow
def test_kills_interrupts_and_full_disks_lose_nothing():
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("chaos.py")), "--short", "--seed", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("records lost", "records changed", "half files and locks left", "processes left"):
        assert f"   0 {name}\n" in done.stdout
    assert "kill -9 of a run" in done.stdout


# --- damaged files ----------------------------------------------------------------------------


def damaged(content: bytes, dense: int):
    """The content cut, and with a byte changed, at every place of its beginning and many others."""
    rest = range(dense, len(content), max(1, (len(content) - dense) // 200))
    for place in [*range(min(dense, len(content))), *rest]:
        yield content[:place]
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def said(record) -> list:
    return [record.id, record.attackers, record.history, record.seconds, record.provenance]


def test_a_record_cut_or_changed_anywhere_is_refused_by_name(tiny, tmp_path):
    record = lff.run("mnist-iid", folder=tmp_path, progress=False, **(tiny | {"rounds": 1}))
    path = records.path_of(record.experiment, tmp_path)
    content, harmless = path.read_bytes(), 0
    for damage in damaged(content, dense=300):
        path.write_bytes(damage)
        found = None
        with contextlib.suppress(RecordError):
            found = records.load(path)
        if found is not None:
            harmless += 1
            assert said(found) == said(record)  # white space was cut or changed
    assert harmless < 100
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


def test_a_checkpoint_cut_or_changed_anywhere_is_as_good_as_none(
    settings, whole, tmp_path, monkeypatch, every_round, caplog
):
    interrupt_in(monkeypatch, "evaluate", rounds=2)
    with pytest.raises(KeyboardInterrupt):
        lff.run("mnist-mild", folder=tmp_path, **settings)
    e, path = whole.experiment, checkpoint_path(path_of(whole.experiment, tmp_path))
    content = path.read_bytes()
    intact = load_checkpoint(e, origin(whole.provenance), tmp_path)
    assert intact.rounds == 2
    for damage in damaged(content, dense=300):
        path.write_bytes(damage)
        caplog.clear()
        found = load_checkpoint(e, origin(whole.provenance), tmp_path)
        if found is None:
            assert path.name in caplog.text
            assert not path.exists()
        else:  # white space in the header was changed
            assert found.values == intact.values
            assert found.tensors.keys() == intact.tensors.keys()
            assert all(
                torch.equal(found.tensors[name], intact.tensors[name]) for name in found.tensors
            )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["seconds"]["aggregation"].__setitem__(0, 1e-9), "it was changed"),
        (lambda c: c["provenance"]["data"].update(source="MNIST"), "it was changed"),
        (lambda c: c.update(schema=0), "schema and arithmetic 0 and 2, but this version reads 3"),
        (lambda c: c.update(schema=4), "schema and arithmetic 4 and 2, but this version reads 3"),
        (lambda c: c.pop("schema"), "not a readable record"),
        (lambda c: c["history"][1].update(asr=float("nan")), "not a readable record"),
        (lambda c: c["experiment"].update(beta=1), "a version of lff with other settings: beta"),
        (lambda c: c["experiment"].pop("alpha"), "it was changed"),
        (lambda c: c["experiment"].pop("peers"), "not a readable record"),
        (lambda c: c["experiment"].update(seed=-1), "seed must be between"),
    ],
)
def test_a_record_that_was_edited_is_refused_by_name_and_reason(edit, message, whole, tmp_path):
    path = records.path_of(whole.experiment, tmp_path / "whole")
    content = decompressed(path.read_bytes())
    edit(content)
    text = json.dumps(content)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    with pytest.raises(RecordError, match=message) as refused:
        records.find(whole.experiment, tmp_path / "whole")
    assert path.name in str(refused.value)


def test_a_record_under_another_name_or_scale_is_refused(whole, tmp_path):
    path = records.path_of(whole.experiment, tmp_path / "whole")
    other = whole.experiment.replace(seed=3)
    for place in (path.with_name(f"{other.id}.json.gz"), tmp_path / "whole" / "laptop" / path.name):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(path.read_bytes())
        with pytest.raises(RecordError, match=f"it is the record of {whole.id} at scale smoke"):
            records.load(place)


@pytest.mark.parametrize("cut", ["history", "seconds"])
def test_a_record_of_fewer_rounds_is_refused_even_with_sound_checksums(cut, whole, tmp_path):
    if cut == "history":
        del whole.history[-1]
    else:
        del whole.seconds["training"][-1]
    path = whole.save(tmp_path)
    with pytest.raises(RecordError, match=r"2 of 3 rounds|not one per round"):
        records.load(path)


def test_a_deeply_nested_file_is_no_record(whole, tmp_path):
    path = records.path_of(whole.experiment, tmp_path / "whole")
    path.write_bytes(gzip.compress(b"[" * 100_000, mtime=0))
    with pytest.raises(RecordError, match="not a readable record"):
        records.load(path)


# --- what is missing is said --------------------------------------------------------------------


def test_tables_and_captions_tell_what_is_missing(whole, tmp_path, caplog):
    asked = [whole.experiment, whole.experiment.replace(seed=1)]
    table = lff.load_runs(asked, folder=tmp_path / "whole")
    assert table["id"].tolist() == [asked[0].id]
    assert table.attrs["missing"] == [asked[1].id]
    assert f"1 of 2 runs have no record: {asked[1].id}" in caplog.text
    caplog.clear()
    assert frame.rounds(asked, folder=tmp_path / "whole").attrs["missing"] == [asked[1].id]
    assert lff.load_runs(asked[:1], folder=tmp_path / "whole").attrs["missing"] == []
    assert caplog.text == ""
    assert text.caption(table, "smoke", asked).endswith("1 of 2 runs (50%), the others not run")
    assert text.caption(table, "smoke", asked[:1]).endswith("; 1 run")


# --- disks --------------------------------------------------------------------------------------


def test_a_checkpoint_that_cannot_be_written_is_said_once_and_the_run_ends(
    settings, whole, tmp_path, monkeypatch, every_round, caplog
):
    monkeypatch.setattr(records, "write_atomically", no_space(".ckpt"))
    record = lff.run("mnist-mild", folder=tmp_path, **settings)
    assert record.digest == whole.digest
    assert caplog.text.count("rounds since the last checkpoint are not kept") == 1
    assert "No space left" in caplog.text


def test_a_record_that_cannot_be_written_is_told_and_its_rounds_are_kept(
    settings, whole, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(records, "write_atomically", no_space(".gz"))
        with pytest.raises(RecordError, match=r"No space left.*make room.*LFF_RESULTS") as told:
            lff.run("mnist-mild", folder=tmp_path, **settings)
    assert str(records.path_of(whole.experiment, tmp_path)) in str(told.value)
    assert checkpoint_path(path_of(whole.experiment, tmp_path)).exists()
    monkeypatch.setattr(Federation, "play_round", None)  # no round is played again
    assert lff.run("mnist-mild", folder=tmp_path, **settings).digest == whole.digest
    assert files(tmp_path / "smoke") == [f"{whole.id}.json.gz"]


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(settings, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Federation, "__init__", None)
    with pytest.raises(RecordError, match=r"cannot write .*Not a directory"):
        lff.run("mnist-mild", folder=tmp_path / "file" / "results", **settings)


# --- processes ----------------------------------------------------------------------------------


def test_what_a_living_process_works_on_is_left_alone(whole, tmp_path):
    path = records.path_of(whole.experiment.replace(seed=1), tmp_path)
    checkpoint = checkpoint_path(path_of(whole.experiment.replace(seed=1), tmp_path))
    with writing.claim(path):
        writing.temporary_of(path).write_text("half")
        runs.tidy(tmp_path)
        assert writing.temporary_of(path).exists()
        lock = next(path.parent.glob(".*.lock"))
    lock.touch()  # as a killed process leaves it
    checkpoint.parent.mkdir()
    checkpoint.write_text("to go on from")
    writing.temporary_of(checkpoint).write_text("half")
    runs.tidy(tmp_path)
    assert files(path.parent) == [checkpoint.name]


def test_an_interrupt_just_after_the_record_keeps_no_checkpoint(settings, tmp_path, monkeypatch):
    def save_and_stop(record, folder):
        save(record, folder)
        raise KeyboardInterrupt

    save = records.Record.save
    monkeypatch.setattr(records.Record, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        lff.run("mnist-mild", folder=tmp_path, **settings)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".gz"]


def test_a_run_that_another_process_is_at_is_waited_for_and_taken(
    whole, tmp_path, monkeypatch, caplog
):
    e = whole.experiment
    caplog.set_level("INFO", "lff")
    monkeypatch.setattr(Federation, "play_round", None)  # it is played once, by the other
    with ThreadPoolExecutor(1) as pool:
        with writing.claim(records.path_of(e, tmp_path)):
            waiting = pool.submit(lff.run, e, folder=tmp_path, progress=False)
            while "another process is working on" not in caplog.text:
                assert not waiting.done()
                time.sleep(0.01)
            whole.save(tmp_path)
        assert waiting.result().digest == whole.digest
    assert files(tmp_path / "smoke") == [f"{e.id}.json.gz"]


@pytest.mark.parametrize("killed", [True, False])
def test_the_checkpoint_of_a_recorded_run_is_removed(killed, whole, tmp_path):
    """Left just after the record, by a kill, with its lock, or by Ctrl-C, without."""
    e, folder = whole.experiment, tmp_path / "whole"
    checkpoint_path(path_of(e, folder)).parent.mkdir()
    checkpoint_path(path_of(e, folder)).write_text("left just after the record")
    path = records.path_of(e, folder)
    if killed:
        path.with_name(f".{path.name}.lock").touch()
    lff.run_all([e], jobs=1, progress=False, folder=folder)
    assert files(folder / "smoke") == [path.name]


@pytest.mark.parametrize("place", ["collect_updates", "exclude", "evaluate"])
@pytest.mark.parametrize("played", [0, 2])
def test_an_interrupted_run_keeps_its_rounds_and_goes_on(
    place, played, settings, whole, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        interrupt_in(patch, place, played)
        with pytest.raises(KeyboardInterrupt):
            lff.run("mnist-mild", folder=tmp_path, **settings)
    kept = load_checkpoint(whole.experiment, origin(whole.provenance), tmp_path)
    assert (kept.rounds if kept else 0) == played
    assert ".lock" not in " ".join(files(tmp_path / "smoke"))
    resumed = lff.run("mnist-mild", folder=tmp_path, **settings)
    assert resumed.digest == whole.digest
    assert all(len(times) == 3 for times in resumed.seconds.values())


def test_processes_started_deaf_do_not_hear_interrupts():
    code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    heard = []
    for surroundings in (deaf_to_interrupts(), contextlib.nullcontext()):
        with surroundings:
            process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        heard.append(process.communicate()[0].split())
    assert heard == [[b"True"], [b"False"]]


def test_a_clock_set_back_changes_nothing(
    settings, whole, tmp_path, monkeypatch, every_round, capsys
):
    now = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    interrupt_in(monkeypatch, "evaluate", rounds=1)
    shown = settings | {"progress": True}
    with pytest.raises(KeyboardInterrupt):
        lff.run("mnist-mild", folder=tmp_path, **shown)
    monkeypatch.undo()
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    record = lff.run("mnist-mild", folder=tmp_path, **shown)
    assert record.digest == whole.digest
    assert all(0 <= t < 60 for times in record.seconds.values() for t in times)
    assert "3/3" in capsys.readouterr().err


# --- how often a checkpoint is written ------------------------------------------------------------


@pytest.mark.parametrize("value", ["-1", "often", "nan", "inf"])
def test_a_wrong_checkpoint_interval_is_refused(value, settings, monkeypatch):
    monkeypatch.setenv("LFF_CHECKPOINT_SECONDS", value)
    with pytest.raises(InputError, match=f"LFF_CHECKPOINT_SECONDS .* not '{value}'"):
        lff.run("mnist-mild", **settings)


@pytest.mark.parametrize(("write", "round_"), [(0.01, 1.0), (3.0, 1.0), (3.0, 100.0), (0.5, 30.0)])
def test_checkpoints_take_at_most_a_fiftieth_of_the_time(write, round_, whole, monkeypatch):
    now = written = 0.0

    class State:
        rounds = 1

        def save(self, *_):
            nonlocal now, written
            now, written = now + write, written + write

    monkeypatch.setattr(runs.time, "monotonic", lambda: now)
    keeper = runs._Keeper(whole.experiment, None)
    while now < 10_000:
        now += round_
        keeper.keep(State())
    assert 0 < written <= 0.02 * now + write
