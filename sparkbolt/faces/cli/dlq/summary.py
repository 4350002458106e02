"""Summary: the lines about messages that were given up: how many, where they are, and how to give them back.

You can copy every command in them as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from sparkbolt.api.dead_letters import CHECKPOINT, stream_of
from sparkbolt.api.topology import Topology
from sparkbolt.connectors.files.dead_letter_files import FileDeadLetters
from sparkbolt.driver.ledger.ledger_files import KEPT_LETTERS


def given_up_lines(given_up: Mapping[str, int], topology: Topology | None, letters_directory: str) -> Iterator[str]:
    """One sentence for each spout whose messages a run has given up.

    Args:
        given_up: how many messages of each spout.
        topology: the topology; None if it was never loaded.
        letters_directory: the directory of the checkpoint's dead letters.
    """
    if topology is None:
        return
    for spout, count in sorted(given_up.items()):
        place = _place(topology, spout, letters_directory)
        if place.startswith("!"):
            how_many = f"{count:,} messages of {spout} were" if count != 1 else f"1 message of {spout} was"
            yield f"{how_many} given up: {place[1:]}"
        else:
            how_many = f"{count:,} dead letters of {spout} are" if count != 1 else f"1 dead letter of {spout} is"
            yield f"{how_many} waiting: {_what_to_do(place, spout, can_return=_can_return(letters_directory))}"


def _can_return(letters_directory: str) -> bool:
    """Whether a later start with the same checkpoint can take letters back."""
    return not any(part.startswith(KEPT_LETTERS) for part in letters_directory.split("/"))


def _place(topology: Topology, spout: str, letters_directory: str) -> str:
    spec = topology.components[spout]
    way = spec.dead_letters
    if way == CHECKPOINT:
        return letters_directory
    if isinstance(way, FileDeadLetters):
        return way.path
    name = stream_of(way)
    if name is not None:
        return f"!their dead letters went to stream {name!r}"
    if way is not None:
        topic, brokers = getattr(way, "topic", None), getattr(getattr(way, "settings", None), "brokers", None)
        if topic is not None and brokers is not None:
            return f"kafka:{brokers}/{topic}"
        return f"!their dead letters went to {type(way).__name__}"
    whose = "them" if spec.is_spout else "messages of bolts"
    return f"!the log and `sparkbolt errors` show them; Sparkbolt does not keep {whose}"


def _what_to_do(place: str, spout: str, *, can_return: bool) -> str:
    where = shlex.quote(place)
    into = "" if can_return or place.startswith("kafka:") else " --into FILE"
    return (
        f"list them with `sparkbolt dlq list {where}`, give them back with `sparkbolt dlq replay "
        f"{where} --spout {shlex.quote(spout)}{into}`"
    )
