"""Division: the state of a bolt for another number of tasks.

``split`` takes the store of one task apart, and ``join`` makes the store of a new task from what it gets of the old
ones. Both are functions of bytes and a declaration, so they give the same wherever and however often they run.

Rule 1: a key moves only if the grouping would have sent its tuples to the task that has it (``keyed_state``). With one
task this proves nothing, and with few keys it may be chance (``CHANCE_MAX``), so the class must say it (``keyed``).
Rule 2: nothing is lost, and nothing is in two tasks: what is not keyed stays with its task, or is the same in all
tasks, or is divided by the user's ``rescale``, or the division fails with the name of the attribute. All new tasks
decide this alike, because each gets the attributes of all old ones that are not keyed. If each task gets all tuples,
the ``KeyValueState`` has to be the same in all tasks, too.
Rule 3: keys and values of a ``KeyValueState`` are moved as they are stored; only attributes, and keys that are no plain
ones, are unpickled.
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from sparkbolt.api.keyed_state import (
    NotKeyedError,
    is_broadcast,
    is_declared_keyed,
    is_divided_by_code,
    is_same_in_all,
    key_fields,
    stays,
    targets,
)
from sparkbolt.api.pickling import Pickling, attributes_of
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.errors import StateError, check
from sparkbolt.worker.state.large_dicts import PREFIX as LARGE_DICTS
from sparkbolt.worker.state.large_dicts import LargeDicts
from sparkbolt.worker.state.segments import Entries, united
from sparkbolt.worker.state.snapshots import DELETED, UNCHANGED, VERSION, migrated
from sparkbolt.worker.state.task_state import DictStore, TaskState

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_MAPS = (dict, Counter, defaultdict, OrderedDict)
_SETS = (set, frozenset)
_NUMBERS = (int, float)
_TOKENS = ("context", "collector", "key_value_state", "self")
_WHOLE, _TABLE, _ATTRIBUTES, _OUTBOX, _RUNTIME = "whole/", "table", "attributes", "outbox/", "runtime"
_PROVED = "proved"
"""The names in a part: segments as they were, keys and values, attributes and so on, and by attribute the number of
its keys in the old task; for ``join`` alone."""
CHANCE_MAX = 1 / 100
"""How probable it may be that all keys of an attribute are in the right tasks by chance; with 2 tasks, 7 keys are
enough. A ``KeyValueState`` is made for keys, so any number of them is believed."""
_TREES = "__trees"
"""The names of the outbox's segments begin so (``worker.outbox``)."""
_DIVIDED = (_TREES, LARGE_DICTS, "__snapshot", "__key_values", "__window")
"""The names of all segments for which there is a rule begin so."""
_RESCALE = "define rescale(self, states, part, parts) in its class, which divides the attributes"


