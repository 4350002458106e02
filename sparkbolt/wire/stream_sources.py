"""Stream sources: the data of a plan on the sources of tuples, for the tasks of windows.

A source is a code, its place among the sources of the plan's entries, so plans and reports grow with what one
micro-batch reads and not with all sources. A tuple belongs to the source of its tree. A tuple without a tree, or whose
tree no listed entry started, belongs to no source and holds no watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkbolt.base.codec import ROW
from sparkbolt.base.ids import U64, unmix64_array

NOTHING_YET = -1
"""Replaces the newest timestamp of a source or a stream that has delivered no tuple."""


@dataclass(frozen=True)
class StreamSources:
    """The sources of one input stream of a windowed bolt, as its tasks receive them with a plan.

    Times are timestamps of tuples in milliseconds, over all tasks of the bolt and all promoted micro-batches.
    """

    JSON = ROW

    bolt: str
    component: str
    stream: str
    newest_ms: int
    """The newest timestamp of the stream, or ``NOTHING_YET``."""
    has_sources: bool
    """Whether tuples of the stream belonged to sources so far."""
    others_ms: int | None
    """The least of the newest timestamps of the sources that hold the watermark and are not in ``planned``; None if
    there is no such source."""
    planned: tuple[tuple[int, int], ...]
    """(code, newest timestamp) of each source that the plan reads and that holds the watermark after it."""
    unread: bool
    """Whether a source that holds the watermark has records that are not read yet."""
    ended: bool
    """Whether all sources are read to their ends."""
    release_ms: int | None
    """When the next source that has no records at present is idle and no longer holds the watermark; None if none."""


@dataclass(frozen=True)
class SourceRanges:
    """Which trees belong to which source.

    >>> from sparkbolt.base.ids import mix64, tree_key
    >>> ranges = SourceRanges.of([(tree_key(1, 0), 10, 0), (tree_key(1, 10), 5, 1)])
    >>> ranges.codes_of(np.array([mix64(tree_key(1, 12)), mix64(tree_key(1, 9)), 7], dtype=np.uint64)).tolist()
    [1, 0, -1]
    """

    first_keys: U64
    """uint64[ranges], ascending."""
    reserved: U64
    """uint64[ranges]: the number of trees of each."""
    codes: npt.NDArray[np.int64]
    """int64[ranges]: the source of each."""

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int]]) -> SourceRanges:
        """The ranges from (first key, number of trees, code), in any order."""
        columns = np.array(sorted(ranges), dtype=np.uint64).reshape(-1, 3)
        return cls(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].astype(np.int64))

    def codes_of(self, roots: U64) -> npt.NDArray[np.int64]:
        """int64[roots]: the source of each tree, or -1."""
        if not len(self.first_keys):
            return np.full(len(roots), -1, dtype=np.int64)
        keys = unmix64_array(roots)
        places = np.searchsorted(self.first_keys, keys, side="right") - 1
        codes = self.codes[places]
        codes[(places < 0) | (keys - self.first_keys[places] >= self.reserved[places])] = -1
        return codes
