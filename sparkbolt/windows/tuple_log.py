"""The log: the tuples of a window, as segments of columns in the order of arrival.

A tuple has a sequence, which is its place in the log. Segments know the ranges of their sequences and times, and only
the segments at the edges of a result are opened, so a window costs the same at a thousand and at a million tuples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import U64
from sparkbolt.windows.content import I64, Content, RowIndices, decode, encode, join
from sparkbolt.windows.tuple_segments import NOTHING, Part, Segment, Selection, Shelf, may_join, segment_of, stays

MERGE_ROWS = 4096
"""Two neighbouring segments that both have fewer live rows than this are merged."""
SEGMENT_ROWS = 16_384
"""No segment has more rows, so that the edges of a window cost the same however many tuples arrive at once."""
INLINE_ROWS = 256
"""A segment of fewer rows is stored in the head of its log, which saves a call of the store."""
HOLES = 4
"""A segment is written again when fewer than one in ``HOLES`` of its rows are live."""
_NO_ROWS = np.empty(0, dtype=np.intp)
BEFORE_ALL = -(1 << 62)
"""A timestamp before any other."""
AFTER_ALL = 1 << 62
"""A timestamp after any other."""


class _Index:
    """The ranges and live counts of segments, as arrays: each int64[segments]."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.starts = [segment.first for segment in segments]
        columns = [(one.first, one.end, one.low_ms, one.high_ms, one.live) for one in segments]
        self.firsts, self.ends, self.lows, self.highs, self.lives = (
            np.array(columns, dtype=np.int64).reshape(len(segments), 5).T.copy()
        )
        for place, segment in enumerate(segments):
            segment.place = place


