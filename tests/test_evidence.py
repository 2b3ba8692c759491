"""What is committed as evidence agrees: records, tables, and the README."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from lff import claims, evolution, holding, plan, versus
from lff.notebook import Parameters
from lff.products import markdown

ROOT = Path(__file__).parents[1]
LAPTOP = ROOT / "figures" / "laptop"
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    """The committed records alone: who runs more of the study has others beside them."""
    listing = ["git", "ls-files", "results/laptop", "results/paper"]
    try:
        told = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a checkout: which records are committed is not known")
    home = tmp_path_factory.mktemp("committed")
    for name in told.stdout.splitlines():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(ROOT / name)
    return home / "results"


@pytest.fixture(scope="module")
def tables(committed) -> dict[str, str]:
    """The tables of the README, from the committed records, as Markdown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LFF_RESULTS", str(committed))
        p = Parameters(scale="laptop", compute=False)
        runs = plan.evidence(p)
        results, rounds = p.results(runs), evolution.rounds(runs)
        verdicts = claims.check_all(results, rounds, p.results(plan.timed(p)))
        every_seed = p.results(plan.in_every_seed(runs))
        held = holding.at_each_ratio(every_seed)
    assert len(results)
    kept = versus.at_a_glance(results).map(lambda cell: f"{cell.mean:.0f}")
    return {
        "headline_by_method": markdown(versus.by_method(versus.headline(every_seed))),
        "glance": markdown(kept.join(holding.robust_by_ratio(held))),
        "claims_by_subject": markdown(claims.tally(verdicts, by="about")),
    }


@pytest.mark.parametrize("name", ["glance", "headline_by_method", "claims_by_subject"])
def test_the_readme_shows_what_the_committed_records_say(tables, name):
    committed = (LAPTOP / f"{name}.md").read_text(encoding="utf-8")
    assert committed.startswith(tables[name])
    shown = README.split(f"<!-- figures/laptop/{name}.md -->\n")[1]
    assert shown.split("<!-- end -->")[0] == tables[name]


def test_the_readme_is_refreshed():
    script = runpy.run_path(str(ROOT / "docs" / "refresh_readme.py"))
    assert script["refreshed"](README) == README
    old = README.replace(" of the 252 cells", "1 of the 252 cells").replace("| Src-Acc (%) |", "|")
    assert old != README
    assert script["refreshed"](old) == README


def test_the_readme_says_how_much_of_the_grid_is_filled():
    rows = (LAPTOP / "filled.csv").read_text(encoding="utf-8").splitlines()[1:]
    cells = sum(int(row.split(",")[2]) for row in rows)
    assert f"{cells} of the 252 cells" in README


def test_the_readme_says_how_many_claims_there_are():
    sentences = len({claim.quote for claim in claims.CLAIMS})
    assert f"{sentences} sentences, {len(claims.CLAIMS)} where one" in README


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
