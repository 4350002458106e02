"""Operator: the one way to ask about topologies, and to change them, from outside.

Which question it answers: which topologies are there, how is one of them, and what becomes of a request to change it?
Rule 1: command line, REST and UI ask here and nowhere else.
Rule 2: a topology that runs is asked; if it does not answer within ``ANSWER_SECS``, or has ended, its registration and
its checkpoint answer. Nothing here waits for a micro-batch.
Rule 3: nothing here raises for a topology in trouble: what cannot be known is None, empty, or a sentence in ``why``.

Read before: ``documents``, ``home``, ``client``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparkbolt.core.base.files import Files
from sparkbolt.operate.documents import (
    Answer,
    MicroBatchDocument,
    SeriesDocument,
    TopologyDocument,
    TopologyEntry,
)

ANSWER_SECS = 1.0


class Operator:
    """Asks topologies that are registered in one home, and checkpoints that are given by their path."""

    def __init__(self, home: str | None = None, *, open_files: Callable[[str], Files]) -> None:
        """Look into ``home``: a path or URL; None: ``SPARKBOLT_HOME``, or the user's own default.

        ``open_files`` opens the checkpoint of a path or URL for reading.
        """

    # What is known. TOPOLOGY is an id, a name (then the newest of that name, one that runs before others), or the
    # path of a checkpoint.

    def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        """All registered topologies: those that run first, then those that have ended, the newest first."""

    def find(self, topology: str) -> TopologyEntry:
        """The entry of a topology.

        Raises:
            UnknownTopologyError: none is registered under that name or id; the message names similar ones.
            AmbiguousTopologyError: two of that name run; the message names their ids.
        """

    def document(self, topology: str) -> TopologyDocument:
        """All about a topology."""

    def series(self, topology: str, since_ms: int | None = None, until_ms: int | None = None) -> SeriesDocument:
        """Its history between two moments (default: the last hour)."""

    def micro_batches(self, topology: str, last: int = 100) -> list[MicroBatchDocument]:
        """The newest micro-batches that were promoted, the newest last."""

    def stories(
        self, topology: str, state: str = "failed", *, search: str = "", last: int = 100
    ) -> list[dict[str, Any]]:
        """Trees as ``Story.to_json`` gives them: ``state`` is ``failed``, ``open`` or ``acked`` (traced ones).

        ``search`` is a part of a message id, a source, a root or a reason; an exact root, ``task[i]:sequence`` or
        ``source@position`` finds its tree in any state.
        """

    def story(self, topology: str, root: str) -> dict[str, Any] | None:
        """One tree: as in ``stories``, with ``other_attempts``; None if nothing is known of it."""

    def letters(
        self, topology: str, *, search: str = "", last: int = 100, replayed: bool = True
    ) -> list[dict[str, Any]]:
        """Its dead letters: ``DeadLetter.to_json`` with ``replayed`` (bool) and ``discarded`` (bool), the newest last."""

    def log(
        self, topology: str, *, component: str | None = None, search: str = "", last: int = 200
    ) -> list[dict[str, Any]]:
        """The newest lines of its log: ``time_ms``, ``level``, ``component``, ``task``, ``micro_batch``, ``root``,
        ``text``; the newest last. It reads the end of large files only."""

    # Changes. Each is written to the topology's events with ``by``.

    def activate(self, topology: str, *, by: str) -> Answer:
        """Let its spouts emit again."""

    def deactivate(self, topology: str, *, by: str) -> Answer:
        """Stop its spouts from emitting, until ``activate``, over restarts too."""

    def kill(self, topology: str, *, wait_secs: float | None = None, by: str) -> Answer:
        """Stop its spouts, let open trees finish for at most ``wait_secs`` (None: the message timeout), and end it."""

    def restart(self, topology: str, *, by: str) -> Answer:
        """End its query, and begin again from the checkpoint."""

    def set(self, topology: str, key: str, value: str, *, component: str | None = None, by: str) -> Answer:
        """Change a setting: ``log-level``, ``max-spout-pending``, ``micro-batch-target`` ...; it outlives a restart."""

    def rebalance(self, topology: str, *, by: str, **wanted: Any) -> Answer:
        """Say what can be changed by a restart, and refuse the rest as ``run`` does."""

    def trace(self, topology: str, message: str, *, component: str | None = None, by: str) -> Answer:
        """Record the hops of the messages with this id (or source@position) from now on."""

    def replay(self, topology: str, ids: Sequence[str], *, values: dict[str, Any] | None = None, by: str) -> Answer:
        """Give dead letters again; ``values`` replaces fields of a single one's record."""

    def discard(self, topology: str, ids: Sequence[str], *, by: str) -> Answer:
        """Mark dead letters as seen to: they are no longer listed as waiting."""
