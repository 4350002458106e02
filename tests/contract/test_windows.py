"""Windows on both engines: Storm's example, and windows that are open over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.windowed import EIGHT, FILED, SIX, WINDOWED, storms_example, windows_kept

STORMS_WINDOWS = [
    ["123", SIX + 10_000],
    ["1234", SIX + 20_000],
    ["45", SIX + 30_000],
    ["56", SIX + 40_000],
    ["6", SIX + 50_000],
    ["789", EIGHT + 30_000],
]


def test_storms_worked_example_gives_exactly_its_six_windows(begin: Begin) -> None:
    with begin(storms_example) as engine:
        engine.until(lambda: len(engine.notes("windows")) >= 3)
        Path(engine.directory, "go").touch()
        engine.until(lambda: len(engine.notes("windows")) >= 6)
        engine.until_finished()
        assert sorted(engine.notes("windows"), key=lambda window: window[1]) == STORMS_WINDOWS
        counts = engine.of("example")
        assert (counts.windows, counts.window_tuples, counts.late_tuples) == (6, 15, 0)
        assert counts.watermark_ms == EIGHT + 34_000
        assert engine.of("events").acked == 10


def of_numbers(numbers: list[int]) -> list[int]:
    return [len(numbers), sum(numbers), min(numbers), max(numbers)]


@pytest.fixture(scope="module")
def restarted(begin: Begin) -> Iterator[Engine]:
    with begin(windows_kept) as engine:
        for share in (4, 2):
            engine.until(lambda share=share: engine.of("numbers").acked >= WINDOWED // share)
            engine.restart()
        engine.until_finished()
        yield engine


def blocks(engine: Engine, shape: str) -> list[list[Any]]:
    """The distinct windows of a shape in their order: what was given again counts once."""
    found = {tuple(block[:5]): block for name, block in engine.notes("windows") if name == shape}
    return [block for _, block in sorted(found.items())]


def test_windows_by_count_miss_no_tuple_and_have_none_twice_over_a_restart(restarted: Engine) -> None:
    seen = blocks(restarted, "count")
    assert [block[0] for block in seen] == list(range(1, WINDOWED // 200 + 1))
    ends = range(200, WINDOWED + 1, 200)
    assert [block[1:5] for block in seen] == [of_numbers(list(range(max(0, end - 300), end))) for end in ends]


@pytest.mark.parametrize("shape", ["time", "mixed"])
def test_windows_in_event_time_miss_no_tuple_and_have_none_twice_over_a_restart(restarted: Engine, shape: str) -> None:
    seen = blocks(restarted, shape)
    for place, (number, *numbers) in enumerate(block[:5] for block in seen):
        end = 200 * place if shape == "time" else 200 * (place + 1) - 1
        assert number == place + 1
        assert numbers == of_numbers(list(range(max(0, end - 299), end + 1)))
    assert len(seen) >= WINDOWED // 200 - 1


def test_each_key_has_its_windows_over_a_restart(restarted: Engine) -> None:
    found: dict[int, list[list[int]]] = {}
    for block in blocks(restarted, "keyed"):
        found.setdefault(block[5], []).append(block[1:5])
    for key in range(7):
        own = list(range(key, WINDOWED, 7))
        whole = [own[first : first + 100] for first in range(0, len(own) - 99, 100)]
        assert found[key] == [of_numbers(numbers) for numbers in whole]


def test_of_files_that_are_read_with_others_no_line_is_late_over_a_restart(restarted: Engine) -> None:
    assert restarted.of("files-by-sensor").late_tuples == 0
    found = {tuple(block[1:]) for name, block in restarted.notes("windows") if name == "files"}
    whole = [of_numbers(list(range(first, first + 10))) for first in range(0, FILED - 10, 10)]
    assert {(*numbers, sensor) for numbers in whole for sensor in range(4)} <= found
    assert {count for count, *_ in found} == {10}
