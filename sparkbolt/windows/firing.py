"""Firing: what all kinds of windows have in common.

Which question it answers: what does a kind of window take in, and what comes out of it?
Rule 1: a kind of window reads no clock. It is told what came, what the time is and how far the watermark has come, and
gives the windows that are due, one after the other.
Rule 2: whoever takes a window from it has done with it when asking for the next one.

Read before: ``log``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import U64
from sparkbolt.core.worker.failures import Failure
from sparkbolt.windows.content import Content
from sparkbolt.windows.log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.segments import NOTHING, Selection


@dataclass(frozen=True)
class Count:
    """A number of tuples, as the length or the slide of a window.

    >>> Count(10)
    Count(tuples=10)
    """

    tuples: int


Extent: TypeAlias = Count | int
"""A length or a slide: a count, or milliseconds."""


@dataclass
class Fired:
    """A window that is due; without ``events`` it is only said what expires."""

    end_ms: int
    """The reference time of the trigger: where the window ends."""
    start_ms: int | None
    """The end less the length; None where the length is a count."""
    events: Selection
    new: Selection
    """Those of ``events`` that were not in the last window."""
    expired: Selection
    """What the window shows as expired since the last one."""
    is_last: bool = False
    """Whether the tuples of this window expire with it: no later one shows them."""
    expiring: Selection | None = None
    """What expires now, each tuple once, which may be earlier than a window shows it; None: ``expired``."""


def expiry(expiring: Selection) -> Fired:
    """No window: it is only said what expires."""
    return Fired(0, None, NOTHING, NOTHING, NOTHING, expiring=expiring)


class Windower(ABC):
    """Makes windows of one kind; one for each task, or for each key in it."""

    log: WindowLog
    refused: Mapping[int, Failure] = MappingProxyType({})
    """Which rows of what was added last are not taken, and why: a policy of the user's own has raised."""

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Tuples have come, at ``now_ms`` if they are timed by their arrival."""
        self.log.append(content)
        yield from ()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """The watermark has risen to ``mark_ms``; in event time only."""
        yield from ()

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """It is ``now_ms``; called before what came then is added, where arrival is the time."""
        yield from ()

    @abstractmethod
    def due_ms(self) -> int | None:
        """The time, or the watermark, from which on ``clock``, or ``watermark``, has something to do; None if never."""

    @abstractmethod
    def save(self) -> Any:
        """What is durable, as values that pickle; large segments go to the log's shelf."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Take over what ``save`` gave."""

    @property
    def waits(self) -> bool:
        """Whether a tuple is kept for windows to come, other than those that show the same again."""
        return not self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, so that a new one would do as well."""
        return self.log.live == 0

    @property
    def held(self) -> int:
        """How many tuples are kept."""
        return self.log.live

    def everything(self) -> Iterator[tuple[WindowLog, Selection]]:
        """All tuples that are kept."""
        yield self.log, self.log.select(BEFORE_ALL, AFTER_ALL)

    def release(self, keep: int) -> None:
        """Keep about so many tuples in memory, the rest in the state alone."""
        self.log.release(keep)

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """Drop tuples all of whose trees are void; ``is_void`` says so for each of an array of roots."""
        self.log.end_void(is_void)
