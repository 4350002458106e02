"""The pictures are those that the code draws now, and they hold what they are about."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from docs.draw import DRAWINGS, PALETTE, PICTURES, _one_line, short


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_up_to_date(name: str) -> None:
    kept = PICTURES / name
    drawn = DRAWINGS[name]()
    assert kept.exists(), f"{kept} is missing: run python -m docs.draw"
    assert kept.read_text(encoding="utf-8") == drawn, f"{kept} is out of date: run python -m docs.draw"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_drawn_the_same_each_time_and_is_xml(name: str) -> None:
    drawn = DRAWINGS[name]()
    assert DRAWINGS[name]() == drawn
    ET.fromstring(drawn)


def test_no_picture_is_kept_that_nobody_draws() -> None:
    assert {path.name for path in PICTURES.glob("*.*")} == set(DRAWINGS)


def test_no_picture_of_the_ui_is_kept_that_nobody_sees() -> None:
    page = (PICTURES.parent / "ui.md").read_text(encoding="utf-8")
    assert {path.name for path in (PICTURES / "ui").iterdir()} == set(
        re.findall(r"\(pictures/ui/([\w-]+\.png)\)", page)
    )


def test_no_picture_of_what_was_measured_is_kept_that_nobody_sees() -> None:
    page = (PICTURES.parent / "benchmarks.md").read_text(encoding="utf-8")
    found = {path.name for path in (PICTURES / "measured").iterdir()}
    assert found == set(re.findall(r"\(pictures/measured/([\w-]+\.svg)\)", page))


def test_the_drawn_tree_is_one_that_the_engine_acks() -> None:
    engine, line, words = _one_line()
    drawn = DRAWINGS["tree.svg"]()
    for delivered in (line, *words):
        assert short(delivered.edge) in drawn
    assert "the tree is complete" in drawn
    promotion = engine.step()
    assert promotion is not None
    assert [count for _, _, count in promotion.acked] == [1]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [0, 1])
@pytest.mark.parametrize("name", ["ink", "soft", "spout", "bolt", "state", "done", "fail"])
def test_text_is_legible_on_light_and_on_dark_ground(name: str, dark: int) -> None:
    one, other = sorted((luminance(PALETTE[name][dark]), luminance(PALETTE["paper"][dark])))
    assert (other + 0.05) / (one + 0.05) >= 4.5, "WCAG 2 asks for 4.5 to 1"


def test_pictures_need_nothing_from_elsewhere() -> None:
    for name, draw in DRAWINGS.items():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|var\(", draw()), name
