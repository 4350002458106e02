"""Windows by key: one window for each value of some fields, within a task.

The cost of a micro-batch depends on the keys that it touches: a window is stored in the key-value state under its key,
and keys are listed by the time at which they are due.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from sparkbolt.api.moved_code import loads
from sparkbolt.windows.content import Content, decode
from sparkbolt.windows.firing import Windower
from sparkbolt.windows.tuple_log import AFTER_ALL
from sparkbolt.windows.tuple_segments import Shelf
from sparkbolt.worker.state.keyvalue import KeyValueTable

CACHED_KEYS_MAX = 10_000
"""How many windows stay decoded in a worker; a window takes about three kilobytes besides its tuples."""
LISTS_MAX = 64
"""How many lists of due keys one slot may have before they are merged into one."""


class _KeyShelf:
    """The segments of one key's window."""

    def __init__(self, state: KeyValueTable, key: Any) -> None:
        self._state = state
        self._key = key

    def read(self, number: int) -> Content:
        return decode(self._state.get(("segment", self._key, number)))

    def write(self, number: int, data: bytes, content: Content) -> None:
        self._state.put(("segment", self._key, number), data)

    def drop(self, number: int) -> None:
        self._state.delete(("segment", self._key, number))


class DueKeys:
    """Keys by the time at which they are due, in lists that are written once.

    Args:
        name: distinguishes lists of one purpose from those of another.
        quantum_ms: the width of a slot: times are rounded down to a multiple of it.
    """

    def __init__(self, name: str, quantum_ms: int) -> None:
        self._name = name
        self._quantum_ms = max(1, quantum_ms)
        self.lists: dict[int, list[int]] = {}
        """By slot: the numbers of its lists; part of the task's head."""
        self._fresh: dict[int, list[Any]] = {}
        self._next = 0

    def slot_of(self, due_ms: int) -> int:
        """The slot of a time."""
        return due_ms // self._quantum_ms * self._quantum_ms

    def add(self, slot: int, key: Any) -> None:
        """Add a key to the keys that are due in a slot."""
        self._fresh.setdefault(slot, []).append(key)

    def first(self) -> int | None:
        """The earliest slot; None if there is none."""
        return min((*self.lists, *self._fresh), default=None)

    def pop(self, state: KeyValueTable, limit_ms: int) -> Iterator[tuple[int, Any]]:
        """Remove and yield the keys that are due at or before a time, as (slot, key), the earliest slot first."""
        for slot in sorted(slot for slot in {*self.lists, *self._fresh} if slot <= limit_ms):
            keys = self._read(state, slot) + self._fresh.pop(slot, [])
            for key in dict.fromkeys(keys):
                yield slot, key

    def _read(self, state: KeyValueTable, slot: int) -> list[Any]:
        keys: list[Any] = []
        for number in self.lists.pop(slot, ()):
            keys += loads(state.delete((self._name, slot, number)))
        return keys

    def save(self, state: KeyValueTable) -> Any:
        """Write new lists to the state; return the argument of ``load``."""
        for slot, keys in self._fresh.items():
            if len(self.lists.get(slot, ())) >= LISTS_MAX:
                keys = list(dict.fromkeys(self._read(state, slot) + keys))
            state.put((self._name, slot, self._next), pickle.dumps(keys, 5))
            self.lists.setdefault(slot, []).append(self._next)
            self._next += 1
        self._fresh.clear()
        return self._next, {slot: list(numbers) for slot, numbers in self.lists.items()}

    def load(self, saved: Any) -> None:
        """Restore the result of ``save``."""
        self._next, lists = saved
        self.lists = {slot: list(numbers) for slot, numbers in lists.items()}
        self._fresh.clear()


class _CachedWindow:
    """One key's window in memory."""

    __slots__ = ("data", "idle_slot", "slot", "touched_ms", "windower")

    def __init__(self, windower: Windower) -> None:
        self.windower = windower
        self.data: bytes | None = None
        """The bytes that the state holds; if the state holds this very object, the window is up to date."""
        self.slot: int | None = None
        self.idle_slot: int | None = None
        self.touched_ms = 0


