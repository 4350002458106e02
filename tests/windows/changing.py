"""Windows whose settings change while they hold tuples, and the checks of what they have shown.

Rule: the checks use what was fed, what each window says of itself, and the settings that were in force; nothing of
``sparkbolt.windows.realignment``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sparkbolt import Config, Count, Spout, TopologyBuilder, WindowedBolt
from sparkbolt.api.topology import Topology
from sparkbolt.testing import TopologyTestDriver
from tests.windows.shapes import Shape

UNIT_MS = 100


class Numbers(Spout):
    outputs = ("n", "key", "at")

    def next_tuple(self, collector: Any) -> None: ...


class Told(WindowedBolt):
    """Says what its windows are."""

    outputs = ("shape", "key", "start", "end", "of", "new", "expired")
    transient = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, window: Any, collector: Any) -> None:
        parts = (window, window.get_new(), window.get_expired())
        of = [[tup["n"] for tup in part] for part in parts]
        collector.emit([self.name, window.key, window.start_ms, window.end_ms, *of])


def shapes_of(lag: int | None, *, keyed: bool) -> list[Shape]:
    """Kinds of windows between which a bolt may change, in all of which each tuple is in a window."""
    unit, count = UNIT_MS, Count
    extents: list[tuple[Any, Any]] = [
        *((4 * unit, 4 * unit), (10 * unit, 10 * unit), (12 * unit, 4 * unit), (7 * unit, 3 * unit)),
        *((count(3), count(3)), (count(8), count(8)), (count(6), count(2)), (count(5), None)),
    ]
    shapes = [Shape("", length, slide, lag=lag, keyed=keyed) for length, slide in extents]
    shapes += [Shape("", gap=gap * unit, lag=lag, keyed=keyed) for gap in (3, 8)]
    return [Shape(**{**vars(shape), "name": f"{place}"}) for place, shape in enumerate(shapes)]


def is_once(shape: Shape) -> bool:
    """Whether a tuple is in one window only."""
    return shape.gap is not None or (shape.length == shape.slide)


def told_of(shape: Shape) -> WindowedBolt:
    """The bolt with the settings of a shape."""
    windowed: WindowedBolt = Told(shape.name)
    if shape.gap is not None:
        windowed.with_session_gap(timedelta(milliseconds=shape.gap))
    else:
        windowed.with_window(extent(shape.length), extent(shape.slide))
    if shape.lag is not None:
        windowed.with_timestamp_field("at").with_lag(timedelta(milliseconds=shape.lag))
        windowed.with_watermark_interval(timedelta(milliseconds=UNIT_MS))
    return windowed.with_key("key") if shape.keyed else windowed


def topology_of(shape: Shape, tasks: int = 1) -> Topology:
    """A bolt with the settings of a shape over a spout of numbers."""
    builder = TopologyBuilder("changing", Config(message_timeout_secs=900))
    builder.set_spout("numbers", Numbers())
    told = builder.set_bolt("told", told_of(shape), parallelism=tasks)
    if shape.keyed:
        told.fields_grouping("numbers", ["key"])
    else:
        told.global_grouping("numbers")
    return builder.build()


def extent(length: Any) -> Any:
    return timedelta(milliseconds=length) if isinstance(length, int) else length


@dataclass
class Story:
    """What a run has fed and seen."""

    shapes: dict[str, Shape]
    fed: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By number: the key, and the time in ms (that of arrival where tuples have none)."""
    late: int = 0
    windows: list[list[Any]] = field(default_factory=list)
    """As ``Told`` emits them."""
    changed_ms: list[int] = field(default_factory=list)
    """The newest time that was fed before each change."""
    acked: list[int] = field(default_factory=list)
    failed: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(
    seed: int, shapes: Sequence[Shape], *, tasks: Sequence[int] = (1,), changes: int = 4, restarts: float = 0.2
) -> Story:
    """Feed numbers while the bolt changes among shapes; now and then the driver is killed, also right after a change.

    At the end so much is fed that every tuple of before is in a window.

    Args:
        seed: of all choices.
        shapes: the kinds of windows; with one, only the number of tasks changes.
        tasks: how many tasks the bolt has at first, and after each change.
        changes: how often it changes.
        restarts: the probability of a kill after some numbers, and after a change.
    """
    chance = random.Random(seed)
    story = Story({shape.name: shape for shape in shapes})
    chosen = chance.choice(shapes)
    keys = 2 if len(set(tasks)) == 1 else 6
    with TopologyTestDriver(topology_of(chosen, tasks[0])) as driver:
        now, number = 1_000_000, 0

        def feed(count: int, late_by: int) -> None:
            nonlocal now, number
            for _ in range(count):
                now += chance.randrange(UNIT_MS)
                at = now - chance.randrange(late_by)
                at -= at % UNIT_MS if chance.random() < 0.3 else 0
                key = f"k{chance.randrange(keys)}"
                time = at if chosen.in_event_time else (driver.now.timestamp() * 1000)
                story.fed[number] = (key, int(time))
                driver.feed("numbers", {"n": number, "key": key, "at": at}, message_id=number)
                number += 1

        for change in range(changes + 1):
            for _ in range(chance.randrange(1, 6)):
                feed(chance.choice((1, 2, 7)), 3 * UNIT_MS)
                driver.run_until_idle()
                driver.advance(timedelta(milliseconds=chance.choice((0, 60, 100, 250, 700))))
                if chance.random() < restarts:
                    driver.restart()
            if len(story.changed_ms) < changes:
                chosen = chance.choice([shape for shape in shapes if shape != chosen or len(shapes) == 1])
                story.changed_ms.append(max(time for _, time in story.fed.values()))
                driver.restart(topology_of(chosen, tasks[min(change + 1, len(tasks) - 1)]))
                if chance.random() < restarts:
                    driver.restart()
        for place in range(40):
            pause = UNIT_MS * (2 if place % 5 else 20)
            now += pause
            feed(keys, UNIT_MS)
            driver.advance(timedelta(milliseconds=pause))
        driver.advance(timedelta(seconds=5))
        story.windows = driver.emitted("told")
        story.late = driver.metrics().of("told").late_tuples
        story.acked, story.failed = driver.acked("numbers"), driver.failed("numbers")
        texts = [error.text for error in driver.errors()]
        story.notes = [text for text in texts if text.startswith("its windows were")]
        story.errors = [text for text in texts if text not in story.notes and "older than the watermark" not in text]
    return story


