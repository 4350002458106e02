"""No room is too large, no arrow points upwards, the drawing shows the code, and lines of code are counted."""

from __future__ import annotations

import pytest

from tests.tidy.house import PAGE, SHARE_MAX, House, drawn, house_of, page_with
from tests.tidy.layers import LAYERS
from tests.tidy.repo import ROOT, python_of, repository


@pytest.fixture(scope="module")
def house() -> House:
    return house_of(python_of(repository(), "sparkbolt"))


def test_no_package_has_more_than_its_share_of_all_lines(house: House) -> None:
    too_large = {room: f"{share:.1%}" for room, share in house.shares().items() if share > SHARE_MAX}
    assert not too_large, f"cut {too_large} where a reader would: a room has at most {SHARE_MAX:.0%} of all lines"


def test_no_import_runs_upwards(house: House) -> None:
    assert house.upward() == []


def test_layer_rules_allow_no_upward_import() -> None:
    below: set[str] = set()
    for room, layer in LAYERS.items():
        assert layer.rooms <= below | {room}, f"{room} may import {sorted(layer.rooms - below - {room})}, above it"
        below.add(room)


def test_page_shows_the_actual_packages_and_imports(house: House) -> None:
    page = (ROOT / PAGE).read_text()
    assert page == page_with(page, drawn(house)), "run scripts/house"
