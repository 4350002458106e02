"""Interfaces: the objects with which user code emits, acks, fails and stores state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sparkbolt.api.tuples import DEFAULT_STREAM, Tuple


class BasicCollector(Protocol):
    """The collector of ``BasicBolt`` and ``AsyncBolt``: all output is anchored to the input, which is acked for you.

    The collector of a ``BasicBolt`` belongs to the task and may be kept: tuples that it emits are anchored to the tuple
    whose ``execute`` is running, or to none in ``flush``. The collector of an ``AsyncBolt`` belongs to one tuple and
    can be used until its ``execute`` ends. At any other time ``emit`` raises. Only the thread that runs ``execute`` may
    use it.

    Values that are emitted are a list or tuple in the order of the stream's fields, or have the names of the fields: a
    mapping, or an instance of a NamedTuple or a dataclass. If the stream has one field, its value alone is enough,
    unless it is None or a collection.
    """

    def emit(self, values: Any, stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """Emit a tuple anchored to the input; ``anchors`` is always rejected, with an error that names the alternative.

        Raises:
            EmitError: the stream is not declared, or ``values`` are not those of its fields; anchors are given.
        """

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class BoltCollector(Protocol):
    """The collector of ``Bolt``: anchor, ack and fail explicitly. It takes values as that of ``BasicBolt`` does."""

    def emit(self, values: Any, anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple, anchored to one tuple, to several tuples (even the same one twice), or to none.

        Raises:
            EmitError: the stream is not declared, or ``values`` are not those of its fields; an anchor is not a
                ``Tuple``.
        """

    def emit_direct(
        self,
        task: int,
        values: Any,
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def ack(self, tup: Tuple) -> None:
        """Ack the tuple. Its trees stay open until the tuples that were anchored to it are acked, too."""

    def fail(self, tup: Tuple, reason: object = "") -> None:
        """Fail all trees of the tuple; their stories contain ``reason``, a text or an exception.

        If the tuple belongs to no tree, ``reason`` is reported as an error.
        """

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the timeout of all trees of the tuple: each gets a full ``message_timeout_secs`` again."""

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class ColumnCollector(Protocol):
    """The collector of ``ColumnBolt``: emits whole columns, each output row anchored to an input row."""

    def emit(self, columns: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit rows, column by column.

        Args:
            columns: one Arrow array (or sequence) for each field of the stream, all of one length; or by name.
            anchors: integers[rows], Arrow or numpy: for each output row the index of the input row to which it is
                anchored; None for no anchors.
            stream: the name of the stream.

        Raises:
            EmitError: the columns do not fit the stream, or an anchor is not a row of the input.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class SpoutCollector(Protocol):
    """The collector of ``Spout``: emits with or without a message id; takes values as that of ``BasicBolt`` does."""

    room: int
    """How many tuples the topology can take now, by its rate and ``max_spout_pending``. A spout may emit more: they
    wait in the spout buffer. A spout that takes messages out of a queue should take no more than this number."""

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple; with a message id its tree is tracked, and ``ack`` or ``fail`` is called once with the id.

        Raises:
            EmitError: the stream is not declared, or ``values`` are not those of its fields.
        """

    def emit_direct(self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple to one task, by its number, on a direct stream.

        Raises:
            EmitError: as ``emit``; or the task does not subscribe to the stream.
        """

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""


class KeyValueState(Protocol):
    """A durable map of one task, for state that is too large to be pickled as a whole (Storm's ``KeyValueState``).

    Keys must be hashable, and keys and values picklable. A value that was changed in place is stored only if it is
    ``put`` again. Each value is stored separately: an object that two values share becomes two objects in the next
    micro-batch. The engine commits the state with the micro-batch; there is no method to call for it.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or ``default``."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def delete(self, key: Any) -> Any:
        """Remove a key; return its old value, or None if the key was not there."""

    def get_many(self, keys: Any, default: Any = None) -> list[Any]:
        """Return the value of each key, or ``default``, in order: like ``get``, but much faster for each key.

        Args:
            keys: an Arrow or numpy array, or any iterable; elements of arrays are converted to Python values.
            default: the value for keys that are not there.
        """

    def put_many(self, keys: Any, values: Any) -> None:
        """Set the value of each key, like ``put``; if a key occurs twice, its last value is stored.

        Args:
            keys: as for ``get_many``.
            values: an array or iterable with one value for each key.

        Raises:
            StateError: the numbers of keys and values differ; nothing is set.
        """

    def __contains__(self, key: Any) -> bool:
        """Whether the key has a value."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all (key, value) pairs, uncommitted ones too, in any order; it loads the whole state.

        ``put`` and ``delete`` are allowed during the iteration; keys that are put during it are not returned.
        """

    def __len__(self) -> int:
        """Return the number of keys; it loads the whole state."""