def wrong_in(story: Story) -> Iterator[str]:
    """What is not as it must be."""
    yield from (str(one) for one in (*story.errors, *story.failed))
    for key in {window[1] for window in story.windows}:
        yield from _wrong_of_key(story, [window for window in story.windows if window[1] == key])
    settled = len(story.fed) * 2 // 5
    shown = {n for window in story.windows for n in window[4]}
    lost = [n for n in range(settled) if n not in shown]
    if len(lost) > story.late:
        yield f"{lost} were in no window, and {story.late} tuples were late"


def _wrong_of_key(story: Story, windows: Sequence[Sequence[Any]]) -> Iterator[str]:
    before: list[int] = []
    shown: Counter[int] = Counter()
    bounds: set[tuple[int, int]] = set()
    for window in windows:
        name, _, start, end, of, new, expired = window
        shape = story.shapes[name]
        if len(set(of)) < len(of):
            yield f"{window} has a tuple twice"
        if is_once(shape) and any(shown[n] for n in of):
            yield f"{window} has tuples that a window has shown before"
        if start is not None and not isinstance(shape.slide or Count(1), Count):
            if (start, end) in bounds:
                yield f"{window}: there was a window with these bounds"
            bounds.add((start, end))
        if start is not None:
            yield from _wrong_content(story, shape, window, shown)
        if sorted(new) != sorted(set(of) - set(before)) or sorted(expired) != sorted(set(before) - set(of)):
            yield f"{window} follows {before}: what is new or expired is wrong"
        shown.update(of)
        before = of


def _wrong_content(story: Story, shape: Shape, window: Sequence[Any], shown: Counter[int]) -> Iterator[str]:
    """A window by time has only tuples of its span; all of them, if it began after the last change."""
    _, key, start, end, of, _, _ = window
    first, last = (start, end) if shape.gap is not None or not shape.in_event_time else (start + 1, end)
    if shape.gap is not None:
        last = end - shape.gap
    elif isinstance(shape.slide or Count(1), Count):
        return
    inside = {n for n, (of_key, at) in story.fed.items() if first <= at <= last and key in (None, of_key)}
    if not set(of) <= inside:
        yield f"{window} has {sorted(set(of) - inside)}, which are not in its span"
    missing = inside - set(of) - {n for n in shown if is_once(shape)}
    if missing and story.late == 0 and not any(start <= changed for changed in story.changed_ms):
        yield f"{window} lacks {sorted(missing)}"
