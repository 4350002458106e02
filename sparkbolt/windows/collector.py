"""The collector of a windowed bolt.

An emission is anchored to nothing and so starts a new tree; if tuples are acked when they expire, it is anchored to all
tuples of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sparkbolt.api.pickling import never_durable
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.ids import OBJECT_ORDINAL, U64
from sparkbolt.worker.emissions import UNANCHORED, Anchors, Emissions, Output

Pairs: TypeAlias = Callable[[], tuple[U64, U64]]
Mark: TypeAlias = list[tuple[Emissions, tuple[int, int, int, int]]]


@never_durable
class WindowCollector:
    """The collector that ``WindowedBolt.execute`` gets: it emits the results of a window."""

    __slots__ = ("_anchors", "_emitted", "_is_open", "_output", "_pairs")

    def __init__(self, output: Output) -> None:
        """Emit into ``output``."""
        self._output = output
        self._pairs: Pairs | None = None
        self._anchors: list[tuple[int, int]] | None = None
        self._emitted = 0
        self._is_open = False

    def begin(self, pairs: Pairs | None) -> None:
        """Begin the next window, or ``flush``.

        Args:
            pairs: returns the (roots, edges) to anchor to, each uint64[pairs]; None: emissions are not anchored.
        """
        self._pairs = pairs
        self._anchors = None
        self._is_open = True

    def end(self) -> None:
        """Refuse emissions until the next ``begin``."""
        self._pairs = self._anchors = None
        self._is_open = False

    def begin_micro_batch(self) -> None:
        """Number emissions from 0 again."""
        self._emitted = 0

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple.

        Raises:
            EmitError: the stream is not declared, or ``values`` are not those of its fields.
        """
        out = self._output.of(stream)
        row = out.row(values)
        out.push(row, self._parent(out))

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """
        out = self._output.of(stream, direct=True)
        row, to = out.row(values), out.task(task)
        out.push(row, self._parent(out), to)

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""
        self._output.errors.append(error)

    def _parent(self, out: Emissions) -> int:
        if not self._is_open:
            raise self._output.refuse_now()
        if self._pairs is None:
            return UNANCHORED
        if self._anchors is None:
            roots, edges = self._pairs()
            self._anchors = list(zip(roots.tolist(), edges.tolist(), strict=True))
        # Each tuple is in a window once, so its edge identifies it: all anchors have slot 0.
        ordinal = OBJECT_ORDINAL + self._emitted
        self._emitted += 1
        return out.anchored(Anchors([(root, edge, ordinal, 0) for root, edge in self._anchors], 1))

    # A window that raises has emitted nothing.

    def mark(self) -> Mark:
        """How much each stream holds now, for ``back_to``."""
        return [(out, out.mark()) for out in self._output.streams.values()]

    def back_to(self, mark: Mark) -> None:
        """Remove the emissions since ``mark``."""
        for out, before in mark:
            out.back_to(before)
