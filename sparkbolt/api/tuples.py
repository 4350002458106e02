"""Tuples: the tuples that bolts receive, and the streams on which they are emitted.

A tuple that user code keeps does not change. The engine reuses one object for row after row as long as user code does
not keep it, and takes a new object as soon as user code does (``tasks`` checks the reference count).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

from sparkbolt.api.named_fields import Fields, fields_of_class
from sparkbolt.errors import InvariantError, UnknownNameError

DEFAULT_STREAM = "default"
SYSTEM_COMPONENT = "__system"
TICK_STREAM = "__tick"
TICK_FIELDS = ("rate_secs",)
ATTEMPT_MAX = 127
TRACED = 128
"""Added to the attempt of a tuple whose tree is traced, so that its hops are recorded."""

AnchorPairs: TypeAlias = tuple[tuple[int, int], ...]
"""(root, edge) for each tree that a tuple belongs to."""


class Direct(list[str]):
    """Fields of a direct stream: the sender names the task of each tuple with ``emit_direct``.

    >>> Direct(["word"])
    Direct(['word'])
    """

    def __repr__(self) -> str:
        """Return ``Direct([...])``, because a plain list would look like an ordinary stream."""
        return f"Direct({list(self)!r})"


Outputs: TypeAlias = Fields | Mapping[str, Fields]


@dataclass(frozen=True)
class StreamDef:
    """One declared stream: its name, its fields in order, and whether it is direct."""

    name: str
    fields: tuple[str, ...]
    direct: bool = False


def parse_outputs(outputs: Outputs | None) -> tuple[StreamDef, ...]:
    """Return the streams that ``outputs`` declares: a list gives the fields of ``default``, a dict several streams.

    A class stands for a list: a NamedTuple, a dataclass or a TypedDict.

    Raises:
        ValueError: a name is not a non-empty str, a field occurs twice, or ``outputs`` is neither a list nor a dict.

    >>> parse_outputs(["word"])
    (StreamDef(name='default', fields=('word',), direct=False),)
    >>> parse_outputs({"default": ["a"], "odd": Direct(["b"])})[1].direct
    True
    """
    if outputs is None:
        return ()
    if isinstance(outputs, str):
        raise ValueError(f"outputs is the str {outputs!r}: did you mean outputs = [{outputs!r}]?")
    streams = outputs if isinstance(outputs, Mapping) else {DEFAULT_STREAM: outputs}
    return tuple(_parse_stream(name, fields) for name, fields in streams.items())


def _parse_stream(name: object, fields: object) -> StreamDef:
    if not isinstance(name, str) or not name:
        raise ValueError(f"the stream name {name!r} is not a non-empty str")
    if isinstance(fields, type):
        fields = fields_of_class(fields)
    if isinstance(fields, str) or not isinstance(fields, Sequence):
        raise ValueError(f"stream {name!r}: its fields are {fields!r}, expected a list of names")
    for field in fields:
        if not isinstance(field, str) or not field:
            raise ValueError(f"stream {name!r}: the field {field!r} is not a non-empty str")
    if len(set(fields)) != len(fields):
        raise ValueError(f"stream {name!r}: a field stands twice in {list(fields)}")
    return StreamDef(name, tuple(fields), isinstance(fields, Direct))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where tuples come from: shared by all tuples of one frame."""

    component: str
    task: int
    """The task's index within its component, from 0."""
    stream: str
    fields: tuple[str, ...]


class Chunk(Protocol):
    """The rows that are being processed; a tuple reads its anchors and its attempt from them."""

    def anchors_of(self, row: int) -> AnchorPairs:
        """Return the row's (root, edge) pairs; empty if it is not tracked."""

    def attempt_of(self, row: int) -> int:
        """Return the row's attempt of its spout tuple, from 1; with ``TRACED`` added if it is traced."""


