"""What the places of dead letters have in common for ``sparkbolt dlq``.

Which question it answers: what is told of a replay, wherever the letters are?
Rule: it knows no place.

Read before: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ID_CHARACTERS_SHOWN = 12


@dataclass
class Replay:
    """What became of letters that were to be replayed."""

    tuples: int = 0
    ids: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """A sentence for each letter that could not be replayed."""
