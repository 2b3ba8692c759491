"""Hostile and degenerate updates: a finite aggregate, or an error that says which peer and why."""

import inspect
import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of, updates_with_gradients
from hypothesis import given, settings

import lff
from lff.defenses import DEFENSES, FoolsGold, lfighter
from lff.defenses.lfighter import filter_extreme, filter_mild, hdbscan, kmeans
from lff.errors import InputError, TrainingError
from lff.experiments import records
from lff.experiments.build import build
from lff.fast import RULES as FAST
from lff.federation import Federation
from lff.training import Examples, Peer
from lff.updates import finite_rows, weighted_mean

RULES = [(name, {}) for name in DEFENSES] + [
    ("lfighter", {"distribution": kind}) for kind in ("mild", "extreme")
]
RULES += [(f"fast {name}", {}) for name in FAST]
SCALE_FREE = ("multi_krum", "foolsgold", "lfighter", "tolpegin", "signguard")
FILTERS = [rule for rule in RULES if rule[0] in SCALE_FREE]
RULES += [
    (name, {"mixing": mixing})
    for name in ("median", "multi_krum", "foolsgold")
    for mixing in ("nearest", "bucketing")
]
LARGEST = float(np.finfo(np.float32).max)
FEATURES = 3

every_rule = pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: "-".join([rule[0], *rule[1].values()])
)
properties = settings(max_examples=20, deadline=None, derandomize=True, database=None)


