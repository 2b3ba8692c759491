"""What the study foresees: which runs, for whom, and how long."""

from dataclasses import replace
from types import SimpleNamespace

import lff
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import observations, plan
from lff.study.notebook import Parameters

P = Parameters(scale="quick", seeds=[0, 1])


def cells(runs) -> set[tuple]:
    return {(e.benchmark, e.defense, e.attackers) for e in runs}


def test_the_extra_ratios_of_the_figures_are_planned():
    """The quick grid has neither 10% anywhere nor 30% of MNIST; two notebooks show them."""
    gradients = cells(plan.PLANS["02_gradients"].runs(P))
    assert gradients == {(b, "fedavg", r) for b in ("mnist-iid", "cifar10-mild") for r in (10, 30)}
    extra = cells(plan.PLANS["05_stability"].runs(P)) - cells(P.grid())
    assert extra == {("mnist-extreme", d, 30.0) for d in PAPER_DEFENSES}
    everything = cells(plan.PLANS["07_paper_vs_ours"].runs(P))
    assert everything == cells(P.grid()) | gradients | extra


def test_aggregation_is_timed_with_the_papers_resnet18():
    """At laptop it is narrower in the grid: there, and only there, the whole runs for itself."""
    assert plan.timed(P) == P.grid()
    p = Parameters(scale="laptop")
    timed, grid = plan.timed(p), p.grid()
    assert not any(e.width for e in timed)
    assert [e for e in timed if e in grid] == [e for e in grid if "cifar10" not in e.benchmark]
    beside = [e for e in timed if e not in grid]
    wanted = {(b, d, 30.0) for b in ("cifar10-iid", "cifar10-mild") for d in PAPER_DEFENSES}
    assert cells(beside) == wanted
    assert len(beside) == len(wanted)
    assert set(beside) <= set(plan.missing_runs(["07_paper_vs_ours"], p))
    ten = replace(p, benchmarks=["cifar10-iid"], ratios=[10])
    assert {e.attackers for e in plan.timed(ten)} == {30}


def test_a_good_and_a_bad_update_are_of_the_papers_resnet18():
    assert [e.width for e in plan.good_and_bad(Parameters(scale="laptop"))] == [0]


def test_a_selection_is_not_left():
    imdb = Parameters(scale="quick", benchmarks=["imdb"])
    assert {e.benchmark for e in plan.evidence(imdb) + plan.curves(imdb)} == {"imdb"}
    ours = Parameters(scale="quick", defenses=["lfighter"], ratios=[30])
    assert {(e.defense, e.attackers) for e in plan.evidence(ours)} == {("lfighter", 30.0)}


def test_other_seeds_are_those_recorded_of_the_same_cells(tiny):
    asked = lff.grid(["mnist-iid"], ["fedavg", "lfighter"], [0, 40], seeds=[1], **tiny)
    grid = lff.grid(["mnist-iid"], ["fedavg", "lfighter"], [0, 40], seeds=[0, 2], **tiny)
    others = [e for e in grid if (e.defense, e.attackers, e.seed) != ("lfighter", 40, 2)]
    longer = asked[-1].replace(seed=3, rounds=tiny["rounds"] + 1)
    for e in [*asked, *others, longer]:
        lff.run(e, progress=False)
    found = [(e.attackers, e.seed, e.defense) for e in plan.in_every_seed(asked)]
    both = [(r, s, d) for r in (0, 40) for s in (0, 1, 2) for d in ("fedavg", "lfighter")]
    assert found == [run for run in both if run != (40, 2, "lfighter")]
    ours = [e for e in asked if e.attackers and e.defense == "lfighter"]
    assert [(e.defense, e.seed) for e in plan.in_every_seed(ours)] == [
        ("lfighter", 0),
        ("lfighter", 1),
    ]


def test_the_papers_settings_are_its_grids_in_any_seed(monkeypatch):
    lfighter = lff.experiment("mnist-mild", defense="lfighter", attackers=40, scale="paper")
    fedavg = lff.experiment("mnist-mild", defense="fedavg", attackers=40, scale="paper")
    second = lfighter.replace(seed=1)
    recorded = [second, lfighter, lfighter.replace(rounds=7), fedavg, fedavg.replace(alpha=2.0)]
    monkeypatch.setattr(
        plan, "iterate", lambda scale: [SimpleNamespace(experiment=e) for e in recorded]
    )
    assert plan.with_papers_settings() == [fedavg, lfighter, second]


def test_missing_runs_are_named_once_with_the_first_who_needs_them(tiny, monkeypatch):
    one, two, three = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=[0, 1, 2], **tiny)
    plans = {"a": plan.Plan(lambda p: [one, two]), "b": plan.Plan(lambda p: [two, three])}
    monkeypatch.setattr(plan, "PLANS", plans)
    lff.run(one, progress=False)
    assert plan.missing_runs(["a", "b"], P) == {two: "a", three: "b"}
    assert plan.missing_runs(["b"], P) == {two: "b", three: "b"}
    assert plan.missing_runs(["a notebook of one's own"], P) == {}


def test_observations_are_foreseen_until_they_are_made(tiny, monkeypatch):
    e = lff.experiment("mnist-iid", attackers=30, **tiny)
    monkeypatch.setattr(plan, "PLANS", {"a": plan.Plan(looks=(("components", lambda p: [e]),))})
    assert plan.looking_seconds("a", P) > 0
    observations.components(e, device="cpu")
    assert plan.looking_seconds("a", P) == 0


def test_without_computing_the_notebooks_of_the_grid_look_at_nothing_new():
    assert plan.looking_seconds("07_paper_vs_ours", P) > 0
    assert plan.looking_seconds("07_paper_vs_ours", replace(P, compute=False)) == 0
    assert plan.looking_seconds("03_pca", replace(P, compute=False)) > 0  # it knows no such word


def test_in_peace_fedavg_is_compared_with_the_same_seeds():
    def calm(defense, seed, attackers=0):
        return lff.experiment("imdb", defense=defense, attackers=attackers, seed=seed)

    compared = [calm("fedavg", 0), calm("lfighter", 0)]
    others = [calm("fedavg", 1), calm("median", 0), calm("lfighter", 1, attackers=10)]
    assert plan.in_peace(compared + others) == compared
