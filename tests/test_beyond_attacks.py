"""The further attacks: what they do to labels, features and updates, by hand and by brute force."""

from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import lff
import lff.beyond.attacks
from lff.attacks import ATTACKS
from lff.beyond.attacks.labels import every, least_likely
from lff.beyond.attacks.updates import ALIE, MinMax, MinSum
from lff.errors import InputError
from lff.training import Examples

properties = settings(max_examples=60, deadline=None, derandomize=True, database=None)
W = torch.tensor([1.0, -2.0, 0.5, 3.0])


def attack(name, **options):
    return ATTACKS[name].create(**options)


def labels(name, y, options=None, **context):
    """The labels that the attack makes of these, in ten classes, from 7 to 1."""
    settings = {"source_class": 7, "target_class": 1, "classes": 10, "peer": 4, "round": 0}
    settings |= {"attackers": (2, 4, 9), "generator": torch.Generator().manual_seed(0)}
    x, y = torch.zeros(len(y), 1), torch.tensor(y)
    poisoned = attack(name, **options or {}).poison(
        Examples(x, y.clone()), SimpleNamespace(**(settings | context))
    )
    assert torch.equal(poisoned.x, x)
    return poisoned.y.tolist()


def known(updates, theirs, **context):
    """A context with these updates, of which some rows are attackers'."""
    updates, theirs = torch.as_tensor(updates, dtype=torch.float32), torch.tensor(theirs)
    defaults = {
        "peer": 0, "peers": len(updates), "attackers": tuple(theirs.nonzero().flatten().tolist()),
        "round": 0, "source_class": 0, "target_class": 1, "classes": 3,
        "model": SimpleNamespace(layout=SimpleNamespace(parameters=updates.shape[1])),
        "generator": None, "learning_rate": 0.1, "global_weights": torch.zeros(updates.shape[1]),
    }  # fmt: skip
    return lff.Context(**(defaults | context), updates=updates, theirs=theirs)


# --- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "flipped"),
    [(0.0, []), (0.25, [3]), (0.5, [1, 3]), (0.75, [1, 2, 3]), (1.0, [0, 1, 2, 3])],
)
def test_a_share_of_the_source_labels_is_flipped(share, flipped):
    got = labels("partial", [7, 0, 7, 7, 1, 7], {"share": share})
    places = [0, 2, 3, 5]
    assert [place for place in places if got[place] == 1] == [places[i] for i in flipped]
    assert (got[1], got[4]) == (0, 1)


@given(st.integers(0, 50), st.floats(0, 1))
def test_every_share_is_as_large_as_it_says_everywhere(count, share):
    chosen = every(share, count).double()
    assert len(chosen) == count
    so_far = chosen.cumsum(0)
    wanted = torch.arange(1, count + 1) * share
    assert ((so_far <= wanted + 1e-6) & (so_far > wanted - 1)).all()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [1, 2, 3, 3, 4, 0]),  # 7-1, 8-2, 9-3
        ({"pairs": "3-5 4-0"}, [7, 8, 9, 5, 0, 0]),
        ({"own": True}, [7, 2, 9, 3, 4, 0]),  # she is the second of three attackers
        ({"pairs": "3-5 4-0", "own": True}, [7, 8, 9, 3, 0, 0]),
        ({"pairs": "3-4 4-3"}, [7, 8, 9, 4, 3, 0]),  # at once, not one after another
    ],
)
def test_several_pairs_at_once_by_one_map_or_each_attacker_her_own(options, wanted):
    assert labels("several_pairs", [7, 8, 9, 3, 4, 0], options) == wanted


@pytest.mark.parametrize("pairs", ["7", "7-1,4-9", "7-1  4-9", "a-b", "7-1 7-2"])
def test_pairs_that_are_none_are_refused_when_the_attack_is_made(pairs):
    with pytest.raises(InputError, match=r"pairs|target class"):
        attack("several_pairs", pairs=pairs)


def test_pairs_of_classes_that_there_are_not_are_refused():
    with pytest.raises(InputError, match="there are 10 classes"):
        labels("several_pairs", [1], {"pairs": "7-10"})