def normal(m, classes, seed=0):
    """Gradients of `m` peers, without any structure."""
    shape = (m, classes, FEATURES + 1)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def a_round(gradients, *, scale=1.0, examples=None, **settings):
    """A round of these gradients; a small learning rate makes large ones overflow."""
    m = len(gradients)
    return updates_with_gradients(
        gradients,
        learning_rate=scale,
        examples=torch.ones(m) if examples is None else torch.tensor(examples),
        **{"attacker_count": m // 3, **settings},
    )


def decide(rule, updates):
    name, options = rule
    if name.startswith("fast "):
        return FAST[name.removeprefix("fast ")](updates)
    return DEFENSES[name].create(**options)(updates)


def assert_sound(decision, updates):
    """The aggregate is a finite model, shares are shares, and not everybody is dropped."""
    assert decision.aggregate.shape == updates.global_weights.shape
    assert decision.aggregate.isfinite().all()
    if decision.weights is not None:
        assert (decision.weights >= 0).all()
        assert decision.weights.sum().item() == pytest.approx(1, abs=1e-5)
        assert len(decision.dropped(updates.peers)) < len(updates)


# --- every defense, every degenerate round ---------------------------------------------------


def one_large(g, value):
    g[0] = value
    return g


def two_opposite(g, value):
    g[0], g[-1] = value, -value
    return g


def half_equal(g):
    g[: len(g) // 2 + 1] = g[0]
    return g


ROUNDS = {
    "plain": lambda g: g,
    "all zeros": np.zeros_like,
    "one all zeros": lambda g: one_large(g, 0.0),
    "all equal": lambda g: g[:1].repeat(len(g), axis=0),
    "half equal": half_equal,
    "two groups": lambda g: np.where(np.arange(len(g))[:, None, None] % 3 == 0, -g[:1], g[:1]),
    "one of 1e20": lambda g: one_large(g, 1e20),  # its square overflows
    "one of 1e38": lambda g: one_large(g, 1e38),  # a sum of four overflows
    "one of the largest": lambda g: one_large(g, LARGEST),
    "two opposite of 1e38": lambda g: two_opposite(g, 1e38),
    "two opposite of the largest": lambda g: two_opposite(g, LARGEST),
    "all the largest": lambda g: np.full_like(g, LARGEST),
    "all the largest, mixed signs": lambda g: np.copysign(np.float32(LARGEST), g),
    "denormal": lambda g: g * np.float32(1e-40),
}


@every_rule
@pytest.mark.parametrize("kind", ROUNDS)
def test_every_defense_makes_a_finite_model_of_every_finite_round(rule, kind):
    many = 20 if rule[0] in ("tolpegin", "labelaudit") else 1000  # who look at each class, or pair
    sizes = ((1, 1.0), (2, 1e-3), (3, 1.0), (4, 1e-3), (9, 1.0), (9, 1e-3))
    for classes, (m, rate) in [*itertools.product((1, 2, 3), sizes), (many, (9, 1e-3))]:
        weights = a_round(ROUNDS[kind](normal(m, classes, seed=m))).weights
        updates = updates_of(
            weights,
            classes=classes,
            learning_rate=rate,  # gradients are differences over the rate: a small one overflows
            attacker_count=m // 3,
        )
        assert_sound(decide(rule, updates), updates)


@every_rule
def test_many_peers_at_the_edge_of_the_range(rule):
    """More peers than the sorting network takes."""
    gradients = np.copysign(np.float32(LARGEST), normal(40, 3))
    updates = a_round(gradients)
    assert_sound(decide(rule, updates), updates)


@every_rule
@pytest.mark.parametrize("examples", [[0.0, 0, 0, 0, 0], [0.0, 3, 2, 1, 4], [3e38] * 5])
def test_peers_may_have_no_examples_or_claim_absurdly_many(rule, examples):
    updates = a_round(normal(5, 3), examples=examples)
    assert_sound(decide(rule, updates), updates)


def test_a_peer_without_examples_has_no_share_in_fedavg():
    updates = updates_of([[1, 2], [3, 4], [50, 60]], examples=torch.tensor([1.0, 1, 0]))
    decision = DEFENSES["fedavg"].create()(updates)
    assert decision.aggregate.tolist() == [2, 3]
    assert decision.weights.tolist() == [0.5, 0.5, 0]


def test_if_only_peers_without_examples_remain_they_alone_are_averaged():
    """The attackers hold all examples; dropping them must not bring them back."""
    gradients = np.zeros((6, 1, 2), dtype=np.float32)
    gradients[:4, 0] = [[10, 1], [10, 2], [10, -1], [10, -2]]
    gradients[4:, 0] = [-10, 0]
    updates = a_round(gradients, examples=[0.0, 0, 0, 0, 9, 9])
    decision = lfighter(updates)
    assert decision.dropped(updates.peers) == [4, 5]
    torch.testing.assert_close(decision.aggregate, updates.weights[:4].mean(dim=0))


@every_rule
@pytest.mark.parametrize("told", [0, 1, 3, 4, 5, 9])
def test_any_number_of_attackers_may_be_told(rule, told):
    """Also all of them, more than half, or (after exclusions) more than there are peers."""
    updates = a_round(normal(5, 3), attacker_count=told)
    assert_sound(decide(rule, updates), updates)


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "repeated_median", "multi_krum"])
@pytest.mark.parametrize("value", [1e38, LARGEST, -LARGEST])
def test_one_overflowing_peer_leaves_no_trace_in_a_robust_rule(name, value):
    honest = normal(9, 3)
    updates = a_round(np.concatenate([np.full((1, 3, FEATURES + 1), value, np.float32), honest]))
    aggregate = decide((name, {}), updates).aggregate
    assert aggregate.abs().max() <= 2 * np.abs(honest).max()


@pytest.mark.parametrize("value", [1e38, LARGEST])
def test_lfighter_drops_one_overflowing_peer(value):
    honest = normal(9, 3) + 4
    for row in (0, 4, 9):
        gradients = np.insert(honest, row, value, axis=0)
        updates = a_round(gradients, scale=1.0)
        assert lfighter(updates, distribution="mild").dropped(updates.peers) == [row]


def test_shares_that_round_up_do_not_overflow():
    """Three shares of 0.33333334 sum to more than one."""
    decision = weighted_mean(updates_of(np.full((3, 2), LARGEST)), torch.ones(3))
    assert decision.aggregate.tolist() == [LARGEST, LARGEST]


