"""Seen: how many dead letters of a topology an operator has replayed or discarded, without reading the letters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from sparkbolt.api.dead_letters import CHECKPOINT, FILE
from sparkbolt.control.letters.stores import DISCARDED, REPLAYED
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER


def count_seen(places: Iterable[str], read: Callable[[str], bytes | None]) -> int:
    """How many letters were replayed or discarded, each counted once; those in topics are not counted.

    Args:
        places: where letters are, as in ``Description.letters``.
        read: reads a file of the checkpoint, or of the directory that has its dead letters.
    """
    found: set[str] = set()
    for place in set(places) or {CHECKPOINT}:
        for note in (REPLAYED, DISCARDED):
            if place == CHECKPOINT:
                found.update((read(f"{LETTERS_FOLDER}/{note[1:]}") or b"").decode("ascii", "replace").split())
            elif place.startswith(FILE):
                try:
                    with open(
                        os.path.expanduser(place[len(FILE) :]) + note, encoding="ascii", errors="replace"
                    ) as file:
                        found.update(file.read().split())
                except OSError:
                    continue
    return len(found)
