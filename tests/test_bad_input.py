"""Whatever cannot be used is refused before any work, with the value and what is allowed instead.

What other tests refuse already (test_benchmarks, test_cli, test_notebooks, test_data_fetching,
test_records) is not repeated here.
"""

import gzip
import json
import math
from dataclasses import asdict, fields
from typing import Literal

import pytest
from helpers import sealed

import lff
from lff import data
from lff.cli import main
from lff.defenses import DEFENSES
from lff.errors import InputError, RecordError
from lff.experiments import records, sweep
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.records import decompressed
from lff.experiments.scales import SCALES
from lff.federation import Federation
from lff.study.notebook import Parameters, parameters


@pytest.fixture
def no_work(monkeypatch):
    """Nothing is loaded, let alone trained."""

    def work(*_, **__):
        raise AssertionError("work was begun")

    monkeypatch.setattr("lff.experiments.build.load", work)


@pytest.fixture
def no_training(monkeypatch):
    """Data may be looked at, but nobody trains."""

    def work(*_, **__):
        raise AssertionError("training was begun")

    monkeypatch.setattr(Federation, "collect_updates", work)


# --- experiments -----------------------------------------------------------------------------

NUMBERS = [f.name for f in fields(Experiment) if f.type in (int, float)]
WHOLE = [f.name for f in fields(Experiment) if f.type is int]
FLOATS = [f.name for f in fields(Experiment) if f.type is float]
TEXTS = [f.name for f in fields(Experiment) if f.type is str]
ALLOWED = {float: "a number", int: "a whole number", str: "a text"}
KIND = {f.name: ALLOWED[f.type] for f in fields(Experiment)}


def valid():
    return asdict(lff.experiment("mnist-mild"))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, "1", None, [1], {"a": 1}, 1j, b"1"], ids=repr)
def test_a_number_is_nothing_else(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be {KIND[name]}, not ") as caught:
        Experiment(**valid() | {name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [1.5, 2.0, math.nan, math.inf])
def test_a_whole_number_is_not_a_float(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be a whole number, not {value!r}$"):
        Experiment(**valid() | {name: value})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [1, None, True, ["iid"], b"iid"], ids=repr)
def test_a_text_is_nothing_else(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be a text, not "):
        Experiment(**valid() | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NUMBERS for value in (-1, 10**12, 10**400, -(10**400))]
    + [(name, value) for name in FLOATS for value in (math.nan, math.inf, -math.inf)],
    ids=lambda case: str(case)[:20],
)
def test_a_number_out_of_range_is_refused_with_the_range(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be between \S+ and \S+.*, not "):
        Experiment(**valid() | {name: value})


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("which", ["source_class", "target_class"])
def test_classes_that_do_not_exist(name, which):
    highest = {"imdb": 1}.get(name, 9)
    for value in (highest + 1, 1000):
        with pytest.raises(
            InputError, match=rf"^{which} must be between 0 and {highest}, not {value}$"
        ):
            lff.experiment(name, **{which: value})


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_have_as_many_classes_as_their_data(name):
    embedded = data.load(BENCHMARKS[name].dataset, data="embedded", vocabulary=50)
    assert len(embedded.classes) == BENCHMARKS[name].classes


@pytest.mark.parametrize("value", [None, 5, ["mnist-mild"], {}, "MNIST-Mild"], ids=repr)
def test_names_of_any_type_are_refused_with_the_choices(value):
    with pytest.raises(InputError, match=r"unknown benchmark .* choose from: mnist-iid"):
        lff.run(value)
    with pytest.raises(InputError, match=r"unknown scale .* choose from: smoke"):
        lff.experiment("imdb", scale=value)
    with pytest.raises(InputError, match=r"unknown scale .* choose from: smoke"):
        lff.grid(scale=value)
    with pytest.raises(InputError, match=r"unknown device .* choose from: auto"):
        lff.run("imdb", device=value)
    with pytest.raises(InputError, match=r"unknown data set .* choose from: mnist"):
        data.load(value)
    with pytest.raises(InputError, match=r"unknown kind of data .* choose from: real"):
        data.load("mnist", data=value)
    with pytest.raises(InputError, match=r"unknown engine .* choose from: auto"):
        lff.run("imdb", scale="smoke", engine=value)


@pytest.mark.parametrize("name", ["", "Seed", "seed ", "round", "__class__", "id", "lr"])
def test_unknown_settings_are_refused(name):
    with pytest.raises(InputError, match=rf"unknown setting {name!r}; choose from: benchmark, "):
        lff.experiment("mnist-iid", **{name: 1})


# --- what only the data can tell -------------------------------------------------------------


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 201}, "batch_size must be between 1 and 200, .*, not 201"),
        (
            {"batch_size": 10**6, "examples": 0},
            "batch_size must be between 1 and 4000, .*, not 1000000",
        ),
        ({"peers": 201}, "cannot divide 200 examples among 201 peers"),
        ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
        ({"workers": True}, "workers must be a whole number of at least 1, not True"),
    ],
)
def test_more_than_there_is_data_for(wrong, message, tiny):
    with pytest.raises(InputError, match=message):
        lff.run("mnist-iid", progress=False, **(tiny | wrong))