def test_medians_of_the_largest_numbers_are_exact():
    """(a + b) / 2 overflows; in float64 it does not."""
    updates = updates_of([[LARGEST, -LARGEST], [LARGEST, -LARGEST], [0, 1], [LARGEST / 2, 1]])
    got = decide(("median", {}), updates).aggregate.tolist()
    assert got == [float(np.float32(0.75 * LARGEST)), float(np.float32((1 - LARGEST) / 2))]


# --- what is not finite ----------------------------------------------------------------------


@every_rule
@pytest.mark.parametrize(("value", "entry"), [(math.nan, 0), (math.inf, -1), (-math.inf, 0)])
def test_an_update_that_is_not_finite_is_refused_with_the_peers_name(rule, value, entry):
    weights = normal(6, 3).reshape(6, -1)
    weights[2, entry] = weights[4, entry] = value
    updates = updates_of(weights, classes=3, attacker_count=1, peers=(10, 11, 12, 13, 14, 15))
    name = rule[0].removeprefix("fast ")
    with pytest.raises(InputError, match=rf"'{name}' got .* from peers \[12, 14\] in round 0"):
        decide(rule, updates)


def test_infinities_that_cancel_in_a_sum_are_found_and_overflowing_sums_are_not_blamed():
    rows = torch.zeros(5, 8)
    rows[0, :2] = torch.tensor([math.inf, -math.inf])
    rows[1] = LARGEST
    rows[2] = -LARGEST
    rows[3, 7] = math.nan
    assert finite_rows(rows) == [False, True, True, False, True]


def test_direct_calls_are_checked_too():
    broken = updates_of([[1, math.nan], [2, 3]], attacker_count=0)
    for rule in (*(d.factory for d in DEFENSES.values() if d.name != "foolsgold"), FoolsGold()):
        rule = rule() if inspect.isclass(rule) else rule
        with pytest.raises(InputError, match=r"peers \[0\]"):
            rule(broken)
    memory = FoolsGold()
    with pytest.raises(InputError):
        memory(broken)
    assert memory.state_dict() == {}, "what was refused is not remembered"


# --- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": torch.zeros(4)}, r"one row per peer, not of shape \[4\]"),
        ({"weights": torch.zeros(2, 2, 2)}, r"not of shape \[2, 2, 2\]"),
        ({"weights": torch.zeros(2, 5)}, "updates of 5 entries .* layout of 4"),
        ({"global_weights": torch.zeros(3)}, "a global model of 3 .* layout of 4"),
        ({"global_weights": torch.zeros(2, 4)}, "do not fit a layout of 4"),
        ({"examples": torch.ones(3)}, "2 updates, 2 peer ids and 3 example counts"),
        ({"examples": torch.tensor([1.0, -1])}, r"peer 1 must have 0 examples or more, not -1\.0"),
        ({"examples": torch.tensor([math.nan, 1])}, "peer 0 must have 0 examples or more, not nan"),
        ({"examples": torch.tensor([1, math.inf])}, "peer 1 .* not inf"),
        ({"declared_classes": torch.ones(3, 1)}, "2 updates, but 3 peers declare"),
        ({"learning_rate": 0.0}, "learning rate must be above 0, not 0.0"),
        ({"learning_rate": math.nan}, "not nan"),
        ({"learning_rate": math.inf}, "not inf"),
    ],
)
def test_rounds_that_do_not_fit_together_are_refused(settings, message):
    base = updates_of(np.zeros((2, 4)))
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    with pytest.raises(InputError, match=message):
        lff.Updates(**{**fields, **settings})


