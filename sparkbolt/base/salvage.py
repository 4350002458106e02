"""Salvage: reads a pickled column with some unreadable values, such as an exception with two arguments.

It runs the unpickler of the standard library that is written in Python. If a step raises, a ``_Lost`` takes the place
of its result; each value is then pickled again, which finds a ``_Lost`` anywhere within it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sparkbolt.base.exceptions import line_of, pass_on


class _Lost:
    """Takes the place of an object that could not be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __reduce__(self) -> Any:
        raise _LostError(self.reason)


class _LostError(Exception):
    """The object that is being pickled contains a ``_Lost``."""


Step = Callable[[Any], None]


def _forgiving(step: Step, drops: int, *, replaces: bool) -> Step:
    """Return a step of the unpickler that leaves a ``_Lost`` instead of raising.

    Args:
        step: the original step.
        drops: how many objects it takes from the stack; -1 means all above the last mark.
        replaces: whether it changes the object below them; if not, it puts a new object on the stack.
    """

    def forgiving(self: Any) -> None:
        stack, below = self.stack, self.metastack[-1] if drops < 0 and self.metastack else None
        depth = len(stack)
        try:
            step(self)
        except (EOFError, pickle.UnpicklingError):
            raise
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            pass_on(error)
            lost = _Lost(line_of(error))
            if below is not None:
                if self.stack is stack:  # the mark is still there
                    self.pop_mark()
            else:
                del self.stack[max(0, depth - drops) :]
            if replaces:
                broken = self.stack[-1]
                self.stack[-1] = lost
                for place, thing in self.memo.items():
                    if thing is broken:
                        self.memo[place] = lost
            else:
                self.append(lost)

    return forgiving


class _Forgiving(pickle._Unpickler):
    """An unpickler that continues after a step that raises."""

    dispatch: ClassVar[dict[int, Step]] = dict(pickle._Unpickler.dispatch)


_RESULTS = {
    pickle.REDUCE: 2,
    pickle.NEWOBJ: 2,
    pickle.NEWOBJ_EX: 3,
    pickle.STACK_GLOBAL: 2,
    pickle.GLOBAL: 0,
    pickle.INST: -1,
    pickle.OBJ: -1,
    pickle.FROZENSET: -1,
    pickle.DICT: -1,
    pickle.EXT1: 0,
    pickle.EXT2: 0,
    pickle.EXT4: 0,
}
"""Steps that make an object, and the number of objects that each takes from the stack."""
_CHANGES = {
    pickle.BUILD: 1,
    pickle.APPEND: 1,
    pickle.APPENDS: -1,
    pickle.SETITEM: 2,
    pickle.SETITEMS: -1,
    pickle.ADDITEMS: -1,
}
"""Steps that change the object below those that they take from the stack, and the number that each takes."""
for _codes, _replaces in ((_RESULTS, False), (_CHANGES, True)):
    for _code, _drops in _codes.items():
        _Forgiving.dispatch[_code[0]] = _forgiving(_Forgiving.dispatch[_code[0]], _drops, replaces=_replaces)


def salvage(data: bytes) -> tuple[Sequence[Any], dict[int, str]]:
    """Return the values of a pickled list, and the reason for each lost value by its index.

    Raises:
        pickle.UnpicklingError, EOFError: the bytes are not a pickle.

    >>> class Odd(Exception):
    ...     def __init__(self, one, two):
    ...         super().__init__(one)
    >>> import sys
    >>> Odd.__qualname__ = "SalvagedOdd"
    >>> sys.modules[Odd.__module__].SalvagedOdd = Odd
    >>> values, lost = salvage(pickle.dumps([1, Odd(1, 2), [3]]))
    >>> values[0], values[2], list(lost)
    (1, [3], [1])
    """
    values = _Forgiving(io.BytesIO(data)).load()
    lost = {}
    for index, value in enumerate(values):
        try:
            pickle.dumps(value, protocol=5)
        except _LostError as error:
            lost[index] = str(error)
        except BaseException as error:  # noqa: BLE001  the value cannot be pickled, but it was read: it is not lost
            pass_on(error)
            continue
    return values, lost
