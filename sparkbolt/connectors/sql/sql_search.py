"""Finds the items that a database refuses: rows that it does not accept, or keys for which it has no answer.

Rule 1: an error code never proves that the database is unavailable. Any row can raise any code, for example in a
trigger. An item is at fault if the database accepts another one after it has refused this one.
Rule 2: the other item belongs to the same call, or is the sample, which the database accepted before.
Rule 3: without such an item, several refused items mean that the database is unavailable. A single one is at fault if
the database passes a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from sparkbolt.connectors.sql.sql_link import Trouble, trouble_of

T = TypeVar("T", bound=Hashable)

SUSPECTS_MAX = 10
"""After how many items that may be at fault, with none that the database takes, the search ends."""


def find_refused(
    parts: Iterable[Sequence[T]],
    attempt: Callable[[Sequence[T]], Exception | None],
    refuse: Callable[[T, Exception], None],
    *,
    sample: Callable[[], bool | None],
    probe: Callable[[Exception], bool],
) -> None:
    """Attempt all items, in their order; halve a part that fails until the items at fault are alone.

    Args:
        parts: the items, by how many are attempted at once.
        attempt: attempts some; returns the error that the database, or its driver, has for them.
        refuse: called with each item at fault and its error.
        sample: whether the database takes an item now that it took before; None if none is known.
        probe: whether the database works, judged without an item that it has accepted.

    Raises:
        Exception: the database is unavailable, judged by its answers; this is its error.
    """
    suspects: dict[T, Exception] = {}
    waiting = list(parts)[::-1]
    while waiting:
        part = waiting.pop()
        error = attempt(part)
        if error is None:
            for item, suspected in suspects.items():
                refuse(item, suspected)
            suspects.clear()
            continue
        if getattr(error, "connection_invalidated", False):
            raise error
        is_well = trouble_of(error) is Trouble.ROW or sample()
        if is_well is False:
            raise error
        if len(part) > 1:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        elif is_well:
            refuse(part[0], error)
        else:
            suspects[part[0]] = error
            if len(suspects) >= SUSPECTS_MAX:
                raise error
    if suspects:
        (item, error), *others = suspects.items()
        if others or not probe(error):
            raise error
        refuse(item, error)
