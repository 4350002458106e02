"""Of topology: the dead letters of one topology, in all of its stores.

Only the requested letters are held in memory, however many there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from sparkbolt.api.dead_letters import CHECKPOINT, FILE, DeadLetter, plain
from sparkbolt.base.exceptions import line_of
from sparkbolt.control.description import Description
from sparkbolt.control.documents import Answer
from sparkbolt.control.letters.common import ID_CHARACTERS_SHOWN
from sparkbolt.control.letters.edits import edited
from sparkbolt.control.letters.stores import LetterLocation, LetterStore, OpenFiles, open_store
from sparkbolt.control.letters.topic import KAFKA
from sparkbolt.errors import SparkboltError, WrongUseError

LEFT_OUT_SHOWN_MAX = 20
BATCH = 500
"""The maximum number of letters in memory during a replay."""
AT_ONCE_MAX = 10_000
"""The maximum number of letters in one request."""


@dataclass(frozen=True)
class ListedLetter(DeadLetter):
    """A dead letter: a message that was given up; and whether somebody has replayed or discarded it."""

    replayed: bool = False
    discarded: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the letter as a JSON object."""
        return {**super().to_json(), "replayed": self.replayed, "discarded": self.discarded}


class TopologyLetters:
    """The stores of a topology's dead letters."""

    def __init__(
        self, directory: str, description: Description, open_files: OpenFiles, client_config: str | None = None
    ) -> None:
        """Prepare; stores are opened at their first use.

        Args:
            directory: the checkpoint.
            description: has the stores of each spout's dead letters.
            open_files: opens the checkpoint.
            client_config: a file with properties of Kafka's client.
        """
        self._directory, self._description = directory, description
        self._open_files, self._client_config = open_files, client_config
        self.trouble: list[str] = []
        """Sentences about stores that cannot be read."""

    def _places(self) -> list[str]:
        return self._description.letter_places(self._directory)

    def _stores(self) -> list[LetterStore]:
        found = []
        for place in self._places():
            try:
                client = self._client_config if place.startswith(KAFKA) or not place.startswith(FILE) else None
                found.append(open_store(LetterLocation(place, client), self._open_files))
            except WrongUseError:  # nothing was ever written there
                continue
            except Exception as error:  # noqa: BLE001  brokers are unavailable: the other stores are still read
                self._no_store(place, error)
        return found

    def _no_store(self, place: str, error: Exception) -> None:
        text = str(error) if isinstance(error, SparkboltError) else line_of(error)
        self.trouble.append(f"the dead letters in {place} cannot be read: {text}")

    def newest(self, search: str, last: int, *, replayed: bool, discarded: bool) -> list[dict[str, Any]]:
        """The newest letters, the newest last; see ``Operator.letters``."""
        if last < 1:
            return []
        found: list[tuple[DeadLetter, bool, bool]] = []
        for store in self._stores():
            try:
                again, dropped = store.replayed(), store.discarded()

                def wanted(letter: DeadLetter, again: set[str] = again, dropped: set[str] = dropped) -> bool:
                    shown = (replayed or letter.id not in again) and (discarded or letter.id not in dropped)
                    return shown and _matches(letter, search)

                letters = store.newest(last, wanted)
            except Exception as error:  # noqa: BLE001  brokers are unavailable: the other stores are still read
                self._no_store("one of their places", error)
                continue
            found += [(letter, letter.id in again, letter.id in dropped) for letter in letters]
        found.sort(key=lambda one: one[0].last.ended_ms)
        return [_to_json(*one) for one in found[-last:]]

    def one(self, id_: str) -> dict[str, Any] | None:
        """One letter, by its id or the beginning of it; None if none matches, or several do."""
        for store, letters in self._named([id_]):
            if len(letters) == 1:
                return _to_json(letters[0], letters[0].id in store.replayed(), letters[0].id in store.discarded())
        return None

    def _batches(self, ids: Sequence[str]) -> Iterator[tuple[LetterStore, list[DeadLetter]]]:
        """As ``_named``, for a few of the ids at a time."""
        for start in range(0, len(ids), BATCH):
            yield from self._named(ids[start : start + BATCH])

    def _named(self, ids: Sequence[str]) -> list[tuple[LetterStore, list[DeadLetter]]]:
        """By store, the letters with these ids or beginnings of ids."""
        starts = tuple(id_ for id_ in ids if id_)
        found = []
        for store in self._stores():
            whole = {id_ for id_ in starts if len(id_) == 32}
            letters = store.named(whole) if whole else []
            parts = tuple(id_ for id_ in starts if len(id_) != 32)
            if parts:
                known = {letter.id for letter in letters}
                more = store.newest(AT_ONCE_MAX, partial(_begins_with, parts))
                letters += [letter for letter in more if letter.id not in known]
            if letters:
                found.append((store, letters))
        return found

    def discard(self, ids: Sequence[str]) -> Answer:
        """Mark letters as seen to."""
        _check_count(ids)
        count = 0
        for store, letters in self._batches(ids):
            fresh = {letter.id for letter in letters} - store.discarded()
            if fresh:
                store.discard(fresh)
            count += len(letters)
        if not count:
            raise WrongUseError(_nothing_named(ids, self.trouble))
        return Answer(done=True, refused=False, text=f"{count} dead letter(s) discarded: {_short(ids)}")

    def replay(self, ids: Sequence[str], values: Mapping[str, Any] | None, target: str | None) -> Answer:
        """Give letters again."""
        _check_count(ids)
        if values and len(ids) != 1:
            raise WrongUseError(f"you can edit the values of one dead letter at a time, got {len(ids)}")
        tuples, given, left_out = 0, 0, list[str]()
        for store, letters in self._batches(ids):
            if values and len(letters) != 1:
                raise WrongUseError(f"{len(letters)} dead letters have ids that begin with {ids[0]!r}: name one")
            chosen = [edited(letter, values) for letter in letters] if values else letters
            for into, group in groupby(chosen, key=lambda letter: target or self._target_of(letter)):
                done = store.replay(list(group), into)
                tuples, given = tuples + done.tuples, given + len(done.ids)
                left_out += done.left_out
        if not given and not left_out:
            raise WrongUseError(_nothing_named(ids, self.trouble))
        told = "".join(f"\n  {sentence}" for sentence in left_out[:LEFT_OUT_SHOWN_MAX])
        missed = f"; {len(left_out)} could not be replayed:{told}" if left_out else ""
        how = " with edited values" if values else ""
        text = f"{given} letter(s) replayed{how}, {tuples} tuple(s): {_short(ids)}{missed}"
        return Answer(done=given > 0, refused=not given, text=text)

    def _target_of(self, letter: DeadLetter) -> str | None:
        """The default target of a letter: the brokers that its message came from."""
        brokers = self._description.brokers.get(letter.component)
        place = self._description.letters.get(letter.component, CHECKPOINT)
        if place.startswith(KAFKA):  # the store itself knows where its messages came from
            return None
        if brokers is not None and letter.raw is not None:
            return f"{KAFKA}{brokers}"
        raise WrongUseError(
            f"dead letter {letter.id[:ID_CHARACTERS_SHOWN]} needs a destination, because it did not come from Kafka, "
            "or its message is not available: name a file that a JsonLinesSpout of the topology reads"
        )


