"""What ``scripts/build`` makes installs without the repository, and runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from sparkbolt.version import __version__
from tests.tidy.repo import ROOT

TEST = '''
"""Runs in the environment that has only the built files, with pytest's plugin from there."""
import sparkbolt
import sparkbolt_fast.kernels
from sparkbolt import BasicBolt, TopologyBuilder, spout
from sparkbolt.base.native import kernels


@spout(outputs=["line"])
def lines():
    yield "to be or not to be"


class Count(BasicBolt):
    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        for word in tup.line.split():
            self.counts[word] = self.counts.get(word, 0) + 1
            collector.emit([word, self.counts[word]])


def test_a_topology_runs(topology_driver):
    builder = TopologyBuilder("built")
    builder.set_spout("lines", lines)
    builder.set_bolt("count", Count()).fields_grouping("lines", ["line"])
    driver = topology_driver(builder)
    driver.feed("lines", {"line": "to be or not to be"}, message_id=1)
    driver.run_until_idle()
    assert driver.emitted("count")[-1] == ["be", 2]
    assert driver.acked("lines") == [1]
    assert kernels() is sparkbolt_fast.kernels
    print(sparkbolt.__file__, sparkbolt_fast.kernels.__file__, sparkbolt.__version__)
'''


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command that does not see the repository unless ``cwd`` is in it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="sparkbolt-fast needs a C compiler")
def test_the_built_wheels_run_a_topology_in_an_empty_environment(tmp_path: Path) -> None:
    dist, python = tmp_path / "dist", tmp_path / "env" / "bin" / "python"
    run(sys.executable, "scripts/_build.py", "--out", dist)
    names = sorted(path.name for path in dist.iterdir())
    assert [name for name in names if name.endswith(".tar.gz")] == [
        f"sparkbolt-{__version__}.tar.gz",
        f"sparkbolt_fast-{__version__}.tar.gz",
    ]
    [wheel] = [name for name in names if name.startswith("sparkbolt_fast") and name.endswith(".whl")]
    if sys.platform == "linux":
        assert ("manylinux" in wheel) == (importlib.util.find_spec("auditwheel") is not None)

    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    install = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--no-index", "--no-deps")
    run(*install, *dist.glob("*.whl"))
    [packages] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # The dependencies are those of this environment; links to the repository in its own .pth files do not count there.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")
    (tmp_path / "test_built.py").write_text(TEST)
    printed = run(python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_built.py", cwd=tmp_path)
    assert "1 passed" in printed
    [place] = re.findall(r"(\S+) (\S+) " + re.escape(__version__), printed)
    assert all(Path(file).is_relative_to(packages) for file in place), place
    assert f"sparkbolt {__version__}" in run(tmp_path / "env" / "bin" / "sparkbolt", "--version", cwd=tmp_path)

    for archive in dist.glob("*.tar.gz"):
        with tarfile.open(archive) as files:
            assert any(name.endswith("/LICENSE") for name in files.getnames())
    for built in dist.glob("*.whl"):
        with zipfile.ZipFile(built) as files:
            assert any(name.endswith("/LICENSE") for name in files.namelist())


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    fast = tomllib.loads((ROOT / "fast" / "pyproject.toml").read_text())["project"]
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert {project["version"], fast["version"], newest[1]} == {__version__}
    assert project["optional-dependencies"]["fast"] == [f"sparkbolt-fast=={__version__}"]


def test_both_packages_have_the_same_licence() -> None:
    assert (ROOT / "fast" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
