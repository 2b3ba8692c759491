"""The paper's claims as checks: on a made-up world where all hold, each broken in one way,
each with a cell missing, and on the paper's own numbers."""

import numpy as np
import pandas as pd
import pytest

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.study.claims import (
    CLAIMS,
    agreement,
    by_its_own_numbers,
    changed,
    check_all,
    in_other_seeds,
    tally,
)
from lff.study.claims.other_seeds import JUDGED, SAME
from lff.study.claims.registry import (
    BY_DEFINITION,
    FAILS,
    FAILS_SO_FAR,
    HOLDS,
    HOLDS_SO_FAR,
    KEY,
    NOT_LEARNED,
    NOT_RUN,
    SUBJECTS,
    TIMES,
    View,
    learned,
)
from lff.study.claims.verdicts import prepared

ATTACKED = ATTACKER_RATIOS[1:]
CLEAN = {"test_error": 0.1, "all_acc": 0.97, "src_acc": 0.97, "asr": 0.01, "cv": 0.1}
COLLAPSED = {"test_error": 3.0, "all_acc": 0.1, "src_acc": 0.0, "asr": 0.0, "cv": np.nan}
SUCCEEDED = {"test_error": 2.0, "all_acc": 0.1, "src_acc": 0.02, "asr": 0.97, "cv": 5.0}
ONE_SIDED = {"test_error": 2.0, "all_acc": 0.4, "src_acc": 1.0, "asr": 0.0, "cv": 0.2}
SECONDS = {
    "fedavg": 0.1,
    "foolsgold": 0.2,
    "lfighter": 1.0,
    "median": 1.2,
    "trimmed_mean": 1.3,
    "multi_krum": 1.5,
    "repeated_median": 50.0,
}


def hurt(points: float) -> dict[str, float]:
    """A cell that lost so much Src-Acc to the target class."""
    return {
        "test_error": 0.1 + points / 5,
        "all_acc": 0.97 - points / 10,
        "src_acc": 0.97 - points,
        "asr": 0.01 + points,
        "cv": 0.1 + points,
    }


def outcome(benchmark: str, defense: str, ratio: int) -> dict[str, float]:
    """One cell of a world in which everything is as the paper says."""
    if defense == "lfighter":
        return CLEAN
    medians = defense in ("median", "repeated_median")
    if benchmark == "mnist-extreme" and defense == "foolsgold":
        return ONE_SIDED if ratio in (0, 30, 40) else SUCCEEDED
    if benchmark == "mnist-extreme" and (medians or (defense, ratio) == ("trimmed_mean", 50)):
        return COLLAPSED
    if ratio == 0:
        return CLEAN
    if benchmark == "mnist-extreme":
        return hurt(0.6 if defense == "fedavg" else 0.12)
    if benchmark in ("mnist-iid", "mnist-mild"):
        if defense == "foolsgold":
            return SUCCEEDED if benchmark == "mnist-iid" else hurt(0.15)
        if defense == "fedavg":
            return hurt(0.002 * ratio)
        return hurt(0.3 if ratio == 50 and defense != "multi_krum" else 0.01)
    if defense == "foolsgold":
        return {"cifar10-iid": hurt(0.05), "cifar10-mild": hurt(0.3), "imdb": CLEAN}[benchmark]
    return hurt(0.012 * ratio if benchmark == "cifar10-mild" else 0.01 * ratio)


def filtered(benchmark: str, defense: str, ratio: int) -> dict[str, float]:
    """Who is dropped there: the attackers, but FoolsGold mistakes them where all are alike."""
    mistaken = (benchmark, defense) == ("mnist-iid", "foolsgold")
    caught = 0.6 if mistaken else 1.0
    return {
        "true_positive_rate": caught if ratio else np.nan,
        "false_positive_rate": 0.8 if mistaken else 0.0,
    }


def world(seed: int = 0) -> pd.DataFrame:
    """The results table of that world."""
    return pd.DataFrame(
        {"benchmark": b, "defense": d, "attackers": float(r), "seed": seed, "rounds": 10}
        | outcome(b, d, r)
        | filtered(b, d, r)
        | {"aggregation_seconds": SECONDS[d]}
        for b in BENCHMARKS
        for d in PAPER_DEFENSES
        for r in ATTACKER_RATIOS
    )


