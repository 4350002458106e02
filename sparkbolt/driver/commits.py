"""Commits: the rows of committers, from the micro-batch that made them to their ``commit``.

    commits/n.component   the rows that a committer has kept in micro-batch n, pickled one by one

Rule 1: the rows of micro-batch n are durable before its entry is staged, so before Spark commits n. They are committed
after Spark has committed n, and before n is promoted, so a spout gets no verdict before the rows are outside.
Rule 2: a file is removed when ``commit`` has returned. So if a file of a committed micro-batch exists, its rows may not
be outside, and the next life begins with it.
Rule 3: rows of a micro-batch that Spark has not committed do not count; when it runs again, it replaces them.
Rule 4: a component that has another id now commits the rows of before as the one that it was, so that a target which
has noted their txid by that id knows them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from sparkbolt.api.committers import CommittingBolt, txid_of
from sparkbolt.base.file_access import Files
from sparkbolt.driver.effects import Commit, Remove, Write
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.verdicts import KeptRows

FOLDER = "commits"
_MAGIC = b"SBC2"
_DIGEST_BYTES = 16


class Commits:
    """The commits of one life; not thread safe: the engine calls it under its lock."""

    def __init__(self, lane: Lane, files: Files, generations: Sequence[Generation] = ()) -> None:
        """Find the rows that earlier lives have left in ``files``, which are only read.

        Args:
            lane: the topology, laid out.
            files: the checkpoint's.
            generations: the checkpoint's, oldest first; they know the ids that components had.
        """
        self._generations = Generations(generations)
        self._order = [spec.id for spec in lane.topology.bolts if isinstance(spec.component, CommittingBolt)]
        self._files = files
        self._waiting = {_place(name) for name in files.names(FOLDER) if name.partition(".")[0].isdigit()}
        self._staged: dict[tuple[int, str], list[bytes]] = {}
        """The rows of the micro-batch that was staged last, which need not be read from their files."""

    @property
    def waits(self) -> bool:
        """Whether there are rows that are not known to be outside."""
        return bool(self._waiting)

    def stage(self, micro_batch_id: int, kept: Sequence[KeptRows]) -> Iterator[Write | Remove]:
        """Make the rows of a micro-batch durable; they replace those of an earlier run of it."""
        rows: dict[str, list[bytes]] = {}
        for part in kept:
            rows.setdefault(part.component, []).extend(part.rows)
        self._staged.clear()
        for component in self._order:
            if component in rows:
                place = micro_batch_id, component
                body = pickle.dumps(rows[component], protocol=5)
                yield Write(_name(place), _MAGIC + _digest(body) + body)
                self._waiting.add(place)
                self._staged[place] = rows[component]
        earlier = [place for place in self._waiting if place[0] == micro_batch_id and place[1] not in rows]
        for place in sorted(earlier):  # also of a committer that the topology had in the earlier run alone
            yield Remove(_name(place))
            self._waiting.remove(place)

    def settle(self, last_commit: int) -> Iterator[Commit | Remove]:
        """Commit all rows of micro-batches up to ``last_commit``, in the order of txids.

        Raises:
            CheckpointError: a file is damaged, or its component is no longer a committer.
        """
        due = [place for place in self._waiting if place[0] <= last_commit]
        for place in sorted(due, key=lambda place: (place[0], self._rank(place))):
            micro_batch_id, component = place
            rows = partial(_unpickled, self._staged.get(place) or self._load(place))
            today = self._today(place)
            yield Commit(today, txid_of(micro_batch_id), rows, component if component != today else None)
            yield Remove(_name(place))
            self._waiting.remove(place)
            self._staged.pop(place, None)

    def _rank(self, place: tuple[int, str]) -> int:
        today = self._today(place)
        if today not in self._order:
            micro_batch_id, component = place
            raise CheckpointError(
                f"{_name(place)} has rows of {component!r} which are not committed yet, and the topology has no "
                f"committer of that name, nor one with renamed_from={component!r}: start it once as it was, so that "
                f"it commits txid {txid_of(micro_batch_id)}, or remove the file"
            )
        return self._order.index(today)

    def _today(self, place: tuple[int, str]) -> str:
        micro_batch_id, component = place
        return self._generations.id_today(component, micro_batch_id)

    def _load(self, place: tuple[int, str]) -> list[bytes]:
        rows: list[bytes] = pickle.loads(_body(self._files, place))
        return rows


def waiting_rows(files: Files) -> tuple[list[str], list[str]]:
    """The files of a checkpoint whose rows may not be outside yet, and the damage in them, in sentences."""
    places = sorted(_place(name) for name in files.names(FOLDER) if name.partition(".")[0].isdigit())
    wrong = []
    for place in places:
        try:
            _body(files, place)
        except CheckpointError as error:
            wrong.append(str(error))
    return [_name(place) for place in places], wrong


def _body(files: Files, place: tuple[int, str]) -> bytes:
    """The pickled rows of a file.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    name = _name(place)
    data = files.read(name)
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:] if data is not None else b""
    if data is None or data[:start] != _MAGIC + _digest(body):
        raise CheckpointError(
            f"{name} is missing or damaged: it has the rows that txid {txid_of(place[0])} of {place[1]!r} commits, and "
            "nothing is committed before them; restore the file, or remove it to give these rows up"
        )
    return body


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _unpickled(rows: Sequence[bytes]) -> list[Any]:
    return [pickle.loads(row) for row in rows]


def _name(place: tuple[int, str]) -> str:
    return f"{FOLDER}/{place[0]}.{place[1]}"


def _place(name: str) -> tuple[int, str]:
    number, _, component = name.partition(".")
    return int(number), component
