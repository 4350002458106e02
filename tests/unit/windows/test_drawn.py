"""Windows as they are drawn: by arrival, in event time, Storm's example, and over crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import Count, WindowedBolt
from sparkbolt.testing import START, TopologyTestDriver
from tests.unit.windows.windowed import SECOND, Run, Show, secs, topology


def drawn(picture: str) -> tuple[list[tuple[int, str]], list[str]]:
    """The tuples and the windows of a picture: a column is a second, a bar covers the tuples of one window."""
    first, *bars = [line.removeprefix("|") for line in picture.splitlines() if line.strip()]
    tuples = [(column, name) for column, name in enumerate(first) if name.isalnum()]
    windows = []
    for bar in bars:
        begin, end = len(bar) - len(bar.lstrip()), len(bar.rstrip())
        windows.append("".join(name for column, name in tuples if begin <= column < end))
    return tuples, windows


ARRIVALS: dict[str, tuple[Callable[[], WindowedBolt], str]] = {
    "tumbling by count": (
        lambda: Show().with_tumbling_window(Count(3)),
        """
|a b c  d e  f g
|[---]
|       [----]
""",
    ),
    "tumbling by time": (
        lambda: Show().with_tumbling_window(secs(5)),
        """
|ab c  d    e f   g  h
|[---]
|     [---]
|          [---]
|               [---]
|                    [---]
""",
    ),
    "sliding, count by count": (
        lambda: Show().with_window(Count(4), slide=Count(2)),
        """
|a b c d e f
|[-]
|[-----]
|    [-----]
""",
    ),
    "sliding, time by time": (
        lambda: Show().with_window(secs(10), slide=secs(5)),
        """
|ab  c   d e    f   g
|[---]
|[--------]
|     [--------]
|          [--------]
|               [--------]
""",
    ),
    "sliding, time by count": (
        lambda: Show().with_window(secs(5), slide=Count(2)),
        """
|a b  c   d e f    g
|[-]
|     [---]
|         [---]
""",
    ),
    "sliding, count by time": (
        lambda: Show().with_window(Count(3), slide=secs(5)),
        """
|ab  cd e   f   g
|[---]
|    [--]
|     [------]
|       [--------]
""",
    ),
    "by every tuple, count": (
        lambda: Show().with_window(Count(2)),
        """
|a b  c
|-
|[-]
|  [--]
""",
    ),
    "by every tuple, time": (
        lambda: Show().with_window(secs(4)),
        """
|a b  c
|-
|[-]
|  [--]
""",
    ),
    "a slide longer than the window": (
        lambda: Show().with_window(secs(2), slide=secs(5)),
        """
|ab cd     ef  g
|   []
|             []
""",
    ),
    "sessions": (
        lambda: Show().with_session_gap(secs(3)),
        """
|a b c d    e
|[-----]
|           -
""",
    ),
}


@pytest.mark.parametrize("kind", ARRIVALS)
def test_windows_by_arrival_are_as_drawn(kind: str) -> None:
    make, picture = ARRIVALS[kind]
    tuples, windows = drawn(picture)
    with TopologyTestDriver(topology(make())) as driver:
        run = Run(driver)
        for column, name in tuples:
            driver.advance(START + secs(column) - driver.now)
            run.feed(name)
        driver.run_until_idle()
        driver.advance(secs(10))
        shown = run.shown()
        assert shown[: len(windows)] == windows
        assert set(shown[len(windows) :]) <= {windows[-1]}  # a count by time shows the same again, as Storm does
        assert sorted(driver.acked("source")) == [name for _, name in tuples]


EVENT_TIMES: dict[str, tuple[Callable[[], WindowedBolt], str]] = {
    "tumbling by time: a boundary belongs to the earlier window": (
        lambda: Show().with_tumbling_window(secs(5)),
        """
| ab cd e
| [---]
|      [---]
""",
    ),
    "sliding, time by time: windows end at multiples of the slide": (
        lambda: Show().with_window(secs(10), slide=secs(5)),
        """
| a  b c     d
| [---]
| [--------]
|      [--------]
|           [--------]
""",
    ),
    "sliding, time by time, with a gap: empty windows are skipped": (
        lambda: Show().with_window(secs(4), slide=secs(2)),
        """