def world_rounds(seed: int = 0) -> pd.DataFrame:
    """Its table of rounds: Src-Acc climbs to that of the results; magnitudes fall."""
    return pd.DataFrame(
        {"benchmark": b, "defense": d, "attackers": float(r), "seed": seed, "round": t}
        | {"src_acc": outcome(b, d, r)["src_acc"] * (t + 1) / 5}
        | {"relevant": 10.0 - t, "non_relevant": 5.0 / 2**t}
        for b in BENCHMARKS
        for d in PAPER_DEFENSES
        for r in (0, 10, 30)
        for t in range(5)
    )


WORLD, WORLD_ROUNDS = world(), world_rounds()

# What makes each claim false: in which cells (defense, ratios) of its benchmark which values.
BREAKS = {
    "defended-up-to-40": ("median", [40], {"asr": 0.2}),
    "most-fail-at-50": ("median", [50], CLEAN),
    "krum-and-ours-robust": ("multi_krum", [10], {"asr": 0.3}),
    "foolsgold-worst": ("median", ATTACKED, {"test_error": 9.0}),
    "foolsgold-plummets": ("foolsgold", [10], {"src_acc": 0.6}),
    "foolsgold-asr-near-100": ("foolsgold", [30], {"asr": 0.8}),
    "foolsgold-penalizes-honest": ("foolsgold", ATTACKED, {"true_positive_rate": 1.0}),
    "foolsgold-penalizes-attackers": ("foolsgold", ATTACKED, {"false_positive_rate": 0.2}),
    "fedavg-good": ("fedavg", [40], {"src_acc": 0.5}),
    "close-to-iid": ("multi_krum", ATTACKER_RATIOS, {"all_acc": 0.8}),
    "foolsgold-better-than-iid": ("foolsgold", ATTACKED, SUCCEEDED | {"asr": 1.0}),
    "ours-outperforms": ("lfighter", ATTACKED, {"all_acc": 0.4}),
    "ours-robust": ("lfighter", [50], {"src_acc": 0.8}),
    "ours-best": ("lfighter", ATTACKED, {"all_acc": 0.4}),
    "ours-effective": ("lfighter", [20], {"test_error": 1.0}),
    "ours-perfect": ("lfighter", [20], {"all_acc": 0.9}),
    "no-false-positives": ("lfighter", [10], {"false_positive_rate": 1e-4}),
    "trimmed-mean-and-krum-less-affected": ("multi_krum", ATTACKED, SUCCEEDED),
    "median-poor": ("repeated_median", ATTACKED, CLEAN),
    "foolsgold-poor": ("foolsgold", ATTACKED, CLEAN),
    "median-low-asr-but-poor": ("median", ATTACKED, {"asr": 0.3}),
    "foolsgold-well-in-part": ("foolsgold", [40], CLEAN),
    "others-degrade": ("median", [50], CLEAN),
    "foolsgold-effective": ("foolsgold", ATTACKED, {"src_acc": 0.5}),
    "ours-excludes-attackers": ("lfighter", [50], {"true_positive_rate": 0.9}),
    "others-worse-than-iid": ("trimmed_mean", ATTACKED, CLEAN),
    "foolsgold-degrades": ("foolsgold", ATTACKED, CLEAN),
    "ours-like-foolsgold": ("foolsgold", ATTACKED, {"all_acc": 0.8}),
    "ours-and-foolsgold-outperform": ("lfighter", ATTACKED, {"all_acc": 0.5}),
    "repeated-median-like-median": ("repeated_median", ATTACKER_RATIOS, {"all_acc": 0.5}),
    "trimmed-mean-is-median-at-50": ("trimmed_mean", [50], {"all_acc": 0.6}),
    "ours-most-stable": ("lfighter", ATTACKER_RATIOS, {"cv": 9.0}),
    "stable-as-without-attack": ("lfighter", ATTACKED, {"cv": 0.3}),
    "attack-destabilizes": ("fedavg", [0], {"cv": 9.0}),
    "foolsgold-fastest": ("foolsgold", [30], {"aggregation_seconds": 99.0}),
    "repeated-median-slowest": ("repeated_median", [30], {"aggregation_seconds": 0.01}),
    "ours-as-fast-as-median": ("lfighter", [30], {"aggregation_seconds": 3.0}),
    "ours-second-fastest": ("lfighter", [30], {"aggregation_seconds": 1.25}),
    "curve-most-similar": ("lfighter", [30], {"src_acc": 0.0}),
    "relevant-magnitudes-larger": ("fedavg", [10], {"relevant": 4.0}),
    "non-relevant-magnitudes-vanish": ("fedavg", [30], {"non_relevant": 5.0}),
}


