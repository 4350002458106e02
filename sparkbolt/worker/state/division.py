"""Division: the state of a bolt for another number of tasks.

``split`` takes the store of one task apart, and ``join`` makes the store of a new task from what it gets of the old
ones. Both are functions of bytes and a declaration, so they give the same wherever and however often they run.

Rule 1: a key moves only if the grouping would have sent its tuples to the task that has it (``keyed_state``). With one
task this proves nothing, so the class must say it (``keyed``).
Rule 2: nothing is lost: what is not keyed stays with its task, or is the same in all tasks, or is divided by the user's
``rescale``, or the division fails with the name of the attribute.
Rule 3: values are moved as they are stored; only attributes, and values that are no plain ones, are unpickled.
"""

from __future__ import annotations

import copy
import pickle
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparkbolt.api.keyed_state import (
    NotKeyedError,
    is_declared_keyed,
    is_divided_by_code,
    key_fields,
    stays,
    targets,
)
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.errors import StateError
from sparkbolt.worker.state.large_dicts import LargeDicts
from sparkbolt.worker.state.task_state import DictStore, TaskState

_MAPS = (dict, Counter, defaultdict, OrderedDict)
_SETS = (set, frozenset)
_TOKENS = ("context", "collector", "key_value_state", "self")
_OUTBOX = "__trees"
WHOLE, TABLE, KEYED, OTHERS, OUTBOX = "whole/", "table", "keyed", "others", "outbox/"
"""The names in a part: segments as they were, pickled keys and values, and attributes; for ``join`` alone."""


class _Owned:
    """Stands for an object of the engine."""


