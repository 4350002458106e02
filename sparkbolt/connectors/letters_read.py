"""The contents of a store of dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sparkbolt.api.dead_letters import DeadLetter

Place = TypeVar("Place", int, str)


@dataclass
class LettersRead(Generic[Place]):
    """The letters of a store, and the other entries in it."""

    letters: list[DeadLetter] = field(default_factory=list)
    """Each id once, in the order of the store."""
    repeated: int = 0
    """Number of letters that are in an earlier place already."""
    damaged: list[Place] = field(default_factory=list)
    """The places that hold no letter."""
    _ids: set[str] = field(default_factory=set, repr=False)

    def add(self, place: Place, read: Callable[[], DeadLetter]) -> None:
        """Add the letter at a place; ``read`` raises ``ValueError`` or ``RecursionError`` if there is none."""
        try:
            letter = read()
        except (ValueError, RecursionError):
            self.damaged.append(place)
            return
        if letter.id in self._ids:
            self.repeated += 1
        else:
            self._ids.add(letter.id)
            self.letters.append(letter)
