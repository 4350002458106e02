"""Unsent messages: what bolts note in a rehearsal instead of sending it to a server.

Which question it answers: what would a bolt have sent, if its topology were not only tried?
Rule: a message is noted before its tuple is acked; the messages of a component stand in the order of their notes.

Read before: ``components``.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from sparkbolt.core.model.components import TopologyContext

FOLDER = ".unsent"
"""In the directory of a rehearsal; a file for each component."""


def note_unsent(context: TopologyContext, message: Mapping[str, Any]) -> None:
    """Note a message of a task that is in a rehearsal.

    Args:
        context: of the task.
        message: its parts by their names, all of which can be pickled.
    """
    assert context.rehearsal_directory is not None, "on Spark messages are sent"
    folder = os.path.join(context.rehearsal_directory, FOLDER)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, quote(context.component, safe="")), "ab") as file:
        pickle.dump(dict(message), file)


def unsent_messages(directory: str) -> dict[str, list[dict[str, Any]]]:
    """By component, what was noted in the directory of a rehearsal."""
    folder = os.path.join(directory, FOLDER)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        messages = found[unquote(name)] = []
        with open(os.path.join(folder, name), "rb") as file:
            while file.peek(1):
                messages.append(pickle.load(file))
    return found