def some_claims(wanted):
    chosen = [claim for claim in CLAIMS if wanted(claim)]
    return pytest.mark.parametrize("claim", chosen, ids=lambda claim: claim.id)


every_claim = some_claims(lambda claim: True)


def table_for(claim) -> pd.DataFrame:
    return (WORLD_ROUNDS if claim.per_round else WORLD).copy()


def judge(claim, table: pd.DataFrame):
    return claim.judge(prepared(table, per_round=claim.per_round))


def broken(claim, table: pd.DataFrame) -> pd.DataFrame:
    defense, ratios, values = BREAKS[claim.name]
    hit = (table["defense"] == defense) & table["attackers"].isin(ratios)
    if claim.benchmark != "all":
        hit &= table["benchmark"] == claim.benchmark
    assert hit.any()
    for column, value in values.items():
        table.loc[hit, column] = value
    return table


@every_claim
def test_holds_where_it_should(claim):
    """Given the declared cells only: a check that looked at more would end in a KeyError."""
    table = table_for(claim)
    needed = pd.MultiIndex.from_frame(table[KEY]).isin(claim.needs)
    verdict = judge(claim, table[needed])
    assert verdict.answer == HOLDS, verdict.evidence
    assert "\n" not in verdict.evidence
    assert verdict.evidence.endswith("(1 seed)")


@every_claim
def test_does_not_hold_where_it_should_not(claim):
    verdict = judge(claim, broken(claim, table_for(claim)))
    assert verdict.answer == FAILS, verdict.evidence


def without(table: pd.DataFrame, lost) -> pd.DataFrame:
    return table[(table[KEY] != list(lost)).any(axis=1)]


def says_something_of_the_rest(claim) -> bool:
    """Whether it is about several ratios, and can be judged without the last of them."""
    attacked = {ratio for _, _, ratio in claim.needs if ratio > 0}
    return len(attacked) > 1 and claim.name != "others-degrade"  # which speaks of 50% above all


@every_claim
def test_a_missing_cell_is_named(claim):
    benchmark, defense, ratio = lost = claim.needs[-1]
    verdict = judge(claim, without(table_for(claim), lost))
    assert verdict.answer == (HOLDS_SO_FAR if says_something_of_the_rest(claim) else NOT_RUN)
    named = verdict.evidence.partition("no r")[2]
    assert benchmark in named
    if len(claim.needs) > 1:
        assert f"{ratio:g}%" in named, defense


@some_claims(says_something_of_the_rest)
def test_a_ratio_with_a_gap_is_left_out_for_all_methods(claim):
    """Whatever the others did at that ratio: the verdict is that of the other ratios."""
    lost = benchmark, _, ratio = claim.needs[-1]
    table = table_for(claim)
    there = table["attackers"] == ratio
    if claim.benchmark == "all":
        there &= table["benchmark"] == benchmark
    rest = judge(claim, table[~there])
    numbers = table.columns.difference([*KEY, "seed", "round", "rounds"])
    table[numbers] = table[numbers].mask(there, 7.0)
    gap = judge(claim, without(table, lost))
    assert gap.answer == rest.answer == HOLDS_SO_FAR
    assert gap.evidence.partition("; no r")[0] == rest.evidence.partition("; no r")[0]


def yardstick_of(claim):
    """Where it is about one benchmark; that about all of them counts cases."""
    cells = (cell for cell in claim.needs if cell[1:] == ("fedavg", 0.0))
    return None if claim.benchmark == "all" else next(cells, None)


@some_claims(yardstick_of)
def test_nothing_is_said_without_the_yardstick(claim):
    """FedAvg without attack, where the claim looks at it."""
    yardstick = yardstick_of(claim)
    assert judge(claim, without(table_for(claim), yardstick)).answer == NOT_RUN


@some_claims(lambda claim: claim.each_ratio)
def test_a_claim_about_each_ratio_is_refuted_by_one(claim):
    _, ratios, _ = BREAKS[claim.name]
    table = broken(claim, table_for(claim))
    verdict = judge(claim, table[table["attackers"].isin([0, ratios[0]])])
    assert verdict.answer == FAILS
    assert "; no r" in verdict.evidence