def without_collection(act: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function that makes millions of objects: no garbage collection looks at all of them meanwhile."""

    @wraps(act)
    def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return act(*arguments, **named)
        finally:
            if enabled:
                gc.enable()

    return call


@dataclass(frozen=True)
class _Owned:
    """Stands for an object of the engine, or for a method of one."""

    token: str

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Method(self, name)


@dataclass(frozen=True)
class _Method:
    owner: _Owned
    name: str

    def __reduce__(self) -> Any:
        return getattr, (self.owner, self.name)


@dataclass
class _Attributes:
    """The attributes that one new task gets of one old one."""

    keyed: dict[str, Any] = field(default_factory=dict)
    """Its part of the keyed ones."""
    others: dict[str, Any] = field(default_factory=dict)
    """All that are not keyed."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why containers among the others are not keyed."""
    hidden: list[str] = field(default_factory=list)
    """The others that are left out, because they hold tuples, which only the task that gets them may have."""
    unchanged: list[str] = field(default_factory=list)
    """The others that are as the code sets them."""
    deleted: list[str] = field(default_factory=list)
    """The names of attributes that were deleted."""


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
        self._pickling = Pickling(self._namespace, {token: _Owned(token) for token in _TOKENS})
        self._bolt: Any = spec.component
        self._by_code = is_divided_by_code(self._bolt)
        self._proved: dict[str, int] = {}
        """By attribute that is not declared as keyed: how many of its keys are in the task that is divided."""
        self._same_in_all = is_same_in_all(spec) and before > 1 and not self._by_code

    # The store of a task that had the state.

    @without_collection
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
        self._proved.clear()
        if stays(self._spec) and not self._by_code:
            return {index: {f"{_WHOLE}{name}": data for name, data in segments.items()}}
        state = TaskState(self._namespace)
        state.begin(DictStore(segments))
        attributes = self._attributes_of(index, state)
        parts: dict[int, dict[str, bytes]] = {}
        for part, entries in self._split_table(index, state.key_values()).items():
            parts.setdefault(part, {})[_TABLE] = entries.encode(self._pickling)
        if attributes is not None:
            for part, data in self._split_attributes(index, attributes).items():
                parts.setdefault(part, {})[_ATTRIBUTES] = data
        if isinstance(self._bolt, RuntimeBolt):
            try:
                shares = self._bolt.split_state(
                    state, partial(self._placed, index, mend="let it have as many tasks as before"), self._after
                )
            except NotKeyedError as error:
                raise self._error(f"its windows: {error}") from None
            for part, data in shares.items():
                parts.setdefault(part, {})[_RUNTIME] = data
        for name, data in self._outbox_of(index, state).items():
            parts.setdefault(index, {})[f"{_OUTBOX}{name}"] = data
        for part in range(self._after) if self._proved else ():
            parts.setdefault(part, {})[_PROVED] = pickle.dumps(self._proved)
        return parts

    def _attributes_of(self, index: int, state: TaskState) -> dict[Any, Any] | None:
        """The attributes of a task in the version of the class; None if it has none."""
        data = state.snapshot()
        if data is None:
            return None
        try:
            stored = self._pickling.load_attributes(data)
        except BaseException as error:
            pass_on(error)
            raise self._error(
                f"attribute {self._pickling.unreadable!r} of task {index} cannot be read: {self._pickling.why(error)}"
            ) from error
        LargeDicts().restore(stored, state)
        version = stored.pop(VERSION, 1)
        if version == self._bolt.state_version:
            return stored
        extra = {name: stored.pop(name) for name in (DELETED, UNCHANGED) if name in stored}
        bolt = copy.deepcopy(self._bolt)
        if hasattr(bolt, "init_state"):
            bolt.init_state(state.key_value())
        stored = migrated(bolt, self._spec.id, index, version, stored)
        state.make_ready()
        state.commit(self._stamps)  # what migrate has put into the key-value state
        return {**stored, **extra}

    def _split_table(self, index: int, entries: Entries) -> dict[int, Entries]:
        if not len(entries.hashes):
            return {}
        if self._same_in_all:
            return dict.fromkeys(range(self._after), entries)
        if self._fields is None:
            if index >= self._after:
                raise self._error(
                    f"the KeyValueState of task {index}, which goes, has {len(entries.hashes)} keys, and there is no "
                    "fields grouping that says where they belong: move them into attributes (state_version and "
                    "migrate), which rescale divides"
                )
            return {index: entries}
        try:
            arrays = entries.arrays()
            places = self._places(index, arrays[0] if arrays is not None else entries.keys, None)
        except NotKeyedError as error:
            raise self._error(f"its KeyValueState: {error}") from None
        return {part: entries.chosen(rows) for part, rows in places.items()}

    def _split_attributes(self, index: int, stored: dict[Any, Any]) -> dict[int, bytes]:
        """By new index: pickled ``_Attributes``."""
        every = _Attributes(deleted=list(stored.pop(DELETED, ())), unchanged=list(stored.pop(UNCHANGED, ())))
        made = attributes_of(self._bolt)
        parts: list[dict[str, Any]] = [{} for _ in range(self._after)]
        for name, value in stored.items():
            as_made = isinstance(value, _Owned) or _is_same(made.get(name, every), value)
            if self._may_be_keyed(name, value) and not (as_made and value):
                try:
                    keys = list(value)
                    places = self._places(index, keys, name) if keys else {}
                except NotKeyedError as error:
                    every.reasons[name] = str(error)
                else:
                    for part, container in enumerate(parts):
                        container[name] = _chosen(value, [keys[row] for row in places.get(part, ())])
                    continue
            every.others[name] = value
            if as_made and name not in every.unchanged:
                every.unchanged.append(name)
        if not self._by_code:
            every.hidden = [name for name, value in every.others.items() if self._holds(value)]
            if index >= self._after and every.hidden:
                raise self._error(
                    f"attribute {every.hidden[0]!r} of task {index}, which goes, holds tuples, and nothing says which "
                    f"task they belong to: {_RESCALE}"
                )
        shown = {name: value for name, value in every.others.items() if name not in every.hidden}
        pickled: dict[int, bytes] = {}
        held: dict[Any, Tuple] = {}
        for part, keyed in enumerate(parts):
            others = every.others if part == index else shown
            pickled[part] = self._pickling.dumps(vars(every) | {"keyed": keyed, "others": others})
            if not self._by_code:
                self._check_held_once(held)
        return pickled

    def _may_be_keyed(self, name: Any, value: object) -> bool:
        if type(value) not in (*_MAPS, *_SETS) or self._by_code or self._fields is None:
            return False
        return self._bolt.keyed is False or is_declared_keyed(self._bolt, name)

    def _holds(self, value: object) -> bool:
        self._pickling.dumps(value)
        return any(tup._settled is None and tup.anchors for tup in self._pickling.tuples)

    def _check_held_once(self, held: dict[Any, Tuple]) -> None:
        for tup in self._pickling.tuples:
            if tup._settled is None and tup.anchors:
                if tup.anchors in held:
                    raise self._error(
                        f"{printed(tup):.200} is held under two keys, which belong to two tasks: it would become two "
                        "tuples whose acks cancel each other: keep the tuple in one place"
                    )
                held[tup.anchors] = tup

    def _outbox_of(self, index: int, state: TaskState) -> dict[str, bytes]:
        """The segments with the values that the task has emitted and whose trees are open."""
        for name in state.own_names("__"):
            check(name.startswith(_DIVIDED), f"segment {name!r} has no rule for its division")
        number = _open_trees(state)
        if number and index >= self._after:
            raise self._error(
                f"{number} trees that task {index} has started are open, and the task goes: deactivate the topology, "
                "wait until its trees are finished, and try again"
            )
        if index >= self._after:
            return {}
        return {name: state.read(name) or b"" for name in state.own_names(_TREES)}

    def _places(self, index: int, keys: Any, attribute: str | None) -> dict[int, npt.NDArray[np.intp]]:
        """By new index: the rows of its keys, intp[rows]; each key is proved to be one of the old task.

        Raises:
            NotKeyedError: they are not; the message says why, and what to do.
        """
        assert self._fields is not None
        is_declared = is_declared_keyed(self._bolt, attribute)
        if self._before == 1 and not is_declared:
            raise NotKeyedError(
                f"it had one task, so nothing proves that its keys are those of the fields grouping: {_say(attribute)}"
            )
        places = self._placed(index, keys, "let it have as many tasks as before" if attribute is None else _RESCALE)
        if attribute is not None and not is_declared:
            self._proved[attribute] = len(keys)
        return places

    def _placed(self, index: int, keys: Any, mend: str) -> dict[int, npt.NDArray[np.intp]]:
        """The same without a look at the declaration; ``mend`` says what to do if the keys are not its own."""
        assert self._fields is not None
        try:
            had = targets(keys, self._fields, self._before)
            wrong = np.flatnonzero(had != index)
            if len(wrong):
                row = int(wrong[0])
                key = printed(keys[row].as_py() if hasattr(keys[row], "as_py") else keys[row])
                raise NotKeyedError(f"tuples of key {key:.100} went to task {int(had[row])}, not to task {index}")
            now = targets(keys, self._fields, self._after)
        except NotKeyedError as error:
            raise NotKeyedError(f"its keys are not those of the fields grouping ({error}): {mend}") from None
        return {int(part): np.flatnonzero(now == part) for part in np.unique(now).tolist()}

    # The store of a task that gets its part.

    @without_collection
    def join(self, index: int, pieces: Sequence[tuple[int, Mapping[str, bytes]]]) -> dict[str, bytes]:
        """The store of a new task.

        Args:
            index: that of the new task.
            pieces: (index of the old task, its part for the new one) of each old task that has one.

        Raises:
            StateError: an attribute cannot be divided, or ``rescale`` raised, or a key comes from two tasks.
        """
        whole = {
            name.removeprefix(_WHOLE): data
            for _, piece in pieces
            for name, data in piece.items()
            if name.startswith(_WHOLE)
        }
        if whole:
            return whole
        state, store = TaskState(self._namespace), DictStore()
        state.begin(store)
        encoded = [piece[_TABLE] for _, piece in pieces if _TABLE in piece]
        if self._same_in_all and encoded:
            if len(encoded) < self._before or len(set(encoded)) > 1:
                raise self._error(
                    "its KeyValueState differs between its tasks, though each gets all tuples: let it have as many "
                    "tasks as before, or move it into attributes (state_version and migrate), which rescale divides"
                )
            encoded = encoded[:1]
        tables = [Entries.decode(one, self._pickling) for one in encoded]
        if tables:
            try:
                state.fill_key_values(united(tables), self._stamps)
            except StateError as error:
                raise self._error(f"its KeyValueState: {error}") from error
        loaded = {
            source: _Attributes(**self._pickling.loads(piece[_ATTRIBUTES]))
            for source, piece in pieces
            if _ATTRIBUTES in piece
        }
        attributes = self._rescaled(index, loaded) if self._by_code else self._joined(index, loaded)
        self._check_chance(pieces)
        if attributes:
            if self._bolt.state_version != 1:
                attributes[VERSION] = self._bolt.state_version
            state.set_snapshot(self._pickling.dump_attributes(attributes))
        if isinstance(self._bolt, RuntimeBolt):
            try:
                self._bolt.join_state(state, [piece[_RUNTIME] for _, piece in pieces if _RUNTIME in piece])
            except StateError as error:
                raise self._error(str(error)) from error
        for _, piece in pieces:
            for name, data in piece.items():
                if name.startswith(_OUTBOX):
                    state.write_own(name.removeprefix(_OUTBOX), data)
        state.make_ready()
        state.commit(self._stamps)
        return dict(store)

    def _check_chance(self, pieces: Sequence[tuple[int, Mapping[str, bytes]]]) -> None:
        """Refuse an attribute whose keys are so few that all may be in the right tasks by chance."""
        proved = Counter[str]()
        for _, piece in pieces:
            proved.update(pickle.loads(piece[_PROVED]) if _PROVED in piece else {})
        for attribute, number in proved.items():
            if float(self._before) ** -number > CHANCE_MAX:
                raise self._error(
                    f"attribute {attribute!r} has {number} key(s), too few to prove that they are those of the fields "
                    f"grouping: {_say(attribute)}"
                )

    def _joined(self, index: int, pieces: Mapping[int, _Attributes]) -> dict[Any, Any]:
        attributes: dict[Any, Any] = {}
        for name in dict.fromkeys(name for piece in pieces.values() for name in piece.others):
            had = {source: piece.others.get(name) for source, piece in pieces.items() if name in piece.others}
            if self._stays(name, pieces):
                if index in had:
                    attributes[name] = had[index]
            else:
                attributes[name] = had[index] if index in had else next(iter(had.values()))
        for source, piece in pieces.items():
            for name, part in piece.keyed.items():
                if name in attributes:
                    self._merge(attributes, name, part, source)
                else:
                    attributes[name] = part
        own = pieces.get(index)
        if own is not None:
            for entry, names in ((UNCHANGED, own.unchanged), (DELETED, own.deleted)):
                if names:
                    attributes[entry] = names
        return attributes

    def _stays(self, name: str, pieces: Mapping[int, _Attributes]) -> bool:
        """Whether an attribute that is not keyed stays with its task; otherwise all tasks get it, the new ones too.

        Raises:
            StateError: nothing says where it belongs.
        """
        changed = {
            source: piece.others.get(name)
            for source, piece in pieces.items()
            if (name in piece.others or name in piece.hidden) and name not in piece.unchanged
        }
        if not changed:
            return True
        first = next(iter(changed.values()))
        differs = (
            self._before == 1
            or any(name in piece.keyed or name in piece.hidden for piece in pieces.values())
            or not all(name in piece.others and _is_same(first, piece.others[name]) for piece in pieces.values())
            or (type(first) in _NUMBERS and not is_broadcast(self._spec))
        )
        if not differs:
            return False
        reason = next((piece.reasons[name] for piece in pieces.values() if name in piece.reasons), None)
        if reason is not None:
            raise self._error(f"attribute {name!r}: {reason}")
        goes = next(
            (source for source, value in changed.items() if source >= self._after and not _is_empty(value)), None
        )
        if goes is not None:
            raise self._error(
                f"attribute {name!r} of task {goes}, which goes, holds {printed(changed[goes]):.100}, and nothing says "
                f"which task takes it over: {_RESCALE}"
            )
        if not self._bolt.keyed:
            raise self._error(
                f"attribute {name!r} is not keyed, and its tasks differ in it: if it may stay where it is while keys "
                "move, say which attributes are keyed in its class, such as keyed = True for its KeyValueState or "
                f"keyed = ['counts'] for a dict; otherwise {_RESCALE}"
            )
        return True

    def _merge(self, attributes: dict[Any, Any], name: str, part: Any, source: int) -> None:
        whole = attributes[name]
        twice = next((key for key in part if key in whole), self) if type(part) is type(whole) else None
        if twice is not self:
            raise self._error(f"attribute {name!r}: key {printed(twice):.100} of task {source} is in another one, too")
        if isinstance(part, frozenset):
            attributes[name] = whole | part
        elif isinstance(part, set):
            whole |= part
        else:
            dict.update(whole, part)

    def _rescaled(self, index: int, pieces: Mapping[int, _Attributes]) -> dict[Any, Any]:
        given = [pieces[source].others if source in pieces else {} for source in range(self._before)]
        try:
            bolt = copy.deepcopy(self._bolt)
            attributes = bolt.rescale(given, index, self._after)
        except BaseException as error:
            pass_on(error)
            raise self._error(f"its rescale raised {line_of(error)} for task {index} of {self._after}") from error
        if not isinstance(attributes, dict) or not all(isinstance(name, str) for name in attributes):
            raise self._error(f"its rescale returned {printed(attributes):.100}, expected a dict of attributes by name")
        return attributes

    def _error(self, why: str) -> StateError:
        had = f"{self._before} task{'s' if self._before > 1 else ''}"
        return StateError(f"the state of bolt {self._spec.id!r} cannot be divided, from {had} to {self._after}: {why}")


def moved_stores(
    stores: Mapping[int, Mapping[str, bytes]],
    moves: Sequence[Any],
    components: Mapping[str, ComponentSpec],
    stamps: Callable[[], int],
    namespace: Mapping[str, Any] | None = None,
) -> dict[int, DictStore]:
    """The stores of all tasks after some moves, by dest, in one process; Spark moves them on its executors.

    Args:
        stores: those before, by dest.
        moves: each has a ``component``, and the dests of its tasks ``before`` and ``after``, by index.
        components: the bolts as they are now, by id.
        stamps: as for ``TaskState.commit``.
        namespace: as in ``Pickling``.
    """
    found: dict[int, DictStore] = {}
    for move in moves:
        had = [stores.get(dest, {}) for dest in move.before]
        if len(move.before) == len(move.after):
            found.update((dest, DictStore(store)) for dest, store in zip(move.after, had, strict=True) if store)
            continue
        division = Division(components[move.component], len(move.before), len(move.after), stamps, namespace)
        pieces: dict[int, list[tuple[int, dict[str, bytes]]]] = {}
        for index, store in enumerate(had):
            for part, piece in division.split(index, store).items():
                pieces.setdefault(part, []).append((index, piece))
        found.update((move.after[part], DictStore(division.join(part, some))) for part, some in pieces.items())
    return found


def _say(attribute: str | None) -> str:
    says = "keyed = True" if attribute is None else f"keyed = [{attribute!r}]"
    return f"if they are, say {says} in its class"


def _open_trees(state: TaskState) -> int:
    """How many values of the outbox are not finished."""
    data = state.read(_TREES)
    pages = pickle.loads(data)[1] if data is not None else {}
    return sum(last - first + 1 for pairs in pages.values() for first, last in pairs)


def _chosen(value: Any, keys: Sequence[Any]) -> Any:
    """A container of the same kind with some of its keys."""
    if isinstance(value, set | frozenset):
        return type(value)(keys)
    part = defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
    dict.update(part, ((key, value[key]) for key in keys))
    return part


def _is_same(one: object, other: object) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001  objects of the user's own may raise anything
        return False


def _is_empty(value: Any) -> bool:
    """Whether there is nothing to lose: 0, an empty text, an empty container and so on."""
    try:
        return not value
    except Exception:  # noqa: BLE001  objects of the user's own may raise anything
        return False