def _begins_with(parts: tuple[str, ...], letter: DeadLetter) -> bool:
    return letter.id.startswith(parts)


def _check_count(ids: Sequence[str]) -> None:
    if not ids or len(ids) > AT_ONCE_MAX:
        raise WrongUseError(f"choose 1 to {AT_ONCE_MAX:,} dead letters, got {len(ids):,}")


def _nothing_named(ids: Sequence[str], trouble: Sequence[str]) -> str:
    return "; ".join([f"no dead letter has an id that begins with {_short(ids)}", *trouble])


def _short(ids: Sequence[str]) -> str:
    shown = ", ".join(id_[:ID_CHARACTERS_SHOWN] for id_ in ids[:5])
    return f"{shown} and {len(ids) - 5} more" if len(ids) > 5 else shown


def _matches(letter: DeadLetter, search: str) -> bool:
    if not search:
        return True
    last = letter.last
    wanted = search.lower()
    texts = (letter.id, letter.where, last.cause, last.reason, last.component, last.root)
    return any(wanted in text.lower() for text in texts) or wanted in _record_of(letter).lower()


def _record_of(letter: DeadLetter) -> str:
    """The parts of a letter's record that a search covers: its values, or the original message."""
    if letter.tuples:
        return json.dumps(plain([list(values) for values in letter.tuples]), ensure_ascii=False)
    return letter.raw.value.decode("utf-8", "replace") if letter.raw is not None and letter.raw.value else ""


def _to_json(letter: DeadLetter, replayed: bool, discarded: bool) -> dict[str, Any]:
    return ListedLetter(**vars(letter), replayed=replayed, discarded=discarded).to_json()