class WindowLog:
    """Tuples in the order of arrival, some of them expired."""

    def __init__(self, shelf: Shelf) -> None:
        """Make an empty log that keeps large segments on ``shelf``."""
        self._shelf = shelf
        self.segments: Sequence[Segment] = ()
        """Never changed in place, so that a selection may read it later."""
        self.end = 0
        """The sequence that the next tuple will have."""
        self._next_number = 0
        self._index: _Index | None = None
        self._gone: list[int] = []
        self._left: list[Part] = []
        self.expired_is_read = False
        """Whether the bolt has asked a window which tuples have expired."""

    @property
    def live(self) -> int:
        """How many tuples have not expired."""
        return sum(segment.live for segment in self.segments)

    def append(self, content: Content) -> None:
        """Append tuples, cut into segments of at most ``SEGMENT_ROWS`` rows."""
        count = len(content)
        added = []
        for start in range(0, count, SEGMENT_ROWS):
            piece = content.part(start, min(start + SEGMENT_ROWS, count))
            added.append(segment_of(self._next_number, self.end, piece))
            self._next_number += 1
            self.end += len(piece)
        if added:
            self.segments = (*self.segments, *added)
            self._index = None

    def content(self, segment: Segment) -> Content:
        """The content of a segment, read from the shelf if it is not in memory."""
        if segment.content is None:
            segment.content = self._shelf.read(segment.number)
        return segment.content

    def _indexed(self) -> _Index:
        if self._index is None:
            self._index = _Index(self.segments)
        return self._index

    # By place.

    def between(self, begin: int, stop: int) -> Selection:
        """The tuples with sequences from ``begin`` to ``stop`` (exclusive), live or not; all must be in the log."""
        if begin >= stop:
            return NOTHING
        segments, firsts = self.segments, self._indexed().starts

        def make() -> list[Part]:
            parts: list[Part] = []
            for segment in segments[max(0, bisect_right(firsts, begin) - 1) :]:
                if segment.first >= stop:
                    break
                low, high = max(begin - segment.first, 0), min(stop - segment.first, segment.count)
                if low == 0 and high == segment.count:
                    parts.append((segment, None))
                elif low < high:
                    parts.append((segment, np.arange(low, high, dtype=np.intp)))
            return parts

        return Selection(stop - begin, make)

    def first_after(self, time_ms: int) -> int:
        """The first sequence whose tuple is newer than ``time_ms``; for logs whose times never fall, as on arrival."""
        index = self._indexed()
        place = int(np.searchsorted(index.highs, time_ms, side="right"))
        if place == len(self.segments):
            return self.end
        segment = self.segments[place]
        if segment.low_ms > time_ms:
            return segment.first
        return segment.first + int(np.searchsorted(self.content(segment).times, time_ms, side="right"))

    def end_before(self, sequence: int) -> None:
        """Expire all tuples before a sequence."""
        index = self._indexed()
        for segment in self.segments:
            if segment.first >= sequence:
                break
            segment.start = max(segment.start, min(sequence - segment.first, segment.count))
            segment.live = segment.count - segment.start
            index.lives[segment.place] = segment.live

    def pick(self, sequences: Sequence[int]) -> Selection:
        """The tuples with these sequences, given in ascending order; each must be in the log."""
        wanted = np.asarray(sequences, dtype=np.int64)
        parts: list[Part] = []
        for segment in self.segments:
            low, high = np.searchsorted(wanted, (segment.first, segment.end))
            if low < high:
                parts.append((segment, (wanted[low:high] - segment.first).astype(np.intp)))
        return Selection(len(wanted), lambda: parts)

    # By time.

    def select(self, after_ms: int, upto_ms: int, begin: int = 0, stop: int | None = None) -> Selection:
        """The live tuples with ``after_ms < timestamp <= upto_ms`` and a sequence from ``begin`` to ``stop``.

        ``stop`` is exclusive; None: up to the end of the log.
        """
        index, segments = self._indexed(), self.segments
        stop = AFTER_ALL if stop is None else stop
        touched = (index.highs > after_ms) & (index.lows <= upto_ms) & (index.lives > 0)
        touched &= (index.ends > begin) & (index.firsts < stop)
        whole = touched & (index.lows > after_ms) & (index.highs <= upto_ms)
        whole &= (index.firsts >= begin) & (index.ends <= stop)
        edges = [
            (segment, self._inside(segment, after_ms, upto_ms, begin, stop))
            for segment in (segments[place] for place in np.flatnonzero(touched & ~whole).tolist())
        ]
        count = int(index.lives[whole].sum()) + sum(len(rows) for _, rows in edges)

        def make() -> list[Part]:
            parts: list[Part] = [
                (segments[place], segments[place].live_rows()) for place in np.flatnonzero(whole).tolist()
            ]
            if edges:
                parts = sorted([*parts, *((s, rows) for s, rows in edges if len(rows))], key=lambda part: part[0].first)
            return parts

        return Selection(count, make)

    def _inside(self, segment: Segment, after_ms: int, upto_ms: int, begin: int, stop: int) -> npt.NDArray[np.intp]:
        """The live rows of one segment with these times and sequences: intp[rows], ascending."""
        low, high = max(begin - segment.first, 0), min(stop - segment.first, segment.count)
        inside = None
        if segment.low_ms <= after_ms or segment.high_ms > upto_ms:
            times = self.content(segment).times
            if segment.in_order:
                low = max(low, int(np.searchsorted(times, after_ms, side="right")))
                high = min(high, int(np.searchsorted(times, upto_ms, side="right")))
            else:
                inside = (times > after_ms) & (times <= upto_ms)
        rows = segment.live_rows(low, high)
        if rows is None:
            rows = np.arange(segment.count, dtype=np.intp)
        return rows if inside is None else rows[inside[rows]]

    def times(self, selection: Selection) -> I64:
        """The timestamps of a selection in milliseconds, in the order of arrival: int64[tuples]."""
        parts = [
            self.content(segment).times if rows is None else self.content(segment).times[rows]
            for segment, rows in selection.parts()
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def earliest(self, after_ms: int, upto_ms: int) -> int | None:
        """The least timestamp of live tuples with ``after_ms < timestamp <= upto_ms``; None if there is none."""
        index = self._indexed()
        touched = np.flatnonzero((index.highs > after_ms) & (index.lows <= upto_ms))
        best: int | None = None
        for place in touched[np.argsort(index.lows[touched], kind="stable")].tolist():
            segment = self.segments[place]
            if best is not None and segment.low_ms >= best:
                break
            if not segment.live:
                continue
            times = self.content(segment).times
            rows = segment.live_rows()
            times = times if rows is None else times[rows]
            times = times[(times > after_ms) & (times <= upto_ms)]
            if len(times):
                least = int(times.min())
                best = least if best is None else min(best, least)
        return best

    def end_rows(self, selection: Selection) -> None:
        """Expire the tuples of a selection."""
        for segment, rows in selection.parts():
            self._end(segment, rows)
            if self._index is not None:
                self._index.lives[segment.place] = segment.live

    def _end(self, segment: Segment, rows: RowIndices) -> None:
        if rows is None or len(rows) == segment.live:
            segment.live = 0
            segment.alive = np.zeros(segment.count, dtype=bool)
            return
        if segment.alive is None and rows[0] == segment.start and rows[-1] - rows[0] + 1 == len(rows):
            segment.start += len(rows)
            segment.live -= len(rows)
            return
        if segment.alive is None:
            segment.alive = np.ones(segment.count, dtype=bool)
            segment.alive[: segment.start] = False
        else:
            segment.alive = segment.alive.copy()
        segment.alive[rows] = False
        segment.live -= len(rows)

    def end_void(self, is_void: Callable[[U64], npt.NDArray[np.bool_]], shown: Selection) -> None:
        """Expire tuples all of whose trees are void.

        Args:
            is_void: bool[roots] for an array of roots, uint64[roots].
            shown: the tuples that the last window has shown; those of them that expire are left.
        """
        was_shown = {segment.number: rows for segment, rows in shown.parts()}
        for segment in self.segments:
            trees = self.content(segment).trees
            if trees is None or not segment.live:
                continue
            void = is_void(trees.roots)
            if trees.offsets is not None:
                counts = np.diff(trees.offsets)
                of_row = np.repeat(np.arange(segment.count), counts)
                void = (np.bincount(of_row, weights=void, minlength=segment.count) == counts) & (counts > 0)
            rows = segment.live_rows()
            rows = np.flatnonzero(void) if rows is None else rows[void[rows]]
            if segment.number in was_shown:
                both = was_shown[segment.number]
                left = rows if both is None else np.intersect1d(rows, both)
                self._left += [(segment, left)] if len(left) else []
            if len(rows):
                self.end_rows(Selection(len(rows), lambda part=(segment, rows): [part]))  # type: ignore[misc]

    def restart(self, selection: Selection) -> None:
        """Keep only the tuples of a selection, and number them from 0."""
        parts = [self.content(segment).take(rows) for segment, rows in selection.parts()]
        before, self.segments, self.end, self._index = self.segments, (), 0, None
        self._discard(before)
        if parts:
            self.append(join(parts))

    def give_up(self, begin: int = 0) -> tuple[list[Content], I64, list[Content]]:
        """Remove everything, also from the shelf; returns what another log may take over.

        Args:
            begin: tuples with lower sequences count as expired.

        Returns:
            The live tuples in parts, with their sequences, int64[tuples]; and the tuples that were left, in parts.
        """
        live, places = [], []
        for segment in self.segments:  # by hand, since there may be a log for each of many keys
            rows = segment.live_rows(max(0, begin - segment.first)) if segment.live else _NO_ROWS
            if rows is None or len(rows):
                live.append(self.content(segment).take(rows))
                places.append(segment.first + (np.arange(segment.count) if rows is None else rows))
        left = [self.content(segment).take(rows) for segment, rows in self.left.parts()]
        gone = {segment.number: segment for segment in (*self.segments, *(part[0] for part in self._left))}
        self.segments, self._index, self._left = (), None, []
        self._discard(gone.values())
        self._drop_gone()
        return live, np.concatenate(places) if places else np.empty(0, dtype=np.int64), left

    # Tuples that the last window has shown, and no later one will.

    def leave(self, selection: Selection) -> None:
        """Keep tuples that the last window has shown and that expire now, until ``drop_left``."""
        self._left += selection.parts()

    def leave_content(self, parts: Sequence[Content]) -> None:
        """The same for tuples that another log has given up."""
        if parts:
            content = join(parts)
            self._left.append((segment_of(self._next_number, -len(content), content), None))
            self._next_number += 1

    @property
    def left(self) -> Selection:
        """The tuples that the next window shows as expired."""
        parts = sorted(self._left, key=lambda part: part[0].first)
        return Selection(sum(segment.count if rows is None else len(rows) for segment, rows in parts), lambda: parts)

    def drop_left(self) -> None:
        """Forget the tuples that were left: a window has shown them as expired, or none will."""
        left, self._left = self._left, []
        numbers = {segment.number for segment in self.segments}
        self._discard({part[0].number: part[0] for part in left if part[0].number not in numbers}.values())

    def _discard(self, segments: Iterable[Segment]) -> None:
        """Remove segments from the shelf that are not in the log any more, except those with tuples that were left."""
        left = {segment.number for segment, _ in self._left}
        self._gone += [segment.number for segment in segments if segment.written and segment.number not in left]

    # Durability.

    def sweep(self) -> None:
        """Remove segments that have no live tuples."""
        if any(segment.live == 0 for segment in self.segments):
            self._discard(segment for segment in self.segments if not segment.live)
            self.segments = tuple(segment for segment in self.segments if segment.live)
            self._index = None

    def tidy(self, boundary: int | None = None) -> None:
        """Merge small neighbours, and rewrite segments whose tuples have mostly expired.

        If expired rows lie between live ones, the live rows behind them get lower sequences; but a row that was at or
        behind ``boundary`` never gets a sequence before it. With None no sequence changes.
        """
        self.sweep()
        tidied: list[Segment] = []
        for segment in self.segments:
            last = tidied[-1] if tidied else None
            small = last is not None and last.live < MERGE_ROWS and segment.live < MERGE_ROWS
            if last is not None and small and may_join(last, segment, boundary):
                tidied[-1] = self._merged([last, segment])
                continue
            if segment.live * HOLES < segment.count and may_join(segment, segment, boundary):
                segment = self._merged([segment])
            tidied.append(segment)
        if len(tidied) != len(self.segments) or any(a is not b for a, b in zip(tidied, self.segments, strict=True)):
            self.segments = tuple(tidied)
            self._index = None

    def _merged(self, segments: Sequence[Segment]) -> Segment:
        begin = segments[0].first + (segments[0].start if stays(*segments) else 0)
        parts = [self.content(segment).take(segment.live_rows()) for segment in segments]
        content = join(parts)
        self._discard(segments)
        number, self._next_number = self._next_number, self._next_number + 1
        return segment_of(number, begin, content)

    def save(self) -> list[Any]:
        """Write new segments to the shelf; return the argument of ``load``, as picklable values."""
        heads = [self._head_of(segment) for segment in self.segments]
        left = [(self._head_of(segment), None if rows is None else rows.tolist()) for segment, rows in self._left]
        self._drop_gone()
        return [self.end, self._next_number, heads, left, self.expired_is_read]

    def _drop_gone(self) -> None:
        for number in self._gone:
            self._shelf.drop(number)
        self._gone.clear()

    def _head_of(self, segment: Segment) -> tuple[Any, ...]:
        """The argument of ``_segment_of``; a large segment is written to the shelf once."""
        inline = None
        if segment.count < INLINE_ROWS:
            inline = encode(self.content(segment))
        elif not segment.written:
            content = self.content(segment)
            self._shelf.write(segment.number, encode(content), content)
            segment.written = True
        alive = None if segment.alive is None else np.packbits(segment.alive).tobytes()
        place = (segment.number, segment.first, segment.count, segment.low_ms, segment.high_ms)
        return (*place, segment.live, alive, segment.start, segment.in_order, inline)

    def load(self, state: Sequence[Any]) -> None:
        """Restore the result of ``save``."""
        self.end, self._next_number, heads, left, self.expired_is_read = state
        self.segments = tuple(_segment_of(head) for head in heads)
        self._index = None
        by_number = {segment.number: segment for segment in self.segments}
        self._left = []
        for head, rows in left:
            segment = by_number.setdefault(head[0], _segment_of(head))
            self._left.append((segment, None if rows is None else np.array(rows, dtype=np.intp)))

    def release(self, keep: int) -> None:
        """Drop content from memory that the shelf has, oldest first, until about ``keep`` tuples are in memory."""
        segments = {segment.number: segment for segment in (*(part[0] for part in self._left), *self.segments)}.values()
        held = sum(segment.count for segment in segments if segment.content is not None)
        for segment in segments:
            if held <= keep:
                break
            if segment.written and segment.content is not None:
                segment.content = None
                held -= segment.count


def _segment_of(head: Sequence[Any]) -> Segment:
    number, first, count, low, high, live, alive, start, in_order, inline = head
    mask = None
    if alive is not None:
        mask = np.unpackbits(np.frombuffer(alive, dtype=np.uint8), count=count).astype(bool)
    content = None if inline is None else decode(inline)
    return Segment(number, first, count, low, high, live, mask, start, content, inline is None, in_order)
