"""Forgetting: tuples that bolts still hold for a driver that is dead.

Which question it answers: what becomes of a held tuple when nobody waits for it any more?
Rule: a tuple all of whose trees are void is taken out of the dicts, lists, sets and deques in which a bolt keeps it,
before the bolt sees the next tuple: its message comes again under a new root, and must not meet its own ghost.

What is inside objects of other kinds is looked through by their attributes; what is in a ``KeyValueState`` stays.
Read before: ``tuples``, ``ids``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

from sparkbolt.core.base.exceptions import pass_on
from sparkbolt.core.base.ids import split_key, unmix64
from sparkbolt.core.model.pickling import attributes_of
from sparkbolt.core.model.tuples import Tuple


def forget_in(instance: object, void: Mapping[int, int]) -> int:
    """``forget`` in all attributes of a bolt, those in ``__slots__`` too."""
    attributes = attributes_of(instance)
    before = dict(attributes)
    found = forget(attributes, void)
    for name, value in attributes.items():
        if value is not before[name]:
            setattr(instance, name, value)
    return found


def forget(attributes: MutableMapping[str, Any], void: Mapping[int, int]) -> int:
    """Take void tuples out of attributes and whatever they contain.

    Args:
        attributes: a bolt's ``__dict__``; an attribute that is such a tuple itself becomes None.
        void: by task number, the sequence below which trees are void.

    Returns:
        How many places held one.
    """
    seen: set[int] = set()

    def is_void(value: Any) -> bool:
        if not isinstance(value, Tuple):
            return False
        keys = [split_key(unmix64(root)) for root, _ in value.anchors]
        return bool(keys) and all(sequence < void.get(task, 0) for task, sequence in keys)

    found = 0
    waiting: deque[Any] = deque()  # not by recursion: a value may be nested deeper than Python's stack
    for name, value in attributes.items():
        if is_void(value):
            attributes[name] = None
            found += 1
        else:
            waiting.append(value)
    while waiting:
        value = waiting.popleft()
        if value is None or isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        try:
            lost, inside = _clean(value, is_void)
        except BaseException as error:  # noqa: BLE001  a container of the user's own may raise anything, and keeps what it has
            pass_on(error)
            continue
        found += lost
        waiting.extend(inside)
    return found


_LEAVES = (str, bytes, int, float, Tuple, type)


def _clean(value: Any, is_void: Callable[[Any], bool]) -> tuple[int, Iterable[Any]]:
    """Clean one container: how many it has lost, and what is in it."""
    if isinstance(value, MutableMapping):
        gone = [key for key, held in value.items() if is_void(held) or is_void(key)]
        for key in gone:
            del value[key]
        return len(gone), list(value.values())
    if isinstance(value, MutableSet):
        voids = [held for held in value if is_void(held)]
        for held in voids:
            value.discard(held)
        return len(voids), list(value)
    if isinstance(value, MutableSequence | deque):
        kept = [held for held in value if not is_void(held)]
        lost = len(value) - len(kept)
        if lost:
            value.clear()
            value.extend(kept)
        return lost, kept
    if isinstance(value, tuple):
        return 0, value
    inner = getattr(value, "__dict__", None)
    return 0, [inner] if isinstance(inner, dict) else ()
