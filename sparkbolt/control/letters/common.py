"""Common: the results that all stores of dead letters return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sparkbolt.api.dead_letters import DeadLetter

ID_CHARACTERS_SHOWN = 12
_SHOWN_MAX = 5


@dataclass
class LettersFound:
    """The content of a store of dead letters."""

    letters: list[DeadLetter]
    """The letters; each id occurs once."""
    repeated: int
    """How many lines or messages repeat a letter with the same id."""
    damaged: list[str]
    """The positions of the lines or messages that are not valid letters, in words."""
    what: str = "line"
    """The word for the container of one letter: ``line`` or ``message``."""

    @property
    def damage(self) -> str | None:
        """A sentence about the invalid lines or messages that were skipped; None if there are none.

        >>> LettersFound([], 0, ["line 2", "line 7"]).damage
        '2 line(s) are not letters and were skipped: line 2, line 7'
        """
        if not self.damaged:
            return None
        where = ", ".join(self.damaged[:_SHOWN_MAX]) + (" ..." if len(self.damaged) > _SHOWN_MAX else "")
        return f"{len(self.damaged)} {self.what}(s) are not letters and were skipped: {where}"


@dataclass
class Replay:
    """The result of a replay: which letters were replayed, and which were not."""

    tuples: int = 0
    ids: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """A sentence for each letter that could not be replayed."""


def newest_letters(letters: Iterable[DeadLetter], last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
    """The last of the letters that are wanted, each id once, in their order; at most ``last`` are held."""
    found: dict[str, DeadLetter] = {}
    for letter in letters:
        if wanted(letter) and letter.id not in found:
            found[letter.id] = letter
            if len(found) > last:
                del found[next(iter(found))]
    return list(found.values())


def letters_named(letters: Iterable[DeadLetter], ids: Collection[str]) -> list[DeadLetter]:
    """The letters with these ids, each once."""
    found: dict[str, DeadLetter] = {}
    for letter in letters:
        if letter.id in ids and letter.id not in found:
            found[letter.id] = letter
            if len(found) == len(ids):
                break
    return list(found.values())
