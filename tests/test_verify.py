"""Playing recorded runs again."""

from dataclasses import replace

import pytest

import lff
from lff.cli import main
from lff.experiments.records import iterate
from lff.experiments.verify import TOLERANCE, repeat, spread_over


def test_the_first_rounds_of_a_record_are_played_to_the_bit(tiny):
    record = lff.run("mnist-mild", defense="lfighter", attackers=30, progress=False, **tiny)
    found = repeat(record, 2, device="cpu")
    assert (found.rounds, found.same_bits, found.same_peers_dropped) == (2, True, 2)
    assert found.difference == 0
    assert found.holds
    assert repeat(record, 99, device="cpu").rounds == tiny["rounds"]


@pytest.mark.parametrize(("shift", "holds"), [(TOLERANCE / 2, True), (3 * TOLERANCE, False)])
def test_a_record_that_says_otherwise_is_found_out(tiny, shift, holds):
    record = lff.run("mnist-iid", progress=False, **tiny)
    first, *rest = record.history
    told = replace(record, history=[first | {"all_acc": first["all_acc"] + shift}, *rest])
    found = repeat(told, 2, device="cpu")
    assert not found.same_bits
    assert found.difference == pytest.approx(shift)
    assert found.holds is holds


def test_records_are_spread_over_all_there_are(tiny):
    for seed in range(5):
        lff.run("mnist-iid", seed=seed, progress=False, **tiny)
    recorded = list(iterate())
    assert [r.experiment.seed for r in spread_over(recorded, 2)] == [0, 2]
    assert len(spread_over(recorded, 99)) == 5


def test_the_command_prints_a_line_per_record_and_fails_without_any(tiny, capsys):
    assert main(["verify", "--scale", "smoke"]) == 2
    assert "no run is recorded at scale 'smoke'" in capsys.readouterr().err
    record = lff.run("mnist-iid", progress=False, **(tiny | {"scale": "smoke"}))
    assert main(["verify", "--scale", "smoke", "--rounds", "1", "--device", "cpu"]) == 0
    assert f"ok   {record.id}: the same bits" in capsys.readouterr().out
