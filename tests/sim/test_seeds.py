"""Each seed is in one of the blocks, and a block can be run again."""

from __future__ import annotations

import pytest

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


def test_commit_selects_a_block_and_the_output_says_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARKBOLT_SEEDS", raising=False)
    chosen = block(100)
    assert len(chosen) == 100 // PARTS
    again = capsys.readouterr().out.split("SPARKBOLT_SEEDS=")[1].split()[0]
    monkeypatch.setenv("SPARKBOLT_SEEDS", again)
    assert block(100) == chosen
