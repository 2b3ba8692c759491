"""The project's own files agree with each other."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import lff

ROOT = Path(__file__).parents[1]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines) -> dict[str, str]:
    found = (re.fullmatch(r"([\w.-]+)==(\S+)", line.strip()) for line in lines)
    return {normalized(match[1]): match[2] for match in found if match}


@pytest.fixture(scope="module")
def constraints():
    return pins((ROOT / "constraints.txt").read_text().splitlines())


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def direct_dependencies(project, without=("speed", "flower")) -> set[str]:
    """What an installation has; two extras are for `make speed` and an environment of its own."""
    extras = project["optional-dependencies"].items()
    chosen = [names for extra, names in extras if extra not in without]
    return {normalized(name) for name in sum(chosen, project["dependencies"])}


def test_every_dependency_is_pinned_and_only_in_constraints(project, constraints):
    wanted = direct_dependencies(project, without=["flower"])  # bare names: no version in pyproject
    assert wanted <= constraints.keys()


def test_flowers_environment_has_the_same_versions(project, constraints):
    """All but `packaging`, for which it is one of its own."""
    flower = pins((ROOT / "constraints-flower.txt").read_text().splitlines())
    wanted = {*project["dependencies"], *project["optional-dependencies"]["flower"], "pytest"}
    assert {normalized(name) for name in wanted} <= flower.keys()
    shared = constraints.keys() & flower.keys()
    assert [name for name in shared if constraints[name] != flower[name]] == ["packaging"]


def test_environment_repeats_the_pins_of_the_direct_dependencies(project, constraints):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    repeated = pins(environment["dependencies"][-1]["pip"])
    assert repeated == {name: constraints[name] for name in direct_dependencies(project)}


def imported(path: Path, homes) -> set[str]:
    """The distributions (`homes` by module) that a module imports from, also in its functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.split(".")[0])
    names -= {*sys.stdlib_module_names, "lff"}
    return {normalized(home) for name in names for home in homes.get(name, [name])}


def test_every_import_is_a_declared_dependency(project):
    """Only the study needs the extra `notebooks`; what comes with a declared one is said here."""
    comes_with = {"dask": "distributed", "jupyter-core": "nbconvert", "pygments": "nbconvert",
                  "traitlets": "nbconvert"}  # fmt: skip
    plain = set(map(normalized, project["dependencies"]))
    notebooks = plain | set(map(normalized, project["optional-dependencies"]["notebooks"]))
    modules, homes = sorted((ROOT / "lff").rglob("*.py")), packages_distributions()
    assert len(modules) > 50
    for path in modules:
        declared = notebooks if "study" in path.parts else plain
        if path.name != "flower.py":  # an extra of its own
            wanted = {comes_with.get(name, name) for name in imported(path, homes)}
            assert wanted <= declared, path


def test_torch_is_the_build_that_has_a_cpu_wheel(constraints):
    assert constraints["torch"] == "2.13.0"
    assert constraints["torchvision"] == "0.28.0"


def test_installed_versions_are_the_pinned_ones(project, constraints):
    from importlib.metadata import version

    for name in direct_dependencies(project):
        assert version(name).split("+")[0] == constraints[name], name


def test_version_is_the_same_everywhere(project):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert lff.__version__ == project["version"] == citation["version"]


def test_every_public_name_is_there_and_listed():
    assert set(lff.__all__) <= set(dir(lff))
    assert all(getattr(lff, name) is not None for name in lff.__all__)
    with pytest.raises(AttributeError, match="'nothing'"):
        lff.nothing  # noqa: B018


def test_importing_lff_and_its_command_line_does_not_import_torch():
    code = "import sys, lff, lff.cli; lff.cli._parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torchvision_imports_beside_a_cpu_build_of_torch():
    code = "from lff.vision import import_torchvision as i; i().models.resnet18; i()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
