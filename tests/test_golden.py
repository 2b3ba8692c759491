"""A run's numbers are those of `golden.json`: see `golden.py` for how and when it is renewed."""

import copy
import json

import golden
import pytest

from lff.experiments.experiment import ARITHMETIC

EXPECTED = json.loads(golden.FILE.read_text(encoding="utf-8"))

# On another processor, or with another torch, sums end in other bits. After two rounds the length
# of the model differs in its fifth digit at most, and an example or two of a hundred is told
# another class.
TOLERANCES = {
    "test_error": {"abs": 0.03},
    "all_acc": {"abs": 0.03},
    "src_acc": {"abs": 0.03},
    "asr": {"abs": 0.03},
    "magnitudes": {"rel": 0.01},
}


def near(found: dict, expected: dict) -> bool:
    """Whether two plays of a case differ by no more than processors do."""
    rounds = list(zip(found["history"], expected["history"], strict=True))
    return (
        found["attackers"] == expected["attackers"]
        and found["model"]["norm"] == pytest.approx(expected["model"]["norm"], rel=1e-4)
        and all(ours["dropped"] == theirs["dropped"] for ours, theirs in rounds)
        and all(
            ours[name] == pytest.approx(theirs[name], **tolerance)
            for ours, theirs in rounds
            for name, tolerance in TOLERANCES.items()
        )
    )


def test_the_numbers_are_those_of_the_present_arithmetic():
    assert EXPECTED["arithmetic"] == ARITHMETIC


@pytest.mark.parametrize(("benchmark", "defense"), golden.CASES)
def test_a_run_gives_the_numbers_it_always_gave(benchmark, defense, tmp_path):
    found, expected = (
        golden.play(benchmark, defense, tmp_path),
        EXPECTED["cases"][f"{benchmark} {defense}"],
    )
    if golden.machine() == EXPECTED["machine"]:
        assert found == expected
    else:
        assert near(found, expected)


def test_another_processor_may_change_last_digits_and_nothing_else():
    expected = EXPECTED["cases"]["mnist-mild lfighter"]
    norm = expected["model"]["norm"]

    def changed(change):
        other = copy.deepcopy(expected)
        change(other)
        return other

    assert near(
        changed(lambda case: case["model"].update(sha256="", norm=1.00001 * norm)), expected
    )
    for change in (
        lambda case: case["attackers"].pop(),
        lambda case: case["history"][1]["dropped"].append(99),
        lambda case: case["model"].update(norm=1.01 * norm),
        lambda case: case["history"][0].update(src_acc=case["history"][0]["src_acc"] + 0.1),
    ):
        assert not near(changed(change), expected)