def test_a_peer_with_less_than_a_batch_is_no_mistake(tiny):
    record = lff.run("mnist-mild", progress=False, **(tiny | {"batch_size": 200, "rounds": 1}))
    assert math.isfinite(record.history[0]["test_error"])


# --- a defense's options ---------------------------------------------------------------------


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("defense", "options", "message"),
    [
        ("lfighter", "density=angel", r"unknown density of lfighter 'angel'.*Did you mean 'angle'"),
        ("lfighter", {"distribution": "wild"}, "unknown distribution of lfighter 'wild'.*mild"),
        ("lfighter", {"density": 1}, "unknown density of lfighter 1; choose from: angle, cosine"),
        ("fedavg", {"weighing": True}, "unknown weighing of fedavg True; choose from: examples"),
        ("fedavg", 5, "not 5"),
        ("fedavg", None, "not None"),
        ("fedavg", ["weighing=equal"], "not .'weighing=equal'"),
    ],
)
def test_options_are_refused_before_the_first_round(defense, options, message):
    with pytest.raises(InputError, match=message):
        lff.run("mnist-iid", defense=defense, defense_options=options)


def test_the_annotations_of_a_users_defense_are_held_to():
    @lff.defense("mine")
    def mine(updates, *, keep: int = 3, share: float = 0.5, how: Literal["a", "b"] = "a", any=None):
        return lff.Decision(aggregate=updates.weights[0])

    @lff.defense("remembering")
    class Remembering:
        def __init__(self, *, rounds: int = 3):
            self.rounds = rounds

        def __call__(self, updates): ...
        def state_dict(self): ...
        def load_state_dict(self, state): ...

    check = DEFENSES["mine"].check
    check({"keep": 4, "share": 1, "how": "b", "any": "thing"})
    for wrong in ({"keep": True}, {"keep": 1.5}, {"share": "1"}, {"share": False}, {"how": "c"}):
        with pytest.raises(InputError, match=rf"{next(iter(wrong))} of mine"):
            check(wrong)
    with pytest.raises(InputError, match="option rounds of remembering must be of type int"):
        DEFENSES["remembering"].create(rounds="many")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attack": "sprinkle"}, "unknown attack 'sprinkle'.*Did you mean 'sprinkled'"),
        ({"attack_options": "shar=0.5"}, "option of sprinkled 'shar'.*Did you mean 'share'"),
        ({"attack_options": {"share": "half"}}, "share of sprinkled must be of type float, not"),
        ({"hooks": "timng"}, "unknown hook 'timng'.*Did you mean 'timing'"),
        ({"hooks": ["timing", 5]}, "unknown hook '5'; choose from: .*timing"),
        ({"hooks": 5}, "hooks must be a list of names, not 5"),
    ],
)
@pytest.mark.usefixtures("no_work")
def test_a_users_attacks_and_hooks_are_held_to_their_names(settings, message):
    @lff.attack("sprinkled")
    def sprinkled(data, context, *, share: float = 0.5):
        return data

    @lff.hook("timing")
    def timing(federation, entry):
        return {}

    with pytest.raises(InputError, match=message):
        lff.run("mnist-iid", **{"attack": "sprinkled", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peeers": 5}, "unknown setting 'peeers'.*Did you mean 'peers'"),
        ({"source_class": None}, "benchmark 'mine' needs a source_class"),
        ({"target_class": None}, "benchmark 'mine' needs a target_class"),
        ({"name": "my own"}, "name of a benchmark must be made of letters, .* not 'my own'"),
        ({"name": "../mine"}, "name of a benchmark must be made of letters, .* not '../mine'"),
        ({"name": "imdb", "data": lambda: None}, "a benchmark named 'imdb' exists already"),
    ],
)
def test_a_users_benchmark_is_refused_where_it_is_registered(settings, message):
    valid = {"name": "mine", "data": "mnist", "model": "cnn", "source_class": 3, "target_class": 8}
    settings = {k: v for k, v in {**valid, **settings}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        lff.benchmark(settings.pop("name"), **settings)


# --- sweeps, tables and folders --------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"benchmarks": "mnist-iid"}, "benchmarks must be a list, not 'mnist-iid'"),
        ({"defenses": "median"}, "defenses must be a list, not 'median'"),
        ({"attackers": 40}, "attackers must be a list, not 40"),
        ({"seeds": 0}, "seeds must be a list, not 0"),
        ({"seeds": [-1]}, "seed must be between 0 and 2.14748e.09, not -1"),
        ({"attackers": [50, 140]}, "attackers must be between 0 and 100 percent, not 140"),
        ({"defenses": ["medain"]}, "Did you mean 'median'"),
        ({"rounds": 0}, "rounds must be between 1 and 100000, not 0"),
        ({"source_class": 1}, "source_class and target_class are both 1"),
    ],
)
def test_a_grid_is_refused_as_a_whole(wrong, message):
    with pytest.raises(InputError, match=message):
        lff.grid(**{"benchmarks": ["mnist-iid"], **wrong})


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, "2"])
def test_jobs_are_a_whole_number_of_at_least_one(jobs):
    with pytest.raises(
        InputError, match=f"jobs must be a whole number of at least 1, not {jobs!r}"
    ):
        lff.run_all([], jobs=jobs)


