"""Emission: what one task emits on its streams while it works on one block of rows.

Which question it answers: are these values a tuple of this stream, and where are they kept until they are routed?
Rule: an emission is whole or nothing: what is wrong with it is found here, before anything is appended.

Read before: ``tuples``, ``routing``.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from sparkbolt.core.model.story import short
from sparkbolt.core.model.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.core.worker.routing import StreamRoutes
from sparkbolt.errors import EmitError, check

UNANCHORED = -1
NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)
"""What has a length and can be gone through, and yet is no list of values, nor a column of them."""


class StreamOut:
    """What one task emits on one stream while it works on one block of rows."""

    __slots__ = (
        "append_parent",
        "collected",
        "columns",
        "direct_to",
        "ends",
        "extend",
        "extra_attempts",
        "extras",
        "first",
        "parents",
        "routes",
        "targets",
        "uncollected",
        "values",
        "width",
    )

    def __init__(self, routes: StreamRoutes, collected: bool) -> None:
        """Buffers for one stream; what is emitted on one that is not ``collected`` is only counted."""
        self.routes = routes
        self.collected = collected
        self.uncollected = 0
        self.width = len(routes.fields)
        self.targets = {target: route.consumer for route in routes.routes for target in route.targets}
        """The number of each task that subscribes, and whose it is."""
        self.first = 0
        self.values: list[Any] = []
        """Row after row, all in one list: column i is ``values[i::width]``."""
        self.extend: Callable[[Sequence[Any]], None] = self.values.extend
        self.ends: list[int] | None = None
        """Of the default stream of a basic bolt: the length of ``values`` after each row. One append a row costs
        less than one an emission."""
        self.parents = array("q")
        """Otherwise the row that each emission is anchored to; UNANCHORED; or ``-2 - i`` for ``extras[i]``."""
        self.append_parent = self.parents.append
        self.extras: list[list[tuple[int, int, int, int]]] = []
        """(root, edge, ordinal, anchor slot) for each anchor of an emission that is not anchored to one row."""
        self.extra_attempts = array("B")
        self.direct_to = array("q")
        self.columns: list[tuple[Sequence[Any], Any]] = []
        """Whole columns with their parent rows, as a column bolt emits them."""

    def row(self, values: Any) -> Sequence[Any]:
        """The values of one tuple, as a list or tuple that fits the stream.

        Raises:
            EmitError: they are no list of values, or another number of them.
        """
        if values.__class__ is not list and values.__class__ is not tuple:
            values = self._listed(values)
        if len(values) != self.width:
            raise self.refuse(values)
        row: Sequence[Any] = values
        return row

    def _listed(self, values: Any) -> list[Any]:
        """Another kind of sequence as a list: it may have fewer values than it says, and raise where it is read."""
        if isinstance(values, (*NO_LISTS, type)) or not hasattr(values, "__len__"):
            raise self.refuse(values)
        try:
            return list(values)
        except TypeError:  # an array without dimensions has a length that raises
            raise self.refuse(values) from None

    def refuse(self, values: Any) -> EmitError:
        """The error for values that do not fit the stream: what was emitted, and what it should have been."""
        declared = f"stream {self.routes.name!r}, which declares {self.width} field(s) {self.routes.fields}"
        what = None if isinstance(values, list | tuple) else named(values)
        if what is not None:
            return EmitError(f"{self.routes.component!r} emitted {what} on {declared}: {self._mend(values)}")
        hint = ": did you emit a str instead of a list?" if self.width == 1 and len(values) > 1 else ""
        return EmitError(f"{self.routes.component!r} emitted {len(values)} values on {declared}{hint}")

    def _mend(self, values: Any) -> str:
        if isinstance(values, Tuple):
            return "did you mean tup.values?"
        if isinstance(values, Mapping):
            return f"emit its values as a list, in the order of the fields: [{_wanted(values, self.routes.fields)}]"
        if isinstance(values, Set):
            return "a set has no order: emit a list"
        lazy = lazy_advice(values)
        if lazy:
            return lazy
        if isinstance(values, str | bytes) or (self.width == 1 and values is not None):
            return f"did you mean [{short(values)}]?"
        return "emit a list of values"

    def task(self, task: Any) -> int:
        """The number of a task that gets what is emitted to it.

        Raises:
            EmitError: it is no number of a task, or none of a task that subscribes to the stream.
        """
        who = f"{self.routes.component!r} emitted to task {short(task)} on stream {self.routes.name!r}"
        try:
            number = -1 if isinstance(task, bool) else operator.index(task)
        except TypeError:
            number = -1
        if number < 0:
            raise EmitError(f"{who}: expected the number of a task, as context.component_tasks gives them")
        if self.targets and number not in self.targets:
            raise EmitError(
                f"{who}, which does not subscribe to it: expected a task of {sorted(set(self.targets.values()))}, "
                f"which are {sorted(self.targets)}"
            )
        return number if self.targets else 0

    @property
    def count(self) -> int:
        """How many rows were emitted."""
        if self.ends is not None and self.width:
            return self.uncollected + len(self.values) // self.width
        return len(self.parents) + sum(len(rows) for _, rows in self.columns)

    def clear(self) -> None:
        """Forget what was routed."""
        self.first += self.count
        self.uncollected = 0
        self.ends = None
        self.values.clear()
        del self.parents[:]
        del self.direct_to[:]
        self.extras.clear()
        del self.extra_attempts[:]
        self.columns.clear()


class Output:
    """All streams of one task."""

    def __init__(self, component: str, streams: Sequence[StreamRoutes], *, captured: bool = False) -> None:
        """Buffers for each stream of a component; ``captured``: somebody hears streams without consumers too."""
        self.component = component
        self.streams = {stream.name: StreamOut(stream, captured or bool(stream.routes)) for stream in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.errors: list[object] = []
        """What was reported: texts and exceptions, or whatever was taken for one."""

    def of(self, stream: str, direct: bool = False) -> StreamOut:
        """The buffer of a stream.

        Raises:
            EmitError: the stream is not declared, or is direct where it should not be.
        """
        try:
            out = self.streams.get(stream)
        except TypeError:  # a list has no hash
            out = None
        if out is None:
            raise self._no_stream(stream)
        if out.routes.direct != direct:
            use = "emit_direct" if out.routes.direct else "emit"
            raise EmitError(
                f"stream {stream!r} of {self.component!r} is {'' if out.routes.direct else 'not '}direct: use {use}"
            )
        return out

    def _no_stream(self, stream: Any) -> EmitError:
        who = f"{self.component!r} emitted on stream {short(stream)}"
        if not isinstance(stream, str):
            return EmitError(f"{who}, expected its name: the values come first, as in emit([...], stream='errors')")
        known = ", ".join(map(repr, self.streams)) or "none: set `outputs`"
        return EmitError(f"{who}; its declared streams are {known}")

    def refuse_now(self) -> EmitError:
        """The error for what is emitted while neither ``execute`` nor ``flush`` of the task runs."""
        return EmitError(
            f"{self.component!r} emitted outside of its execute and flush, from a thread or a coroutine that outlived "
            "them: keep the values, and emit them in the next execute or flush"
        )

    def begin(self) -> None:
        """Start a micro-batch; all that was emitted in the one before is on its way."""
        for name, out in self.streams.items():
            check(not out.count, f"{out.count} tuple(s) that {self.component!r} emitted on {name!r} were never sent")
            out.clear()
            out.first = 0
        self.errors.clear()


def named(values: Any) -> str:
    """``the str 'abc'``, ``a Tuple``, ``None``: what was emitted, for a sentence."""
    if values is None:
        return "None"
    if isinstance(values, str | bytes | bool | int | float):
        return f"the {type(values).__name__} {short(values)}"
    name = type(values).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _wanted(values: Mapping[Any, Any], fields: Sequence[str]) -> str:
    return ", ".join(f"row[{field!r}]" for field in fields) or f"{len(values)} values"


def lazy_advice(value: Any) -> str:
    """What to do with a value that does nothing until it is awaited or gone through; empty for any other."""
    if hasattr(value, "__await__"):
        return "nothing awaits it here: only an AsyncBolt runs coroutines"
    if hasattr(value, "__aiter__"):
        return "nothing goes through it here: only an AsyncBolt runs asynchronous generators"
    if isinstance(value, Iterator):
        return "emit each list that it gives"
    return ""
