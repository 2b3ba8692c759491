"""What is committed as evidence agrees: records, tables, and the README."""

import hashlib
import json
import os
import re
import subprocess
import sys
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
    stale = re.sub(r"(<!-- =\w+ -->)(.*?<!-- / -->)", r"\1 old\2", text, flags=re.DOTALL)
    stale = stale.replace("<!-- end -->", "old<!-- end -->")
    assert stale != text
    assert refreshed(stale, ROOT) == text


def test_a_number_of_lines_is_stale_when_it_is_far_off(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n" * 1010)
    page = "<!-- lines *.py -->{}<!-- / -->".format
    assert refreshed(page("1,100"), tmp_path) == page("1,100")
    assert refreshed(page("1,200"), tmp_path) == page("1,000")


def test_the_readmes_own_defense_attack_and_data_set_run(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = tmp_path / "own.py"
    script.write_text(code, encoding="utf-8")
    own = os.environ | {"LFF_RESULTS": str(tmp_path / "results")}
    subprocess.run([sys.executable, str(script)], check=True, env=own, cwd=tmp_path)
    (record,) = (tmp_path / "results").rglob("*.json.gz")
    assert record.name.startswith("clouds_closest_half_40")


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
