"""The pictures are those that the code draws now, and they hold what they are about."""

from __future__ import annotations

import pytest

from docs.draw import DRAWINGS, PICTURES, _one_line, short


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_up_to_date(name: str) -> None:
    kept = PICTURES / name
    drawn = DRAWINGS[name]()
    assert kept.exists(), f"{kept} is missing: run python -m docs.draw"
    assert kept.read_text(encoding="utf-8") == drawn, f"{kept} is out of date: run python -m docs.draw"


def test_every_stored_picture_has_a_drawing() -> None:
    assert {path.name for path in PICTURES.glob("*.*")} == set(DRAWINGS)


def test_the_drawn_tree_is_one_that_the_engine_acks() -> None:
    engine, line, words = _one_line()
    drawn = DRAWINGS["tree.svg"]()
    for delivered in (line, *words):
        assert short(delivered.edge) in drawn
    assert "the tree is complete" in drawn
    promotion = engine.step()
    assert promotion is not None
    assert [count for _, _, count in promotion.acked] == [1]
