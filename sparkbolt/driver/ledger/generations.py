"""Generations: the shapes that a checkpoint's topology has had, and where Spark's log of each is.

A generation is the topology with one shape and one layout. It begins behind a commit, at its ``base``: all
micro-batches before it belong to the generations before. Its numbers (``Numbering``) go on from theirs.

If the levels that keep state stay as they were, a generation goes on in Spark's folder of the one before. Otherwise it
has a folder of its own, which Spark numbers from 0, and its first micro-batch takes over the state.

Rule 1: a generation that has committed nothing may be dropped: the one before it, with its folder, is still whole.
Rule 2: a micro-batch counts if the generation that it belongs to has committed it.
Rule 3: neither the number of a generation nor its folder is used again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.api.numbering import Numbering
from sparkbolt.base.file_access import Files
from sparkbolt.errors import CheckpointError

TOPOLOGY_FILE = "topology"
FIRST_FOLDER = "spark"
TOPOLOGY_MISSING = "committed micro-batches but no file 'topology'"


@dataclass(frozen=True)
class Generation:
    """One shape of the topology, as the file ``topology`` has it."""

    number: int = 0
    base: int = 0
    """Its first micro-batch."""
    folder: str = FIRST_FOLDER
    """The folder of Spark's checkpoint."""
    first: int = 0
    """The micro-batch that is Spark's number 0 in that folder."""
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    """Where its tasks are (``Lane.placement``)."""
    numbering: Numbering = field(default_factory=Numbering)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """By id in the generation before: the id in this one, for the components that have another."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """What its ledger knows about it (``ledger_settings.described``)."""

    @property
    def moves(self) -> bool:
        """Whether its first micro-batch takes over the state of the generation before."""
        return self.base > 0 and self.base == self.first

    def lacks_some_of(self, before: Generation) -> bool:
        """Whether a component of another generation has fewer tasks here, or none of this id."""
        tasks = {id_: one["parallelism"] for id_, one in self.fingerprint.get("components", {}).items()}
        had = before.fingerprint.get("components", {})
        return any(tasks.get(id_, 0) < one["parallelism"] for id_, one in had.items())

    def to_json(self) -> dict[str, Any]:
        """A JSON object, which ``from_json`` reads."""
        return {**vars(self), "numbering": self.numbering.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Generation:
        """The inverse of ``to_json``."""
        return cls(**{**body, "numbering": Numbering.from_json(body["numbering"])})


class Generations(tuple[Generation, ...]):
    """The generations of a checkpoint, oldest first; none if it is new."""

    __slots__ = ()

    @classmethod
    def read(cls, files: Files, where: str) -> Generations:
        """The generations that a checkpoint holds.

        Args:
            files: the files of the checkpoint.
            where: the checkpoint, for messages.

        Raises:
            CheckpointError: the file with them is missing or damaged.
        """
        data = files.read(TOPOLOGY_FILE)
        if data is not None:
            damage, found = _parsed(data)
            if found is None:
                raise CheckpointError(
                    f"{where}: the file {TOPOLOGY_FILE!r} is {damage}: restore the file, or start with a new "
                    "checkpoint directory"
                )
            return found
        if any(name.isdigit() for name in files.names(f"{FIRST_FOLDER}/commits")):
            raise CheckpointError(
                f"{where} has {TOPOLOGY_MISSING}: it is damaged; restore the file, or start with a new checkpoint "
                "directory"
            )
        return cls()

    @classmethod
    def known(cls, files: Files) -> Generations:
        """As ``read``; without a file that can be read, as if there had been one generation."""
        return _parsed(files.read(TOPOLOGY_FILE) or b"")[1] or cls()

    @staticmethod
    def damage(files: Files) -> str | None:
        """The damage of the file with them, in words; None if it is whole or missing."""
        data = files.read(TOPOLOGY_FILE)
        return None if data is None else _parsed(data)[0]

    @classmethod
    def parsed(cls, data: bytes) -> Generations:
        """The inverse of ``dumps``."""
        return _parsed(data)[1] or cls()

    def dumps(self) -> bytes:
        """The content of the file ``topology``."""
        return json.dumps({"generations": [one.to_json() for one in self]}).encode()

    def unmoved(self, last_commit: int) -> tuple[Generation, Generation] | None:
        """The two newest generations, if the first micro-batch of the last one has still to take over the state."""
        if not self or not self[-1].moves or last_commit >= self[-1].base:
            return None
        return self[-2], self[-1]

    def of(self, micro_batch_id: int) -> Generation:
        """The generation that a micro-batch belongs to; the first one for -1."""
        return next((one for one in reversed(self) if one.base <= micro_batch_id), self[0] if self else Generation())

    def lasting_name(self, component: str) -> str:
        """A name of a component of the newest generation that stays when it gets another id, and is no other's."""
        number = self[-1].numbering.tasks[component][0]
        first = next(one for one in self if number in one.numbering.owners)
        name = first.numbering.owners[number][0]
        return name if first is self[0] else f"{name}-{number}"

    def id_today(self, component: str, micro_batch_id: int) -> str:
        """The id in the newest generation of the component that had this id in a micro-batch, or first behind it.

        A component that is gone has the id that it had last.
        """
        began = sum(one.base <= micro_batch_id for one in self)
        for one in self[max(0, began - 1) :]:
            if component in one.numbering.tasks:
                return self[-1].numbering.owner(one.numbering.tasks[component][0])[0]
        return component


