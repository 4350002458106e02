"""Salvage: a pickled column of which some values cannot be read.

Which question it answers: which values of a list that was pickled as a whole raise when they are read, and what are
the others?
Rule 1: a value is lost if, and only if, reading something in it raises: an exception class whose ``__init__`` takes
two arguments, a ``__setstate__`` that refuses, a class that this process cannot import, a ``__hash__`` that raises.
Rule 2: it costs nothing where nothing is lost: the column is read again here only after ``pickle.loads`` has raised.

Rejected: reading everything back where it is written, which doubles the price of pickled columns and proves nothing
for another process; a pickle a value, which costs twice the time for small ones.

How: the interpreter's own unpickler in Python, whose steps are taken one by one; a step that raises leaves a
``_Lost`` where its result would be, and everything that is made of that. Values are then pickled once more, which
finds what is lost in them wherever it is.
Read before: nothing.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sparkbolt.core.base.exceptions import line_of, pass_on


class _Lost:
    """Stands for what could not be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __reduce__(self) -> Any:
        raise _LostError(self.reason)


class _LostError(Exception):
    """Something lost is in what is being pickled."""


Step = Callable[[Any], None]


def _forgiving(step: Step, drops: int, *, replaces: bool) -> Step:
    """A step of the unpickler that does not raise.

    Args:
        step: the step.
        drops: how many objects it takes from the stack; -1: all down to the last mark.
        replaces: whether what lies under them then is what it has changed; else it adds a result.
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
                for place, known in self.memo.items():
                    if known is broken:
                        self.memo[place] = lost
            else:
                self.append(lost)

    return forgiving


class _Forgiving(pickle._Unpickler):
    """Reads on where reading raises."""

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
"""What makes an object, and of how many that are on the stack."""
_CHANGES = {
    pickle.BUILD: 1,
    pickle.APPEND: 1,
    pickle.APPENDS: -1,
    pickle.SETITEM: 2,
    pickle.SETITEMS: -1,
    pickle.ADDITEMS: -1,
}
"""What changes the object under those that it takes."""
for _codes, _replaces in ((_RESULTS, False), (_CHANGES, True)):
    for _code, _drops in _codes.items():
        _Forgiving.dispatch[_code[0]] = _forgiving(_Forgiving.dispatch[_code[0]], _drops, replaces=_replaces)


def salvage(data: bytes) -> tuple[Sequence[Any], dict[int, str]]:
    """The values of a pickled list, and by index why those cannot be read that are lost.

    Raises:
        pickle.UnpicklingError, EOFError: the bytes are no pickle.

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
        except BaseException as error:  # noqa: BLE001  it was read, which is all that is asked here
            pass_on(error)
            continue
    return values, lost
