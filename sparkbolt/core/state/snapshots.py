"""Snapshots: a bolt's durable attributes as one pickle.

Which question it answers: which parts of a bolt instance outlive a micro-batch, and how are they restored?

Rule 1: all durable attributes are in one pickle, so that an object that two attributes share stays shared; but large
dicts that nothing shares are kept apart (``large_dicts``).
Rule 2: after ``restore`` nothing is left of an attempt that was not committed, except in transient attributes.

Read before: ``components``, ``pickling``, ``large_dicts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkbolt.core.model.pickling import CannotKeepError, Pickling, attributes_of, slots_of
from sparkbolt.core.model.tuples import Tuple
from sparkbolt.core.state.large_dicts import LargeDicts, Segments
from sparkbolt.errors import StateError

_DELETED = None
"""The entry of a snapshot with the names of attributes that ``prepare`` sets and tuples have deleted. An attribute may
have any text as its name, and not this."""
STATE_WARN_BYTES = 4 * 1024 * 1024
"""Larger snapshots cause a warning, because all but large dicts is written whole whenever any part of it changes."""


class DurableAttributes:
    """The attributes of one bolt instance that outlive a micro-batch: all except the transient ones.

    Create it after ``prepare`` has returned and before the first tuple: a task without a snapshot returns to the
    attributes of that moment.

    Args:
        instance: the bolt.
        component: the id of the bolt, for errors.
        transient: the names of attributes that are not stored.
        namespace: as in ``Pickling``.
        owned: objects of the engine that attributes may refer to, by token; the instance itself is always one.
        warn_bytes: ``warning`` returns a text for larger snapshots.

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
        self._owned = tuple((owned or {}).values())
        self._pickling = Pickling(namespace or {}, {**(owned or {}), "self": instance})
        self._warn_bytes = warn_bytes
        self._bytes = 0
        self._warned = False
        self._large = LargeDicts()
        self._prepared = self._dump(self._durable())
        self._names = frozenset(self._durable())
        """The attributes that ``prepare`` has set."""

    def capture(self) -> bytes:
        """The current durable attributes, as one pickle; large dicts are left to ``stage_large``.

        Raises:
            StateError: an attribute cannot be pickled; the message names it and gives advice.
        """
        attributes = self._durable()
        deleted = sorted(self._names.difference(attributes))
        return self._dump({**self._large.take_out(attributes), **({_DELETED: deleted} if deleted else {})})

    def _dump(self, attributes: Mapping[Any, Any]) -> bytes:
        try:
            data = self._pickling.dumps(attributes)
        except CannotKeepError as error:
            raise self._explain(self._durable(), error) from error
        self._bytes = len(data)
        return data

    def stage_large(self, segments: Segments) -> None:
        """Stage what the last capture has left out: large dicts."""
        self._large.stage(segments)

    def committed(self) -> None:
        """The last capture, and what ``stage_large`` has staged, are committed."""
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
            self._pickling.prove(data)
        except CannotKeepError as error:
            raise self._explain(self._durable(), error) from error

    def restore(self, data: bytes | None, segments: Segments | None = None) -> None:
        """Restore the attributes of a snapshot, over those that ``prepare`` set; None: there is no snapshot.

        An attribute that the snapshot does not have returns to its value after ``prepare``, unless the snapshot says
        that it was deleted. An attribute that neither has is removed, because only an attempt that was not committed
        can have created it. Transient attributes are not changed.

        Args:
            data: the snapshot.
            segments: the state that has the large dicts of the snapshot.

        Raises:
            StateError: the snapshot cannot be read, because its classes are missing or reject the old values; or an
                attribute was a plain one and is the bolt's ``KeyValueState`` now, or the other way round.
        """
        attributes = self._load(self._prepared)
        if data is not None:
            kept = self._load(data)
            for name in kept.pop(_DELETED, ()):
                attributes.pop(name, None)
            self._check_kinds(attributes, kept)
            attributes.update(kept)
        self._large.restore(attributes, segments)
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
            now, before = (any(value[name] is one for one in self._owned) for value in (present, kept))
            if now and not before:
                raise StateError(
                    f"bolt {self._component!r}: {name!r} is a KeyValueState now, and in the checkpoint it is an "
                    "attribute of its own: give the state another name, and move what it holds (docs/state.md)"
                )
            if before and not now and isinstance(prepared.get(name), Mapping):
                raise StateError(
                    f"bolt {self._component!r}: {name!r} is an attribute of its own now, and in the checkpoint it is a "
                    "KeyValueState: give the attribute another name, and move what it holds (docs/state.md)"
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

    def _durable(self) -> dict[str, Any]:
        attributes = attributes_of(self._instance)
        return {name: value for name, value in attributes.items() if name not in self._transient}

    def _load(self, data: bytes) -> dict[Any, Any]:
        try:
            attributes: dict[Any, Any] = self._pickling.loads(data)
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
                self._pickling.proved(value)
            except CannotKeepError as cause:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                return StateError(
                    f"bolt {self._component!r}: attribute {name!r} of type {kind} cannot be kept "
                    f"({cause}): if it is a connection or the like, write transient = [{name!r}] in the "
                    "class and open it in prepare"
                )
        return StateError(f"bolt {self._component!r}: its attributes cannot be kept together ({error})")