def keep(files: Files, before: Generations, after: Generations, remove_folder: Callable[[str], None]) -> None:
    """Let a checkpoint have these generations, instead of those that it has.

    A plan that nothing has committed is dropped with its generation, and if the new generation lacks a component or a
    task that the plan may name; in another folder than the new generation's it may stay, where it means nothing. A
    driver that dies on the way leaves the generations of before or these.

    Args:
        files: those of the checkpoint.
        before: the generations that it has.
        after: those that it gets.
        remove_folder: removes a folder of Spark's with all that is in it.
    """
    log = SparkLog(files, before)
    last = log.last_commit
    dropped = [one for one in before if one.number not in (kept.number for kept in after)]
    is_outdated = log.folder == after[-1].folder and (dropped or (before and after[-1].lacks_some_of(before[-1])))
    for number in log.numbers("offsets") if is_outdated else ():
        if number > last:
            files.remove(log.name("offsets", number))
    known = {FIRST_FOLDER, *(one.folder for one in before)}
    for folder in {one.folder for one in after} - known:  # left by a driver that died while it was dropped
        remove_folder(folder)
    files.write(TOPOLOGY_FILE, after.dumps())
    for folder in {one.folder for one in dropped} - {one.folder for one in after}:
        remove_folder(folder)


def _parsed(data: bytes) -> tuple[str | None, Generations | None]:
    if not data.strip(b"\0 \r\n\t"):
        return "damaged (there is nothing in it)", None
    try:
        return None, Generations(Generation.from_json(one) for one in json.loads(data)["generations"])
    except KeyError as error:
        return f"damaged (it has no {error})", None
    except ValueError as error:
        return f"damaged ({error})", None
    except (TypeError, AttributeError):
        return "damaged (it has another form)", None


class SparkLog:
    """Spark's offsets and commits of a checkpoint, by micro-batch, over all its generations."""

    def __init__(self, files: Files, generations: Sequence[Generation] | None = None) -> None:
        """Read ``files``; by default, the generations that they hold."""
        self._files = files
        self._generations = Generations(Generations.known(files) if generations is None else generations)

    @property
    def folder(self) -> str:
        """The folder of the newest generation."""
        return self._generations[-1].folder if self._generations else FIRST_FOLDER

    def numbers(self, log: str) -> list[int]:
        """The micro-batches of a log (``offsets`` or ``commits``), ascending."""
        found, generations = set[int](), self._generations or (Generation(),)
        listed: dict[str, list[int]] = {}
        for place, one in enumerate(generations):
            end = generations[place + 1].base if place + 1 < len(generations) else None
            if one.folder not in listed:
                names = self._files.names(f"{one.folder}/{log}")
                listed[one.folder] = [int(name) for name in names if name.isdigit()]
            found.update(
                number
                for name in listed[one.folder]
                if one.base <= (number := one.first + name) and (end is None or number < end)
            )
        return sorted(found)

    def name(self, log: str, micro_batch_id: int) -> str:
        """The file of a micro-batch in a log."""
        one = self._generations.of(micro_batch_id)
        return f"{one.folder}/{log}/{micro_batch_id - one.first}"

    def read(self, log: str, micro_batch_id: int) -> bytes | None:
        """The content of that file; None if there is none."""
        return self._files.read(self.name(log, micro_batch_id))

    @property
    def last_commit(self) -> int:
        """The last micro-batch that is committed; -1 if there is none."""
        return max(self.numbers("commits"), default=-1)

    @property
    def is_planned(self) -> bool:
        """Whether a folder has the plan of a micro-batch that is not committed."""
        last = self.last_commit
        folders = {one.folder: one.first for one in self._generations or (Generation(),)}
        return any(
            first + int(name) > last
            for folder, first in folders.items()
            for name in self._files.names(f"{folder}/offsets")
            if name.isdigit()
        )

    def stores(self, micro_batch_id: int) -> list[tuple[str, str]]:
        """(folder, version with its id) of the state of each of Spark's state stores after a micro-batch.

        Raises:
            ValueError: the file of the commit is damaged.
        """
        one = self._generations.of(micro_batch_id)
        _, _, body = (self.read("commits", micro_batch_id) or b"").partition(b"\n")
        known = json.loads(body or b"{}").get("stateUniqueIds") or {}
        return [
            (f"{one.folder}/state/{operator}/{store}", f"{micro_batch_id - one.first + 1}_{ids[0]}")
            for operator, stores in known.items()
            for store, ids in enumerate(stores)
        ]
