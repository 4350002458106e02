"""Inlet moves: lets the sources of inlets go on in the Spark folder of a new generation.

    FOLDER/sources   what these sources have noted, copied from the folder of the generation before
    FOLDER/inlets    a JSON list of where they had come to with its last commit; written when the copy is complete

Spark begins each source of a new folder anew. So the first micro-batch of a generation, which takes over the state,
runs without the inlets, and the life ends with it. Before the next life reads the inlets, their ends are added to the
offsets that Spark has logged in the folder, and Spark goes on behind them.

Rule 1: the copy is complete before anything is committed in the new folder, so the old one may go at any time.
Rule 2: no life reads an inlet before its ends are in all offsets of the folder. Each step may be done again.
"""

from __future__ import annotations

import json

from sparkbolt.base.file_access import Files
from sparkbolt.driver.ledger.agreement import NO_END, logged_offset, with_inlets
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.transition import source_places
from sparkbolt.spark.checkpoint import Checkpoint

ENDS = "inlets"


def runs_without_inlets(checkpoint: Checkpoint) -> bool:
    """Whether the next query must leave the inlets out, and end after its first micro-batch; called before it starts.

    The files of the checkpoint are then ready for this query, or for one with the inlets.
    """
    last = checkpoint.last_commit()
    for generation in checkpoint.generations[-2:]:
        if generation.moves and last >= generation.base:
            _add_ends(checkpoint, generation)
    generation = checkpoint.generation
    if not generation.moves or last >= generation.base:
        return False
    if checkpoint.files.read(f"{generation.folder}/{ENDS}") is None:
        _carry(checkpoint, checkpoint.generations[-2], generation)
    return True


def _carry(checkpoint: Checkpoint, before: Generation, generation: Generation) -> None:
    """Copy what the sources have noted, and their ends, in the order that they have in the next generation."""
    files = checkpoint.files
    ends = logged_offset(checkpoint.log.read("offsets", generation.base - 1) or b"").inlets
    places = source_places(before, generation, len(ends))
    for place, source in enumerate(places):
        if source is not None:
            _copy(files, f"{before.folder}/sources/{source}", f"{generation.folder}/sources/{place}")
    moved = [NO_END if source is None else ends[source] for source in places]
    files.write(f"{generation.folder}/{ENDS}", json.dumps(moved).encode())


def _copy(files: Files, source: str, target: str) -> None:
    for name in files.names(source):
        if any(files.names(f"{source}/{name}")):
            _copy(files, f"{source}/{name}", f"{target}/{name}")
        else:
            data = files.read(f"{source}/{name}")
            if data is not None:
                files.write(f"{target}/{name}", data)


def _add_ends(checkpoint: Checkpoint, generation: Generation) -> None:
    name = f"{generation.folder}/{ENDS}"
    data = checkpoint.files.read(name)
    if data is None:
        return
    ends = tuple(json.loads(data))
    for number in checkpoint.log.numbers("offsets"):
        logged = checkpoint.log.read("offsets", number) or b""
        if number >= generation.base and not logged_offset(logged).inlets:
            checkpoint.files.write(checkpoint.log.name("offsets", number), with_inlets(logged, ends))
    checkpoint.files.remove(name)
