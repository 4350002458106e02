"""How many examples a test of Hypothesis takes that names a number of its own."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Examples in the profiles that are not quick, for a test that names no number."""


def examples(number: int) -> int:
    """``number``, and as large a part of it as the profile takes of the usual number: a fifth in ``quick``."""
    return -(-number * settings().max_examples // USUAL)