def test_a_negative_number_of_attackers_is_refused():
    with pytest.raises(InputError, match="attacker_count must be 0 or more, not -1"):
        decide(("multi_krum", {}), updates_of(np.zeros((4, 2)), attacker_count=-1))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda u: None, "'mine' must return a Decision, not None"),
        (lambda u: lff.Decision(aggregate=u.weights), r"aggregate of 3 entries, not of shape \[2,"),
        (lambda u: lff.Decision(aggregate=u.weights.flatten()), r"not of shape \[6\]"),
        (lambda u: lff.Decision(aggregate=u.weights[0, :2]), r"3 entries, not of shape \[2\]"),
        (lambda u: lff.Decision(aggregate=u.weights[0] / 0), "'mine' made an aggregate with NaN"),
    ],
)
def test_a_users_defense_is_held_to_a_finite_model(made, message):
    @lff.defense("mine")
    def mine(updates):
        return made(updates)

    with pytest.raises(TrainingError, match=message):
        mine(updates_of([[0, 1, 2], [3, 4, 5]]))


# --- clustering ------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3, 10])
def test_kmeans_with_fewer_distinct_points_than_clusters(m):
    assert kmeans(torch.ones(m, 4), seed=0).tolist() == [0] * m
    mixed = torch.ones(m, 4)
    mixed[0] = -1
    assert kmeans(mixed, seed=0).tolist() == [0] + [1] * (m - 1)


def test_kmeans_tells_points_apart_that_differ_in_one_last_bit():
    points = torch.ones(6, 3)
    points[3:, 1] += torch.finfo(torch.float32).eps
    assert kmeans(points.double(), seed=0).tolist() == [0, 0, 0, 1, 1, 1]


def test_one_hdbscan_cluster_or_only_noise_drops_nobody():
    """A single cluster is none to HDBSCAN: all are noise, and then nobody is bad."""
    spread = np.eye(8, 12, dtype=np.float32).reshape(8, 3, 4) * 4.0 ** np.arange(8)[:, None, None]
    for gradients in (spread, spread + 1e4, np.ones((8, 3, 4))):
        updates = a_round(gradients)
        bad, saw = filter_extreme(updates.output_layer.double())
        assert bad.all(), saw
        assert lfighter(updates, distribution="extreme").dropped(updates.peers) == []


def test_hdbscan_of_equal_points_is_no_error():
    assert set(hdbscan(torch.zeros(6, 4)).tolist()) == {-1}
    triples = torch.eye(3, dtype=torch.float64).repeat_interleave(3, dim=0) * 10
    assert len(set(hdbscan(triples).tolist())) == 3


def test_scores_that_differ_by_rounding_only_are_equal():
    """Mirrored clusters of one size: nothing tells them apart, whatever the last bits say."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        half = torch.from_numpy(rng.normal(size=(5, 4)))
        half[:, 0] += 20
        data = torch.cat([half, -half[torch.from_numpy(rng.permutation(5))]])
        bad, saw = filter_mild(data)
        assert sorted(saw["clusters"]) == [0] * 5 + [1] * 5
        assert not bad.any()


# --- FoolsGold's memory ----------------------------------------------------------------------


@pytest.mark.parametrize("history", ["zero", "identical", "opposite", "overflowing"])
def test_foolsgold_with_a_degenerate_history(history):
    """0/0 in the authors' code: rows of zeros, and a largest similarity of one, or below zero."""
    gradients = normal(4, 3)
    if history == "zero":
        gradients[:] = 0
    elif history == "identical":
        gradients[:] = gradients[0]
    elif history == "opposite":
        gradients[1], gradients[3] = -gradients[0], -gradients[2]
    else:
        gradients[:] = LARGEST
    rule = FoolsGold()
    for t in range(3):
        updates = a_round(gradients, round=t)
        decision = rule(updates)
        assert_sound(decision, updates)
    assert all(tensor.isfinite().all() for tensor in rule.state_dict().values())
    if history in ("zero", "identical", "overflowing"):  # nothing tells the peers apart
        assert decision.weights.tolist() == [0.25] * 4