def test_many_missing_cells_of_a_judged_claim_are_counted():
    claim = get("mnist-iid-foolsgold-worst")
    table = WORLD[WORLD["attackers"] == 30]
    lost = sum(ratio != 30 for _, _, ratio in claim.needs)
    assert judge(claim, table).evidence.endswith(f"judged at 30%; no run of {lost} cells")


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("mnist-iid-foolsgold-penalizes-honest", "false_positive_rate", 0.004),
        ("cifar10-iid-foolsgold-penalizes-attackers", "true_positive_rate", 0.5),
    ],
)
def test_both_halves_of_whom_foolsgold_penalizes_count(name, column, value):
    table = WORLD.copy()
    table.loc[table["defense"] == "foolsgold", column] = value
    assert judge(get(name), table).answer == FAILS


def test_a_source_class_that_is_never_right_is_not_called_unstable():
    claim = get("imdb-attack-destabilizes")
    table = WORLD.copy()
    hit = (table["benchmark"] == "imdb") & (table["defense"] == "fedavg")
    table.loc[hit & (table["attackers"] > 0), "cv"] = 0.05
    table.loc[hit & (table["attackers"] == 50), "cv"] = np.nan
    assert judge(claim, table).answer == FAILS
    table.loc[hit & (table["attackers"] == 40), "cv"] = 1.0
    assert judge(claim, table).answer == HOLDS


def test_curves_as_close_to_a_whole_point_share_the_first_place():
    claim = get("mnist-extreme-curve-most-similar")
    for ahead, answer in ((0.004, HOLDS), (0.006, FAILS)):
        table = WORLD_ROUNDS[WORLD_ROUNDS["benchmark"] == "mnist-extreme"].copy()
        at_30, fedavg = table["attackers"] == 30, table["defense"] == "fedavg"
        without = table[fedavg & (table["attackers"] == 0)].set_index("round")["src_acc"]
        curve = table["round"].map(without)
        table.loc[at_30, "src_acc"] = curve - 0.5
        table.loc[at_30 & (table["defense"] == "lfighter"), "src_acc"] = curve - 0.1 - ahead
        table.loc[at_30 & fedavg, "src_acc"] = curve - 0.1
        assert judge(claim, table).answer == answer


def test_a_claim_about_an_average_is_not_refuted_by_one_ratio():
    claim = get("cifar10-iid-foolsgold-effective")
    table = broken(claim, WORLD.copy())
    verdict = judge(claim, table[table["attackers"].isin([0, 30])])
    assert verdict.answer == FAILS_SO_FAR
    assert "at 30%: FGold 47.0;" in verdict.evidence  # 0.97 - 0.50
    gap = "(1 seed); judged at 0/30%; no run of cifar10-iid FGold 10/20/40/50%"
    assert verdict.evidence.endswith(gap)


# Claims of two halves: a failure of the first is final, one of the second other ratios may mend.
HALVES = {
    "mnist-iid-defended-up-to-40": (("median", {"asr": 0.5}), ("foolsgold", CLEAN)),
    "mnist-extreme-ours-perfect": (("lfighter", {"asr": 0.5}), ("median", CLEAN)),
    "mnist-extreme-foolsgold-well-in-part": (("foolsgold", CLEAN), ("foolsgold", SUCCEEDED)),
}


@pytest.mark.parametrize("name", HALVES)
def test_what_other_ratios_cannot_mend_is_final(name):
    claim = get(name)
    for (defense, values), answer in zip(HALVES[name], (FAILS, FAILS_SO_FAR), strict=True):
        table = WORLD[WORLD["attackers"].isin([0, 30])].copy()
        hit = (table[KEY] == [claim.benchmark, defense, 30.0]).all(axis=1)
        for column, value in values.items():
            table.loc[hit, column] = value
        assert judge(claim, table).answer == answer


def test_a_method_unaffected_at_50_is_final():
    claim = get("cifar10-iid-others-degrade")
    table = broken(claim, WORLD.copy())
    assert judge(claim, table[table["attackers"].isin([0, 10, 50])]).answer == FAILS


def test_nothing_is_said_of_the_attack_from_runs_without_it():
    answers = check_all(WORLD[WORLD["attackers"] == 0])["answer"]
    assert set(answers) == {NOT_RUN}


