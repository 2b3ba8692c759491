"""Experiments: the paper's settings, names, ids, and refusal of what cannot be run."""

import json
from dataclasses import asdict, fields

import pytest

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.build import dataset, make_peers
from lff.experiments.experiment import Experiment
from lff.experiments.scales import SCALES, experiment

PAPER = {  # Section "Data distribution and training"
    "mnist-iid": ("iid", 100, 200, 3, 64, 0.001, "sgd", 0.9, 7, 1),
    "mnist-mild": ("mild", 100, 200, 3, 64, 0.001, "sgd", 0.9, 7, 1),
    "mnist-extreme": ("extreme", 100, 200, 3, 64, 0.001, "sgd", 0.9, 7, 1),
    "cifar10-iid": ("iid", 20, 100, 3, 32, 0.01, "sgd", 0.9, 5, 3),
    "cifar10-mild": ("mild", 20, 100, 3, 32, 0.01, "sgd", 0.9, 5, 3),
    "imdb": ("iid", 20, 50, 1, 32, 0.001, "adam", 0.0, 1, 0),
}


@pytest.mark.parametrize("name", PAPER)
def test_paper_scale_has_the_papers_settings(name):
    e = experiment(name, scale="paper")
    assert (
        e.distribution,
        e.peers,
        e.rounds,
        e.local_epochs,
        e.batch_size,
        e.learning_rate,
        e.optimizer,
        e.momentum,
        e.source_class,
        e.target_class,
    ) == PAPER[name]
    assert (e.data, e.examples, e.test_examples, e.vocabulary) == ("real", 0, 0, 0)


def test_there_are_six_benchmarks_and_five_scales():
    assert set(BENCHMARKS) == set(PAPER)
    assert list(SCALES) == ["smoke", "small", "quick", "laptop", "paper"]


@pytest.mark.parametrize("scale", ["smoke", "small", "quick"])
@pytest.mark.parametrize("name", PAPER)
def test_scales_without_network_use_embedded_data(name, scale):
    assert experiment(name, scale=scale).data == "embedded"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", PAPER)
def test_a_scale_changes_sizes_only(name, scale):
    sizes = {
        "scale", "data", "peers", "examples", "test_examples", "vocabulary", "width",
        "rounds", "local_epochs", "learning_rate", "batch_size",
    }  # fmt: skip
    paper, scaled = asdict(experiment(name, scale="paper")), asdict(experiment(name, scale=scale))
    assert {key for key in paper if paper[key] != scaled[key]} <= sizes


def test_id_is_readable_and_changes_with_every_field():
    e = experiment("cifar10-mild", defense="lfighter", attackers=40, seed=3)
    assert e.id.startswith("cifar10-mild_lfighter_40_seed3_")
    other = {
        str: lambda value: value + "x",
        int: lambda value: value + 1,
        float: lambda value: value / 2 + 0.125,
    }
    free = {
        "defense",
        "defense_options",
        "attack_options",
        "hooks",
        "user_code",
    }  # texts without a fixed set of choices
    changed = {
        field.name: other[field.type](getattr(e, field.name))
        for field in fields(e)
        if field.type is not str or field.name in free
    }
    changed |= {"benchmark": "cifar10-iid", "scale": "paper", "data": "real", "distribution": "iid"}
    changed |= {"optimizer": "adam", "source_class": 8, "target_class": 2}
    assert set(changed) | {"attack"} == {field.name for field in fields(e)}
    ids = {e.replace(**{name: value}).id for name, value in changed.items()}
    assert len(ids | {e.id}) == len(changed) + 1


def test_experiment_survives_json():
    e = experiment("imdb", defense="lfighter", attackers=10, defense_options={"density": "cosine"})
    again = Experiment(**json.loads(json.dumps(asdict(e))))
    assert again == e
    assert again.id == e.id