class KeyedWindows:
    """The windows of all keys of a task.

    Args:
        make: makes an empty window that keeps its segments on a shelf.
        quantum_ms: see ``DueKeys``; for the times at which windows are due.
        idle_ms: a key that got no tuple for this long is forgotten. None: no key is forgotten for being idle.
        repeats: whether a window may fire repeatedly without new tuples.
    """

    def __init__(
        self, make: Callable[[Shelf], Windower], quantum_ms: int, idle_ms: int | None, *, repeats: bool
    ) -> None:
        self._make = make
        self._repeats = repeats
        self._news = False
        self._idle_ms = idle_ms
        self._now_ms = 0
        self._due = DueKeys("due", quantum_ms)
        self._idle = DueKeys("idle", (idle_ms or 8) // 8)
        self._cached: OrderedDict[Any, _CachedWindow] = (
            OrderedDict()
        )  # a dict looks at all that was deleted to find its first
        self._touched: dict[Any, _CachedWindow] = {}
        self._state: KeyValueTable | None = None

    def attach(self, state: KeyValueTable, saved: Any | None, fresh: bool) -> None:
        """Begin a micro-batch.

        Args:
            state: where windows are stored.
            saved: the last result of ``save``; None if nothing was ever saved.
            fresh: whether memory may not match the committed state, so that only ``saved`` counts.
        """
        self._state = state
        self._touched.clear()
        if fresh:
            if saved is not None:
                self._due.load(saved[0])
                self._idle.load(saved[1])
                self._news = saved[2]
            else:
                self._news = False
                self._due.load((0, {}))
                self._idle.load((0, {}))

    def _of(self, key: Any) -> _CachedWindow:
        cached = self._touched.get(key)
        if cached is not None:
            return cached
        assert self._state is not None
        data = self._state.get(("window", key))
        cached = self._cached.pop(key, None)
        if cached is None or cached.data is not data or data is None:
            cached = _CachedWindow(self._make(_KeyShelf(self._state, key)))
            if data is not None:
                cached.slot, cached.idle_slot, cached.touched_ms, window = pickle.loads(data)
                cached.windower.load(window)
                cached.data = data
        self._touched[key] = cached
        return cached

    def of(self, key: Any, now_ms: int) -> Windower:
        """The window of a key that gets tuples."""
        cached = self._of(key)
        cached.touched_ms = now_ms
        self._news = True
        return cached.windower

    def due(self, limit_ms: int) -> Iterator[tuple[Any, Windower]]:
        """Yield the keys, with their windows, that may have something to do at a time or at a watermark."""
        assert self._state is not None
        due = list(self._due.pop(self._state, limit_ms))
        self._news = self._news and not due
        for slot, key in due:
            cached = self._of(key)
            if cached.slot == slot:
                cached.slot = None
            yield key, cached.windower

    def idle(self, now_ms: int) -> Iterator[tuple[Any, Windower]]:
        """Yield the keys that were idle for too long; they are forgotten when the micro-batch is saved."""
        self._now_ms = now_ms
        if self._idle_ms is None:
            return
        assert self._state is not None
        for slot, key in list(self._idle.pop(self._state, now_ms - self._idle_ms)):
            cached = self._of(key)
            if cached.idle_slot == slot:
                cached.idle_slot = None
            if cached.touched_ms + self._idle_ms <= now_ms:
                yield key, cached.windower
                cached.windower.log.drop_left()
                cached.windower.save()  # this drops its segments
                cached.windower = self._make(_KeyShelf(self._state, key))

    def next_due_ms(self) -> int | None:
        """The time before which no key is due; None if no key will be due."""
        return self._due.first()

    @property
    def waits(self) -> bool:
        """See ``Windower``, for all keys: windows that repeat wait if tuples have arrived since they fired."""
        return not self._repeats or self._news

    @property
    def is_touched(self) -> bool:
        """Whether there is anything to save."""
        return bool(self._touched)

    def all(self) -> Iterator[tuple[Any, Windower]]:
        """Yield every key with its window; this loads all windows."""
        assert self._state is not None
        for name, _ in list(self._state):
            if name[0] == "window":
                yield name[1], self._of(name[1]).windower

    def settle(self, passed_ms: int) -> None:
        """List the touched keys by the time at which they are due.

        If keys were touched, call this before ``due``, ``next_due_ms`` and ``save``.

        Args:
            passed_ms: the time, or the watermark. A key whose slot has begun is listed by its exact time, since
                otherwise it would be checked again and again until then. The same holds for a key whose idle time ends
                in a slot that has begun.
        """
        for key, cached in self._touched.items():
            self._list(key, cached, passed_ms)

    def _list(self, key: Any, cached: _CachedWindow, passed_ms: int) -> None:
        due = None if cached.windower.is_empty else cached.windower.due_ms()
        slot = None if due is None else self._due.slot_of(due)
        if due is not None and slot is not None and slot <= passed_ms:
            slot = due
        if slot is not None and (cached.slot is None or slot < cached.slot):
            self._due.add(slot, key)
            cached.slot = slot
        if self._idle_ms is not None and cached.idle_slot is None and not cached.windower.is_replaceable:
            slot = self._idle.slot_of(cached.touched_ms)
            cached.idle_slot = cached.touched_ms if slot + self._idle_ms <= self._now_ms else slot
            self._idle.add(cached.idle_slot, key)

    def realign(
        self, make: Callable[[Shelf], Windower], quantum_ms: int, passed_ms: int, *, repeats: bool
    ) -> Iterator[tuple[Any, Windower, Windower]]:
        """Replace the windows by windows with other settings; yields each key, with its old window and its new one.

        Before the next key is asked for, the caller lets the new window take over the tuples of the old one. One key
        after the other is in memory. The arguments are those of the constructor and of ``settle``.
        """
        state = self._state
        assert state is not None
        before, self._due = self._due, DueKeys("due", quantum_ms)
        for _ in before.pop(state, AFTER_ALL):
            continue
        self._due.load(before.save(state))
        self._repeats, self._news = repeats, True
        for name, _ in list(state):
            if name[0] != "window":
                continue
            key = name[1]
            cached = self._of(key)
            old, cached.windower, cached.slot = cached.windower, make(_KeyShelf(state, key)), None
            yield key, old, cached.windower
            self._list(key, cached, passed_ms)
            self._store(key, cached)
            del self._touched[key]
            self._trim()
        self._make = make

    def save(self) -> Any:
        """Write the touched windows; return the argument of ``attach``."""
        state = self._state
        assert state is not None
        for key, cached in self._touched.items():
            self._store(key, cached)
        self._touched.clear()
        self._trim()
        return self._due.save(state), self._idle.save(state), self._news

    def _store(self, key: Any, cached: _CachedWindow) -> None:
        state = self._state
        assert state is not None
        is_replaceable = cached.windower.is_replaceable
        if is_replaceable:
            cached.windower.log.drop_left()
        window = cached.windower.save()
        if is_replaceable:
            if cached.data is not None:
                state.delete(("window", key))
            cached.data = None
            return
        cached.data = pickle.dumps((cached.slot, cached.idle_slot, cached.touched_ms, window), 5)
        state.put(("window", key), cached.data)
        self._cached[key] = cached

    def _trim(self) -> None:
        while len(self._cached) > CACHED_KEYS_MAX:
            self._cached.popitem(last=False)

    def release(self, keep: int) -> None:
        """Keep about ``keep`` tuples in memory."""
        held = 0
        for key in reversed(list(self._cached)):
            held += self._cached[key].windower.held
            if held > keep:
                del self._cached[key]