def test_foolsgold_with_some_peers_that_sent_nothing_yet():
    """A zero history resembles nobody's, so it is no sybil's."""
    gradients = normal(5, 3)
    gradients[1] = gradients[0]
    gradients[2] = 0
    updates = a_round(gradients)
    decision = FoolsGold()(updates)
    assert_sound(decision, updates)
    assert decision.dropped(updates.peers) == [0, 1]


def test_foolsgold_cancels_an_overflow_without_nan():
    gradients = normal(3, 3)
    rule = FoolsGold()
    for value in (LARGEST, LARGEST, -LARGEST, -LARGEST):
        gradients[0] = value
        updates = a_round(gradients)
        assert_sound(rule(updates), updates)


# --- order and scale -------------------------------------------------------------------------


@st.composite
def rounds(draw):
    """Honest peers and attackers of some sizes, near or far apart, or no structure at all."""
    honest, attackers = draw(st.integers(1, 12)), draw(st.integers(0, 8))
    classes, features = draw(st.integers(1, 12)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    gradients = rng.normal(size=(honest + attackers, classes, features + 1))
    gradients += draw(st.sampled_from([0, 1, 10])) * rng.normal(size=gradients.shape[1:])
    gradients[honest:, 0] -= draw(st.sampled_from([0, 3, 30]))
    if draw(st.booleans()):
        gradients[honest // 2 :] = gradients[honest // 2]  # sybils
    return gradients.astype(np.float32), rng, attackers


def updates_from(gradients, attackers, **settings):
    m = len(gradients)
    examples = [float(5 + k * 7 % 11) for k in range(m)]
    return a_round(gradients, examples=examples, attacker_count=attackers, **settings)


@every_rule
@properties
@given(rounds())
def test_the_order_of_peers_changes_nothing(rule, made):
    gradients, rng, attackers = made
    updates = updates_from(gradients, attackers)
    order = rng.permutation(len(updates))
    one, two = decide(rule, updates), decide(rule, updates.select(order))
    torch.testing.assert_close(two.aggregate, one.aggregate, rtol=1e-4, atol=1e-4)
    if one.weights is not None:
        torch.testing.assert_close(two.weights, one.weights[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", FILTERS, ids=lambda rule: "-".join([rule[0], *rule[1].values()]))
@properties
@given(rounds(), st.floats(1e-3, 1e3) | st.integers(-40, 40).map(lambda e: 2.0**e))
def test_the_scale_of_all_updates_does_not_change_who_is_filtered(rule, made, scale):
    gradients, _, attackers = made
    one, two = (
        decide(rule, updates_from(g.astype(np.float32), attackers))
        for g in (gradients, scale * gradients)
    )
    peers = range(len(gradients))
    assert two.dropped(peers) == one.dropped(peers)
    torch.testing.assert_close(two.weights, one.weights, rtol=1e-4, atol=1e-4)


@every_rule
@properties
@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(0.0),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_any_finite_round_gives_a_finite_model(rule, m, classes, values, random):
    gradients = np.array(
        [[[random.choice(values) for _ in range(3)] for _ in range(classes)] for _ in range(m)],
        dtype=np.float32,
    )
    updates = a_round(gradients)
    assert_sound(decide(rule, updates), updates)


# --- through the server ----------------------------------------------------------------------


def with_hostile_peers(monkeypatch, values):
    """Let some peers (`values` by id) send nothing but one value, round after round."""
    collect = Federation.collect_updates

    def collected(self):
        updates = collect(self)
        for row, peer in enumerate(updates.peers):
            if peer in values:
                updates.weights[row] = values[peer]
        return updates

    monkeypatch.setattr(Federation, "collect_updates", collected)


@pytest.mark.parametrize(
    ("defense", "value"),
    [*((defense, 0.0) for defense in DEFENSES), ("median", math.inf), ("labelaudit", math.nan)],
)
def test_one_bad_peer_never_makes_the_global_model_nan(defense, value, tiny, monkeypatch):
    """Before a rule sees the updates, those that are not finite are gone."""
    with_hostile_peers(monkeypatch, {3: value})
    federation = build(lff.experiment("mnist-mild", defense=defense, attackers=20, **tiny))
    for _ in range(2):
        entry = federation.play_round()
        assert entry.get("excluded", []) == ([] if value == 0 else [3])
        assert federation.global_weights.isfinite().all()


@pytest.mark.parametrize("defense", list(DEFENSES))
def test_one_overflowing_peer_is_withstood_or_the_record_tells(defense, tiny, monkeypatch):
    """It leads averages astray: from there on, honest training is not finite."""
    with_hostile_peers(monkeypatch, {3: 1e38})
    federation = build(lff.experiment("mnist-mild", defense=defense, attackers=20, **tiny))
    entries = [federation.play_round(), federation.play_round()]
    assert federation.global_weights.isfinite().all()
    # The oracle knows label flippers only.
    if defense in ("fedavg", "foolsgold", "oracle", "fl_defender", "labelaudit"):
        assert entries[1]["excluded"] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert entries[1]["test_error"] is None
    else:
        assert math.isfinite(entries[1]["test_error"])
        assert federation.global_weights.abs().max() < 1e3


def test_the_record_counts_who_was_excluded(tiny, monkeypatch):
    with_hostile_peers(monkeypatch, {2: math.nan, 7: -math.inf})
    record = lff.run("mnist-iid", defense="median", attackers=30, progress=False, **tiny)
    found = records.find(record.experiment)
    for entry in found.history:
        assert entry["excluded"] == [2, 7]
        assert entry["peers"] == [0, 1, 3, 4, 5, 6, 8, 9]
        assert entry["caught"]["attackers"] + entry["caught"]["honest"] == 8
        assert math.isfinite(entry["test_error"])


def test_excluded_peers_are_as_if_they_had_not_been_selected(tiny, monkeypatch):
    """The others' aggregate is FedAvg of the eight that remain, by their examples."""
    with_hostile_peers(monkeypatch, {2: math.nan, 7: math.inf})
    federation = build(lff.experiment("mnist-mild", **tiny))
    updates = federation.collect_updates()
    rows = [k for k in range(10) if k not in (2, 7)]
    shares = updates.examples[rows].double() / updates.examples[rows].sum()
    federation.play_round()
    wanted = (shares @ updates.weights[rows].double()).float()
    torch.testing.assert_close(federation.global_weights, wanted)


def test_if_no_update_is_finite_the_run_ends_with_a_reason(tiny, monkeypatch):
    with_hostile_peers(monkeypatch, dict.fromkeys(range(10), math.nan))
    e = lff.experiment("mnist-iid", **tiny)
    with pytest.raises(
        TrainingError, match=r"no peer sent a finite update in round 0; .* diverged"
    ):
        lff.run(e, progress=False)
    assert records.find(e) is None


@pytest.mark.parametrize(
    ("defense", "attackers"),
    [*((defense, 100) for defense in DEFENSES), ("trimmed_mean", 60), ("lfighter", 60)],
)
def test_more_attackers_than_honest_peers_or_nobody_honest(defense, attackers, tiny):
    settings = tiny | {"examples": 400, "defense": defense, "attackers": attackers}
    federation = build(lff.experiment("mnist-iid", **settings))
    entry = federation.play_round()
    assert len(federation.attackers) == attackers // 10
    assert federation.global_weights.isfinite().all()
    assert len(entry["dropped"]) < 10


@pytest.mark.parametrize("defense", list(DEFENSES))
def test_a_peer_without_examples_does_no_harm(defense, tiny):
    federation = build(lff.experiment("mnist-mild", defense=defense, **tiny))
    peer = federation.peers[4]
    x, y = peer.examples
    federation.peers[4] = Peer(peer.id, Examples(x[:0], y[:0]))
    federation.play_round()
    assert federation.global_weights.isfinite().all()