class Division:
    """The division of one bolt's state among another number of tasks.

    Args:
        spec: the bolt, as it is declared now.
        before: how many tasks it had.
        after: how many tasks it has.
        stamps: as for ``TaskState.commit``.
        namespace: as in ``Pickling``.
    """

    def __init__(
        self,
        spec: ComponentSpec,
        before: int,
        after: int,
        stamps: Callable[[], int],
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        self._spec, self._before, self._after = spec, before, after
        self._stamps = stamps
        self._namespace = namespace or {}
        self._fields = key_fields(spec)
        self._pickling = Pickling(self._namespace, {token: _Owned() for token in _TOKENS})
        self._bolt: Any = spec.component
        self._by_code = is_divided_by_code(self._bolt)

    # The store of a task that had the state.

    def split(self, index: int, segments: Mapping[str, bytes]) -> dict[int, dict[str, bytes]]:
        """By index of a new task: its part of the store of an old one.

        Args:
            index: that of the old task.
            segments: its store.

        Raises:
            StateError: something in it cannot be divided; the message names it and says what to do.
        """
        if not segments:
            return {}
        if stays(self._spec) and not self._by_code:
            return {index: {f"{WHOLE}{name}": data for name, data in segments.items()}}
        state = self._opened(segments)
        parts: dict[int, dict[str, bytes]] = {}
        for part, (keys, values) in self._table(index, state):
            parts.setdefault(part, {})[TABLE] = pickle.dumps((keys, values), 5)
        keyed, others = self._attributes(index, state)
        for part, attributes in keyed.items():
            parts.setdefault(part, {})[KEYED] = self._pickling.dumps(attributes)
        data = self._pickling.dumps(others)
        for part in range(self._after):
            if part == index or self._by_code or index >= self._after:
                parts.setdefault(part, {})[OTHERS] = data
        for name in (*state.own_names(_OUTBOX), *(name for name in (_OUTBOX,) if state.read(name) is not None)):
            parts.setdefault(index, {})[f"{OUTBOX}{name}"] = state.read(name) or b""
        return parts

    def _opened(self, segments: Mapping[str, bytes]) -> TaskState:
        state = TaskState(self._namespace)
        state.begin(DictStore(segments))
        return state

    def _table(self, index: int, state: TaskState) -> Iterator[tuple[int, tuple[list[Any], list[Any]]]]:
        content = state.key_value().stored()
        if not content:
            return
        keys, values = list(content), list(content.values())
        for part, chosen in self._places(index, keys, None).items():
            yield part, ([keys[row] for row in chosen], [values[row] for row in chosen])

    def _attributes(self, index: int, state: TaskState) -> tuple[dict[int, dict[str, Any]], dict[Any, Any]]:
        """By new index: its part of each keyed attribute; and all other attributes."""
        data = state.snapshot()
        if data is None:
            return {}, {}
        stored: dict[Any, Any] = self._loaded(data)
        LargeDicts().restore(stored, state)
        keyed: dict[int, dict[str, Any]] = {}
        others: dict[Any, Any] = {}
        for name, value in stored.items():
            if self._by_code or type(value) not in (*_MAPS, *_SETS):
                others[name] = value
                continue
            keys = list(value)
            for part in range(self._after):
                keyed.setdefault(part, {})[name] = _like(value)
            for part, chosen in self._places(index, keys, name).items():
                _fill(keyed[part][name], value, [keys[row] for row in chosen])
        for attributes in keyed.values():
            for name, value in attributes.items():
                if type(stored[name]) is frozenset:
                    attributes[name] = frozenset(value)
        return keyed, others

    def _places(self, index: int, keys: Sequence[Any], attribute: str | None) -> dict[int, list[int]]:
        """By new index: the rows of its keys; each key is proved to be one of the old task."""
        if not keys:
            return {}
        what = "its KeyValueState" if attribute is None else f"attribute {attribute!r}"
        if self._before == 1 and not is_declared_keyed(self._bolt, attribute):
            says = "keyed = True" if attribute is None else f"keyed = [{attribute!r}]"
            raise self._error(
                f"{what}: it had one task, so nothing proves that its keys are those of the fields grouping: if they "
                f"are, say {says} in its class"
            )
        assert self._fields is not None
        try:
            had = targets(keys, self._fields, self._before)
            wrong = np.flatnonzero(had != index)
            if len(wrong):
                key = printed(keys[int(wrong[0])])
                raise NotKeyedError(f"tuples of key {key:.100} went to task {int(had[wrong[0]])}, not to task {index}")
            now = targets(keys, self._fields, self._after)
        except NotKeyedError as error:
            raise self._error(
                f"{what}: its keys are not those of the fields grouping ({error}): define rescale(self, states, part, "
                "parts) in its class, which divides the attributes, or let it have as many tasks as before"
            ) from None
        return {int(part): np.flatnonzero(now == part).tolist() for part in np.unique(now).tolist()}

    # The store of a task that gets its part.

    def join(self, index: int, pieces: Sequence[tuple[int, Mapping[str, bytes]]]) -> dict[str, bytes]:
        """The store of a new task.

        Args:
            index: that of the new task.
            pieces: (index of the old task, its part for the new one) of each old task that has one.

        Raises:
            StateError: an attribute cannot be divided, or ``rescale`` raised.
        """
        whole = {
            name.removeprefix(WHOLE): data
            for _, piece in pieces
            for name, data in piece.items()
            if name.startswith(WHOLE)
        }
        if whole:
            return whole
        state, store = TaskState(self._namespace), DictStore()
        state.begin(store)
        for _, piece in pieces:
            if TABLE in piece:
                state.key_value().put_stored(*pickle.loads(piece[TABLE]))
        attributes = self._joined(index, pieces)
        if attributes:
            state.set_snapshot(self._pickling.dumps(attributes))
        for _, piece in pieces:
            for name, data in piece.items():
                if name.startswith(OUTBOX):
                    state.write_own(name.removeprefix(OUTBOX), data)
        state.make_ready()
        state.commit(self._stamps)
        return dict(store)

    def _joined(self, index: int, pieces: Sequence[tuple[int, Mapping[str, bytes]]]) -> dict[Any, Any]:
        others = {source: self._loaded(piece[OTHERS]) for source, piece in pieces if OTHERS in piece}
        if self._by_code:
            return self._rescaled(index, others)
        attributes = dict(others.get(index, {}))
        for source, going in others.items():
            for name, value in going.items():
                if source != index and not _is_same(value, attributes.get(name)) and not _is_empty(value):
                    raise self._error(
                        f"attribute {name!r} of task {source}, which is gone, holds {printed(value):.100}, and nothing "
                        "says which task takes it over: define rescale(self, states, part, parts) in its class"
                    )
        for _, piece in pieces:
            for name, part in self._loaded(piece[KEYED]).items() if KEYED in piece else ():
                if name in attributes:
                    _merge(attributes, name, part)
                else:
                    attributes[name] = part
        return attributes

    def _rescaled(self, index: int, states: Mapping[int, Any]) -> dict[Any, Any]:
        given = [states.get(source, {}) for source in range(self._before)]
        try:
            bolt = copy.deepcopy(self._bolt)
            attributes = bolt.rescale(given, index, self._after)
        except BaseException as error:
            pass_on(error)
            raise self._error(f"its rescale raised {line_of(error)} for task {index} of {self._after}") from error
        if not isinstance(attributes, dict):
            raise self._error(f"its rescale returned {printed(attributes):.100}, expected a dict of attributes")
        return attributes

    def _loaded(self, data: bytes) -> dict[Any, Any]:
        try:
            loaded: dict[Any, Any] = self._pickling.loads(data)
        except BaseException as error:
            pass_on(error)
            raise self._error(f"its attributes cannot be read ({line_of(error)})") from error
        return loaded

    def _error(self, why: str) -> StateError:
        had = f"{self._before} task{'s' if self._before > 1 else ''}"
        return StateError(f"the state of bolt {self._spec.id!r} cannot be divided, from {had} to {self._after}: {why}")


def moved_stores(
    stores: Mapping[int, Mapping[str, bytes]],
    moves: Sequence[Any],
    components: Mapping[str, ComponentSpec],
    stamps: Callable[[], int],
) -> dict[int, DictStore]:
    """The stores of all tasks after some moves, by dest, in one process; Spark moves them on its executors.

    Args:
        stores: those before, by dest.
        moves: each has a ``component``, and the dests of its tasks ``before`` and ``after``, by index.
        components: the bolts as they are now, by id.
        stamps: as for ``TaskState.commit``.
    """
    found: dict[int, DictStore] = {}
    for move in moves:
        had = [stores.get(dest, {}) for dest in move.before]
        if len(move.before) == len(move.after):
            found.update((dest, DictStore(store)) for dest, store in zip(move.after, had, strict=True) if store)
            continue
        division = Division(components[move.component], len(move.before), len(move.after), stamps)
        pieces: dict[int, list[tuple[int, dict[str, bytes]]]] = {}
        for index, store in enumerate(had):
            for part, piece in division.split(index, store).items():
                pieces.setdefault(part, []).append((index, piece))
        found.update((move.after[part], DictStore(division.join(part, some))) for part, some in pieces.items())
    return found


def _like(value: Any) -> Any:
    """An empty container of the same kind, which can be filled."""
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory)
    return set() if isinstance(value, frozenset) else type(value)()


def _fill(part: Any, value: Any, keys: Sequence[Any]) -> None:
    if isinstance(part, set):
        part.update(keys)
    else:
        dict.update(part, ((key, value[key]) for key in keys))


def _merge(attributes: dict[Any, Any], name: str, part: Any) -> None:
    whole = attributes[name]
    if isinstance(part, frozenset):
        attributes[name] = whole | part
    elif isinstance(part, set):
        whole |= part
    else:
        dict.update(whole, part)


def _is_same(one: object, other: object) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001  objects of the user's own may raise anything
        return False


def _is_empty(value: Any) -> bool:
    """Whether there is nothing to lose: an object of the engine, 0, an empty text, an empty container and so on."""
    try:
        return isinstance(value, _Owned) or not value
    except Exception:  # noqa: BLE001  objects of the user's own may raise anything
        return False