def test_the_untargeted_flips():
    y = [7, 0, 9, 1, 1]
    assert labels("all_to_one", y) == [1] * 5
    assert labels("inverse_labels", y) == [2, 9, 0, 8, 8]
    drawn = labels("random_labels", y * 200)
    assert all(new != old and 0 <= new < 10 for new, old in zip(drawn, y * 200, strict=True))
    counts = np.bincount(drawn, minlength=10)
    wanted = 200 * (5 - np.bincount(y, minlength=10)) / 9
    assert np.abs(counts - wanted).max() < 5 * np.sqrt(1000 * 0.1)


def test_dynamic_labels_are_what_the_global_model_finds_least_likely():
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
        model.bias.zero_()
    x = torch.tensor([[1.0, 2, 3], [3, 1, 2], [2, 3, 1]])
    context = SimpleNamespace(model=SimpleNamespace(module=model))
    poisoned = attack("dynamic_labels").poison(Examples(x, torch.zeros(3).long()), context)
    assert poisoned.y.tolist() == [0, 1, 2]
    assert torch.equal(poisoned.x, x)
    assert least_likely(torch.tensor([2.0, -1.0])).tolist() == [0, 1], "of one logit"


# --- features --------------------------------------------------------------------------------


def test_a_patch_is_in_the_corner_as_bright_as_it_gets_in_each_channel():
    x = torch.rand(5, 2, 6, 6)
    x[0, 0, 0, 0], x[3, 1, 2, 2] = 4.0, 9.0
    patched = attack("badnets", size=2).trigger(x)
    assert (patched[:, 0, 4:, 4:] == 4).all()
    assert (patched[:, 1, 4:, 4:] == 9).all()
    patched[:, :, 4:, 4:] = x[:, :, 4:, 4:]
    assert torch.equal(patched, x)
    assert len(attack("badnets").trigger(x[:0])) == 0


def test_a_share_of_the_examples_is_patched_and_labeled_as_the_target():
    x, y = torch.rand(8, 1, 6, 6), torch.arange(8)
    bad = attack("badnets", share=0.25)
    poisoned = bad.poison(Examples(x, y), SimpleNamespace(target_class=1))
    assert poisoned.y.tolist() == [0, 1, 2, 1, 4, 5, 6, 1]
    changed = [k for k in range(8) if not torch.equal(poisoned.x[k], x[k])]
    assert changed == [3, 7]
    assert torch.equal(poisoned.x[3], bad.trigger(x)[3])


@pytest.mark.parametrize("options", [{"share": 1.5}, {"size": 0}])
def test_a_patch_that_cannot_be_is_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        attack("badnets", **options)
    with pytest.raises(InputError, match="images only"):
        attack("badnets").trigger(torch.zeros(4, 9))


