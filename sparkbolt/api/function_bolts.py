"""Function bolts: turns a function into a bolt, by ``@bolt``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sparkbolt.api.components import BoltBase
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.tuples import Outputs
from sparkbolt.base.exceptions import printed


class FunctionBolt(BoltBase):
    """A bolt that ``@bolt`` makes from a function: stateless; its tuples are anchored and acked automatically."""

    stateless = True

    def __init__(self, function: Callable[[Any], Any], outputs: Outputs, inputs: Fields | None = None) -> None:
        """Store the function, which is pickled by name or by value."""
        functools.update_wrapper(self, function)
        self.function = function
        self.outputs = outputs
        self.inputs = inputs

    def __call__(self, tup: Any) -> Any:
        """Call the function itself; useful in tests."""
        return self.function(tup)


def bolt(
    *misplaced: object, outputs: Outputs = (), inputs: Fields | None = None
) -> Callable[[Callable[[Any], Any]], FunctionBolt]:
    """Make a bolt from a function that yields, or returns in a list, the values of tuples for the stream ``default``.

    Args:
        misplaced: nothing; an argument without a name is a mistake.
        outputs: the declared streams: see ``Component.outputs``.
        inputs: the fields that the function reads, if it declares them: see ``BoltBase.inputs``.

    Raises:
        TypeError: the decorator is used without parentheses, or ``outputs`` is given without its name.

    >>> @bolt(outputs=["word"])
    ... def split(tup):
    ...     for word in tup["line"].split():
    ...         yield {"word": word}
    >>> list(split({"line": "to be"}))
    [{'word': 'to'}, {'word': 'be'}]
    """
    if misplaced:
        what = "the parentheses are missing" if callable(misplaced[0]) else f"got {printed(misplaced[0]):.60}"
        raise TypeError(f"@bolt: {what}: write @bolt(outputs=[...]) above the function, or @bolt() if it emits nothing")

    def decorate(function: Callable[[Any], Any]) -> FunctionBolt:
        return FunctionBolt(function, outputs, inputs)

    return decorate
