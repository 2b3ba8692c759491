"""Imports go one way: core, fast, experiments, study, cli, beyond; also inside functions."""

import ast
from pathlib import Path

import pytest

import lff

PACKAGE = Path(lff.__file__).parent
# Each may import itself and those before; nobody imports beyond, as nobody does an outside package.
ROOMS = ("core", "fast", "experiments", "study", "cli", "beyond")
OUTSIDE = {"lff/__init__.py", "lff/flower.py"}  # the public names; strategies for another framework
MODULES = {path.relative_to(PACKAGE.parent).as_posix(): path for path in PACKAGE.rglob("*.py")}


def room(module: str) -> str:
    """The room of a module or of a name in it, dotted.

    The public names of `lff` itself count as the study's, the highest room they reach.
    """
    first = [*module.split("."), ""][1]
    if first in ROOMS:
        return first
    there = (PACKAGE / f"{first}.py").exists() or (PACKAGE / first / "__init__.py").exists()
    return "core" if first and there else "study"


def imported(source: str, package: str) -> set[str]:
    """The modules and names of `lff` that some source in a package imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            home = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names |= {f"{home}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("import_module", "__import__"):
                names |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return {name for name in names if str(name).split(".")[0] == "lff"}


def upward(path: str, source: str) -> list[str]:
    """What a module imports though it lies in a later room than its own."""
    own = path.removesuffix(".py").replace("/", ".")
    allowed = ROOMS[: ROOMS.index(room(own)) + 1]
    package = own.rpartition(".")[0]
    return sorted(name for name in imported(source, package) if room(name) not in allowed)


@pytest.mark.parametrize("path", sorted(MODULES.keys() - OUTSIDE))
def test_no_module_imports_from_a_later_room(path):
    assert upward(path, MODULES[path].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("lff/metrics.py", "import lff.fast", ["lff.fast"]),
        ("lff/data/text.py", "from lff import fast", ["lff.fast"]),
        ("lff/defenses/rule.py", "def f():\n    from lff.study import x", ["lff.study.x"]),
        ("lff/attacks/attack.py", "from ..experiments.run import run", ["lff.experiments.run.run"]),
        ("lff/models.py", "from . import cli", ["lff.cli"]),
        ("lff/models.py", "from .cli import main", ["lff.cli.main"]),
        ("lff/fast/__init__.py", "from lff.experiments import run", ["lff.experiments.run"]),
        ("lff/fast/pool.py", "importlib.import_module('lff.study')", ["lff.study"]),
        (
            "lff/experiments/run.py",
            "if TYPE_CHECKING:\n    from lff.study import frame",
            ["lff.study.frame"],
        ),
        ("lff/fast/pool.py", "def f():\n    import lff\n    lff.run()", ["lff"]),
        ("lff/experiments/run.py", "from lff import load_runs", ["lff.load_runs"]),
        ("lff/study/frame.py", "from lff.cli import main", ["lff.cli.main"]),
        ("lff/cli.py", "import lff.beyond.defenses", ["lff.beyond.defenses"]),
        ("lff/beyond/defenses/rfa.py", "from lff.defenses import defense", []),
        ("lff/study/frame.py", "import lff", []),
        ("lff/experiments/run.py", "from lff import data, fast", []),
        ("lff/study/frame.py", "from lff.experiments.run import run\nimport lff.fast", []),
        ("lff/federation.py", "from lff.paths import data_dir\nfrom lff.data import load", []),
        ("lff/cli.py", "from lff.study import runner", []),
    ],
)
def test_the_search_finds_what_it_looks_for(path, source, found):
    assert upward(path, source) == found
