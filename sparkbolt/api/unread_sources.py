"""Unread sources: how a spout lists the sources for which the watermark of windows has to wait."""

from __future__ import annotations

from collections.abc import Mapping


class UnreadSources:
    """The hook of a ``PartitionedSpout`` for windows in event time; it has a default, so a spout need not define it."""

    def unread(self, progress: Mapping[str, int]) -> Mapping[str, bool] | None:
        """Driver: list the sources that will still be read after ``progress``.

        Windows in event time hold the watermark back for each of these sources. Called only if a topology has such
        windows, when a plan is made.

        Args:
            progress: for each source, the end of its planned positions, the plan that is made now included.

        Returns:
            For each source, whether it has records now. False means that it has none now and may get more: such a
            source is idle after a while. Leave out a source that was read to its end. None: the spout does not know
            its sources, and windows treat all its tuples as those of one source.
        """
        return None
