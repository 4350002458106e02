"""The house is as its plan says: no room too large, no arrow upwards, and the drawing as the code is."""

from __future__ import annotations

import re

from tests.tidy.house import PAGE, SHARE_MAX, House, drawn, house_of, page_with
from tests.tidy.layers import LAYERS
from tests.tidy.repo import ROOT, Source, python_of, repository

HOUSE = house_of(python_of(repository(), "sparkbolt"))


def test_no_room_has_more_than_its_share() -> None:
    too_large = {room: f"{share:.1%}" for room, share in HOUSE.shares().items() if share > SHARE_MAX}
    assert not too_large, f"cut {too_large} where a reader would: a room has at most {SHARE_MAX:.0%} of all lines"


def test_no_arrow_runs_upwards() -> None:
    assert HOUSE.upward() == []


def test_the_law_allows_no_arrow_upwards() -> None:
    below: set[str] = set()
    for room, layer in LAYERS.items():
        assert layer.rooms <= below | {room}, f"{room} may import {sorted(layer.rooms - below - {room})}, above it"
        below.add(room)


def test_the_page_has_the_rooms_and_arrows_as_they_are() -> None:
    """Its numbers may be those of a while ago."""
    page = (ROOT / PAGE).read_text()
    assert without_numbers(page) == without_numbers(page_with(page, drawn(HOUSE))), "run scripts/house"


def without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "0", text)


def test_arrows_for_types_in_functions_and_by_name_are_seen() -> None:
    low = Source("sparkbolt/core/base/ids.py", "import json\n")
    for text in (
        "if TYPE_CHECKING:\n    from sparkbolt.core.base.ids import mix64\n",
        "def f():\n    from sparkbolt.core.base import ids\n",
        "import_module('sparkbolt.core.base.ids')\n",
    ):
        house = house_of([low, Source("sparkbolt/core/model/tuples.py", text)])
        assert house.arrows == {("core.model", "core.base"): 1}
        assert house.upward() == []
    upper = Source("sparkbolt/core/model/tuples.py", "import json\n")
    wrong = house_of([Source(low.path, "import sparkbolt.core.model.tuples\n"), upper])
    assert wrong.upward() == [("core.base", "core.model")]
    assert House({"a": 1, "b": 3}, wrong.arrows).shares() == {"a": 0.25, "b": 0.75}
