"""The base of all kinds of windows: they get the tuples, the time and the watermark, and yield due windows.

A caller finishes its work on a window before it asks for the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import U64
from sparkbolt.windows.content import Content
from sparkbolt.windows.tuple_log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.tuple_segments import NOTHING, Selection
from sparkbolt.worker.failures import Failure

if TYPE_CHECKING:
    from sparkbolt.windows.grid import Grid
    from sparkbolt.windows.realignment import Handover


@dataclass
class Fired:
    """A window that is due; if ``events`` is empty, no window is shown, and only the tuples that expire matter."""

    end_ms: int
    """The end of the window: the reference time of the trigger."""
    start_ms: int | None
    """The end minus the length; None where the length is a count."""
    events: Selection
    new: Selection
    """The ``events`` that were not in the last window."""
    expired: Selection
    """The tuples of the last window that are not in this one."""
    expiring: Selection
    """The tuples that expire now: no later window can hold them, whether a window has shown them or not.

    Each tuple expires once. That may be earlier than a window shows it as expired."""


def expiry(expiring: Selection) -> Fired:
    """A ``Fired`` without a window: some tuples expire."""
    return Fired(0, None, NOTHING, NOTHING, NOTHING, expiring)


class Windower(ABC):
    """Makes windows of one kind; there is one for each task, or for each key of a task."""

    log: WindowLog
    refused: Mapping[int, Failure] = MappingProxyType({})
    """By row of the content that was added last: why the row was not taken, since a policy of the user's raised."""
    missed = 0
    """How many of the tuples that it took over belong to windows that are over, as late tuples do."""

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Add tuples, which arrived at ``now_ms`` if arrival is their time; yields the windows that are due."""
        self.log.append(content)
        yield from ()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """Called in event time when the watermark has risen to ``mark_ms``; yields the windows that are due."""
        yield from ()

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """Called when arrival is the time, before the tuples of ``now_ms`` are added; yields windows due by then."""
        yield from ()

    def _show(
        self, end_ms: int, start_ms: int | None, events: Selection, new: Selection, expiring: Selection
    ) -> Iterator[Fired]:
        """Yield a window, with the tuples that expired since the last one; or, without tuples, the expired ones.

        See ``Fired`` for the arguments. Tuples of the last window that are not in this one have left before the call.
        """
        if events.count:
            yield Fired(end_ms, start_ms, events, new, self.log.left, expiring)
            self.log.drop_left()
        elif expiring.count:
            yield expiry(expiring)

    @abstractmethod
    def due_ms(self) -> int | None:
        """The time at which ``clock``, or the watermark at which ``watermark``, has something to do; None: never."""

    @abstractmethod
    def save(self) -> Any:
        """Return the durable state as picklable values; large segments go to the log's shelf."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Restore the result of ``save``."""

    @property
    def waits(self) -> bool:
        """Whether tuples are kept for a future window that shows something new."""
        return not self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether no tuples are kept for a future window."""
        return self.log.live == 0

    @property
    def is_replaceable(self) -> bool:
        """Whether a new instance is equivalent: this one is empty, and no window has to show expired tuples."""
        return self.is_empty and not (self.log.expired_is_read and self.log.left.count)

    @property
    def held(self) -> int:
        """How many tuples are kept."""
        return self.log.live

    def everything(self) -> Iterator[tuple[WindowLog, Selection]]:
        """All tuples that have not expired."""
        yield self.log, self.log.select(BEFORE_ALL, AFTER_ALL)

    def release(self, keep: int) -> None:
        """Keep about ``keep`` tuples in memory, and the others in the state only."""
        self.log.release(keep)

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """Drop tuples all of whose trees are void.

        Args:
            is_void: bool[roots] for an array of roots, uint64[roots].
        """
        self.log.end_void(is_void, self._last_shown())

    # Another length, slide, gap or kind.

    @abstractmethod
    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """Give up all tuples, for windows with other settings; this instance is not used again.

        Args:
            grid: the settings of these windows.
            reached_ms: the watermark, or the time on arrival; windows that were due by then have fired.
        """

    @abstractmethod
    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """Take the tuples of windows with other settings, as the first call of an instance.

        ``clock`` or ``watermark`` is called next, with ``reached_ms``.

        Args:
            past: what the old windows have handed over.
            grid: the settings of these windows.
            reached_ms: as in ``hand_over``.
        """

    def _take_left(self, past: Handover) -> None:
        self.log.expired_is_read = past.expired_is_read
        self.log.leave_content(past.left)

    def _last_shown(self) -> Selection:
        """The live tuples that the last window has shown."""
        return NOTHING
