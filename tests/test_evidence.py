"""What is committed as evidence agrees: records, tables, and the README."""

import json
import re
from pathlib import Path

import pytest

from lff import plan, versus
from lff.notebook import Parameters
from lff.products import markdown

ROOT = Path(__file__).parents[1]
LAPTOP = ROOT / "figures" / "laptop"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def headline(monkeypatch) -> str:
    """The headline of the committed records, as Markdown."""
    monkeypatch.setenv("LFF_RESULTS", str(ROOT / "results"))
    p = Parameters(scale="laptop", compute=False)
    results = p.results(plan.evidence(p))
    assert len(results)
    return markdown(versus.by_method(versus.headline(results)))


def test_the_headline_is_what_the_committed_records_say(headline):
    committed = (LAPTOP / "headline_by_method.md").read_text(encoding="utf-8")
    assert committed.startswith(headline)
    shown = README.split("<!-- figures/laptop/headline_by_method.md -->\n")[1]
    assert shown.split("<!-- end -->")[0] == headline


def test_the_readme_says_how_much_of_the_grid_is_filled():
    rows = (LAPTOP / "filled.csv").read_text(encoding="utf-8").splitlines()[1:]
    cells = sum(int(row.split(",")[2]) for row in rows)
    assert f"{cells} of the 252 cells" in README


def test_every_file_the_readme_shows_is_there():
    linked = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(linked) > 10
    for name in linked:
        assert (ROOT / name).exists(), name


def test_the_committed_verdict_is_executed_and_of_real_data():
    text = (LAPTOP / "07_paper_vs_ours.ipynb").read_text(encoding="utf-8")
    assert not re.search(r'"/\w+/[^"]*\.ipynb"', text)  # of one machine
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert not any(out["output_type"] == "error" for cell in code for out in cell["outputs"])
    assert any('scale = "laptop"' in "".join(cell["source"]) for cell in code)
