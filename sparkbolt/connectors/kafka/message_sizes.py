"""Sizes: estimates how large messages are, and how many fit into a number of bytes.

The driver never sees a message: it learns bytes per offset from what executors have read, and uses the largest mean of
the last reads of a kafka_partition. Unknown sizes count as large; an estimate rises at once and falls step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_BYTES = 1_048_576
"""Bytes per offset of a source that was not read yet: the largest message that brokers accept by default."""
GROWTH = 8.0
"""An estimate falls at most to this fraction (1/8) with one read: the first messages may be the small ones."""
READS = 8
"""How many of the last reads of a kafka_partition are used."""


@dataclass
class _Known:
    """The estimate of one kafka_partition."""

    estimate: float = UNKNOWN_BYTES
    means: deque[float] = field(default_factory=lambda: deque(maxlen=READS))


@dataclass
class Sizes:
    """Bytes per offset by source, and how many offsets fit into ``max_bytes``; used in the driver.

    >>> sizes = Sizes(max_bytes=1000)
    >>> for _ in range(4):
    ...     sizes.learn("orders/0", positions=10, size=1000)
    >>> sizes.of("orders/0")
    256.0
    >>> sizes.learn("orders/0", positions=1000, size=100_000)
    >>> sizes.of("orders/0"), sizes.fit({"orders/0": 50_000})
    (100.0, {'orders/0': 10})
    """

    max_bytes: int
    _known: dict[str, _Known] = field(default_factory=dict)
    _next: str = ""
    """The source whose turn is next, when not all get a position."""

    def learn(self, source: str, positions: int, size: int) -> None:
        """Learn from a read: executors have read ``size`` bytes of messages at this many positions of a source."""
        known = self._known.setdefault(source, _Known())
        known.means.append(max(1.0, size / positions))
        known.estimate = max(*known.means, known.estimate / GROWTH)

    def of(self, source: str) -> float:
        """Return the estimated bytes per position of a source."""
        known = self._known.get(source)
        return known.estimate if known is not None else float(UNKNOWN_BYTES)

    def fit(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return how many of the wanted positions of each source are read; a source that gets none is missing.

        Bytes are shared evenly, and a source that needs less leaves the rest to the others. If not even one position
        of each source fits, the sources take turns.
        """
        costs = {source: self.of(source) for source in wanted}
        if sum(costs[source] * positions for source, positions in wanted.items()) <= self.max_bytes:
            return dict(wanted)
        left = self.max_bytes - sum(costs.values())
        if left < 0:
            return self._in_turn(costs)
        given = dict.fromkeys(wanted, 1)
        order = sorted(wanted, key=lambda one: (costs[one] * wanted[one], one))
        shares = [
            *range(len(order), 0, -1),
            *[1] * len(order),
        ]  # then bytes that are left over because they are less than one message
        for source, share in zip([*order, *order], shares, strict=True):
            more = min(wanted[source] - given[source], int(left / share / costs[source]))
            given[source] += more
            left -= more * costs[source]
        return given

    def _in_turn(self, costs: Mapping[str, float]) -> dict[str, int]:
        """Return one position each for as many sources as fit, at least one; the first that does not fit is next."""
        given: dict[str, int] = {}
        left = float(self.max_bytes)
        for source in sorted(costs, key=lambda one: (one < self._next, one)):
            left -= costs[source]
            if given and left < 0:
                self._next = source
                break
            given[source] = 1
        return given