def test_the_claim_about_all_benchmarks_counts_the_cases_that_are_complete():
    """FedAvg at 0% everywhere, all methods in IMDB at 0 and 30% only; one of them is ours."""
    claim = get("all-ours-most-stable")
    table = WORLD.copy()
    ours = (table[KEY] == ["imdb", "lfighter", 30.0]).all(axis=1)
    table.loc[ours, "cv"] = 9.0
    imdb = (table["benchmark"] == "imdb") & table["attackers"].isin([0, 30])
    table = table[imdb | (table["defense"] == "fedavg")]
    verdict = judge(claim, table)
    assert verdict.answer == FAILS_SO_FAR
    assert "smallest CV in 1 of 2 cases" in verdict.evidence
    assert "imdb 1 of 2" in verdict.evidence
    assert "mnist-iid 0 of 0" in verdict.evidence


def test_every_claim_can_fail():
    assert set(BREAKS) == {claim.name for claim in CLAIMS}


def test_claims_have_distinct_names_and_every_benchmark_has_some():
    ids = [claim.id for claim in CLAIMS]
    assert len(ids) == len(set(ids))
    assert {claim.benchmark for claim in CLAIMS} == {*BENCHMARKS, "all"}


def test_check_all_is_one_row_per_claim_in_the_papers_order():
    table = check_all(WORLD, WORLD_ROUNDS)
    columns = ["benchmark", "claim", "about", "quote", "answer", "evidence"]
    assert list(table.columns) == columns
    assert len(table) == len(CLAIMS)
    assert set(table["answer"]) == {HOLDS}
    assert list(table["benchmark"].unique()) == [*BENCHMARKS, "all"]


def test_the_tally_counts_every_claim_once():
    """IMDB at 0 and 30% alone: its claims about several ratios hold so far."""
    part = (WORLD["benchmark"] == "imdb") & WORLD["attackers"].isin([0, 30])
    counts = tally(check_all(WORLD[part]))
    labels = [benchmark.label for benchmark in BENCHMARKS.values()]
    assert list(counts.index) == [*labels, "all", "together"]
    assert list(counts.columns) == [HOLDS, HOLDS_SO_FAR, NOT_RUN]
    assert list(counts.loc["IMDB"]) == [3, 5, 1]
    assert counts.loc["together"].sum() == len(CLAIMS)


def test_the_tally_by_subject_tells_what_is_no_finding():
    """That the trimmed mean is the median at 50% is how it is defined, in all six benchmarks."""
    counts = tally(check_all(WORLD, WORLD_ROUNDS), by="about")
    assert list(counts.index) == [*SUBJECTS, "together"]
    assert counts.loc["true by definition here", HOLDS] == len(BENCHMARKS)
    assert counts.loc["together", HOLDS] == len(CLAIMS)
    ours = {claim.name for claim in CLAIMS if claim.about == "LFighter"}
    assert {"ours-robust", "no-false-positives", "curve-most-similar"} <= ours
    assert not any("foolsgold" in name and "ours" not in name for name in ours)


def test_without_rounds_only_their_claims_are_not_run():
    answers = check_all(WORLD).set_index("claim")["answer"]
    per_round = [claim.id for claim in CLAIMS if claim.per_round]
    assert set(answers[per_round]) == {NOT_RUN}
    assert set(answers.drop(per_round)) == {HOLDS}


@pytest.mark.parametrize("nothing", [pd.DataFrame(), WORLD.iloc[:0]])
def test_without_any_run(nothing):
    assert set(check_all(nothing)["answer"]) == {NOT_RUN}


def get(name: str):
    return next(claim for claim in CLAIMS if claim.id == name)


def test_evidence_gives_the_numbers():
    """0.97 - 0.80 = 17 points of Src-Acc; the other ratios lost nothing."""
    claim = get("cifar10-mild-ours-robust")
    evidence = judge(claim, broken(claim, WORLD.copy())).evidence
    assert "at 10/20/30/40/50%: LFighter 0.0/0.0/0.0/0.0/17.0; robust up to 10 points" in evidence


def test_seeds_are_averaged_and_counted():
    """Src-Acc at 50% is 0.80, 0.97 and 0.97: 5.7 points lost on average, 17 in one seed."""
    claim = get("cifar10-mild-ours-robust")
    table = pd.concat([broken(claim, world(0)), world(1), world(2)])
    verdict = judge(claim, table)
    assert verdict.answer == HOLDS
    assert "0.0/5.7;" in verdict.evidence
    assert verdict.evidence.endswith("(mean of 3 seeds; holds alone in 2 of 3)")


