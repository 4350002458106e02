"""Records: what a ``Spout`` has emitted, on its way to the executor that starts its tree.

Which question it answers: how does one record travel from the driver, so that whatever it holds is its own trouble?
Rule 1: values that are not plain are pickled when they are emitted, each record for itself. What cannot be pickled, or
is too large, is refused there; what cannot be read where it arrives fails there. Its tree fails, and nothing else.
Rule 2: plain values (text, numbers, bytes, None) ride as they are: to look at them is all that it costs.

Read before: ``failures``, ``attempt_store``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from sparkbolt.core.base.exceptions import line_of, pass_on, printed
from sparkbolt.core.protocol.attempts import NO_ATTEMPTS, MessageAttempts
from sparkbolt.errors import EmitError

_PLAIN = frozenset({int, float, bool, type(None)})
_SHOWN_CHARACTERS_MAX = 1000


@dataclass(frozen=True)
class Packed:
    """Values as their pickle."""

    data: bytes


@dataclass(frozen=True)
class Refused:
    """Values that cannot travel."""

    reason: str
    shown: tuple[str, ...]
    """How each of them prints."""


@dataclass(frozen=True)
class Record:
    """What a ``Spout`` emitted once; rides in the ``InputPartition``."""

    stream: str
    values: Sequence[Any] | Packed | Refused
    tracked: bool
    direct_to: int | None = None
    attempt: int = 1
    """Which attempt at the message it is."""
    attempts: MessageAttempts = NO_ATTEMPTS
    """The attempts before, where the message may become a dead letter."""

    @classmethod
    def of(cls, stream: str, values: list[Any], tracked: bool, direct_to: int | None, bytes_max: int) -> Record:
        """A record of values that a spout has just emitted.

        Args:
            stream: on which.
            values: as many as it has fields.
            tracked: whether they start a tree.
            direct_to: the number of the task that they are for.
            bytes_max: the tree of a larger record fails.
        """
        return cls(stream, _packed(values, bytes_max), tracked, direct_to)

    @property
    def size(self) -> int:
        """About how many bytes it takes in a partition."""
        if isinstance(self.values, Packed):
            return 64 + len(self.values.data)
        if isinstance(self.values, Refused):
            return 64
        return 64 + sum([len(value) if isinstance(value, str | bytes) else 64 for value in self.values])

    def read(self) -> Sequence[Any]:
        """The values.

        Raises:
            EmitError: they cannot be sent or read; the message says why.
        """
        if isinstance(self.values, Refused):
            raise EmitError(self.values.reason)
        if not isinstance(self.values, Packed):
            return self.values
        try:
            values: list[Any] = pickle.loads(self.values.data)
        except BaseException as error:  # unpickling calls user code, which may raise anything
            pass_on(error)
            raise EmitError(
                "the record holds a value that cannot be sent to an executor (it can be pickled, and reading it back "
                f"raises {line_of(error)})"
            ) from error
        return values


def _packed(values: list[Any], bytes_max: int) -> Sequence[Any] | Packed | Refused:
    size = 0
    for value in values:
        kind = value.__class__
        if kind is str or kind is bytes:
            size += len(value)
        elif kind not in _PLAIN:
            break
    else:
        return values if size <= bytes_max else _refused(values, _too_large(size, bytes_max))
    try:
        data = _pickled(values)
    except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
        pass_on(error)
        return _refused(values, f"the record holds a value that cannot be sent to an executor ({line_of(error)})")
    return Packed(data) if len(data) <= bytes_max else _refused(values, _too_large(len(data), bytes_max))


def _refused(values: Sequence[Any], reason: str) -> Refused:
    return Refused(reason, tuple(printed(value)[:_SHOWN_CHARACTERS_MAX] for value in values))


def _too_large(size: int, bytes_max: int) -> str:
    return (
        f"a record of {size:,} bytes cannot be emitted: tuple_bytes_max is {bytes_max:,}; emit a reference to what is "
        "large, such as a path, or raise the limit"
    )


class _ClassError(Exception):
    """An instance of a class is in what is being pickled."""


class _BuiltIns(pickle.Pickler):
    """Pickles builtin types only."""

    def reducer_override(self, obj: Any) -> Any:
        raise _ClassError


def _pickled(values: list[Any]) -> bytes:
    """By value where the main program defines what is needed; a JSON object costs a twentieth of that."""
    buffer = io.BytesIO()
    try:
        _BuiltIns(buffer, 5).dump(values)
    except _ClassError:
        data: bytes = cloudpickle.dumps(values)
        return data
    return buffer.getvalue()
