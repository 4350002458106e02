"""Function bolts: turns a function into a bolt, by ``@bolt``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparkbolt.api.components import BoltBase
from sparkbolt.api.tuples import Outputs, Tuple
from sparkbolt.base.exceptions import printed


class FunctionBolt(BoltBase):
    """A bolt that ``@bolt`` makes from a function: stateless; its tuples are anchored and acked automatically."""

    stateless = True

    def __init__(self, function: Callable[[Tuple], Iterable[Sequence[Any]] | None], outputs: Outputs) -> None:
        """Store the function, which is pickled by name or by value."""
        functools.update_wrapper(self, function)
        self.function = function
        self.outputs = outputs

    def __call__(self, tup: Tuple) -> Iterable[Sequence[Any]] | None:
        """Call the function itself; useful in tests."""
        return self.function(tup)


def bolt(
    *misplaced: object, outputs: Outputs = ()
) -> Callable[[Callable[[Tuple], Iterable[Sequence[Any]] | None]], FunctionBolt]:
    """Make a bolt from a function that yields lists of values for the stream ``default``.

    Raises:
        TypeError: the decorator is used without parentheses, or ``outputs`` is given without its name.

    >>> @bolt(outputs=["word"])
    ... def split(tup):
    ...     for word in tup["line"].split():
    ...         yield [word]
    >>> list(split({"line": "to be"}))
    [['to'], ['be']]
    """
    if misplaced:
        what = "the parentheses are missing" if callable(misplaced[0]) else f"got {printed(misplaced[0]):.60}"
        raise TypeError(f"@bolt: {what}: write @bolt(outputs=[...]) above the function, or @bolt() if it emits nothing")

    def decorate(function: Callable[[Tuple], Iterable[Sequence[Any]] | None]) -> FunctionBolt:
        return FunctionBolt(function, outputs)

    return decorate
