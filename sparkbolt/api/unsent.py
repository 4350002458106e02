"""Unsent messages: the messages that bolts record in a rehearsal instead of sending them to a server.

A message is recorded before its tuple is acked; the messages of a component are in the order of recording.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from sparkbolt.api.components import TopologyContext

FOLDER = ".unsent"
"""The folder in the directory of a rehearsal; it has one file for each component."""


def note_unsent(context: TopologyContext, message: Mapping[str, Any]) -> None:
    """Record a message of a task in a rehearsal.

    Args:
        context: the context of the task.
        message: the parts of the message by name; all must be picklable.
    """
    assert context.rehearsal_directory is not None, "on Spark messages are sent"
    folder = os.path.join(context.rehearsal_directory, FOLDER)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, quote(context.component, safe="")), "ab") as file:
        pickle.dump(dict(message), file)


def unsent_messages(directory: str) -> dict[str, list[dict[str, Any]]]:
    """Return the messages that were recorded in the directory of a rehearsal, by component."""
    folder = os.path.join(directory, FOLDER)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        messages = found[unquote(name)] = []
        with open(os.path.join(folder, name), "rb") as file:
            while file.peek(1):
                messages.append(pickle.load(file))
    return found
