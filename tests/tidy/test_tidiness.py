"""The files are tidy, and each rule about them is able to fail."""

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

from tests.tidy import code
from tests.tidy.code import (
    check_docstring,
    check_function_sizes,
    check_module_size,
    check_sleeps,
    check_words,
)
from tests.tidy.repo import ROOT, Source, Violation, load, paths_of, python_of, report, repository
from tests.tidy.text import TEXT_RULES, check_machine_paths, check_marks, check_registries, check_white_space

FILES = repository()
PYTHON = python_of(FILES)
PACKAGE = python_of(FILES, "sparkbolt")
TESTS = python_of(FILES, "tests")

Rule = Callable[[Source], Iterator[Violation]]


def broken(rule: Rule, sources: Iterable[Source]) -> str:
    return report(violation for source in sources for violation in rule(source))


@pytest.mark.parametrize("rule", TEXT_RULES)
def test_text_files_are_tidy(rule: Rule) -> None:
    problems = broken(rule, FILES)
    assert not problems, problems


def test_every_module_says_what_it_is_for() -> None:
    problems = broken(check_docstring, PYTHON)
    assert not problems, problems


@pytest.mark.parametrize("rule", [check_module_size, check_function_sizes, check_words])
def test_the_package_keeps_sizes_and_words(rule: Rule) -> None:
    """Modules of tests are as short as those of the package."""
    problems = broken(rule, PACKAGE + TESTS if rule is check_module_size else PACKAGE)
    assert not problems, problems


def test_no_test_sleeps() -> None:
    problems = broken(check_sleeps, TESTS)
    assert not problems, problems


def test_the_lists_of_exceptions_name_only_what_is_still_too_long() -> None:
    listed = {**code.LONG_MODULES, **code.LONG_FUNCTIONS}
    assert all(reason.strip() for reason in listed.values())
    modules = {s.path for s in PACKAGE + TESTS if s.text.count("\n") > code.MODULE_LINES_MAX}
    functions = {
        f"{s.path}::{name}"
        for s in PACKAGE
        for name, function in code.functions_of(s.tree)
        if code.function_lines(function) > code.FUNCTION_LINES_MAX
    }
    stale = set(listed) - modules - functions
    assert not stale, f"no longer too long, so take them off the list in tests/tidy/code.py: {sorted(stale)}"


def without_run_bit(root: Path, paths: Iterable[str]) -> list[str]:
    """Files that start with ``#!`` and cannot be run, or the other way round."""
    wrong = []
    for path in paths:
        with (root / path).open("rb") as file:
            is_script = file.read(2) == b"#!"
        if is_script != os.access(root / path, os.X_OK):
            wrong.append(path)
    return wrong


