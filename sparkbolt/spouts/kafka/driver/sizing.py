"""How large messages are, as far as the driver knows, and what fits into a number of bytes.

Which question it answers: how many offsets of each kafka_partition does the next micro-batch read, so that their
messages have about ``max_bytes`` together?

Rule 1: the driver never sees a message. It learns bytes per offset from what executors have read, and takes the
largest mean of the last reads of a kafka_partition: a plan that is too small costs time, one that is too large memory.
Rule 2: what is not known is taken for large; an estimate rises at once, and falls step by step.
Rule 3: one offset is read even if it is larger than everything that fits, or reading would end there.

Pure. Read before: nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_BYTES = 1_048_576
"""For how large an offset counts of which nothing was read yet: what brokers take at most, by their defaults."""
GROWTH = 8.0
"""By how much an estimate may fall with one read: the first messages may be the small ones."""
READS = 8
"""How many of the last reads of a kafka_partition count."""


@dataclass
class _Known:
    """What is known of one kafka_partition."""

    estimate: float = UNKNOWN_BYTES
    means: deque[float] = field(default_factory=lambda: deque(maxlen=READS))


@dataclass
class Sizes:
    """Bytes per offset by source, and what fits into ``max_bytes``; in the driver.

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
    """Whose turn it is where not all get one."""

    def learn(self, source: str, positions: int, size: int) -> None:
        """Executors have read so many bytes of messages at so many positions of a source."""
        known = self._known.setdefault(source, _Known())
        known.means.append(max(1.0, size / positions))
        known.estimate = max(*known.means, known.estimate / GROWTH)

    def of(self, source: str) -> float:
        """For how many bytes a position of a source counts."""
        known = self._known.get(source)
        return known.estimate if known is not None else float(UNKNOWN_BYTES)

    def fit(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """How many positions of each source are read, of so many; a source that gets none is not in it.

        Bytes are shared evenly, and who needs less than that leaves the rest to the others. Where not even one position
        of each fits, they take turns.
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
        ]  # then what is less than one message of somebody's share
        for source, share in zip([*order, *order], shares, strict=True):
            more = min(wanted[source] - given[source], int(left / share / costs[source]))
            given[source] += more
            left -= more * costs[source]
        return given

    def _in_turn(self, costs: Mapping[str, float]) -> dict[str, int]:
        """One position each, as many as fit, and at least one; the first that does not fit is the next one's first."""
        given: dict[str, int] = {}
        left = float(self.max_bytes)
        for source in sorted(costs, key=lambda one: (one < self._next, one)):
            left -= costs[source]
            if given and left < 0:
                self._next = source
                break
            given[source] = 1
        return given
