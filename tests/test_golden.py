"""A run's numbers are those of `golden.json`: see `golden.py` for how and when it is renewed."""

import copy
import json

import golden
import pytest

EXPECTED = json.loads(golden.FILE.read_text(encoding="utf-8"))

# On another processor, or with another torch, sums end in other bits. Two rounds carry them to the
# fifth digit of a weight at most; an example or two of a hundred may be told another class.
WEIGHTS = {"rel": 1e-3, "abs": 1e-5}
RATES = {"abs": 0.03}


def near(found: dict, expected: dict) -> bool:
    """Whether two plays of a case differ by no more than processors do."""
    same_choices = found["attackers"] == expected["attackers"] and all(
        ours["dropped"] == theirs["dropped"]
        for ours, theirs in zip(found["history"], expected["history"], strict=True)
    )
    return (
        same_choices
        and found["norm"] == pytest.approx(expected["norm"], **WEIGHTS)
        and found["entries"] == pytest.approx(expected["entries"], **WEIGHTS)
        and all(
            ours[name]
            == pytest.approx(theirs[name], **(RATES if name != "magnitudes" else {"rel": 0.01}))
            for ours, theirs in zip(found["history"], expected["history"], strict=True)
            for name in ("test_error", "all_acc", "src_acc", "asr", "magnitudes")
        )
    )


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
    other = copy.deepcopy(expected)
    other["entries"][3] *= 1 + 1e-5
    assert near(other, expected)
    for change in (
        lambda case: case["attackers"].pop(),
        lambda case: case["history"][1]["dropped"].append(99),
        lambda case: case["entries"].__setitem__(3, case["entries"][3] + 0.01),
        lambda case: case["history"][0].update(src_acc=case["history"][0]["src_acc"] + 0.1),
    ):
        other = copy.deepcopy(expected)
        change(other)
        assert not near(other, expected)