def test_a_backdoor_is_learned_and_measured_on_patched_test_images(tmp_path):
    """Two classes of stripes; half of the peers' examples say that the patch is class 1."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    x = 0.3 * torch.randn(240, 1, 6, 6, generator=generator)
    x[torch.arange(240), :, y] += 2
    made = lff.Federation(
        [(x[k::7], y[k::7]) for k in range(6)], (x, y),
        nn.Sequential(nn.Flatten(), nn.Linear(36, 3)),
        source_class=0, target_class=1, attack=attack("badnets", size=2), attackers=[0, 1, 2],
        training=lff.LocalTraining(local_epochs=3, batch_size=10, learning_rate=0.05),
    )  # fmt: skip
    entries = [made.play_round() for _ in range(6)]
    assert entries[-1]["asr"] > 0.7
    assert entries[-1]["all_acc"] > 0.85
    assert np.sum(entries[-1]["patched"]) == 240


# --- updates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "last"), [(4, 23.0), (3, 5.0)])
def test_a_boosted_update_goes_further_in_its_direction(parameters, last):
    """The last entry may be a running statistic, which stays as training left it."""
    update = torch.tensor([2.0, -2.0, 1.0, 5.0])
    model = SimpleNamespace(layout=SimpleNamespace(parameters=parameters))
    context = SimpleNamespace(global_weights=W, model=model)
    crafted = attack("boosted", boost=10.0).craft(update, context)
    assert crafted.tolist() == [11.0, -2.0, 5.5, last]


def test_inner_product_manipulation_is_byzfls(byzfl):
    honest = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    context = known(np.concatenate([honest, honest[:2]]) + W.numpy(), [False] * 6 + [True] * 2,
                    global_weights=W)  # fmt: skip
    got = attack("ipm", epsilon=0.7).craft(context.updates[6], context)
    theirs = byzfl.InnerProductManipulation(tau=0.7)(torch.from_numpy(honest))
    torch.testing.assert_close(got, W + theirs)


def test_alie_by_hand_and_the_papers_z():
    """Of 50 peers 24 attack: two supporters of 26 are needed, so z = Phi^-1(24 / 26) = 1.43."""
    context = known([[0.0, 1], [2, 1], [4, 4]], [True] * 3)
    got = attack("alie", z=1.5).craft(context.updates[0], context)
    std = np.std([[0, 1], [2, 1], [4, 4]], axis=0)
    torch.testing.assert_close(got, torch.tensor([2, 2] - 1.5 * std).float())
    assert ALIE.largest_z(50, 24) == pytest.approx(1.4261, abs=1e-4)
    assert ALIE.largest_z(10, 5) == pytest.approx(0.8416, abs=1e-4)  # one supporter of five
    assert all(0 <= ALIE.largest_z(n, f) < 4 for n in range(1, 60) for f in range(1, n + 1))


def test_attackers_who_work_together_send_the_same_and_anew_in_each_round():
    alie = attack("alie")
    one, two = (known(rows, [True] * 3) for rows in ([[0.0], [1], [5]], [[9.0], [1], [5]]))
    first = [alie.craft(row, one) for row in one.updates]
    assert all(torch.equal(row, first[0]) for row in first)
    assert not torch.equal(alie.craft(two.updates[0], two), first[0])


def test_mimic_sends_an_honest_peers_update():
    context = known([[0.0, 1], [2, 3], [4, 5]], [True, False, False])
    assert attack("mimic").craft(context.updates[0], context).tolist() == [2, 3]
    assert attack("mimic", victim=1).craft(context.updates[0], context).tolist() == [4, 5]


def fits(name, honest, crafted):
    """Whether the crafted update keeps the promise of its name."""
    pairs = ((honest[:, None] - honest[None]) ** 2).sum(axis=2)
    own = ((honest - crafted) ** 2).sum(axis=1)
    slack = 1 + 1e-4
    if name == "min_max":
        return own.max() <= pairs.max() * slack
    return own.sum() <= pairs.sum(axis=1).max() * slack


@properties
@given(
    st.sampled_from(["min_max", "min_sum"]),
    st.sampled_from(["mean", "sign", "deviation"]),
    st.integers(2, 9),
    st.integers(0, 10**6),
)
def test_min_max_and_min_sum_go_as_far_as_they_may_and_no_further(name, direction, m, seed):
    honest = np.random.default_rng(seed).normal(size=(m, 4)) + 1
    context = known(np.concatenate([honest, honest[:1]]), [False] * m + [True])
    crafted = attack(name, direction=direction).craft(context.updates[-1], context).double().numpy()
    mean = honest.mean(axis=0)
    p = {"mean": -mean, "sign": -np.sign(mean), "deviation": -honest.std(axis=0)}[direction]
    step = crafted - mean
    assert step @ p / np.linalg.norm(step) / np.linalg.norm(p) == pytest.approx(1, abs=1e-4)
    assert fits(name, honest, crafted)
    assert not fits(name, honest, mean + 1.01 * step)


@pytest.mark.parametrize("kind", [MinMax, MinSum])
def test_honest_peers_who_agree_leave_no_room(kind):
    context = known(np.ones((4, 3)), [False] * 3 + [True])
    assert kind().craft(context.updates[3], context).tolist() == [1, 1, 1]
    with pytest.raises(InputError, match="'std'; choose from: mean, sign, deviation"):
        kind(direction="std")


# --- in a federation -------------------------------------------------------------------------


def federation(name="label_flipping", attackers=(0, 3, 5), model=None, **options):
    """Eight peers with points of four classes; three attack from class 2 to class 0."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (320,), generator=generator)
    corners = torch.tensor([[3.0, 3.0], [3.0, -3.0], [-3.0, -3.0], [-3.0, 3.0]])
    x = corners[y] + torch.randn(320, 2, generator=generator)
    torch.manual_seed(1)
    return lff.Federation(
        [(x[k::8], y[k::8]) for k in range(8)], (x, y), model or nn.Sequential(nn.Linear(2, 4)),
        source_class=2, target_class=0, attack=attack(name, **options), attackers=attackers,
        training=lff.LocalTraining(local_epochs=2, batch_size=10, learning_rate=0.05),
    )  # fmt: skip


def layers(name="label_flipping", **options):
    """Each peer's step in the output layer in the first round, `[8, 4, 3]`."""
    updates = federation(name, **options).collect_updates()
    return -updates.output_layer * updates.learning_rate


