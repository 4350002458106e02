"""Retry entries: which messages the next micro-batch retries, and which it reads for their dead letters.

Rule 1: records of one source that are at the same attempt share an entry. A range that could not be read is an entry of
its own.
Rule 2: a plan stays small: the number of dead letters and of their characters is limited; the others wait.
Rule 3: dead letters at their first attempt are written together. A dead letter at a later attempt has its own entry, so
that it alone succeeds or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparkbolt.driver.ledger.retry_schedule import Retry
from sparkbolt.wire.plan import Entry

LETTERS_PER_ENTRY_MAX = 100
LETTERS_PER_PLAN_MAX = 1000
LETTERS_ALONE_PER_PLAN_MAX = 50
LETTER_CHARACTERS_PER_PLAN_MAX = 1 << 20


def retry_entries(
    retries: Iterable[Retry], base_of: Callable[[int, int], int], reads_once: Callable[[int], bool]
) -> list[Entry]:
    """The entries for the retries that are not dead letters.

    Args:
        retries: what is due.
        base_of: reserves a number of sequences for a task, and returns the first of them.
        reads_once: whether the spout of a task emits each record at most once.

    >>> again = [Retry(1, "a.txt", 10, 2), Retry(1, "a.txt", 50, 2), Retry(1, "a.txt", 60, 2, end=90)]
    >>> found = retry_entries(again, lambda task, reserve: 7, lambda task: False)
    >>> [(entry.start, entry.end, entry.positions) for entry in found]
    [(60, 90, None), (10, 11, (10, 50))]
    """
    grouped: dict[tuple[int, str | None, int], list[int]] = {}
    entries = []
    for retry in retries:
        if retry.letter is not None:
            continue
        if retry.end is None:
            grouped.setdefault((retry.task, retry.source, retry.attempt), []).append(retry.position)
        else:
            base, once = base_of(retry.task, retry.end - retry.position), reads_once(retry.task)
            entries.append(Entry(retry.task, base, retry.source, retry.position, retry.end, retry.attempt, once=once))
    for (task, source, attempt), positions in grouped.items():
        base, first = base_of(task, len(positions)), positions[0]
        entries.append(Entry(task, base, source, first, first + 1, attempt, tuple(positions)))
    return entries


def letter_entries(retries: Iterable[Retry], next_letter: Callable[[int], int]) -> list[Entry]:
    """The entries for the retries that wait for dead letters.

    Args:
        retries: what is due, the longest first.
        next_letter: returns the first sequence of a task that is free for dead letters.

    >>> again = [Retry(1, "a.txt", at, attempt, letter="{}") for at, attempt in ((10, 1), (50, 2), (20, 1))]
    >>> [(entry.base, entry.positions) for entry in letter_entries(again, lambda task: 100)]
    [(100, (10, 20)), (102, (50,))]
    """
    groups: dict[tuple[int, str | None, int, int], list[tuple[int, str]]] = {}
    count = size = lone = 0
    for retry in retries:
        if retry.letter is None or (retry.attempt > 1 and lone == LETTERS_ALONE_PER_PLAN_MAX):
            continue
        lone += retry.attempt > 1
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
