"""Each seed is in one of the blocks, and a block can be run again."""

from __future__ import annotations

import pytest

from tests.sim import seeds
from tests.sim.seeds import PARTS, block


@pytest.mark.parametrize(("first", "total"), [(0, 100), (15, 200), (5, 16), (2, 5)])
def test_each_seed_is_in_one_block(monkeypatch: pytest.MonkeyPatch, first: int, total: int) -> None:
    found = []
    for part in range(PARTS):
        monkeypatch.setenv("SPARKBOLT_SEEDS", f"{part}/{PARTS}")
        found += block(total, first)
    assert found == list(range(first, total))
    monkeypatch.setenv("SPARKBOLT_SEEDS", "all")
    assert block(total, first) == range(first, total)


def test_the_commit_chooses_a_block_and_the_output_tells_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARKBOLT_SEEDS", raising=False)
    chosen = block(100)
    assert len(chosen) == 100 // PARTS
    again = capsys.readouterr().out.split("SPARKBOLT_SEEDS=")[1].split()[0]
    monkeypatch.setenv("SPARKBOLT_SEEDS", again)
    assert block(100) == chosen


def test_without_a_commit_the_seeds_are_those_of_the_first_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARKBOLT_SEEDS", raising=False)
    monkeypatch.setattr(seeds, "__file__", "/nowhere/seeds.py")
    assert block(100) == range(10)
    assert "no commit" in capsys.readouterr().out


@pytest.mark.parametrize("wish", ["10/10", "-1/10", "some"])
def test_a_part_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("SPARKBOLT_SEEDS", wish)
    with pytest.raises(ValueError, match=f"SPARKBOLT_SEEDS={wish}: expected"):
        block(100)
