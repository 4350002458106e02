"""The heads of modules name modules that are there, and none of a room above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.tidy.layers import LAYERS, room_of
from tests.tidy.repo import Source, Violation, python_of, report, repository

PRODUCT = python_of(repository(), "sparkbolt")
LISTS = ("Read before:", "Read in this order:")
NOT_MODULES = {"nothing"}


def named(source: Source) -> Iterator[tuple[int, str]]:
    """(line, name) of what the lists in a head name."""
    head = ast.get_docstring(source.tree, clean=False) or ""
    for start in LISTS:
        at = head.find(start)
        if at < 0:
            continue
        text = head[at + len(start) :].split("\n\n", 1)[0].split(". ", 1)[0]
        for name in re.findall(r"``([\w.]+)``", text):
            yield head[:at].count("\n") + 1, name


def meant(source: Source, name: str, modules: Iterable[str]) -> list[str]:
    """The modules that a name may mean, those that stand nearest first: of the own package, or by their end."""
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    found = [module for module in modules if module == f"{package}.{name}" or module.endswith(f".{name}")]
    return sorted(found, key=lambda module: (module != f"{package}.{name}", module))


def check_heads(sources: list[Source]) -> Iterator[Violation]:
    """Each name is a module, and one of them is in a room that the module may import."""
    modules = [source.module for source in sources]
    for source in sources:
        allowed = LAYERS[room_of(source.module)].rooms
        for line, name in named(source):
            found = [] if name in NOT_MODULES else meant(source, name, modules)
            if not found and name not in NOT_MODULES:
                yield source.violation(line, f"its head names {name!r}", "name a module that is there")
            elif found and not any(room_of(module) in allowed for module in found):
                yield source.violation(line, f"its head names {found[0]}", "it stands above; name what is read before")


def test_heads_name_modules_that_are_there_and_stand_below() -> None:
    problems = report(check_heads(PRODUCT))
    assert not problems, problems


def test_a_head_that_names_what_is_gone_or_above_is_found() -> None:
    worker = Source("sparkbolt/core/worker/tasks.py", '"""Tasks.\n\nRead before: ``stages``, ``tuples``.\n"""\n')
    tuples = Source("sparkbolt/core/model/tuples.py", '"""Tuples.\n\nRead before: ``tasks``.\n"""\n')
    found = [violation.what for violation in check_heads([worker, tuples])]
    assert found == ["its head names 'stages'", "its head names sparkbolt.core.worker.tasks"]
