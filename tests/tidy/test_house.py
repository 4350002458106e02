"""No room is too large, no arrow points upwards, the drawing shows the code, and lines of code are counted."""

from __future__ import annotations

import re

import pytest

from tests.tidy.house import PAGE, SHARE_MAX, House, code_lines, drawn, figures, house_of, page_with
from tests.tidy.layers import LAYERS
from tests.tidy.repo import ROOT, Source, python_of, repository


@pytest.fixture(scope="module")
def house() -> House:
    return house_of(python_of(repository(), "sparkbolt"))


def test_no_room_has_more_than_its_share(house: House) -> None:
    too_large = {room: f"{share:.1%}" for room, share in house.shares().items() if share > SHARE_MAX}
    assert not too_large, f"cut {too_large} where a reader would: a room has at most {SHARE_MAX:.0%} of all lines"


def test_no_arrow_runs_upwards(house: House) -> None:
    assert house.upward() == []


def test_the_law_allows_no_arrow_upwards() -> None:
    below: set[str] = set()
    for room, layer in LAYERS.items():
        assert layer.rooms <= below | {room}, f"{room} may import {sorted(layer.rooms - below - {room})}, above it"
        below.add(room)


def test_the_page_has_the_rooms_and_arrows_as_they_are(house: House) -> None:
    """Its numbers may be those of a while ago."""
    page = (ROOT / PAGE).read_text()
    assert without_numbers(page) == without_numbers(page_with(page, drawn(house))), "run scripts/house"


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "0", text)


def test_arrows_for_types_in_functions_and_by_name_are_seen() -> None:
    low = Source("sparkbolt/base/ids.py", "import json\n")
    for text in (
        "if TYPE_CHECKING:\n    from sparkbolt.base.ids import mix64\n",
        "def f():\n    from sparkbolt.base import ids\n",
        "import_module('sparkbolt.base.ids')\n",
    ):
        house = house_of([low, Source("sparkbolt/api/tuples.py", text)])
        assert house.arrows == {("api", "base"): 1}
        assert house.upward() == []
    upper = Source("sparkbolt/api/tuples.py", "import json\n")
    wrong = house_of([Source(low.path, "import sparkbolt.api.tuples\n"), upper])
    assert wrong.upward() == [("base", "api")]
    assert House({"a": 1, "b": 3}, wrong.arrows).shares() == {"a": 0.25, "b": 0.75}


CODE = '''"""A head
of two lines."""

import json
from typing import (
    Any,
)


# A comment.
class Thing:
    """Its docstring."""

    size: int = 3  # with a comment
    """The doc of an attribute."""

    def method(self) -> Any:
        import math

        return json.dumps(
            """a text

            of three lines"""
        )
'''


def test_docstrings_comments_blank_lines_and_imports_are_no_code() -> None:
    assert code_lines(Source("sparkbolt/base/ids.py", CODE)) == len(
        ["class", "size", "def", "return", '"""a text', "", 'lines"""', ")"]
    )
    assert code_lines(Source("tests/unit/__init__.py", "")) == 0


def test_the_figures_have_rooms_folders_and_long_files() -> None:
    sources = [
        Source("sparkbolt/base/ids.py", CODE),
        Source("tests/unit/test_ids.py", "x = 1\n" * 501),
        Source("tests/unit/test_testing.py", "# nothing\n" * 500),
    ]
    lines = [line.split() for line in figures(sources)]
    assert ["sparkbolt", "base", "1", "8"] in lines
    assert ["tests/unit", "2", "501"] in lines
    assert lines[-2:] == [
        ["1", "files", "have", "more", "than", "500", "lines:"],
        ["501", "tests/unit/test_ids.py"],
    ]
