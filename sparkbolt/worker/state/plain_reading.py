"""Plain reading: reads pickles of a checkpoint without running code that they name.

A pickle may name any function, and the usual unpickler calls it. This one makes values of Python's own types, and an
``UnknownObject`` in the place of any other object.

Rule 1: nothing that a pickle names is imported or called, except for the types in this file.
Rule 2: a pickle may set attributes of what it names. So it gets types that cannot be changed, or new ones.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar
from uuid import UUID

from sparkbolt.api.pickling import Pickling

T = TypeVar("T")
_UNCHANGING: Mapping[str, Any] = {
    **{f"builtins.{one.__name__}": one for one in (set, frozenset, complex, bytearray, range, slice)},
    **{f"builtins.{one.__name__}": one for one in (dict, list, tuple, str, bytes, int, float, bool)},
    **{f"collections.{one.__name__}": one for one in (OrderedDict, defaultdict, deque)},
    **{f"datetime.{one.__name__}": one for one in (dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone)},
    "decimal.Decimal": Decimal,
}
"""Types of the interpreter, whose attributes nobody can set, by name."""


class UnknownObject:
    """Stands for an object whose class is not loaded: its ``repr`` shows the class, and what it was made of."""

    name = ""
    """The class or function, with its module."""

    def __new__(cls, *arguments: Any, **named: Any) -> UnknownObject:
        """Keep the arguments."""
        made = super().__new__(cls)
        made.arguments, made.named, made.state, made.items = arguments, named, None, []
        return made

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Do nothing more."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    state: Any
    """What its attributes were."""
    items: list[Any]
    """What it contained, if it was a list; pairs, if it was a dict."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an element."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Keep elements."""
        self.items.extend(items)

    def add(self, item: Any) -> None:
        """Keep an element."""
        self.items.append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def __repr__(self) -> str:
        parts = [repr(one) for one in self.arguments]
        parts += [f"{name}={value!r}" for name, value in self.named.items()]
        state = self.state
        if type(state) is tuple and len(state) == 2 and isinstance(state[1], dict):  # (attributes, slots)
            state = {**(state[0] or {}), **state[1]}
        if isinstance(state, dict):
            parts += [f"{name}={value!r}" for name, value in state.items()]
        elif state is not None:
            parts.append(repr(state))
        parts += [repr(one) for one in self.items]
        return f"{self.name}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnknownObject) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def kind_of(name: str) -> type[UnknownObject]:
    """Make the type that stands for a class or function."""
    return type("UnknownObject", (UnknownObject,), {"name": name})


def _counter(*arguments: Any) -> Counter[Any]:
    return Counter(*arguments)


def _fraction(*arguments: Any) -> Fraction:
    return Fraction(*arguments)


class PlainUnpickler(pickle.Unpickler):
    """Makes values of Python's own types, and an ``UnknownObject`` in the place of any other object."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """A type of Python's own, or a new one that stands for what is named."""
        name = f"{module_name}.{global_name}"
        if name in _UNCHANGING:
            return _UNCHANGING[name]
        if name == "collections.Counter":
            return lambda *arguments: _counter(*arguments)
        if name == "fractions.Fraction":
            return lambda *arguments: _fraction(*arguments)
        if name == "uuid.UUID":
            return type("UUID", (UUID,), {"__slots__": ()})
        return kind_of(name)


def loads(data: bytes) -> Any:
    r"""Read a pickle without running code that it names.

    >>> import pickle
    >>> loads(pickle.dumps({"be": (1, Decimal("2.50"))}))
    {'be': (1, Decimal('2.50'))}
    >>> loads(b"cos\nsystem\n(S'echo foreign code'\ntR.")
    os.system('echo foreign code')
    """
    return PlainUnpickler(io.BytesIO(data)).load()


class PlainPickling(Pickling):
    """A ``Pickling`` that reads without running code that a pickle names."""

    def __init__(self) -> None:
        """Create one that knows no code."""
        super().__init__({})

    def _loaded(self, data: bytes, load: Callable[[pickle.Unpickler], T]) -> T:
        return load(PlainUnpickler(io.BytesIO(data)))
