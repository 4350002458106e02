"""Plans of dead letters: which messages that are given up are read with the next micro-batch.

Which question it answers: which entries does a plan have for the dead letters that wait?

Rule 1: a plan stays small: it takes so many letters, with so many characters of stories; the others wait.
Rule 2: letters that are tried for the first time are written together. One that was tried before has an entry of its
own, so that it fails, or is written, alone.

Read before: ``plan``, ``partition_manager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparkbolt.core.partition_manager import Retry
from sparkbolt.core.plan import Entry

LETTERS_PER_ENTRY_MAX = 100
LETTERS_PER_PLAN_MAX = 1000
LETTER_CHARACTERS_PER_PLAN_MAX = 1 << 20


def letter_entries(retries: Iterable[Retry], next_letter: Callable[[int], int]) -> list[Entry]:
    """The entries for what of ``retries`` waits for dead letters.

    Args:
        retries: what is due, the longest first.
        next_letter: the first sequence of a task that is free for dead letters.

    >>> again = [Retry(1, "a.txt", at, attempt, letter="{}") for at, attempt in ((10, 1), (50, 2), (20, 1))]
    >>> [(entry.base, entry.positions) for entry in letter_entries(again, lambda task: 100)]
    [(100, (10, 20)), (102, (50,))]
    """
    groups: dict[tuple[int, str, int, int], list[tuple[int, str]]] = {}
    count = size = 0
    for retry in retries:
        if retry.letter is None:
            continue
        if count == LETTERS_PER_PLAN_MAX or size > LETTER_CHARACTERS_PER_PLAN_MAX:
            break
        count, size = count + 1, size + len(retry.letter)
        alone = count // LETTERS_PER_ENTRY_MAX if retry.attempt == 1 else LETTERS_PER_PLAN_MAX + count
        groups.setdefault((retry.task, retry.source, retry.attempt, alone), []).append((retry.position, retry.letter))
    entries: list[Entry] = []
    bases: dict[int, int] = {}
    for (task, source, attempt, _), waiting in groups.items():
        positions, letters = tuple(position for position, _ in waiting), tuple(letter for _, letter in waiting)
        base = bases.get(task, next_letter(task))
        bases[task] = base + len(positions)
        first = positions[0]
        entries.append(Entry(task, base, source, first, first + 1, attempt, positions, letters=letters))
    return entries
