"""What the places of dead letters have in common for ``sparkbolt dlq``.

Which question it answers: what is told of letters, and of a replay, wherever the letters are?
Rule: it knows no place.

Read before: ``core.model.dead_letters``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkbolt.core.model.dead_letters import DeadLetter

ID_CHARACTERS_SHOWN = 12
_SHOWN_MAX = 5


@dataclass
class LettersFound:
    """What is in a place of dead letters."""

    letters: list[DeadLetter]
    """Each id once."""
    repeated: int
    """How many lines, or messages, hold a letter that is there already."""
    damaged: list[str]
    """Where the lines, or messages, stand that are no letters."""
    what: str = "line"
    """What a letter stands in."""

    @property
    def damage(self) -> str | None:
        """A sentence on what was passed over; None if that is nothing.

        >>> LettersFound([], 0, ["line 2", "line 7"]).damage
        '2 line(s) are no letters and were passed over: line 2, line 7'
        """
        if not self.damaged:
            return None
        where = ", ".join(self.damaged[:_SHOWN_MAX]) + (" ..." if len(self.damaged) > _SHOWN_MAX else "")
        return f"{len(self.damaged)} {self.what}(s) are no letters and were passed over: {where}"


@dataclass
class Replay:
    """What became of letters that were to be replayed."""

    tuples: int = 0
    ids: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """A sentence for each letter that could not be replayed."""