class Tuple(dict[str, Any]):
    """One tuple: a read-only mapping from its fields to its values.

    A field is ``tup["word"]``, ``tup.word`` or, by position, ``tup[0]``. All that reads a dict reads a tuple:
    ``dict(tup)``, ``tup.values()``, ``**tup``, ``match``. A field with the name of an attribute or method of this class
    (``values``, ``items``, ``fields``) is only ``tup["values"]``.

    It may be kept for any time, also in durable attributes. Two tuples are equal only if they are the same object.

    >>> tup = Tuple.of(Origin("lines", 0, "default", ("line", "n")), ["to be", 7])
    >>> tup["line"], tup.line, tup[1], tup.source_component
    ('to be', 'to be', 7, 'lines')
    >>> list(tup.values()), list(tup), "n" in tup, tup.get("m")
    (['to be', 7], ['line', 'n'], True, None)
    >>> match tup:
    ...     case {"line": str(line), "n": 7}:
    ...         print(line)
    to be
    """

    __slots__ = ("_anchors", "_attempt", "_chunk", "_ordinals", "_origin", "_row", "_settled")

    _origin: Origin
    _chunk: Chunk | None
    _row: int
    _anchors: AnchorPairs
    _attempt: int
    _settled: str | None
    """``"acked"`` or ``"failed"`` after a tuple was acked or failed that had been kept beyond its rows; else None."""
    _ordinals: tuple[int, int]
    """(micro-batch id, how many tuples were anchored to this object in it)."""

    @classmethod
    def of(
        cls,
        origin: Origin,
        values: Sequence[Any],
        anchors: AnchorPairs = (),
        attempt: int = 1,
    ) -> Tuple:
        """Make a tuple that belongs to no rows: for unpickling, and for tests."""
        tup = _class_with(origin.fields)(zip(origin.fields, values, strict=True))
        tup._origin = origin
        tup._chunk = None
        tup._row = -1
        tup._anchors = anchors
        tup._attempt = attempt
        tup._settled = None
        tup._ordinals = (-1, 0)
        return tup

    @classmethod
    def of_row(cls, origin: Origin, chunk: Chunk, row: int) -> Tuple:
        """Make a tuple that shows ``row`` of ``chunk``; the caller fills in its fields, by ``dict``'s own methods."""
        tup = _class_with(origin.fields)()
        tup._origin = origin
        tup._chunk = chunk
        tup._row = row
        tup._anchors = ()
        tup._attempt = 1
        tup._settled = None
        tup._ordinals = (-1, 0)
        return tup

    if TYPE_CHECKING:

        def __getitem__(self, key: str | int) -> Any:
            """Return the value of a field, by its name or its index."""

        def __getattr__(self, name: str) -> Any:
            """Return the value of a field; the classes that ``_class_with`` makes have an attribute for each."""

    def __missing__(self, key: str | int) -> Any:
        """Return the value at an index; for an unknown name, raise an error that lists the fields."""
        if isinstance(key, int):
            return self[self._origin.fields[key]]
        mend = ": it is a tick tuple; look at tup.is_tick first, or set ignores_ticks = True in the bolt's class"
        raise UnknownNameError(
            f"{key!r} does not exist in stream {self._origin.stream!r} of {self._origin.component!r}, "
            f"whose fields are {list(self._origin.fields)}{mend if self.is_tick else ''}"
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return self._origin.fields

    @property
    def source_component(self) -> str:
        """The id of the component that emitted the tuple."""
        return self._origin.component

    @property
    def source_task(self) -> int:
        """The index, within its component, of the task that emitted the tuple; -1 for a tick."""
        return self._origin.task

    @property
    def source_stream(self) -> str:
        """The stream that the tuple was emitted on."""
        return self._origin.stream

    @property
    def attempt(self) -> int:
        """The attempt of the spout's message to which this tuple belongs: 1, then 2 for its first retry, and so on.

        From the 127th attempt on it is 127. It is 1 for the tuples of a window, and with ``ack_on_expiry`` also
        for those that the window emits.
        """
        return self.mark & ATTEMPT_MAX

    @property
    def mark(self) -> int:
        """The attempt, with ``TRACED`` added if the tuple's tree is traced."""
        return self._attempt if self._chunk is None else self._chunk.attempt_of(self._row)

    @property
    def is_tick(self) -> bool:
        """Whether this is a tick tuple (component ``__system`` and stream ``__tick``, as in Storm)."""
        return self._origin.component == SYSTEM_COMPONENT and self._origin.stream == TICK_STREAM

    @property
    def anchors(self) -> AnchorPairs:
        """(root, edge) for each tree that the tuple belongs to; empty if it is not tracked."""
        return self._anchors if self._chunk is None else self._chunk.anchors_of(self._row)

    def detach(self) -> None:
        """Copy the anchors and the attempt from the rows, so that the tuple stays valid without them."""
        if self._chunk is not None:
            self._anchors = self._chunk.anchors_of(self._row)
            self._attempt = self._chunk.attempt_of(self._row)
            self._chunk = None
            self._row = -1

    def next_ordinal(self, micro_batch_id: int) -> int:
        """Return the number of earlier emissions anchored to this object in the micro-batch, and count one more."""
        seen, count = self._ordinals
        count = count if seen == micro_batch_id else 0
        self._ordinals = (micro_batch_id, count + 1)
        return count

    if not TYPE_CHECKING:

        def _refuse(self, *_: object, **__: object) -> NoReturn:
            """Raise an error: the engine shows row after row in one object, and another bolt may have it too."""
            raise TypeError("a Tuple is read-only: change a copy, dict(tup)")

        __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Whether it is the same object: two deliveries with the same values are two tuples."""
        return self is other

    def __ne__(self, other: object) -> bool:
        """Whether it is another object."""
        return self is not other

    def __repr__(self) -> str:
        """Return the source, the stream and the values as text."""
        origin = self._origin
        return f"Tuple({origin.component}[{origin.task}] {origin.stream} {dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle values and anchors; a tuple of rows that are being processed is detached first."""
        self.detach()
        state = (self._settled, self._ordinals)
        return restore, (self._origin, list(self.values()), self._anchors, self._attempt, state)

    def __copy__(self) -> Tuple:
        """Raise an error: the copy could be acked in addition to the original."""
        raise InvariantError("a Tuple is not copied: keep the tuple itself, or copy dict(tup)")

    def __deepcopy__(self, memo: object) -> Tuple:
        """Raise an error, as ``__copy__`` does."""
        return self.__copy__()


@cache
def _class_with(fields: tuple[str, ...]) -> type[Tuple]:
    """Return the class of tuples with these fields, which are its attributes; its name shows them in errors.

    An attribute of the class costs a third more than ``tup["word"]``. With a ``__getattr__``, each would cost ten times
    as much, and the engine's own attributes twice as much.

    >>> tick(5.0).word
    Traceback (most recent call last):
    AttributeError: 'Tuple(rate_secs), a tick: see is_tick' object has no attribute 'word'
    """
    taken = {name for base in Tuple.__mro__ for name in vars(base)}
    attributes = {name: property(itemgetter(name)) for name in fields if name not in taken}
    name = f"Tuple({', '.join(fields)}){', a tick: see is_tick' if fields == TICK_FIELDS else ''}"
    return type(name, (Tuple,), {**attributes, "__slots__": (), "__module__": __name__, "__doc__": Tuple.__doc__})


def restore(
    origin: Origin,
    values: list[Any],
    anchors: AnchorPairs,
    attempt: int,
    state: tuple[str | None, tuple[int, int]],
) -> Tuple:
    """Make the tuple from the parts that ``Tuple.__reduce__`` returned."""
    tup = Tuple.of(origin, values, anchors, attempt)
    tup._settled, tup._ordinals = state
    return tup


def tick(rate_secs: float) -> Tuple:
    """Make a tick tuple: source ``__system``, task -1, stream ``__tick``, one field ``rate_secs``, unanchored."""
    return Tuple.of(Origin(SYSTEM_COMPONENT, -1, TICK_STREAM, TICK_FIELDS), [rate_secs])
