"""Histograms: distributions of durations, in logarithmic buckets, so that they add up.

All histograms have the same buckets, so two of them add up without error. A percentile is the middle of its bucket,
which is wrong by at most ``ERROR_MAX``; maximum and sum are exact. Prior art: HdrHistogram and DDSketch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

BUCKETS_PER_DOUBLING = 8
GROWTH = 2 ** (1 / BUCKETS_PER_DOUBLING)
ERROR_MAX = GROWTH**0.5 - 1
"""The largest relative error of a percentile: 4.4 %."""
LEAST_MS = 1e-3
"""Shorter durations are counted as this one."""
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


class Histogram:
    """Counts of durations in milliseconds.

    >>> histogram = Histogram()
    >>> histogram.add(10, count=98)
    >>> histogram.add(1000, count=2)
    >>> histogram.count, histogram.mean_ms, histogram.max_ms
    (100, 29.8, 1000)
    >>> round(histogram.percentile(0.5)), round(histogram.percentile(0.99))  # of 10 and 1000
    (10, 981)
    """

    __slots__ = ("counts", "max_ms", "sum_ms")

    def __init__(self) -> None:
        """Begin without any duration."""
        self.counts: dict[int, int] = {}
        """By bucket: how many durations."""
        self.sum_ms = 0.0
        self.max_ms = 0.0

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.counts.values())

    @property
    def mean_ms(self) -> float | None:
        """The mean; None if there is no duration."""
        count = self.count
        return self.sum_ms / count if count else None

    def add(self, duration_ms: float, count: int = 1) -> None:
        """Count a duration, ``count`` times."""
        if count > 0:
            bucket = bucket_of(duration_ms)
            self.counts[bucket] = self.counts.get(bucket, 0) + count
            self.sum_ms += duration_ms * count
            self.max_ms = max(self.max_ms, duration_ms)

    def merge(self, other: Histogram) -> None:
        """Add all durations of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.sum_ms += other.sum_ms
        self.max_ms = max(self.max_ms, other.max_ms)

    def percentile(self, share: float) -> float | None:
        """The duration below which a share (0 to 1) of all durations lies; None if there is none.

        It is never larger than the maximum.
        """
        left = math.ceil(self.count * share)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return float(min(GROWTH ** (bucket + 0.5), self.max_ms))
        return None

    def percentiles(self) -> dict[str, float | None]:
        """``p50``, ``p99``, ``p999`` and ``max``, in milliseconds; each None if there is no duration."""
        found = {name: self.percentile(share) for name, share in PERCENTILES.items()}
        return {**found, "max": self.max_ms if self.counts else None}

    def cumulative(self, bounds_ms: Iterable[float]) -> list[tuple[float, int]]:
        """(bound, how many durations are at most that long), for each bound; a duration counts by its bucket's middle.

        >>> histogram = Histogram()
        >>> histogram.add(3)
        >>> histogram.cumulative([1, 10])
        [(1, 0), (10, 1)]
        """
        middles = [(GROWTH ** (bucket + 0.5), count) for bucket, count in self.counts.items()]
        return [(bound, sum(count for middle, count in middles if middle <= bound)) for bound in bounds_ms]

    def to_json(self) -> list[Any]:
        """The histogram as a list: sum, maximum, then a bucket and its count, and so on."""
        flat = [part for item in sorted(self.counts.items()) for part in item]
        return [round(self.sum_ms, 3), round(self.max_ms, 3), *flat]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Histogram:
        """The inverse of ``to_json``.

        >>> histogram = Histogram()
        >>> histogram.add(2.5, 3)
        >>> Histogram.from_json(histogram.to_json()).percentiles() == histogram.percentiles()
        True
        """
        made = cls()
        made.sum_ms, made.max_ms = value[:2]
        made.counts = dict(zip(value[2::2], value[3::2], strict=True))
        return made


def bucket_of(duration_ms: float) -> int:
    """The bucket of a duration.

    >>> bucket_of(1), bucket_of(2), bucket_of(0) == bucket_of(LEAST_MS)
    (0, 8, True)
    """
    return math.floor(math.log2(max(duration_ms, LEAST_MS)) * BUCKETS_PER_DOUBLING)