def test_nothing_is_kept_that_git_ignores() -> None:
    """What scripts download or make is committed by mistake before its folder is ignored, and stays."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == ""


def test_scripts_have_run_bits() -> None:
    wrong = without_run_bit(ROOT, [path for path in paths_of(ROOT) if path.startswith(("scripts/", ".ci/"))])
    assert not wrong, f"what starts with #! can be run, and nothing else (chmod +x, or chmod -x): {wrong}"


def test_scripts_are_correct_bash() -> None:
    for source in FILES:
        if source.path.startswith(("scripts/", ".ci/")) and not source.path.endswith(".py"):
            run = subprocess.run(["bash", "-n", source.path], cwd=ROOT, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr


def unnamed_in(readme: str) -> list[str]:
    return [name for name in ("scripts/demo", "scripts/test") if name not in readme]


def test_the_readme_names_the_two_commands() -> None:
    readme = ROOT / "README.md"
    if readme.exists():
        missing = unnamed_in(readme.read_text())
        assert not missing, f"README.md does not tell how to start: name {missing}"


def unpinned(project: dict[str, Any], pins: str) -> list[str]:
    """Requirements of pyproject.toml that no pin meets."""
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", pins, re.MULTILINE):
        versions.setdefault(name.lower(), []).append(version)
    tables = project["project"], project["dependency-groups"]
    wanted = [*tables[0]["dependencies"], *tables[1]["dev"]]
    for extra, names in tables[0]["optional-dependencies"].items():
        wanted += names if extra not in ("all", "fast") else []  # sparkbolt-fast is in this repository
    requirements = [Requirement(text) for text in wanted]
    return [str(r) for r in requirements if not any(r.specifier.contains(v) for v in versions.get(r.name.lower(), []))]


def test_every_requirement_has_a_pin_that_meets_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    missing = unpinned(project, (ROOT / "requirements" / "dev.txt").read_text())
    assert not missing, f"make requirements/dev.txt again, as its head tells: nothing there meets {missing}"


# ---- each rule can fail


def python(*lines: str, path: str = "sparkbolt/core/protocol/plan.py") -> Source:
    return Source(path, "\n".join(lines) + "\n")


LONG_BODY = ["    x = 1"] * code.FUNCTION_LINES_MAX


@pytest.mark.parametrize(
    ("rule", "source", "line"),
    [
        (check_white_space, python("x = 1", "y = 2 "), 2),
        (check_white_space, python("if x:", "\ty = 2"), 2),
        (check_white_space, python("x = 1", "y = 2\r"), 2),
        (check_white_space, Source("README.md", "text"), 1),
        (check_white_space, Source("README.md", "text\n\n"), 3),
        (check_white_space, Source("scripts/test", "#!/usr/bin/env bash\ncd .. \n"), 2),
        (check_marks, python("x = 1", f"# {'TO' + 'DO'}: later"), 2),
        (check_marks, Source("notes.txt", f"a {'FIX' + 'ME'} b"), 1),
        (check_machine_paths, python("p = " + repr("/" + "work/main/x")), 1),
        (check_machine_paths, Source("Makefile", "x:\n  ls " + "/home" + "/ann\n"), 2),
        (check_registries, Source("a.lock", "https://" + "py" + "pi.org/simple"), 1),
        (check_registries, Source("pom.xml", "<a>\n<b>https://repo1" + ".maven.org/x</b>"), 2),
        (check_docstring, python("x = 1"), 1),
        (check_module_size, python(*["x = 1"] * 601), 601),
        (check_function_sizes, python("x = 1", "def f():", *LONG_BODY), 2),
        (check_function_sizes, python("class A:", "  async def f(self):", *LONG_BODY), 2),
        (check_sleeps, python("import time", "time" + ".sleep(1)"), 2),
        (check_sleeps, python("from time import sleep as nap", "nap(1)"), 2),
        (check_words, python("def f(x, batch_id): ..."), 1),
        (check_words, python("x = 1", "epoch_id = x"), 2),
        (check_words, python("self.partition = 1", path="sparkbolt/spouts/kafka.py"), 1),
        (check_words, python("for partition in x: pass"), 1),
    ],
)
def test_a_broken_rule_is_seen_at_its_line(rule: Rule, source: Source, line: int) -> None:
    (violation,) = rule(source)
    assert (violation.path, violation.line) == (source.path, line)
    assert str(violation).startswith(f"{source.path}:{line}: ")
    assert violation.mend


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (check_white_space, Source("tests/data/words.tsv", "a\tb \n")),
        (check_marks, Source("scripts/x", "mktemp -d name.XXXXXX")),
        (check_machine_paths, python("url = 'https://example.org/work/a'", "p = f'{root}/work/a'")),
        (check_registries, Source("README.md", "pip install sparkbolt; https://spark.apache.org/docs")),
        (check_docstring, Source("tests/core/__init__.py", "")),
        (check_module_size, python(*["x = 1"] * 600)),
        (check_function_sizes, python("def f():", '    """Long.', *[""] * 80, '    """', "    return 1")),
        (check_sleeps, python("import asyncio", "async def f(): await asyncio.sleep(0)")),
        (check_words, python("def f(batch_id): ...", path="sparkbolt/spark/lane.py")),
        (check_words, python("record.partition()", "f(partition=1)", "head, _, tail = 'a.b'.partition('.')")),
    ],
)
def test_what_the_rules_allow_is_not_reported(rule: Rule, source: Source) -> None:
    assert not report(rule(source))


def test_files_are_found_before_they_are_committed_and_binary_ones_are_left_out(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "ignored.py").write_text("x = 1\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "new.py").write_text("x = 1 \n")
    paths = paths_of(tmp_path)
    assert paths == [".gitignore", "new.py", "picture.png"]
    assert broken(check_white_space, load(tmp_path, paths)).startswith("new.py:1: ")


def test_a_script_without_its_run_bit_is_seen(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "sourced").write_text("x=1\n")
    assert without_run_bit(tmp_path, ["run", "sourced"]) == ["run"]
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "sourced").chmod(0o755)
    assert without_run_bit(tmp_path, ["run", "sourced"]) == ["sourced"]


def test_a_readme_without_the_commands_is_seen() -> None:
    assert unnamed_in("Run scripts/test.") == ["scripts/demo"]


def test_a_requirement_without_a_pin_is_seen() -> None:
    project = {
        "project": {
            "dependencies": ["a>=2", "b<3"],
            "optional-dependencies": {"x": ["c[y]"], "all": ["d[x]"]},
        },
        "dependency-groups": {"dev": ["e"]},
    }
    assert unpinned(project, "a==1.9\nb==2.1 ; python_full_version < '3.12'\n") == ["a>=2", "e", "c[y]"]