HONEST = [1, 2, 4, 6, 7]


@pytest.mark.parametrize(
    "name",
    [
        "boosted",
        "sybil_noise",
        "rescaled_neurons",
        "noisy_neurons",
        "decoy",
        "proximal",
        "copied_row",
        "disguised_row",
    ],
)
def test_they_flip_labels_and_leave_honest_updates_alone(name):
    plain, attacked = layers(), layers(name)
    assert torch.equal(attacked[HONEST], plain[HONEST])
    assert not torch.equal(attacked[0], plain[0])
    made = federation(name)
    true = made.peers[3].examples.y
    assert torch.equal(made.poisoned(made.peers[3], 0).examples.y, torch.where(true == 2, 0, true))


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_sybil_noise_cancels_between_two_and_the_third_adds_none(scale):
    plain, noisy = layers(), layers("sybil_noise", scale=scale)
    noise = noisy - plain
    torch.testing.assert_close(noise[0], -noise[3], rtol=1e-4, atol=1e-6)
    assert torch.equal(noise[5], torch.zeros(4, 3))
    length = plain[[0, 3, 5]].flatten(1).norm(dim=1).mean()
    torch.testing.assert_close(noise[0].norm(), scale * length, rtol=1e-4, atol=1e-6)


def test_sybil_noise_makes_two_attackers_unlike_and_has_one_direction_for_good():
    def cosine(a, b):
        return torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)

    plain, noisy = layers(), layers("sybil_noise", scale=3.0)
    assert cosine(plain[0], plain[3]) > 0.9
    assert cosine(noisy[0], noisy[3]) < 0
    made = federation("sybil_noise", scale=100.0)
    first = made.collect_updates().output_layer[0]
    made.play_round()
    assert cosine(made.collect_updates().output_layer[0], first) > 0.99


def test_a_proximal_term_keeps_attackers_near_the_global_model():
    flipped, free, near, nearer = (
        layers(name, **options)[[0, 3, 5]].flatten(1).norm(dim=1)
        for name, options in (
            ("label_flipping", {}), ("proximal", {"mu": 0.0}), ("proximal", {"mu": 1.0}),
            ("proximal", {"mu": 5.0}),
        )
    )  # fmt: skip
    torch.testing.assert_close(free, flipped)
    assert (near < free).all()
    assert (nearer < near).all()


def test_relevant_neurons_become_as_long_as_the_honest_ones_on_average():
    plain, rescaled = layers(), layers("rescaled_neurons")
    for k in (0, 3, 5):
        assert torch.equal(rescaled[k, [1, 3]], plain[k, [1, 3]])
        for neuron in (0, 2):
            wanted = plain[HONEST, neuron].norm(dim=1).mean()
            torch.testing.assert_close(rescaled[k, neuron].norm(), wanted, rtol=1e-4, atol=1e-6)
            cosine = torch.cosine_similarity(rescaled[k, neuron], plain[k, neuron], dim=0)
            assert cosine.item() == pytest.approx(1, abs=1e-5)


def test_noise_on_relevant_neurons_is_in_proportion_and_each_attackers_own():
    plain, noisy = layers(), layers("noisy_neurons", scale=2.0)
    noise = noisy - plain
    for k in (0, 3, 5):
        assert torch.equal(noisy[k, [1, 3]], plain[k, [1, 3]])
        torch.testing.assert_close(
            noise[k, [0, 2]].norm(dim=1), 2 * plain[k, [0, 2]].norm(dim=1), rtol=1e-4, atol=1e-6
        )
    assert not torch.allclose(noise[0, 0], noise[3, 0], atol=1e-3)


@pytest.mark.parametrize(("options", "neuron"), [({}, 1), ({"neuron": 3, "factor": 20.0}, 3)])
def test_a_decoy_is_longer_than_the_relevant_neurons_and_lfighter_looks_at_it(options, neuron):
    plain, decoyed = layers(), layers("decoy", **options)
    factor = options.get("factor", 3.0)
    for k in (0, 3, 5):
        longest = plain[k, [0, 2]].norm(dim=1).max()
        torch.testing.assert_close(decoyed[k, neuron].norm(), factor * longest, rtol=1e-4, atol=0)
        others = [i for i in range(4) if i != neuron]
        assert torch.equal(decoyed[k, others], plain[k, others])
    if factor > 10:
        updates = federation("decoy", **options).collect_updates()
        assert neuron in lff.defenses.lfighter(updates).saw["neurons"]