| a  b               c d
|[-]
| [--]
|   [--]
|                  [--]
|                    [--]
|                      [--]
""",
    ),
    "tumbling by count": (
        lambda: Show().with_tumbling_window(Count(2)),
        """
| a b c  d  e
| [-]
|     [--]
""",
    ),
    "by every tuple: one window for each, once the watermark has passed it": (
        lambda: Show().with_window(secs(3)),
        """
| a b c   d
| -
| [-]
|   [-]
|         -
""",
    ),
    "sliding, count by time": (
        lambda: Show().with_window(Count(3), slide=secs(5)),
        """
| a b c d    e
| [---]
|   [---]
|     [------]
""",
    ),
    "sessions": (
        lambda: Show().with_session_gap(secs(3)),
        """
| a b c     d  e
| [---]
|           -
|              -
""",
    ),
}


CLOSED_LEFT: dict[str, tuple[Callable[[], WindowedBolt], str]] = {
    "tumbling by time: a boundary belongs to the window that begins there": (
        lambda: Show().with_tumbling_window(secs(5), closed="left"),
        """
|a  b cd e
|[---]
|     [---]
""",
    ),
    "sliding, time by time": (
        lambda: Show().with_window(secs(10), slide=secs(5), closed="left"),
        """
|a  b c     de
|[---]
|[--------]
|     [--------]
|          [--------]
""",
    ),
    "sliding, time by time, with a gap: empty windows are skipped": (
        lambda: Show().with_window(secs(4), slide=secs(2), closed="left"),
        """
|a  b               c d
|[]
|[--]
|  [--]
|                [--]
|                  [--]
|                    [--]
""",
    ),
    "sliding, count by time": (
        lambda: Show().with_window(Count(3), slide=secs(5), closed="left"),
        """
|a b cd    e
|[---]
|  [---]
|    [------]
""",
    ),
}
EVENT_TIMES |= {f"closed left, {kind}": drawing for kind, drawing in CLOSED_LEFT.items()}


@pytest.mark.parametrize("kind", EVENT_TIMES)
def test_windows_in_event_time_are_as_drawn(kind: str) -> None:
    make, picture = EVENT_TIMES[kind]
    tuples, windows = drawn(picture)
    with TopologyTestDriver(topology(make().with_timestamp_field("at"))) as driver:
        run = Run(driver)
        for column, name in tuples:
            run.feed(name, at=(60 + column) * 1000)
        driver.run_until_idle()
        assert run.shown() == []  # the watermark moves a second later
        driver.advance(SECOND)
        run.feed("Z", at=(60 + tuples[-1][0] + 10) * 1000)
        driver.run_until_idle()
        driver.advance(SECOND)
        assert run.shown()[: len(windows)] == windows
        assert sorted(driver.acked("source")) == sorted([*(name for _, name in tuples), "Z"])


@pytest.mark.parametrize("closed", ["left", "right"])
@pytest.mark.parametrize("slide", [5, 10])
def test_a_tuple_with_a_time_in_whole_seconds_is_in_the_window_given_by_the_closed_side(
    closed: Any, slide: int
) -> None:
    """With ``closed="left"`` a tuple that is as old as the watermark is never late: the window that it begins is open.

    |    a    b    c
    |    [----)         closed="left"
    |    (----]         closed="right"
    """
    windowed = Show().with_window(secs(5), slide=secs(slide), closed=closed).with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, second in (("a", 60), ("b", 65), ("c", 70)):
            run.feed(name, at=1000 * second)
            driver.advance(SECOND)
        run.feed("d", at=70_000)
        run.feed("Z", at=80_000)
        driver.advance(SECOND)
        shown = list(zip(run.shown(), run.shown(3), run.shown(4), strict=True))
        late = driver.metrics().of("show").late_tuples
    if closed == "left":
        expected = [("a", 60, 65), ("b", 65, 70), ("cd", 70, 75)]
    else:
        expected = [("a", 55, 60), ("b", 60, 65), ("c", 65, 70), ("Z", 75, 80)]
    expected = [one for one in expected if one[2] % slide == 0]
    assert shown == [(names, 1000 * start, 1000 * end) for names, start, end in expected]
    assert late == (closed == "right")
