"""Windows whose length, slide, gap or kind changes while they hold tuples."""

from __future__ import annotations

import pytest

from sparkbolt.windows.event_time import EventTimeWindows
from tests.windows.changing import UNIT_MS, run, shapes_of, wrong_in

LAGS = pytest.mark.parametrize("lag", [None, 3 * UNIT_MS], ids=["on arrival", "in event time"])
KEYS = pytest.mark.parametrize("keyed", [False, True], ids=["no key", "by key"])


@LAGS
@KEYS
@pytest.mark.parametrize("seed", range(6))
def test_windows_that_change_show_each_tuple_as_their_settings_promise(lag: int | None, keyed: bool, seed: int) -> None:
    story = run(seed, shapes_of(lag, keyed=keyed))
    assert list(wrong_in(story)) == []
