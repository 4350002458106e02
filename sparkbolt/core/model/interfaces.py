"""Interfaces: what user code is handed to emit, ack, fail and keep with.

Which question it answers: what may a component call, and what does each call raise?
Rule: declarations only. ``collectors`` and ``keyvalue`` have the classes that do it.

Read before: ``tuples``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sparkbolt.core.model.tuples import DEFAULT_STREAM, Tuple


class BasicCollector(Protocol):
    """Of ``BasicBolt`` and ``AsyncBolt``: everything is anchored to the input, which is acked for the user.

    That of a ``BasicBolt`` may be kept: it is the task's, and what it emits is anchored to the tuple whose ``execute``
    runs, or to nothing in ``flush``. That of an ``AsyncBolt`` is its tuple's, and ends with its ``execute``. At any
    other time ``emit`` raises. It is for the thread that runs ``execute``.
    """

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """Emit a tuple anchored to the input; ``anchors`` is there to be refused, with what to do instead.

        Raises:
            EmitError: the stream is not declared, or has another number of fields; ``values`` is no list; anchors.
        """

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class BoltCollector(Protocol):
    """Of ``Bolt``: anchor, ack and fail by hand."""

    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit a tuple, anchored to one tuple, to several (also one twice), or to none.

        Raises:
            EmitError: the stream is not declared, or has another number of fields; ``values`` is no list, an anchor
                is no tuple.
        """

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def ack(self, tup: Tuple) -> None:
        """Say that the tuple is done. What was emitted anchored to it keeps its trees open by itself."""

    def fail(self, tup: Tuple, reason: object = "") -> None:
        """Fail all trees of the tuple; ``reason``, a text or the exception, stands in the trees' stories."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Give all trees of the tuple a full ``message_timeout_secs`` again."""

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class ColumnCollector(Protocol):
    """Of ``ColumnBolt``: whole columns, with the input row that each output row is anchored to."""

    def emit(self, columns: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit rows, column by column.

        Args:
            columns: one Arrow array (or sequence) for each field of the stream, all of one length.
            anchors: for each output row the input row that it is anchored to (integers, Arrow or numpy);
                None for no anchors.
            stream: the stream.

        Raises:
            EmitError: the columns do not fit the stream, or an anchor is not a row of the input.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class SpoutCollector(Protocol):
    """Of ``Spout``: emit with or without a message id."""

    room: int
    """How many tuples there is use for now, as the topology's pace and ``max_spout_pending`` say. More may be
    emitted: they wait. A spout whose source keeps messages for it until they are done takes no more than that."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple; with a message id its tree is tracked, and ``ack`` or ``fail`` is called once with the id.

        Raises:
            EmitError: the stream is not declared, or has another number of fields; ``values`` is no list.
        """

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit a tuple to one task, by its number, on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class KeyValueState(Protocol):
    """A durable map of one task, larger than one would pickle whole (Storm's ``KeyValueState``).

    Keys are hashable, keys and values can be pickled. A value that was changed in place is stored only if it
    is ``put`` again. Each value is stored by itself: what two values share is not shared any more in the next
    micro-batch. The engine commits it with the micro-batch; there is nothing to call.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or ``default``."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def delete(self, key: Any) -> Any:
        """Remove a key; its old value, or None if it was not there."""

    def get_many(self, keys: Any, default: Any = None) -> list[Any]:
        """The value of each key, or ``default``, in order: as ``get``, at a fraction of the price a key.

        Args:
            keys: an Arrow or numpy array, or any iterable; elements of arrays count as the Python values they are.
            default: stands for keys that are not there.
        """

    def put_many(self, keys: Any, values: Any) -> None:
        """Set the value of each key: as ``put``; of a key that comes twice the last value stays.

        Args:
            keys: as of ``get_many``.
            values: as many, likewise.

        Raises:
            StateError: there are more keys than values, or fewer; nothing is set.
        """

    def __contains__(self, key: Any) -> bool:
        """Whether the key has a value."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """All (key, value) pairs in any order, uncommitted ones too; put and delete are allowed meanwhile.

        Keys that are put meanwhile are not shown. It loads everything.
        """

    def __len__(self) -> int:
        """How many keys there are; it loads everything."""
