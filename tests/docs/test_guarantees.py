"""Every promise of docs/guarantees.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PROMISES = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.split("\n", 1)[0])
def test_a_promise_names_tests_that_exist(promise: str) -> None:
    names = NAMED.findall(promise)
    assert names, f"{promise.split(chr(10), 1)[0]!r} names no test: a promise without one is not on the page"
    for path, name in names:
        tree = ast.parse((ROOT / path).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in found, f"{path} has no test {name}: was it renamed?"


def test_the_page_has_promises() -> None:
    assert len(PROMISES) >= 15