def test_tables_of_an_unknown_scale_are_not_silently_empty():
    with pytest.raises(InputError, match=r"unknown scale 'qick'.*Did you mean 'quick'"):
        lff.load_runs(scale="qick")
    with pytest.raises(InputError, match=r"unknown scale '../quick'"):
        lff.load_rounds(scale="../quick")


def test_a_folder_may_be_a_text(tiny, tmp_path):
    record = lff.run("mnist-iid", progress=False, folder=str(tmp_path), **(tiny | {"rounds": 1}))
    assert lff.load_runs(folder=str(tmp_path))["id"].tolist() == [record.id]


# --- the command line ------------------------------------------------------------------------


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "imdb", "--seed", "-1"], ["seed must be between 0", "-1"]),
        (["run", "imdb", "--seed", "1.5"], ["--seed", "1.5"]),
        (["run", "imdb", "--attackers", "nan"], ["between 0 and 100 percent", "nan"]),
        (["run", "imdb", "--attackers", "-5"], ["between 0 and 100 percent", "-5"]),
        (["run", "imdb", "--attackers", "half"], ["--attackers", "half"]),
        (["run", "imdb", "--source-class", "2"], ["source_class", "between 0 and 1", "2"]),
        (["run", "imdb", "--target-class", "1"], ["are both 1"]),
        (["run", "imdb", "--batch-size", "0"], ["batch_size must be between 1", "0"]),
        (["run", "imdb", "--learning-rate", "inf"], ["learning_rate must be between", "inf"]),
        (["run", "imdb", "--momentum", "-0.1"], ["momentum must be between 0 and 1", "-0.1"]),
        (["run", "imdb", "--fraction", "1.1"], ["fraction must be between 0 and 1", "1.1"]),
        (["run", "imdb", "--alpha", "0"], ["alpha must be between 0.001", "0"]),
        (["run", "imdb", "--optimizer", "sdg"], ["sdg", "sgd, adam", "Did you mean 'sgd'"]),
        (["run", "imdb", "--distribution", "x"], ["iid, mild, extreme"]),
        (
            ["run", "imdb", "--defense", "lfighter", "--defense-options", "density=x"],
            ["angle, cosine"],
        ),
        (["run", "imdb", "--engine", "x", "--scale", "smoke"], ["auto, loop, stacked"]),
        (["run", "imdb", "--workers", "0"], ["at least 1", "0"]),
        (["sweep", "--ratios", "10", "101"], ["between 0 and 100 percent", "101"]),
        (["sweep", "--seeds", "0", "-3"], ["seed must be between 0", "-3"]),
        (["sweep", "--jobs", "-2"], ["at least 1", "-2"]),
        (["sweep", "--defenses", "krum"], ["unknown defense 'krum'"]),
        (["sweep", "--rounds", "0"], ["rounds must be between 1", "0"]),
        (["study", "--seeds", "-1"], ["seed must be between 0", "-1"]),
        (["study", "-p", "ratios=[140]"], ["between 0 and 100 percent", "140"]),
        (["study", "-p", "ratios=[true]"], ["attackers must be a number", "True"]),
        (["study", "-p", "benchmarks=[1]"], ["benchmarks must be a list of names", "[1]"]),
        (["study", "-p", "compute=1"], ["compute must be True or False", "1"]),
        (["study", "--device", "gpu"], ["auto, cpu, cuda"]),
        (["study", "no_such_notebook"], ["unknown notebook 'no_such_notebook'", "00_tour"]),
    ],
)
def test_every_wrong_value_on_the_command_line(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "run_all", lambda *_, **__: pytest.fail("runs were begun"))
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in printed.err
    for word in words:
        assert word in printed.err


