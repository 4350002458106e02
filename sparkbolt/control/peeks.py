"""Peeks: what operators want to see of the running tuples at the moment, and the newest tuples that they see.

A peek ends by itself ``PEEK_SECS`` after it was asked for last, so an operator who is gone costs nothing. Nothing here
is durable; the tuples of a micro-batch that runs again are seen again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sparkbolt.wire.peek import Peek, PeekedTuple

PEEK_SECS = 10.0
PEEKS_MAX = 5
"""How many peeks there are at a time; a further one replaces the one that was asked for least recently."""
KEPT_MAX = 100
"""How many tuples are kept for each peek: the newest."""


@dataclass
class _Kept:
    until_s: float
    tuples: deque[tuple[int, PeekedTuple]] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))


class Peeks:
    """The peeks at one topology; its methods may be called from any thread.

    >>> peeks, peek = Peeks(), Peek("split")
    >>> peeks.ask(peek, after=0, now_s=100.0), peeks.wanted(now_s=105.0), peeks.wanted(now_s=110.0)
    ([], (Peek(component='split', stream=None, match=''),), ())
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Peek, _Kept] = OrderedDict()
        self._serial = 0

    def ask(self, peek: Peek, after: int, now_s: float) -> list[tuple[int, PeekedTuple]]:
        """Begin or prolong a peek, and return the tuples that it has seen, each with its serial number.

        Args:
            peek: what to see.
            after: only tuples with a higher serial number.
            now_s: the current time in seconds of the monotonic clock.
        """
        with self._lock:
            kept = self._kept.get(peek)
            if kept is None or kept.until_s <= now_s:
                kept = self._kept[peek] = _Kept(now_s)
            kept.until_s = now_s + PEEK_SECS
            self._kept.move_to_end(peek)
            while len(self._kept) > PEEKS_MAX:
                self._kept.popitem(last=False)
            return [one for one in kept.tuples if one[0] > after]

    def wanted(self, now_s: float) -> tuple[Peek, ...]:
        """The peeks that have not ended."""
        if not self._kept:
            return ()
        with self._lock:
            for peek in [peek for peek, kept in self._kept.items() if kept.until_s <= now_s]:
                del self._kept[peek]
            return tuple(self._kept)

    def add(self, tuples: Iterable[PeekedTuple]) -> None:
        """Keep the tuples of a micro-batch that has run."""
        with self._lock:
            for one in tuples:
                kept = self._kept.get(one.peek)
                if kept is not None:
                    self._serial += 1
                    kept.tuples.append((self._serial, one))
