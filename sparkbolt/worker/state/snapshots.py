"""Snapshots: a bolt's durable attributes as one pickle.

An object that two attributes share stays shared; large dicts that nothing shares are stored separately
(``large_dicts``). ``restore`` leaves nothing of an attempt that was not committed, except in transient attributes.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

from sparkbolt.api.pickling import CannotKeepError, Pickling, attributes_of, is_never_durable, slots_of
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import line_of, printed
from sparkbolt.errors import StateError
from sparkbolt.worker.state.large_dicts import LargeDicts, Segments

DELETED = None
"""The entry of a snapshot with the names of attributes that ``prepare`` sets and tuples have deleted. An attribute may
have any text as its name, and not this."""
UNCHANGED = 1
"""The entry of a snapshot with the names of plain attributes that have the value that ``prepare`` gave them."""
VERSION = 0
"""The entry of a snapshot with the ``state_version`` of the class that wrote it; it is missing if that is 1."""
STATE_WARN_BYTES = 4 * 1024 * 1024
"""Larger snapshots cause a warning, because all but large dicts is written whole whenever any part of it changes."""


class DurableAttributes:
    """The attributes of one bolt instance that outlive a micro-batch: all except the transient ones.

    Two kinds of attributes are transient without being listed: those that hold a collector or a context, and those that
    ``prepare`` set to a thing that cannot be pickled, such as a connection, as long as they hold that same object. A
    container is not such a thing, because its content would be lost.

    Create it after ``prepare`` has returned and before the first tuple: a task without a snapshot returns to the
    attributes of that moment.

    Args:
        instance: the bolt.
        component: the id of the bolt, for errors.
        index: that of the task, for errors.
        transient: the names of attributes that are not stored.
        made: the names of attributes that ``prepare`` has set; such a thing that cannot be pickled is transient, too.
        namespace: as in ``Pickling``.
        owned: objects of the engine that attributes may refer to, by token; the instance itself is always one.
        warn_bytes: ``warning`` returns a text for larger snapshots.

    Raises:
        StateError: an attribute holds data that cannot be pickled.
    """

    def __init__(
        self,
        instance: object,
        component: str,
        *,
        index: int = 0,
        transient: Sequence[str] = (),
        made: Collection[str] = (),
        namespace: Mapping[str, Any] | None = None,
        owned: Mapping[str, object] | None = None,
        warn_bytes: int = STATE_WARN_BYTES,
    ) -> None:
        self._instance = instance
        self._component = component
        self._index = index
        self._version = getattr(instance, "state_version", 1)
        self._transient = frozenset(transient)
        self._states = [thing for thing in (owned or {}).values() if not is_never_durable(thing)]
        self._pickling = Pickling(namespace or {}, {**(owned or {}), "self": instance})
        self._warn_bytes = warn_bytes
        self._bytes = 0
        self._warned = False
        self._large = LargeDicts()
        prepared = {name: thing for name, thing in attributes_of(instance).items() if name not in self._transient}
        self._names = frozenset(prepared)
        """The attributes that ``prepare`` has set."""
        self._unstored = {name: thing for name, thing in prepared.items() if is_never_durable(thing)}
        """By name: the objects that ``prepare`` made and that are not stored."""
        self._plain = {name: thing for name, thing in prepared.items() if type(thing) in _PLAIN}
        """The plain attributes as ``prepare`` has set them."""
        self._notes: list[str] = []
        del prepared  # a second reference to a dict would keep it out of ``LargeDicts``
        self._prepared = self._dump_prepared(made)

    def _dump_prepared(self, made: Collection[str]) -> bytes:
        """Pickle the attributes as ``prepare`` left them; those that cannot be pickled are transient from now on."""
        try:
            data = self._pickling.dump_attributes(self._durable())
            self._pickling.prove(data, self._pickling.load_attributes)
            return data
        except CannotKeepError:
            for name, value in self._durable().items():
                error = self._error_of(value)
                if error is None:
                    continue
                if name not in made or _is_data(value):
                    raise self._refusal(name, value, error) from None
                self._unstored[name] = value
                self._notes.append(
                    f"bolt {self._component!r}: attribute {name!r} of type {_kind(value)} cannot be pickled, so "
                    "it is not kept, and prepare makes it again wherever the task starts; "
                    f"transient = [{name!r}] in the class says the same without this line"
                )
        return self._dump(self._durable())

    def capture(self) -> bytes:
        """The current durable attributes, as one pickle; ``stage_large`` stores large dicts.

        Raises:
            StateError: an attribute cannot be pickled; the message names it and gives advice.
        """
        deleted = sorted(self._names.difference(attributes_of(self._instance)))
        attributes = self._durable()
        kept: dict[Any, Any] = self._large.take_out(attributes)
        unchanged = [name for name, thing in self._plain.items() if name in kept and _is_still(thing, kept[name])]
        if unchanged:
            kept[UNCHANGED] = unchanged
        if deleted:
            kept[DELETED] = deleted
        if self._version != 1:
            kept[VERSION] = self._version
        return self._dump(kept)

    def _dump(self, attributes: Mapping[Any, Any]) -> bytes:
        try:
            data = self._pickling.dump_attributes(attributes)
        except CannotKeepError as error:
            raise self._explain(self._durable(), error) from error
        self._bytes = len(data)
        return data

    def stage_large(self, segments: Segments) -> None:
        """Stage the large dicts, which the last capture has left out."""
        self._large.stage(segments)

    def committed(self) -> None:
        """The last capture, and the dicts that ``stage_large`` has staged, are committed."""
        self._large.committed()

    @property
    def tuples(self) -> list[Tuple]:
        """The tuples in the last capture."""
        return self._pickling.tuples

    def prove(self, data: bytes) -> None:
        """Check that the last capture can be restored; ``data`` are its bytes.

        Raises:
            StateError: an attribute cannot be restored; the message names it.
        """
        try:
            self._pickling.prove(data, self._pickling.load_attributes)
        except CannotKeepError as error:
            raise self._explain(self._durable(), error) from error

    def restore(self, data: bytes | None, segments: Segments | None = None) -> None:
        """Restore the attributes of a snapshot, over those that ``prepare`` set; None: there is no snapshot.

        An attribute that the snapshot does not have returns to its value after ``prepare``, unless the snapshot says
        that it was deleted. An attribute that neither has is removed, because only an attempt that was not committed
        can have created it. Transient attributes are not changed, and neither is an attribute that holds a collector or
        a context where the snapshot has nothing for it.

        Args:
            data: the snapshot.
            segments: the state that has the large dicts of the snapshot.

        Raises:
            StateError: the snapshot cannot be read, because its classes are missing or reject the old values; or its
                version is newer than that of the class; or ``migrate`` raises; or an attribute was a plain one and is
                the bolt's ``KeyValueState`` now, or the other way round.
        """
        attributes = {**self._load(self._prepared), **self._unstored}
        stored = self._load(data) if data is not None else {}
        deleted = stored.pop(DELETED, ())
        version = stored.pop(VERSION, 1)
        stored.pop(UNCHANGED, None)
        self._large.restore(stored, segments)
        if data is not None:
            if version != self._version:
                stored = migrated(self._instance, self._component, self._index, version, stored)
            for name in deleted:
                attributes.pop(name, None)
            self._check_kinds(attributes, stored)
            present = attributes_of(self._instance)
            attributes.update({name: thing for name, thing in present.items() if is_never_durable(thing)})
            del present
            attributes.update(stored)
        own, slots = vars(self._instance), slots_of(type(self._instance))
        for name in self._durable():
            if name not in attributes:
                delattr(self._instance, name) if name in slots else own.pop(name)
        for name, value in attributes.items():
            if name not in self._transient:
                if name in slots:
                    setattr(self._instance, name, value)
                else:
                    own[name] = value

    def _check_kinds(self, prepared: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        present = {**attributes_of(self._instance), **prepared}  # a KeyValueState is one, also in a transient attribute
        for name in present.keys() & kept.keys():
            now, before = (any(value[name] is one for one in self._states) for value in (present, kept))
            if now and not before:
                raise StateError(
                    f"bolt {self._component!r}: {name!r} is a KeyValueState now, and in the checkpoint it is an "
                    "attribute of its own: raise state_version, and move what it holds in migrate (docs/state.md)"
                )
            if before and not now and isinstance(prepared.get(name), Mapping):
                raise StateError(
                    f"bolt {self._component!r}: {name!r} is an attribute of its own now, and in the checkpoint it is a "
                    "KeyValueState: raise state_version, and move what it holds in migrate (docs/state.md)"
                )

    def warning(self) -> str | None:
        """The text to log when a capture was larger than ``warn_bytes``: returned once, then None."""
        if self._warned or self._bytes <= self._warn_bytes:
            return None
        self._warned = True
        return (
            f"bolt {self._component!r}: its attributes take {self._bytes:,} bytes, which are written whole "
            "in each micro-batch that changes them: keep large maps in a KeyValueState (define init_state), "
            "which writes what was touched"
        )

    def notes(self) -> list[str]:
        """The text to log about attributes that are transient without being listed: returned once, then nothing."""
        notes, self._notes = self._notes, []
        return notes

    def _durable(self) -> dict[str, Any]:
        return {name: value for name, value in attributes_of(self._instance).items() if self._is_durable(name, value)}

    def _is_durable(self, name: str, value: object) -> bool:
        if name in self._transient or is_never_durable(value):
            return False
        return name not in self._unstored or self._unstored[name] is not value

    def _load(self, data: bytes) -> dict[Any, Any]:
        try:
            return self._pickling.load_attributes(data)
        except Exception as error:
            raise StateError(
                f"bolt {self._component!r}: attribute {self._pickling.unreadable!r} of its snapshot cannot be read: "
                f"{self._pickling.why(error)}"
            ) from error

    def _explain(self, attributes: Mapping[str, Any], error: Exception) -> StateError:
        for name, value in attributes.items():
            own_error = self._error_of(value)
            if own_error is not None:
                return self._refusal(name, value, own_error)
        return StateError(f"bolt {self._component!r}: its attributes cannot be kept together ({error})")

    def _error_of(self, value: object) -> CannotKeepError | None:
        try:
            self._pickling.proved(value)
        except CannotKeepError as error:
            return error
        return None

    def _refusal(self, name: str, value: object, error: CannotKeepError) -> StateError:
        if isinstance(value, FunctionType) or "<lambda>" in str(error):
            mend = "use a function that a module defines by name"
        elif _is_nameless(type(value)):
            mend = "define the class at the top level of a module"
        elif _is_data(value):
            mend = (
                "keep a connection or the like in an attribute of its own that prepare sets, or write "
                f"transient = [{name!r}] in the class, and fill it in prepare"
            )
        else:
            mend = (
                f"if it is a connection or the like, write transient = [{name!r}] in the class and open it in prepare"
            )
        what = f"attribute {name!r} of type {_kind(value)} cannot be kept ({error})"
        return StateError(f"bolt {self._component!r}: {what}: {mend}")


def migrated(bolt: Any, component: str, index: int, version: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a snapshot of another version, as ``migrate`` of the bolt makes them.

    Args:
        bolt: the bolt.
        component: its id.
        index: that of the task that has the attributes.
        version: the ``state_version`` of the class that stored them.
        attributes: the stored attributes by name.

    Raises:
        StateError: the version is newer than that of the class; or ``migrate`` raises, or returns no attributes.
    """
    who = f"bolt {component!r}, task {index}"
    if version > bolt.state_version:
        raise StateError(
            f"{who}: its state is of version {version}, and its class has state_version = {bolt.state_version}: start "
            "the code that wrote the state, or code that is newer"
        )
    begins = f"{who}: its state of version {version} has not changed, because migrate of {type(bolt).__qualname__}"
    try:
        result = bolt.migrate(version, attributes)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise StateError(
            f"{begins} raised {line_of(error)} ({place.filename}:{place.lineno}): mend it, and start again"
        ) from error
    if result is None:
        return attributes
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise StateError(
            f"{begins} returned {printed(result):.200}, expected a dict of attributes by name, or None if it has "
            "changed the one it got"
        )
    return result


_PLAIN = (str, bytes, int, float, bool, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, SimpleNamespace)


def _is_data(value: object) -> bool:
    """Whether a value is data, which would be lost, and not a thing like a connection, which is opened again."""
    return isinstance(value, _CONTAINERS) or dataclasses.is_dataclass(type(value)) or _is_nameless(type(value))


def _is_nameless(cls: type) -> bool:
    """Whether a class may not be found by its name."""
    return "<locals>" in cls.__qualname__ or cls.__module__ == "__main__"


def _is_still(before: object, now: object) -> bool:
    return type(before) is type(now) and before == now


@contextmanager
def noting_made(instance: object, made: set[str]) -> Iterator[None]:
    """Add the names of the attributes that the block sets to ``made``."""
    before = attributes_of(instance)
    yield
    for name, value in attributes_of(instance).items():
        if name not in before or before[name] is not value:
            made.add(name)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
