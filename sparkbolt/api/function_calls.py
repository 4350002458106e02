"""Function calls: a function of the user with the arguments with which a spout calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SHARE = ("index", "parallelism")
"""The parameters by which a function reads the share of one of several tasks."""


@dataclass(frozen=True)
class FunctionCall:
    """A function, and the arguments that are bound so far.

    If the function has parameters named ``index`` and ``parallelism``, each task passes its own.

    >>> FunctionCall(range).with_arguments((0, 10), {})(), FunctionCall(lambda index, parallelism: index)(1, 2)
    (range(0, 10), 1)
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the signature, which may hold what cannot be pickled."""
        return {"function": self.function, "arguments": self.arguments, "options": self.options}

    @property
    def shares(self) -> bool:
        """Whether each task reads a share of its own."""
        return self._signature is not None and {*SHARE} <= {*self._signature.parameters} - {*self.options}

    def with_arguments(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> FunctionCall:
        """Return a call with these arguments.

        Raises:
            TypeError: the function cannot be called with them.
        """
        if self._signature is not None:
            self._signature.bind_partial(*arguments, **options)
        return FunctionCall(self.function, arguments, dict(options))

    def __call__(self, *share: int) -> Any:
        """Call the function; ``share`` is (index, parallelism) if it reads shares, otherwise empty."""
        return self.function(*self.arguments, **self.options, **dict(zip(SHARE, share, strict=False)))

    def mistake(self) -> str | None:
        """Return why the function cannot be called, in a sentence; None if it can."""
        if self._signature is None:
            return None
        share = dict.fromkeys(SHARE, 0) if self.shares else {}
        try:
            self._signature.bind(*self.arguments, **self.options, **share)
        except TypeError as error:
            name = getattr(self.function, "__name__", "function")
            return f"its function {name} cannot be called: {error}; write {name}(...) with its arguments"
        return None
