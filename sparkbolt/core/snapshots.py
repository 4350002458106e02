"""A bolt's durable attributes as one pickle.

Which question it answers: what of a bolt instance outlives a micro-batch, and how is it put back?

Rule 1: all durable attributes are one pickle, so that what two attributes share stays shared.
Rule 2: a snapshot names code and never holds it: classes and functions are found again by module and
qualified name, those of ``__main__`` through a namespace that the engine supplies. New code meets old values.
Rule 3: what the engine owns (a ``KeyValueState``, the context, the instance itself) is pickled as a name and
put back as the engine's own object.
Rule 4: after ``restore`` nothing is left of an attempt that was not committed, transient attributes excepted.

Owned objects go through ``reducer_override`` and not ``persistent_id``: the latter is called for every str
and int, which makes a Counter of 100,000 words three times as slow.

Read before: ``components``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from sparkbolt.errors import StateError

STATE_WARN_BYTES = 4 * 1024 * 1024
"""From this size on a snapshot is worth a warning: it is written whole whenever something in it changed."""

_PROTOCOL = 5
_MAIN = "__main__"
_PICKLING_ERRORS = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    RecursionError,
    ValueError,
    NotImplementedError,
)


def _owned(token: str) -> object:
    """Stands in a pickle for an object of the engine; ``Pickling.loads`` puts its own function here."""
    raise pickle.UnpicklingError(f"{token!r} belongs to the engine: read this pickle with Pickling.loads")


def _main(qualname: str) -> object:
    """Stands in a pickle for a class or function of ``__main__``."""
    raise pickle.UnpicklingError(f"__main__.{qualname} is found by Pickling.loads only")


class _Pickler(pickle.Pickler):
    """Pickles owned objects and what ``__main__`` defines by name."""

    pickling: Pickling

    def reducer_override(self, obj: Any) -> Any:
        token = self.pickling.tokens.get(id(obj))
        if token is not None:
            return _owned, (token,)
        if isinstance(obj, type | FunctionType) and obj.__module__ == _MAIN:
            found = self.pickling.find_main(obj.__qualname__)
            if getattr(found, "__qualname__", None) != obj.__qualname__:
                raise pickle.PicklingError(f"__main__.{obj.__qualname__} cannot be found by its name")
            return _main, (obj.__qualname__,)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """The inverse of ``_Pickler``."""

    pickling: Pickling

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == __name__ and global_name == "_owned":
            return self.pickling.owned.__getitem__
        if module_name == __name__ and global_name == "_main":
            return self.pickling.find_main
        return super().find_class(module_name, global_name)


class Pickling:
    """How durable values become bytes: by name where they are code, by token where the engine owns them.

    Args:
        namespace: module globals in which classes and functions of ``__main__`` are looked up; read at each
            call.
        owned: the engine's objects by token.

    >>> pickling = Pickling({})
    >>> pickling.loads(pickling.dumps({"word": 1}))
    {'word': 1}
    """

    def __init__(self, namespace: Mapping[str, Any], owned: Mapping[str, object] | None = None) -> None:
        self.namespace = namespace
        self.owned: dict[str, object] = dict(owned or {})
        self.tokens = {id(thing): token for token, thing in self.owned.items()}

    def dumps(self, value: object) -> bytes:
        """The bytes of a value.

        Raises:
            pickle.PicklingError, TypeError, AttributeError, RecursionError, ValueError: it cannot be pickled.
        """
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, _PROTOCOL)
        pickler.pickling = self
        pickler.dump(value)
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        """The inverse of ``dumps``; raises whatever the classes that are named raise."""
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.pickling = self
        return unpickler.load()

    def find_main(self, qualname: str) -> Any:
        """The object of ``__main__`` that has this qualified name.

        Raises:
            pickle.PicklingError: there is none; a local one (``<locals>``) is never found.
        """
        first, *rest = qualname.split(".")
        try:
            found = self.namespace[first]
            for name in rest:
                found = getattr(found, name)
        except (KeyError, AttributeError):
            raise pickle.PicklingError(
                f"__main__.{qualname} cannot be found by its name: define it at the top level of the module, "
                "or in a module that is imported"
            ) from None
        return found


def pickling_errors() -> tuple[type[Exception], ...]:
    """What ``Pickling.dumps`` raises for a value that cannot be pickled."""
    return _PICKLING_ERRORS


class DurableAttributes:
    """The attributes of one bolt instance that outlive a micro-batch: all but the transient ones.

    Make it when ``prepare`` has returned and before any tuple: what the attributes are then is what a task
    without a snapshot goes back to.

    Args:
        instance: the bolt.
        component: its id, for errors.
        transient: names of attributes that are left out.
        namespace: as of ``Pickling``.
        owned: objects of the engine that attributes may refer to, by token; the instance is one by itself.
        warn_bytes: from which size on ``warning`` speaks.

    Raises:
        StateError: an attribute cannot be pickled.
    """

    def __init__(
        self,
        instance: object,
        component: str,
        *,
        transient: Sequence[str] = (),
        namespace: Mapping[str, Any] | None = None,
        owned: Mapping[str, object] | None = None,
        warn_bytes: int = STATE_WARN_BYTES,
    ) -> None:
        self._instance = instance
        self._component = component
        self._transient = frozenset(transient)
        self._pickling = Pickling(namespace or {}, {**(owned or {}), "self": instance})
        self._warn_bytes = warn_bytes
        self._bytes = 0
        self._warned = False
        self._prepared = self.capture()

    def capture(self) -> bytes:
        """The durable attributes now, as one pickle.

        Raises:
            StateError: an attribute cannot be pickled; the message names it and says what to do.
        """
        attributes = self._durable()
        try:
            data = self._pickling.dumps(attributes)
        except _PICKLING_ERRORS as error:
            raise self._explain(attributes, error) from error
        self._bytes = len(data)
        return data

    def restore(self, data: bytes | None) -> None:
        """Put back the attributes of a snapshot, over what ``prepare`` made; None means that there is none.

        An attribute that the snapshot does not have is as ``prepare`` left it; one that neither has is
        removed, since only an attempt that was not committed can have made it. Transient attributes stay
        untouched.

        Raises:
            StateError: the snapshot cannot be read, since its classes are gone or refuse the old values.
        """
        attributes = self._load(self._prepared)
        if data is not None:
            attributes.update(self._load(data))
        for name in self._durable():
            if name not in attributes:
                del vars(self._instance)[name]
        vars(self._instance).update((name, value) for name, value in attributes.items() if name not in self._transient)

    def warning(self) -> str | None:
        """What to log when a capture was larger than ``warn_bytes``: once, and None from then on."""
        if self._warned or self._bytes <= self._warn_bytes:
            return None
        self._warned = True
        return (
            f"bolt {self._component!r}: its attributes take {self._bytes:,} bytes, which are written whole "
            "in each micro-batch that changes them: keep large maps in a KeyValueState (define init_state), "
            "which writes what was touched"
        )

    def _durable(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._instance).items() if name not in self._transient}

    def _load(self, data: bytes) -> dict[str, Any]:
        try:
            attributes: dict[str, Any] = self._pickling.loads(data)
        except Exception as error:
            raise StateError(
                f"bolt {self._component!r}: its snapshot cannot be read ({type(error).__name__}: {error}): "
                "was a class renamed or moved since it was written? Keep the old name, or start with a new "
                "checkpoint"
            ) from error
        return attributes

    def _explain(self, attributes: Mapping[str, Any], error: Exception) -> StateError:
        for name, value in attributes.items():
            try:
                self._pickling.dumps(value)
            except _PICKLING_ERRORS as cause:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                return StateError(
                    f"bolt {self._component!r}: attribute {name!r} of type {kind} cannot be pickled "
                    f"({cause}): if it is a connection or the like, write transient = [{name!r}] in the "
                    "class and open it in prepare"
                )
        return StateError(f"bolt {self._component!r}: its attributes cannot be pickled together ({error})")
