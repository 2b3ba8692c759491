"""The page of public names is complete, and its code runs."""

import inspect
import re
from pathlib import Path

import lff
from lff.experiments.scales import SCALES

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_page_names_all_that_is_public_and_nothing_else():
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(name for name in lff.__all__ if name != "__version__")
    assert len(named) == len(set(named))


def test_what_a_defense_is_given_is_there():
    given = re.findall(r"`updates\.(\w+)", PAGE)
    assert len(given) >= 12
    assert all(name in dir(lff.Updates) or name in lff.Updates.__annotations__ for name in given)


def test_every_public_name_tells_what_it_is():
    for name in lff.__all__:
        assert inspect.getdoc(getattr(lff, name)), name


def test_the_code_of_the_page_runs(tiny, monkeypatch):
    sizes = SCALES["smoke"].sizes
    small = {name: value for name, value in tiny.items() if name != "scale"}
    monkeypatch.setitem(sizes, "mnist", sizes["mnist"] | small)
    scope = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), scope)
    assert scope["entry"]["round"] == 0
    assert set(scope["record"].history[-1]) >= {"src_acc", "dropped"}
    assert len(lff.load_runs(scope["runs"])) == 8