@pytest.mark.parametrize("neuron", [0, 2, 4, -2])
def test_a_decoy_must_be_another_neuron(neuron):
    with pytest.raises(InputError, match=rf"one of the neurons \[1, 3\], not {neuron}"):
        federation("decoy", neuron=neuron).play_round()


@pytest.mark.parametrize("name", ["rescaled_neurons", "noisy_neurons"])
def test_of_a_single_neuron_that_one_is_relevant(name):
    class OneLogit(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(2, 1)

        def forward(self, x):
            return self.output(x).squeeze(1)

    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    made = lff.Federation(
        [(x[k::4], y[k::4]) for k in range(4)], (x, y), OneLogit(),
        source_class=0, target_class=1, attack=attack(name), attackers=[1],
        training=lff.LocalTraining(batch_size=10, learning_rate=0.05),
    )  # fmt: skip
    assert made.play_round()["all_acc"] >= 0
    made.attack = attack("decoy")
    with pytest.raises(InputError, match=r"one of the neurons \[\]"):
        made.play_round()


def test_a_copied_row_moves_as_the_target_row():
    plain, copied = layers(), layers("copied_row")
    for k in (0, 3, 5):
        torch.testing.assert_close(copied[k, 2], plain[k, 0])
        assert torch.equal(copied[k, [0, 1, 3]], plain[k, [0, 1, 3]])


def test_a_disguised_row_moves_as_the_honest_target_rows_do_on_average():
    plain, disguised = layers(), layers("disguised_row")
    for k in (0, 3, 5):
        torch.testing.assert_close(disguised[k, 2], plain[HONEST, 0].mean(dim=0))
        assert torch.equal(disguised[k, [0, 1, 3]], plain[k, [0, 1, 3]])


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("early", {}, [[0, 3, 5]] * 3 + [[]] * 2),
        ("early", {"rounds": 1}, [[0, 3, 5]] + [[]] * 4),
        ("late", {}, [[]] * 4 + [[0, 3, 5]] * 2),
        ("late", {"rounds": 1}, [[]] + [[0, 3, 5]] * 4),
        ("turns", {}, [[0, 5], [3], [0, 5], [3], [0, 5]]),
        ("turns", {"groups": 3}, [[0], [3], [5], [0], [3]]),
    ],
)
def test_attackers_flip_early_late_or_in_turns(name, options, wanted):
    made = federation(name, **options)
    for t, attacking in enumerate(wanted):
        poisoned = [made.poisoned(peer, t).examples.y for peer in made.peers]
        changed = [k for k in range(8) if not torch.equal(poisoned[k], made.peers[k].examples.y)]
        assert changed == attacking


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("early", "rounds", 0),
        ("late", "rounds", 0),
        ("turns", "groups", 0),
        ("proximal", "mu", -1.0),
    ],
)
def test_what_cannot_be_is_refused_when_the_attack_is_made(name, option, value):
    with pytest.raises(InputError, match=f"{option} must be .* not {value}"):
        attack(name, **{option: value})


# --- all of them -----------------------------------------------------------------------------

OURS = [a for a in ATTACKS.values() if a.factory.__module__.startswith("lff.beyond.attacks.")]


def test_the_table_says_what_every_attacker_knows():
    lines = lff.beyond.attacks.__doc__.splitlines()
    rows = [line.split("|")[1:4] for line in lines if line.startswith("| `")]
    told = {name: knows.strip() for names, _, knows in rows for name in names.split("`")[1::2]}
    assert told == {a.name: a.knows for a in OURS}
    assert "partial" in told


@pytest.mark.parametrize("name", [a.name for a in OURS])
def test_every_attack_has_no_memory_and_can_be_resumed(name, tiny):
    e = lff.experiment("mnist-mild", attack=name, attackers=30, **tiny)
    one, two = lff.build(e), lff.build(e)
    for _ in range(2):
        one.play_round()
    two.load_state(*one.state())
    assert two.play_round() == one.play_round()


@pytest.mark.parametrize("name", ["alie", "ipm", "partial"])
def test_the_record_says_what_the_attackers_knew(name, tiny):
    record = lff.run("mnist-mild", attack=name, attackers=30, progress=False, **tiny)
    assert record.knew == ATTACKS[name].knows
