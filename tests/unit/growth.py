"""Growth by counting: how many calls a call makes, at several sizes. No clock is read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

MORE = 8


def calls_of(call: Callable[[], object]) -> int:
    """How many functions, of Python and of C, a call calls."""
    count = 0

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


def assert_flat(cost: Callable[[int], int], size: int) -> None:
    """The cost at eight times the size is the same."""
    few, many = cost(size), cost(MORE * size)
    assert many <= 1.1 * few, f"{few} calls at {size:,}, {many} at {MORE * size:,}"


def assert_linear(cost: Callable[[int], int], size: int) -> None:
    """The cost at eight times the size is at most eight times as much."""
    few, many = cost(size), cost(MORE * size)
    assert many <= 1.1 * MORE * few, f"{few} calls at {size:,}, {many} at {MORE * size:,}"