@pytest.mark.parametrize(
    ("second", "seeds"),
    [
        ([0, 50], "(mean of 1 to 2 seeds; holds alone in 1 of 1)"),
        ([50], "(1 seed)"),  # without its own FedAvg without attack
        ([0], "(1 seed)"),
    ],
)
def test_seeds_count_where_they_have_all_that_is_compared(second, seeds):
    claim = get("cifar10-mild-ours-robust")
    verdict = judge(claim, pd.concat([world(0), world(1)[world(1)["attackers"].isin(second)]]))
    assert verdict.answer == HOLDS
    assert verdict.evidence.endswith(seeds)


def test_methods_are_not_compared_across_seeds():
    claim = get("mnist-iid-krum-and-ours-robust")
    krum = world(0)[world(0)["defense"] != "lfighter"]
    ours = world(1)[world(1)["defense"] != "multi_krum"]
    verdict = judge(claim, pd.concat([krum, ours]))
    assert verdict.answer == NOT_RUN
    assert verdict.evidence == "no seed has all cells that are compared"


@pytest.mark.parametrize("whose", [["lfighter"], PAPER_DEFENSES])
def test_src_acc_of_zero_in_every_round_is_the_worst_stability(whose):
    """NaN in one of two seeds: no finite mean, and no first place, not even shared."""
    bad = world(1)
    bad.loc[bad["defense"].isin(whose), "cv"] = np.nan
    verdict = judge(get("all-ours-most-stable"), pd.concat([world(0), bad]))
    assert verdict.answer == FAILS
    assert "smallest CV in 0 of 36" in verdict.evidence


def test_a_loss_that_overflowed_is_the_worst_test_error():
    claim = get("mnist-extreme-ours-effective")
    table = table_for(claim)
    ours = (table[KEY] == ["mnist-extreme", "lfighter", 20.0]).all(axis=1)
    table.loc[ours, "test_error"] = np.nan
    verdict = judge(claim, table)
    assert verdict.answer == FAILS
    assert "LFighter 0.0/90.5/0.0" in verdict.evidence  # exp(-0.1) - 0


def test_to_have_learned_is_a_fifth_of_the_way_from_guessing_to_always_right():
    assert learned("imdb") == pytest.approx(0.6)  # 1/2 + 1/5 of 1/2
    assert learned("mnist-mild") == learned("cifar10-iid") == pytest.approx(0.28)


@pytest.mark.parametrize("metric", ["src_acc", "all_acc"])
def test_nothing_is_said_of_a_model_that_has_not_learned(metric):
    """With a Src-Acc of 15% without attack, every defense would be "within 10 points"."""
    table = WORLD.copy()
    iid = table["benchmark"] == "cifar10-iid"
    table.loc[iid & (table["attackers"] == 0), metric] = 0.27
    verdicts = check_all(table, WORLD_ROUNDS).set_index("claim")
    of_it = [claim.id for claim in CLAIMS if "cifar10-iid" in {b for b, _, _ in claim.needs}]
    timed = [name for name in of_it if "fastest" in name or "slowest" in name]
    for name in set(of_it) - set(timed) - {"all-ours-most-stable"}:
        assert verdicts.loc[name, "answer"] == NOT_LEARNED, name
        assert "below 28% in cifar10-iid" in verdicts.loc[name, "evidence"]
    assert set(verdicts.drop(of_it)["answer"]) == {HOLDS}
    assert timed
    assert set(verdicts.loc[timed, "answer"]) == {HOLDS}


def test_aggregation_times_may_come_from_other_runs():
    """Of which nothing else is asked, and whose cells are all that is there."""
    clocked = WORLD[WORLD["attackers"] == 30].copy()
    slow = (clocked["benchmark"] == "cifar10-iid") & (clocked["defense"] == "foolsgold")
    clocked.loc[slow, ["aggregation_seconds", "src_acc"]] = [1e6, 0.0]
    verdicts = check_all(WORLD, WORLD_ROUNDS, clocked).set_index("claim")["answer"]
    about_it = [
        f"cifar10-iid-{name}"
        for name in ("foolsgold-fastest", "repeated-median-slowest", "ours-second-fastest")
    ]
    assert set(verdicts[about_it]) == {FAILS}
    assert set(verdicts.drop(about_it)) == {HOLDS}


