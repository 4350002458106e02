"""Loops: runs a topology in a separate thread if an event loop runs in the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import ParamSpec, TypeVar

from sparkbolt.base.tracebacks import Folding

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_of_loops(act: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function like ``act``, which runs in a separate thread if an event loop runs in the caller's."""

    @wraps(act)
    def moved(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        __tracebackhide__ = True  # for pytest
        with Folding():
            if asyncio._get_running_loop() is None:
                return act(*arguments, **options)
            with ThreadPoolExecutor(1) as own:
                return own.submit(act, *arguments, **options).result()

    return moved
