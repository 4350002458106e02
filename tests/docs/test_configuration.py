"""The page of settings says of each setting what the code says."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any

import pytest

from sparkbolt import Config
from sparkbolt.api.config import COMPONENT_KEYS, STORM_KEYS
from tests.docs.pages import ROOT, text_of

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
STORMS = {ours: storms for storms, ours in STORM_KEYS.items()}


def rows() -> dict[str, list[str]]:
    """The table of the page: setting to its other cells."""
    found = {}
    for line in text_of("docs/configuration.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"`\w+`", cells[0]) and len(cells) == 5:
            found[cells[0].strip("`")] = cells[1:]
    return found


def test_all_settings_are_on_the_page_in_the_order_of_the_code() -> None:
    assert list(rows()) == list(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_has_the_default_the_storm_name_and_the_owner_that_the_code_gives_it(name: str) -> None:
    default, own, storm, meaning = rows()[name]
    expected: Any = FIELDS[name].default
    assert ast.literal_eval(default.strip("`")) == expected
    assert own == ("yes" if name in COMPONENT_KEYS else "")
    assert storm.strip("`") == STORMS.get(name, "")
    assert meaning.endswith((".", ")"))


@pytest.mark.parametrize("name", FIELDS)
def test_only_settings_that_nothing_reads_are_marked_as_unused(name: str) -> None:
    sources = [path for path in (ROOT / "sparkbolt").rglob("*.py") if path.name not in ("config.py", "check.py")]
    read = any(re.search(rf"config\.{name}\b|overrides\[.{name}", path.read_text()) for path in sources)
    assert ("(No effect yet.)" in rows()[name][3]) == (not read)
