"""Pickling: how the durable attributes of a component are pickled and restored.

A pickle names code and never contains it: classes and functions are found by module and qualified name, those of
``__main__`` in a namespace that the engine supplies, so new code works with old values. An object that the engine owns
(a ``KeyValueState``, the context, the instance itself) is pickled as a name; that uses ``reducer_override`` and not
``persistent_id``, which is called for every str and int and makes a Counter of 100,000 words three times as slow.
"""

from __future__ import annotations

import copyreg
import datetime as dt
import decimal
import enum
import fractions
import io
import pickle
import uuid
from abc import ABC, ABCMeta
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Generic, TypeVar

import numpy as np

from sparkbolt.api.moved_code import MAIN, MovedUnpickler, find_moved
from sparkbolt.api.tuples import Origin, Tuple, restore
from sparkbolt.base.exceptions import line_of, pass_on
from sparkbolt.errors import StateError

_PROTOCOL = 5
_TUPLES = restore.__module__
_HEAP_TYPE = 1 << 9
"""The type flag that means: the type was made by a ``class`` statement."""
_OWN_WAYS = (
    *("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__getstate__", "__setstate__"),
    *("__new__", "__setattr__", "__getattr__", "__getattribute__"),
)
"""Names by which a class can change how its instances are read back."""
_SURE: dict[type, bool] = dict.fromkeys(
    (
        *(type, ABCMeta, FunctionType, BuiltinFunctionType, MethodType, type(None), type(...), type(NotImplemented)),
        *(int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice),
        *(Counter, OrderedDict, defaultdict, deque, decimal.Decimal, fractions.Fraction, uuid.UUID),
        *(dt.date, dt.time, dt.datetime, dt.timedelta, dt.timezone),
        *(np.ndarray, np.dtype, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
        *(np.uint64, np.float16, np.float32, np.float64, np.str_, np.bytes_, np.datetime64, np.timedelta64),
        Origin,
    ),
    True,
)
"""By class, whether its instances can surely be read back; a cache that begins with the builtin types."""
_SLOTS: dict[type, list[str]] = {}


T = TypeVar("T")
Marked = TypeVar("Marked", bound=type)
_NEVER_DURABLE: set[type] = set()


class CannotKeepError(StateError):
    """A value cannot be pickled, or its pickle cannot be read back."""


def never_durable(cls: Marked) -> Marked:
    """Mark a class of the engine whose objects a bolt may keep in an attribute, and that are never stored.

    Collectors and contexts are such objects: each task has its own.
    """
    _NEVER_DURABLE.add(cls)
    return cls


def is_never_durable(value: object) -> bool:
    """Whether a value is an object of a class marked by ``never_durable``, or a method of one."""
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        value = getattr(value, "__self__", None)
    return type(value) in _NEVER_DURABLE


def _is_sure(cls: type) -> bool:
    """Whether a pickled instance of a class can surely be read back, if the values in it can."""
    if isinstance(cls, enum.EnumMeta):
        members: list[enum.Enum] = list(cls)
        return all(type(member.value) in (int, str) for member in members)
    if issubclass(cls, Tuple):
        return True
    if type(cls) not in (type, ABCMeta) or cls in copyreg.dispatch_table:
        return False
    for base in cls.__mro__:
        if base in (object, ABC, Generic):
            continue
        if not base.__flags__ & _HEAP_TYPE or any(name in vars(base) for name in _OWN_WAYS):
            return False
    return getattr(cls, "__hash__", None) in (None, object.__hash__)


def _owned(token: str) -> object:
    """Represents an object of the engine in a pickle; ``Pickling.loads`` replaces this function by its own."""
    raise pickle.UnpicklingError(f"{token!r} belongs to the engine: read this pickle with Pickling.loads")


def _main(qualname: str) -> object:
    """Represents a class or function of ``__main__`` in a pickle; ``Pickling.loads`` replaces it too."""
    raise pickle.UnpicklingError(f"__main__.{qualname} is found by Pickling.loads only")


class _Pickler(pickle.Pickler):
    """Pickles by name: objects that the engine owns, and classes and functions of ``__main__``."""

    pickling: Pickling

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        sure = _SURE.get(cls)
        if not sure:
            if sure is None:
                sure = _SURE[cls] = _is_sure(cls)
            self.pickling.doubtful = self.pickling.doubtful or not sure
        if sure and isinstance(obj, Tuple):
            self.pickling.tuples.append(obj)
        token = self.pickling.tokens.get(id(obj))
        if token is not None:
            return _owned, (token,)
        if isinstance(obj, type | FunctionType) and obj.__module__ == MAIN:
            code = self.pickling.find_main(obj.__qualname__)
            if getattr(code, "__qualname__", None) != obj.__qualname__:
                raise pickle.PicklingError(f"__main__.{obj.__qualname__} cannot be found by its name")
            return _main, (obj.__qualname__,)
        return NotImplemented


class _Unpickler(MovedUnpickler):
    """The inverse of ``_Pickler``."""

    pickling: Pickling

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == __name__ and global_name == "_owned":
            return self.pickling.owned.__getitem__
        if module_name == __name__ and global_name == "_main":
            return self._main
        if module_name == _TUPLES and global_name == restore.__name__:
            return self.pickling.restore_tuple
        return super().find_class(module_name, global_name)

    def _main(self, qualname: str) -> Any:
        """Find a class or function of the main program, or what was one."""
        try:
            return self.pickling.find_main(qualname)
        except pickle.PicklingError:
            found = find_moved(MAIN, qualname, self.namespace)
            if found is None:
                self.missing = f"{MAIN}.{qualname}"
                raise
            return found


class Pickling:
    """Pickles durable values: code by name, objects that the engine owns by token.

    Args:
        namespace: the module globals in which classes and functions of ``__main__`` are looked up, at each call.
        owned: the engine's objects by token.

    >>> pickling = Pickling({})
    >>> pickling.loads(pickling.dumps({"word": 1}))
    {'word': 1}
    """

    def __init__(self, namespace: Mapping[str, Any], owned: Mapping[str, object] | None = None) -> None:
        self.namespace = namespace
        self.owned: dict[str, object] = dict(owned or {})
        self.tokens = {id(thing): token for token, thing in self.owned.items()}
        self.doubtful = False
        """Whether it is not certain that the last pickled value can be read back."""
        self.tuples: list[Tuple] = []
        """The tuples in the last pickled value."""
        self.restored: list[Tuple] = []
        """The tuples in the last value that was read."""
        self.missing: str | None = None
        """The name of the class or function that the last value to be read lacks, if any."""
        self.unreadable: Any = None
        """The name of the attribute that ``load_attributes`` was reading last."""

    def dumps(self, value: object) -> bytes:
        """Pickle a value.

        Raises:
            CannotKeepError: it cannot be pickled.
        """
        return self._dumped([value])

    def dump_attributes(self, attributes: Mapping[Any, Any]) -> bytes:
        """Pickle a mapping so that ``load_attributes`` knows which of its values cannot be read.

        What two values share stays shared.

        Raises:
            CannotKeepError: a value cannot be pickled.
        """
        return self._dumped([list(attributes), *attributes.values()])

    def _dumped(self, values: Sequence[object]) -> bytes:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, _PROTOCOL)
        pickler.pickling = self
        self.doubtful, self.tuples = False, []
        try:
            for value in values:
                pickler.dump(value)  # all by one pickler, which remembers what they share
        except BaseException as error:  # pickling calls user code, which may raise anything
            pass_on(error)
            raise CannotKeepError(line_of(error)) from error
        return buffer.getvalue()

    def prove(self, data: bytes, loads: Callable[[bytes], object] | None = None) -> None:
        """Check that the last pickle, ``data``, can be read back.

        Args:
            data: the pickle.
            loads: reads it; None: ``loads``.

        Raises:
            CannotKeepError: it cannot.
        """
        if not self.doubtful:
            return
        try:
            (loads or self.loads)(data)
        except BaseException as error:  # reading calls user code, too
            pass_on(error)
            raise CannotKeepError(f"it can be pickled, and reading it back raises {line_of(error)}") from error

    def proved(self, value: object) -> bytes:
        """Pickle a value, and check that it can be read back.

        Raises:
            CannotKeepError: it cannot be pickled, or its pickle cannot be read back.
        """
        data = self.dumps(value)
        self.prove(data)
        return data

    def loads(self, data: bytes) -> Any:
        """The inverse of ``dumps``; it raises any exception of the classes that the pickle names."""
        return self._loaded(data, lambda unpickler: unpickler.load())

    def load_attributes(self, data: bytes) -> dict[Any, Any]:
        """The inverse of ``dump_attributes``; if it raises, ``unreadable`` is the name of the value at fault."""

        def load(unpickler: pickle.Unpickler) -> dict[Any, Any]:
            self.unreadable = None
            names = unpickler.load()
            if isinstance(names, dict):  # so they were stored at first
                return names
            attributes = {}
            for name in names:
                self.unreadable = name
                attributes[name] = unpickler.load()
            return attributes

        return self._loaded(data, load)

    def _loaded(self, data: bytes, load: Callable[[pickle.Unpickler], T]) -> T:
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.pickling, unpickler.namespace = self, self.namespace
        self.restored = []
        try:
            return load(unpickler)
        finally:
            self.missing = unpickler.missing

    def why(self, error: BaseException) -> str:
        """Why the last value could not be read, and what to do, as the end of a sentence."""
        if self.missing is None:
            return f"{line_of(error)}: let its class read what it stored before (__setstate__), or leave it as it was"
        return (
            f"{self.missing} is not there: if it has another name or module now, write @moved_from({self.missing!r}) "
            "above it; if it is gone, keep an empty class of this name until migrate has removed its objects "
            "(docs/state.md)"
        )

    def restore_tuple(self, *state: Any) -> Tuple:
        """Restore a tuple, and add it to ``restored``."""
        tup = restore(*state)
        self.restored.append(tup)
        return tup

    def find_main(self, qualname: str) -> Any:
        """Return the object of ``__main__`` with this qualified name.

        Raises:
            pickle.PicklingError: there is none; a local object (``<locals>``) is never found.
        """
        first, *rest = qualname.split(".")
        try:
            code = self.namespace[first]
            for name in rest:
                code = getattr(code, name)
        except (KeyError, AttributeError):
            raise pickle.PicklingError(
                f"__main__.{qualname} cannot be found by its name: define it at the top level of the module, "
                "or in a module that is imported"
            ) from None
        return code


def attributes_of(instance: object) -> dict[str, Any]:
    """Return the attributes of an instance by name, including those in ``__slots__``.

    >>> class Slotted:
    ...     __slots__ = ("count", "__dict__")
    ...     __module__ = "words"
    >>> slotted = Slotted()
    >>> slotted.count, slotted.other = 1, 2
    >>> attributes_of(slotted)
    {'other': 2, 'count': 1}
    """
    attributes = dict(getattr(instance, "__dict__", ()))
    for name in slots_of(type(instance)):
        try:
            attributes[name] = getattr(instance, name)
        except AttributeError:  # it was never set
            continue
    return attributes


def slots_of(cls: type) -> list[str]:
    """Return the names of the attributes that a class and its bases store in slots."""
    if cls not in _SLOTS:
        _SLOTS[cls] = [
            f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            for base in cls.__mro__
            if not base.__module__.startswith("sparkbolt.")  # slots of Sparkbolt's classes are not the user's
            for name in _listed(vars(base).get("__slots__", ()))
            if name not in ("__dict__", "__weakref__")
        ]
    return _SLOTS[cls]


def _listed(slots: Any) -> Sequence[str]:
    return [slots] if isinstance(slots, str) else list(slots)
