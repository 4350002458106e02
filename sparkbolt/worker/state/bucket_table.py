"""The bucket table: which segments a key-value state consists of. A commit creates a new table."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sparkbolt.worker.state.plain_reading import loads


@dataclass(frozen=True)
class BucketTable:
    """The segments of all buckets.

    Arrays have one element for each of the ``2**bits`` buckets, except for ``fresh``, and are never changed.
    """

    bits: int = 0
    stamps: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(1, np.uint64))
    """uint64[buckets]: the stamp of the bucket's segment; 0 if the bucket is empty."""
    included: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """int64[buckets]: the number of the last delta that the bucket's segment includes."""
    counts: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(1, np.uint32))
    """uint32[buckets]: how many keys the bucket's segment had."""
    last: int = 0
    """The number of the newest delta; the first delta has number 1."""
    deltas: tuple[int, ...] = ()
    """The stamps of the deltas that are still stored, up to ``last``."""
    fresh: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    """uint32[deltas]: how many keys of each stored delta were new; only the number of buckets depends on it."""

    def encode(self) -> bytes:
        """The table as bytes."""
        arrays = (self.stamps.tobytes(), self.included.tobytes(), self.counts.tobytes())
        stamps = np.array(self.deltas, np.uint64).tobytes()
        return pickle.dumps((self.bits, *arrays, self.last, stamps, self.fresh.tobytes()), 5)

    @classmethod
    def decode(cls, data: bytes) -> BucketTable:
        """The inverse of ``encode``."""
        bits, stamps, included, counts, last, delta_stamps, fresh = loads(data)
        return cls(
            bits,
            np.frombuffer(stamps, np.uint64),
            np.frombuffer(included, np.int64),
            np.frombuffer(counts, np.uint32),
            last,
            tuple(np.frombuffer(delta_stamps, np.uint64).tolist()),
            np.frombuffer(fresh, np.uint32),
        )

    def size(self) -> int:
        """The approximate number of keys: those of the buckets, and new keys of deltas that the buckets lack."""
        numbers = np.arange(self.last - len(self.deltas), self.last) + 1
        lacking = np.searchsorted(np.sort(self.included), numbers) / len(self.included)
        return int(self.counts.sum()) + int(self.fresh @ lacking)

    def doubled(self, bits: int) -> BucketTable:
        """The same content with more buckets: the parts of a bucket share its segment."""
        parts = 1 << (bits - self.bits)
        return replace(
            self,
            bits=bits,
            stamps=np.repeat(self.stamps, parts),
            included=np.repeat(self.included, parts),
            counts=np.repeat(self.counts // np.uint32(parts), parts),
        )