def test_the_claim_about_all_benchmarks_leaves_out_what_was_not_learned():
    table = WORLD.copy()
    table.loc[(table["benchmark"] == "imdb") & (table["attackers"] == 0), "src_acc"] = 0.1
    verdict = check_all(table).set_index("claim").loc["all-ours-most-stable"]
    assert verdict["answer"] == HOLDS_SO_FAR
    assert "of 30 cases" in verdict["evidence"]
    assert verdict["evidence"].endswith("below 60% in imdb")


def test_two_runs_of_one_cell_and_seed_are_refused():
    with pytest.raises(InputError, match="more than one run of benchmark mnist-iid"):
        check_all(pd.concat([WORLD, WORLD]))


def test_a_table_without_seeds_is_refused():
    with pytest.raises(InputError, match="no column seed"):
        check_all(WORLD.drop(columns="seed"))


def test_metrics_that_a_table_lacks_are_left_out():
    frame = prepared(WORLD.drop(columns="test_error"))
    assert View("imdb", frame, ()).metrics == ["all_acc", "src_acc", "asr"]


# The paper's claims on the paper's own numbers: what is read off its figures, its table of CV,
# and the authors' running times. These do not hold, by the measures above:
NOT_BY_ITS_OWN_NUMBERS = {
    # FedAvg lost 10 points on average over metrics and ratios, TMean and MKrum 40; of the
    # defenses alone (Median 61, FoolsGold 41) the two are ahead, if only by the reading error.
    "mnist-extreme-trimmed-mean-and-krum-less-affected",
    # CV 0.15 to 0.27 with attackers, against 0.08 of FedAvg without.
    "mnist-mild-stable-as-without-attack",
}


def test_the_papers_claims_on_the_papers_numbers():
    answers = by_its_own_numbers()
    assert answers.index.is_unique
    assert len(answers) == 38
    assert set(answers[answers == FAILS].index) == NOT_BY_ITS_OWN_NUMBERS
    assert set(answers) == {HOLDS, FAILS}


def test_the_same_world_in_another_seed_has_the_same_answers():
    table = in_other_seeds(pd.concat([WORLD, world(seed=4)]))
    expected = [c for c in check_all(WORLD).itertuples() if c.answer == HOLDS]
    expected = [c.claim for c in expected if c.about not in (TIMES, BY_DEFINITION)]
    assert list(table["claim"]) == expected
    assert set(table["seed"]) == {4}
    assert (table["answer"] == table["first"]).all()
    counts = agreement(table)
    assert list(counts.index) == [(4, about) for about in SUBJECTS[:3]]
    assert counts[JUDGED].sum() == counts[SAME].sum() == len(expected)
    assert changed(table).empty


def test_another_seed_is_compared_by_the_cells_it_shares_with_the_first():
    mild = WORLD["benchmark"] == "mnist-mild"
    ours = mild & WORLD["defense"].isin(["fedavg", "lfighter"])
    lost = WORLD["attackers"].eq(40) & ours & (WORLD["defense"] == "lfighter")
    first = WORLD.copy()
    first.loc[lost, ["src_acc", "asr"]] = [0.0, 0.9]
    here = WORLD[ours & WORLD["attackers"].isin([0, 40])].assign(seed=1)
    table = in_other_seeds(pd.concat([first, here])).set_index("claim")
    assert table.loc["mnist-mild-ours-robust", ["first", "answer"]].tolist() == [FAILS, HOLDS]
    assert "at 40%: LFighter 0.0" in table.loc["mnist-mild-ours-robust", "evidence"]
    without = in_other_seeds(pd.concat([first[~lost], here])).set_index("claim")
    assert "mnist-mild-ours-robust" not in without.index  # 40% is all that seed 1 could be asked
    rows = changed(table.reset_index())
    assert ("MNIST-Mild", 1) in rows.index.droplevel("quote")
    counts = agreement(table.reset_index())
    assert counts[JUDGED].sum() - counts[SAME].sum() == len(rows)


@pytest.mark.parametrize("table", [WORLD, WORLD.iloc[:0]])
def test_of_one_seed_there_is_no_other(table):
    nothing = in_other_seeds(table)
    assert nothing.empty
    assert changed(nothing).empty
    assert agreement(nothing).empty
