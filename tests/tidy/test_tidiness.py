"""The files keep the rules, and each rule can fail. ruff checks sleeps, long functions and marks of unfinished work."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.tidy.repo import ROOT, Source, paths_of, repository
from tests.tidy.rules import RULES, check_machine_paths, check_module_size, check_registries

SCRIPTS = [path for path in paths_of(ROOT) if path.startswith(("scripts/", ".ci/"))]

Rule = Callable[[Source], Iterator[str]]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_files_keep_the_rules() -> None:
    assert [problem for source in repository() for rule in RULES for problem in rule(source)] == []


@pytest.mark.parametrize(
    ("rule", "source", "line"),
    [
        (check_machine_paths, Source("a.py", "p = '" + "/" + "work/main/x'"), 1),
        (check_machine_paths, Source("Makefile", "x:\n  ls " + "/home" + "/ann\n"), 2),
        (check_registries, Source("a.lock", "https://" + "py" + "pi.org/simple"), 1),
        (check_registries, Source("pom.xml", "<a>\n<b>https://repo1" + ".maven.org/x</b>"), 2),
        (check_module_size, Source("a.py", "x = 1\n" * 601), 601),
    ],
)
def test_a_broken_rule_is_reported_at_its_line(rule: Rule, source: Source, line: int) -> None:
    (problem,) = rule(source)
    assert problem.startswith(f"{source.path}:{line}: ")


def test_no_line_ends_with_white_space() -> None:
    assert git("grep", "-nI", "--untracked", "-E", r"\s+$", "--", ":!*.svg") == ""


def test_git_ignored_files_are_not_committed() -> None:
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard") == ""


def without_run_bit(root: Path, paths: Iterable[str]) -> list[str]:
    """Files that start with ``#!`` and cannot be run, or the other way round."""
    return [path for path in paths if (root / path).read_bytes().startswith(b"#!") != os.access(root / path, os.X_OK)]


def test_scripts_are_executable(tmp_path: Path) -> None:
    assert without_run_bit(ROOT, SCRIPTS) == []
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "sourced").write_text("x=1\n")
    assert without_run_bit(tmp_path, ["run", "sourced"]) == ["run"]


@pytest.mark.parametrize("path", [path for path in SCRIPTS if not path.endswith(".py")])
def test_scripts_are_valid_bash(path: str) -> None:
    subprocess.run(["bash", "-n", path], cwd=ROOT, check=True)


def unpinned(project: dict[str, Any], pins: str) -> list[str]:
    """Requirements of pyproject.toml that no pin meets."""
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", pins, re.MULTILINE):
        versions.setdefault(name.lower(), []).append(version)
    texts = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra, names in project["project"]["optional-dependencies"].items():
        texts += names if extra not in ("all", "fast") else []  # sparkbolt-fast is in this repository
    requirements = [Requirement(text) for text in texts]
    return [str(r) for r in requirements if not any(r.specifier.contains(v) for v in versions.get(r.name.lower(), []))]


def test_every_requirement_has_a_pin_that_meets_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    missing = unpinned(project, (ROOT / "requirements" / "dev.txt").read_text())
    assert not missing, f"make requirements/dev.txt again, as its head says: nothing there meets {missing}"
