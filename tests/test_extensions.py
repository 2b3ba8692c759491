"""A user's own benchmark, attack, defense, metric and hook work by their names everywhere.

They are registered by `outside.py`, which is no part of the package.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lff
from lff.errors import InputError
from lff.experiments import records
from lff.study import figures, frame, tables

OUTSIDE = Path(__file__).with_name("outside.py")
SETTINGS = (
    f"--attack boosted_flip --attack-options boost=1.5,share=0.9 --hooks spread --import {OUTSIDE}"
)


def lff_commands(*commands, **environment):
    """What these command lines print, one after another in a process of its own."""
    code = (
        "import sys\nfrom lff.cli import main\n"
        "sys.exit(any(main(line.split()) for line in sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        capture_output=True, text=True, env=os.environ | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What the command line printed of runs and a sweep in two processes, and their records."""
    folder = tmp_path_factory.mktemp("theirs")
    told = lff_commands(
        f"run clouds --defense middle --attackers 30 --quiet {SETTINGS}",
        "sweep --benchmarks clouds --defenses fedavg middle lfighter --ratios 0 30 --jobs 2 "
        f"--quiet {SETTINGS}",
        LFF_RESULTS=str(folder),
    )
    return told, folder


@pytest.fixture(autouse=True)
def their_records(request, monkeypatch):
    """Where a test asks for them, their folder is that of this process too."""
    if "theirs" in request.fixturenames:
        monkeypatch.setenv("LFF_RESULTS", str(request.getfixturevalue("theirs")[1]))


def test_everything_of_ones_own_runs_by_name_from_the_command_line_and_in_a_sweep(theirs):
    told, _ = theirs
    assert "Clouds, Middle half, 30% attackers (3 of 10 peers)" in told
    assert "Worst class" in told
    assert "6 runs recorded, 0 failed" in told


def test_they_are_seen_in_a_table_and_a_figure_of_who_has_not_imported_them(theirs):
    rounds = lff.load_rounds()
    runs = frame.runs(rounds)
    assert len(runs) == 6
    assert set(runs["benchmark"]) == {"clouds"}
    assert (runs["attack_options"] == "boost=1.5,share=0.9").all()
    assert runs["spread"].notna().all()
    calm = runs[(runs["defense"] == "fedavg") & (runs["attackers"] == 0)]
    assert (calm["src_acc"] > 0.8).all()
    assert {"FedAvg", "LFighter", "middle"} <= set(tables.summary(runs).index)

    @lff.metric("worst_class", label="Worst class")
    def worst_class(evaluation):
        return (evaluation.confusion.diagonal() / evaluation.confusion.sum(dim=1)).min().item()

    runs = lff.load_runs()
    confusion = np.array(rounds.iloc[-1]["confusion"])
    expected = (confusion.diagonal() / confusion.sum(axis=1)).min()
    assert lff.load_rounds().iloc[-1]["worst_class"] == pytest.approx(expected)
    for metric in ("src_acc", "worst_class", "spread"):
        table = tables.robustness(runs, metric)
        assert table.index.get_level_values(0).unique().tolist() == ["clouds"]
        assert table[["FedAvg", "LFighter", "middle"]].notna().all(axis=None)
    figure = figures.robustness(runs, "My own")
    assert {"FedAvg", "LFighter", "middle"} <= {ax.get_title() for ax in figure.axes}


def test_the_record_says_what_the_attackers_knew(theirs):
    (path,) = theirs[1].glob("quick/clouds_middle_30_*.json.gz")
    record = records.load(path)
    assert record.knew == "attackers' updates"
    # Defense, attack, data, model and hook are hers.
    assert record.experiment.user_code.count("+") == 4


def test_an_installed_package_is_found_by_its_entry_points(tmp_path):
    """Such as pip leaves it: all five kinds, without any flag."""
    package = tmp_path / "site"
    package.mkdir()
    (package / "their_lff.py").write_text(OUTSIDE.read_text())
    info = package / "their_lff-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lff\nVersion: 1.0\n")
    (info / "RECORD").write_text("their_lff.py,,\n")
    kinds = ("benchmarks", "attacks", "defenses", "metrics", "hooks")
    (info / "entry_points.txt").write_text(
        "".join(f"[lff.{kind}]\nanything = their_lff\n" for kind in kinds)
    )
    told = lff_commands(
        "list",
        "sweep --benchmarks clouds --defenses middle --ratios 0 30 --rounds 2 "
        "--attack boosted_flip --hooks spread --jobs 1 --quiet",
        PYTHONPATH=os.pathsep.join([str(package), *sys.path]),
    )
    for name in ("clouds", "boosted_flip", "middle", "worst_class", "spread"):
        assert name in told
    assert "2 runs recorded, 0 failed" in told


def test_a_benchmark_of_ones_own_is_reproducible_and_leaves_torchs_generator_alone(tmp_path):
    """Its model draws dropout from torch's global generator."""

    def net():
        return torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )

    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    lff.benchmark("halves", data=lambda: (x, y, x, y), model=net, peers=4, rounds=2,
                  source_class=0, target_class=1)  # fmt: skip
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = lff.run("halves", folder=tmp_path / "a", progress=False)
    torch.manual_seed(6)
    again = lff.run("halves", folder=tmp_path / "b", progress=False)
    assert first.model == again.model
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rouns": 3}, "unknown setting 'rouns'"),
        ({"source_class": 9}, "source_class must be between 0 and 1"),
        ({"output_layer": "2"}, r"no parameter 2.weight: the output layer must be a linear layer"),
        ({"model": lambda: torch.nn.Conv1d(1, 1, 1)}, "no linear layer to take"),
        ({"data": lambda: "files"}, "the data of 'mine' are str"),
    ],
)
def test_what_does_not_fit_in_a_benchmark_of_ones_own_is_said(change, message):
    settings = {
        "data": lambda: (torch.randn(8, 2), torch.arange(8) % 2) * 2,
        "model": lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)),
        "peers": 2, "source_class": 0, "target_class": 1,
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        lff.build(_registered(settings | change))


def _registered(settings):
    lff.benchmark("mine", **settings)
    return lff.experiment("mine", batch_size=4)


def test_a_module_that_is_not_there_is_a_mistake(capsys):
    from lff.cli import main

    assert main(["list", "--import", "nowhere_to_be_found"]) == 2
    assert main(["list", "--import", "nowhere/else.py"]) == 2
    assert "no module 'nowhere_to_be_found'" in capsys.readouterr().err


def test_what_a_hook_gives_must_fit_a_record():
    @lff.hook("unwritable")
    def unwritable(federation, entry):
        return {"thing": object()}

    with pytest.raises(lff.errors.TrainingError, match="'thing' what no record can hold"):
        lff.run("mnist-iid", scale="smoke", rounds=1, hooks="unwritable", progress=False)


def test_another_hook_is_another_experiment():
    @lff.hook("size")
    def size(federation, entry):
        return {"size": float(federation.global_weights.norm())}

    plain = lff.experiment("mnist-iid", scale="smoke")
    hooked = lff.experiment("mnist-iid", scale="smoke", hooks=["size"])
    assert hooked.id != plain.id
    record = lff.run(hooked.replace(rounds=1), progress=False)
    assert record.history[0]["size"] == pytest.approx(record.model["norm"], rel=1e-5)
    assert json.dumps(record.history[0])
