"""Exclusion: what a micro-batch that runs again must leave out.

The value travels as text beside the tasks of Spark, because Spark packs the tasks before anything has failed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import I64, MAX_SEQUENCE, SEQUENCE_BITS, U64, empty_u64, mix64_array
from sparkbolt.base.packing import pack_keys, unpack_keys

LEFT_OUT = "it is left out of this execution of its micro-batch"
"""The reason of a failure with the cause ``excluded``, which the driver replaces."""
HALVED = "its micro-batch ran with half of its messages, because trees failed in each execution of it"
"""The reason why a message is postponed."""


@dataclass(frozen=True)
class Exclusion:
    """The messages of a plan that one execution of it leaves out.

    >>> Exclusion.of_text(Exclusion(np.array([3, 9], np.uint64), halvings=1).to_text()).keys.tolist()
    [3, 9]
    >>> Exclusion().to_text(), Exclusion.of_text("").room(10), Exclusion(halvings=2).room(10)
    ('', 10, 2)
    """

    keys: U64 = field(default_factory=empty_u64)
    """uint64[trees], ascending: the keys of trees whose tuples are not emitted; the driver has their failures."""
    halvings: int = 0
    """How often the size of each entry was halved; the rest of an entry is postponed."""

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(len(self.keys) or self.halvings)

    def room(self, size: int) -> int:
        """How many of an entry's ``size`` messages are read."""
        return size >> self.halvings

    def postpones(self, keys: U64) -> npt.NDArray[np.bool_]:
        """bool[trees]: which of the trees that tasks start themselves are postponed: each halving takes half of them.

        The choice follows from the key alone, since a task may start many trees at once or one at a time.

        >>> keys = np.arange(1000, dtype=np.uint64)
        >>> [int(np.count_nonzero(Exclusion(halvings=halvings).postpones(keys))) for halvings in (0, 1, 3)]
        [0, 500, 867]
        """
        most = ((1 << 64) - 1) >> min(self.halvings, 63)
        return mix64_array(keys) > np.uint64(most)

    def sequences_of(self, task: int) -> I64:
        """int64[trees]: the sequences of a task that are left out."""
        own = self.keys[self.keys >> np.uint64(SEQUENCE_BITS) == np.uint64(task)]
        sequences: I64 = (own & np.uint64(MAX_SEQUENCE)).astype(np.int64)
        return sequences

    def to_text(self) -> str:
        """The exclusion as text; empty if nothing is left out."""
        return f"{self.halvings}:{base64.b64encode(pack_keys(self.keys)).decode()}" if self else ""

    @classmethod
    def of_text(cls, text: str | None) -> Exclusion:
        """The inverse of ``to_text``."""
        if not text:
            return cls()
        halvings, keys = text.split(":")
        return cls(unpack_keys(base64.b64decode(keys)), int(halvings))


NOTHING_EXCLUDED = Exclusion()
