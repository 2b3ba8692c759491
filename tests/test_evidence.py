"""What is committed as evidence agrees: records, tables, and the README."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import lff
from lff.study.readme import PAGES, refreshed

ROOT = Path(__file__).parents[1]
LAPTOP = ROOT / "figures" / "laptop"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_committed_tables_and_numbers(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert refreshed(text, ROOT) == text
    assert "?<!-- / -->" not in text
    stale = text.replace("<!-- / -->", " of old<!-- / -->").replace(
        "<!-- end -->", "old<!-- end -->"
    )
    assert stale != text
    assert refreshed(stale, ROOT) == text


def test_the_records_of_the_first_evidence_are_as_they_were_made():
    """By the checksum that each carries, of experiment, attackers and history."""
    paths = sorted((ROOT / "results" / "first").glob("*/*.json"))
    assert len(paths) > 400
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        shared = [content[name] for name in ("experiment", "attackers", "history")]
        text = json.dumps(shared, sort_keys=True)
        assert hashlib.sha256(text.encode()).hexdigest() == content["digest"], path
        assert path.stem == content["id"]


def test_no_record_of_the_first_evidence_is_taken_for_a_present_one(monkeypatch):
    monkeypatch.setenv("LFF_RESULTS", str(ROOT / "results"))
    now = lff.load_runs()["id"]
    assert not {path.stem for path in (ROOT / "results" / "first").rglob("*.json")} & set(now)


def test_every_file_the_readme_shows_is_there():
    linked = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(linked) > 10
    for name in linked:
        assert (ROOT / name).exists(), name


def test_the_committed_verdict_is_executed_and_of_real_data():
    text = (LAPTOP / "08_paper_vs_ours.ipynb").read_text(encoding="utf-8")
    assert not re.search(r'"/\w+/[^"]*\.ipynb"', text)  # of one machine
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert not any(out["output_type"] == "error" for cell in code for out in cell["outputs"])
    assert any('scale = "laptop"' in "".join(cell["source"]) for cell in code)
