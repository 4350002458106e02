"""Inlets: spouts whose rows something else brings into the lane, such as a streaming DataFrame of Spark.

The tasks of an inlet run in a level of the lane, not at its source. They keep each row in their outboxes, start its
tree, and emit it from there again if it fails, so nothing is read a second time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.errors import EngineError


class InletSpout(PartitionedSpout):
    """A spout whose rows are brought into the lane by the engine that runs it; its tasks only keep and emit them."""

    rehearsable: ClassVar[bool] = False

    message_id: str | None = None
    """The field with the user's own id of a row, for stories and dead letters; None: rows have no such id."""

    @abstractmethod
    def frame(self, spark: Any) -> Any:
        """Driver: return the rows for the engine to read; called once each time that the query starts.

        Args:
            spark: the session of the topology.
        """

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Nothing is planned."""
        return ()

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Never called where the engine brings the rows.

        Raises:
            EngineError: always.
        """
        raise EngineError(
            f"{type(self).__name__} is read by Spark, which does not run here: give the spout rows "
            "(feed=... of simulate, feed of TopologyTestDriver)"
        )