def test_a_later_field_changes_no_id_that_was_given_before_it():
    """A committed id, which names what differs from the defaults and the arithmetic."""
    e = experiment("mnist-mild", scale="laptop", defense="lfighter", attackers=40)
    assert e.id == "mnist-mild_lfighter_40_seed0_a83bb81220"
    assert Experiment(**e.settings()) == e
    e = experiment("cifar10-iid", scale="paper")
    assert "width" not in e.settings()
    assert e.replace(width=16).settings() == {**e.settings(), "width": 16}
    assert e.replace(width=16).id != e.id


def test_other_arithmetic_gives_other_ids(monkeypatch):
    e = experiment("mnist-mild")
    before = e.id
    monkeypatch.setattr("lff.experiments.experiment.ARITHMETIC", 99)
    assert e.id != before


def test_the_papers_width_has_one_name_and_other_models_none():
    e = experiment("cifar10-iid", scale="laptop")
    assert e.replace(width=64) == e.replace(width=0)
    assert e.replace(width=64).id == e.replace(width=0).id
    with pytest.raises(InputError, match="width must be 0, not 16, for imdb, whose model is"):
        experiment("imdb", width=16)


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_peers_of_cifar10_iid_have_no_last_batch_of_two(scale):
    """Which BatchNorm, at the single pixel ResNet18 ends in, makes wild gradients of."""
    e = experiment("cifar10-iid", scale=scale)
    assert (e.examples or 50_000) // e.peers % e.batch_size not in (2, 3)


@pytest.mark.parametrize("name", ["cifar10-iid", "cifar10-mild"])
def test_peers_of_quick_color_digits_have_no_last_batch_of_two(name):
    """In the seeds its sizes were found with."""
    data = dataset(experiment(name, scale="quick"))
    for seed in range(5):
        e = experiment(name, scale="quick", seed=seed)
        peers, _ = make_peers(e, data)
        assert not {len(peer.y) % e.batch_size for peer in peers} & {2, 3}


@pytest.mark.parametrize("name", PAPER)
def test_sizes_of_quick_are_within_the_embedded_data(name):
    e = experiment(name, scale="quick", attackers=40)
    there = dataset(e)
    assert e.examples <= len(there.train_y)
    assert e.test_examples <= len(there.test_y)
    _, attackers = make_peers(e, there)
    assert len(attackers) == (2 if e.distribution == "extreme" else 0.4 * e.peers)


def test_whole_number_and_float_ratio_are_the_same_experiment():
    assert experiment("imdb", attackers=10).id == experiment("imdb", attackers=10.0).id


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attackers": 101}, "attackers must be between 0 and 100 percent, not 101"),
        ({"attackers": -1}, "not -1"),
        ({"attackers": float("nan")}, "not nan"),
        ({"attackers": "40"}, "attackers must be a number, not '40'"),
        ({"seed": -1}, "seed must be between 0"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"rounds": 0}, "rounds must be between 1"),
        ({"rounds": True}, "rounds must be a whole number, not True"),
        ({"peers": 0}, "peers must be between 1"),
        ({"fraction": 2}, "fraction must be between 0 and 1"),
        ({"learning_rate": 0}, "learning_rate must be between"),
        ({"source_class": 1}, "source_class and target_class are both 1"),
        ({"distribution": "milde"}, "Did you mean 'mild'"),
        ({"data": "fake"}, "choose from: real, embedded"),
        ({"attack": "flip"}, "unknown attack 'flip'; choose from: label_flipping"),
        ({"scale": "quik"}, "Did you mean 'quick'"),
        ({"defense": "lfigther"}, "Did you mean 'lfighter'"),
        ({"lernig_rate": 1}, "unknown setting 'lernig_rate'"),
        ({"defense_options": "weighing"}, "name=value"),
        ({"defense_options": {"wheighing": "equal"}}, "Did you mean 'weighing'"),
        ({"defense_options": {"weighing": "equel"}}, "choose from: examples, equal"),
        ({"defense_options": {"weighing": ["equal"]}}, "must be a text, a number or a bool"),
        ({"attack_options": {"share": 1}}, "option of label_flipping 'share'"),
        ({"hooks": "norms"}, "unknown hook 'norms'"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(settings, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        experiment("mnist-mild", **settings)


def test_unknown_benchmark_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'mnist-mild'"):
        experiment("mnist_mild")
