"""What is committed as evidence agrees: records, tables, and the README."""

import hashlib
import json
import re
from pathlib import Path

import pandas as pd
import pytest

import lff
from lff.study.readme import refreshed

ROOT = Path(__file__).parents[1]
LAPTOP = ROOT / "figures" / "laptop"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["glance", "headline_by_method", "claims_by_subject"])
def test_the_readme_shows_the_committed_tables(name):
    committed = (LAPTOP / f"{name}.md").read_text(encoding="utf-8")
    shown = README.split(f"<!-- figures/laptop/{name}.md -->\n")[1].split("<!-- end -->")[0]
    assert committed.startswith(shown)
    assert shown.count("\n") > 3


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


def test_the_readme_is_refreshed():
    assert refreshed(README, ROOT) == README
    old = README.replace(" of the 252 cells", "1 of the 252 cells").replace("| Src-Acc (%) |", "|")
    assert old != README
    assert refreshed(old, ROOT) == README


def test_the_readme_says_how_much_of_the_grid_is_filled():
    rows = (LAPTOP / "filled.csv").read_text(encoding="utf-8").splitlines()[1:]
    cells = sum(int(row.split(",")[2]) for row in rows)
    assert f"{cells} of the 252 cells" in README


def test_the_readme_says_how_many_claims_were_judged():
    """By the committed verdicts; later code may ask more."""
    claims = pd.read_csv(LAPTOP / "claims.csv")
    sentences = claims["quote"].nunique()
    assert f"{sentences} sentences, {len(claims)} where one" in README
    by_subject = pd.read_csv(LAPTOP / "claims_by_subject.csv", index_col=0)
    assert by_subject.loc["together"].sum() == len(claims)


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
