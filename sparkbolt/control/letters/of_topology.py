"""Of topology: the dead letters of one topology, in all of its stores.

Only the requested letters are held in memory, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any
from uuid import uuid4

from sparkbolt.api.dead_letters import FILE, DeadLetter
from sparkbolt.base.exceptions import line_of
from sparkbolt.control.description import Description
from sparkbolt.control.documents import Answer
from sparkbolt.control.letters.common import ID_CHARACTERS_SHOWN, Replay
from sparkbolt.control.letters.edits import RAW_KEY, RAW_VALUE, edited
from sparkbolt.control.letters.selection import KindCounter, LetterFilter, LetterKind, message_key
from sparkbolt.control.letters.stores import LetterLocation, LetterStore, OpenFiles, open_store
from sparkbolt.control.letters.topic import KAFKA
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, request_of
from sparkbolt.errors import SparkboltError, WrongUseError

LEFT_OUT_SHOWN_MAX = 20
BATCH = 500
"""The maximum number of letters in memory during a replay."""
AT_ONCE_MAX = 10_000
"""The maximum number of letters in one request."""
NO_FILTER = LetterFilter()


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
        self,
        directory: str,
        description: Description,
        open_files: OpenFiles,
        client_config: str | None = None,
        *,
        when: str = "",
        no_return: str | None = None,
    ) -> None:
        """Prepare; stores are opened at their first use.

        Args:
            directory: the checkpoint.
            description: has the stores of each spout's dead letters.
            open_files: opens the checkpoint.
            client_config: a file with properties of Kafka's client.
            when: when letters go back, as a sentence, if that is not at once.
            no_return: why no letter can go back into its spout; None if letters can.
        """
        self._directory, self._description = directory, description
        self._open_files, self._client_config = open_files, client_config
        self._when, self._no_return = when, no_return
        self.given_back = 0
        """How many letters go back into their spouts."""
        self.trouble: list[str] = []
        """Sentences about stores that cannot be read."""

    def _places(self) -> list[str]:
        return self._description.letter_places(self._directory)

    def _stores(self) -> list[LetterStore]:
        found = []
        for place in self._places():
            try:
                client = self._client_config if place.startswith(KAFKA) or not place.startswith(FILE) else None
                found.append(open_store(LetterLocation(place, client, self._directory), self._open_files))
            except WrongUseError:  # nothing was ever written there
                continue
            except Exception as error:  # noqa: BLE001  brokers are unavailable: the other stores are still read
                self._no_store(place, error)
        return found

    def _no_store(self, place: str, error: Exception) -> None:
        text = str(error) if isinstance(error, SparkboltError) else line_of(error)
        self.trouble.append(f"the dead letters in {place} cannot be read: {text}")

    def newest(self, chosen: LetterFilter, last: int, *, replayed: bool, discarded: bool) -> list[dict[str, Any]]:
        """The newest letters, the newest last; see ``Operator.letters``."""
        if last < 1:
            return []
        found: list[tuple[DeadLetter, bool, bool]] = []
        for store, again, dropped in self._readable():

            def wanted(letter: DeadLetter, again: set[str] = again, dropped: set[str] = dropped) -> bool:
                shown = (replayed or letter.id not in again) and (discarded or letter.id not in dropped)
                return shown and chosen.allows(letter)

            letters = self._asked(store, last, wanted)
            found += [(letter, letter.id in again, letter.id in dropped) for letter in letters]
        found.sort(key=lambda one: one[0].last.ended_ms)
        newest = {message_key(letter): letter.id for letter, _, _ in found}
        alone = [one for one in found if not one[1] or newest[message_key(one[0])] == one[0].id]
        return [_to_json(*one) for one in alone[-last:]]

    def kinds(self, chosen: LetterFilter, *, waiting: bool) -> list[LetterKind]:
        """The kinds of letters; see ``Operator.letter_kinds``."""
        counter = KindCounter()
        self._visit(chosen, counter.add, waiting=waiting)
        return counter.kinds()

    def ids(self, chosen: LetterFilter, *, waiting: bool) -> list[str]:
        """The ids of the letters that are meant, at most ``AT_ONCE_MAX``."""
        found: dict[str, None] = {}

        def add(letter: DeadLetter) -> None:
            if len(found) < AT_ONCE_MAX:
                found[letter.id] = None

        self._visit(chosen, add, waiting=waiting)
        return list(found)

    def _visit(self, chosen: LetterFilter, visit: Callable[[DeadLetter], None], *, waiting: bool) -> None:
        """Call ``visit`` with each letter that is meant; only one is in memory at a time."""
        for store, again, dropped in self._readable():

            def see(letter: DeadLetter, again: set[str] = again, dropped: set[str] = dropped) -> bool:
                done = letter.id in again or letter.id in dropped
                if not (waiting and done) and chosen.allows(letter):
                    visit(letter)
                return False

            self._asked(store, 1, see)

    def _readable(self) -> Iterator[tuple[LetterStore, set[str], set[str]]]:
        """Each store that can be read, with the ids of its replayed and of its discarded letters."""
        for store in self._stores():
            try:
                found = store, store.replayed(), store.discarded()
            except Exception as error:  # noqa: BLE001  brokers are unavailable: the other stores are still read
                self._no_store("one of their places", error)
                continue
            yield found

    def _asked(self, store: LetterStore, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        try:
            return store.newest(last, wanted)
        except Exception as error:  # noqa: BLE001  brokers are unavailable: the other stores are still read
            self._no_store("one of their places", error)
            return []

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

    def discard(self, ids: Sequence[str], chosen: LetterFilter = NO_FILTER) -> Answer:
        """Mark letters as seen to."""
        ids = ids or (self.ids(chosen, waiting=True) if not chosen.is_empty else [])
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

    # Changes.

    def replay(
        self,
        ids: Sequence[str],
        values: Mapping[str, Any] | None,
        target: str | None,
        chosen: LetterFilter = NO_FILTER,
        *,
        again: bool = False,
    ) -> Answer:
        """Give letters back to their spouts, or write them to ``target``; see the verb ``replay``."""
        if values and len(ids) != 1:
            raise WrongUseError(f"you can edit the values of one dead letter at a time, got {len(ids)}")
        if not ids:
            ids = self.ids(chosen, waiting=not again)
            if not ids:
                raise WrongUseError("; ".join(["no dead letter that waits matches", *self.trouble]))
        _check_count(ids)
        tuples, given, back, left_out = 0, list[str](), Counter[str](), list[str]()
        for store, letters in self._batches(ids):
            if values and len(letters) != 1:
                raise WrongUseError(f"{len(letters)} dead letters have ids that begin with {ids[0]!r}: name one")
            some = [edited(letter, values) for letter in letters] if values else letters
            some = [letter for letter in some if chosen.allows(letter)]
            for into, group in groupby(some, key=lambda letter: target or self._target_of(letter, values)):
                if into is None:
                    done = self._give_back(store, list(group), is_edited=bool(values), back=back)
                else:
                    done = store.replay(list(group), into)
                tuples += done.tuples
                given += done.ids
                left_out += done.left_out
        if not given and not left_out:
            raise WrongUseError(_nothing_named(ids, self.trouble))
        told = "".join(f"\n  {sentence}" for sentence in left_out[:LEFT_OUT_SHOWN_MAX])
        missed = f"; {len(left_out)} could not be replayed:{told}" if left_out else ""
        how = " with edited values" if values else ""
        written = len(given) - back.total()
        parts = [f"{count} letter(s) go back into {spout}{how}" for spout, count in back.items()]
        parts += [f"{written} letter(s) replayed{how}, {tuples} tuple(s)"] if written or not given else []
        when = f". {self._when}" if back and self._when else ""
        text = f"{'; '.join(parts)}: {_short(given or ids)}{when}{missed}"
        return Answer(done=bool(given), refused=not given, text=text)

    def _give_back(
        self, store: LetterStore, letters: Sequence[DeadLetter], *, is_edited: bool, back: Counter[str]
    ) -> Replay:
        """Request that the topology gives letters back to their spouts; they are noted once the request is durable."""
        if self._no_return is not None:
            raise WrongUseError(self._no_return)
        done, chosen = Replay(), list[tuple[DeadLetter, bool]]()
        for letter in letters:
            why = self._not_for_return(letter)
            if why is not None:
                done.left_out.append(f"{letter.id[:ID_CHARACTERS_SHOWN]} {letter.where}: {why}")
                continue
            chosen.append((letter, is_edited))
        if chosen:
            files = self._open_files(self._directory, write=True)
            files.write(f"{RETURNED_FOLDER}/{uuid4().hex}", request_of(chosen))
            done.ids = [letter.id for letter, _ in chosen]
            store.mark_replayed(done.ids)
            back.update(letter.component for letter, _ in chosen)
            self.given_back += len(chosen)
        return done

    def _not_for_return(self, letter: DeadLetter) -> str | None:
        """Why a letter cannot go back into its spout; None if it can."""
        known = {one["id"]: one for one in self._description.components}
        spout = known.get(letter.component)
        if known and spout is None:
            return f"the topology has no component {letter.component!r}"
        can_read = letter.source is not None and (spout is None or spout["kind"] == "spout")
        if not letter.tuples and not can_read:
            return f"its values are not available ({letter.note or 'the message could not be read'})"
        return None

    def _target_of(self, letter: DeadLetter, values: Mapping[str, Any] | None) -> str | None:
        """The target of a letter without a requested one: Kafka for an edited message, else None: its spout."""
        if not values or not {RAW_VALUE, RAW_KEY}.intersection(values):
            return None
        brokers = self._description.brokers.get(letter.component)
        if brokers is not None and letter.raw is not None:
            return f"{KAFKA}{brokers}"
        raise WrongUseError(
            f"dead letter {letter.id[:ID_CHARACTERS_SHOWN]} needs a destination, because its original message was "
            "edited, and it did not come from Kafka: edit its fields, or name a file or topic that the topology reads"
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


def _to_json(letter: DeadLetter, replayed: bool, discarded: bool) -> dict[str, Any]:
    return ListedLetter(**vars(letter), replayed=replayed, discarded=discarded).to_json()