# --- papermill parameters --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scale": 5}, "unknown scale 5"),
        ({"scale": ["quick"]}, "unknown scale"),
        ({"scale": None}, "unknown scale None"),
        ({"seeds": 0}, "seeds must be a list, not 0"),
        ({"seeds": [True]}, "seed must be a whole number, not True"),
        ({"seeds": ["0"]}, "not '0'"),
        ({"seeds": [0.5]}, "not 0.5"),
        ({"seeds": "[-1]"}, "not -1"),
        ({"seeds": [math.nan]}, "not nan"),
        ({"ratios": [-1]}, "attackers must be between 0 and 100 percent, not -1$"),
        ({"ratios": [100.5]}, "not 100.5"),
        ({"ratios": [math.nan]}, "not nan"),
        ({"ratios": ["40"]}, "not '40'"),
        ({"ratios": [False]}, "not False"),
        ({"benchmarks": [["imdb"]]}, "benchmarks must be a list of names, not "),
        ({"defenses": [None]}, "defenses must be a list of names, not .None"),
        ({"defenses": {"median": 1}}, "defenses must be a list"),
        ({"device": 0}, "unknown device 0"),
        ({"compute": "yes"}, "compute must be True or False"),
    ],
)
def test_wrong_values_of_papermill_parameters(given, message):
    with pytest.raises(InputError, match=message):
        parameters({"scale": "smoke", "seeds": [0], **given})


@pytest.mark.parametrize("seed", [2**31, 2**70])
def test_a_seed_too_large_is_refused_by_the_grid(seed):
    with pytest.raises(InputError, match="seed must be between 0 and"):
        Parameters(seeds=[seed]).grid()


# --- data folders ----------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", [-1, 1.5, True, "many", None])
def test_a_vocabulary_is_a_whole_number(vocabulary):
    with pytest.raises(InputError, match=r"vocabulary .* must be an integer, 0 or more"):
        data.load("imdb", vocabulary=vocabulary)


# --- records ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    record = lff.run(
        "mnist-iid", scale="smoke", peers=10, examples=200, test_examples=100, rounds=1,
        local_epochs=1, progress=False, folder=folder,
    )  # fmt: skip
    return record, records.path_of(record.experiment, folder).read_bytes()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("seed", -1), ("seed", "0"), ("rounds", True), ("attackers", 101), ("attackers", None),
        ("fraction", [1]), ("benchmark", "mnist"), ("scale", "../../etc"), ("source_class", 99),
        ("target_class", 7), ("rounds", 0), ("optimizer", "sdg"), ("learning_rate", 1e400),
    ],
)  # fmt: skip
def test_a_record_of_an_impossible_experiment_is_refused_by_name(
    setting, value, recorded, tmp_path
):
    record, packed = recorded
    content = decompressed(packed)
    content["experiment"][setting] = value
    path = records.path_of(record.experiment, tmp_path)
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"history": None}, {"history": 5}, {"history": [1]}, {"history": {}}, {"attackers": "x"},
        {"seconds": []}, {"seconds": {"training": "x"}}, {"provenance": None}, {"provenance": {}},
        {"experiment": []}, {"id": 7}, {"digest": None}, {"schema": True}, {"schema": "1"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_record_of_wrong_types_is_refused_by_name(wrong, recorded, tmp_path):
    record, packed = recorded
    path = records.path_of(record.experiment, tmp_path)
    path.parent.mkdir()
    path.write_bytes(sealed(decompressed(packed) | wrong))
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"\x80\x04K\x01.", b"[" * 100_000, b"9" * 10_000, b'{"schema": 2, "schema": 1}'],
    ids=["bytes", "pickle", "deep", "long number", "double key"],
)
def test_a_file_that_is_no_record_is_refused_by_name(content, recorded, tmp_path):
    path = records.path_of(recorded[0].experiment, tmp_path)
    path.parent.mkdir()
    for file in (content, gzip.compress(content, mtime=0)):
        path.write_bytes(file)
        with pytest.raises(RecordError, match=path.name):
            records.load(path)


def test_every_scale_has_sizes_its_data_can_give():
    for scale in SCALES:
        for name in BENCHMARKS:
            e = lff.experiment(name, scale=scale)
            assert e.batch_size <= (e.examples or 4000)
